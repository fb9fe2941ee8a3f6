/** Bodies reach their receiver the same whether they are pushed or read, at the receiver's pace. */
// runtimes: node 26
import assert from "node:assert/strict";
import { describe, it } from "@std/testing/bdd";
import fc from "fast-check";
import type { ByteSink, ByteSource } from "../../src/http/message.ts";
import { push, PushedBody } from "../../src/http/pushed_body.ts";

type Step = { bytes: number[]; isLate: boolean };
type End = "ends" | "breaks";

const later = () => new Promise<void>((resolve) => setTimeout(resolve, 0));

/** A body that can only be read. */
function readable(steps: readonly Step[], end: End): ByteSource {
  let next = 0;
  return {
    async read() {
      const step = steps[next++];
      if (step?.isLate === true) await later();
      if (step !== undefined) return Uint8Array.from(step.bytes);
      if (end === "breaks") throw new Error("broken");
      return undefined;
    },
    cancel() {},
  };
}

/** A body that pushes, and keeps to what its receiver wants. */
class Pushing extends PushedBody {
  readonly source: ByteSource;

  constructor(source: ByteSource) {
    super();
    this.source = source;
  }

  pushTo(sink: ByteSink): () => void {
    return push(this.source, sink);
  }

  cancel(): void {
    this.endRead();
  }
}

/** A receiver that wants no more after some of the bytes, and asks for them later. */
function receive(source: ByteSource, holds: readonly boolean[]): Promise<{ bytes: number[]; end: string }> {
  const bytes: number[] = [];
  let writes = 0;
  let isHeld = false;
  return new Promise((resolve) => {
    const askForMore = push(source, {
      write(chunk) {
        assert.equal(isHeld, false, "nothing comes while it wants nothing");
        bytes.push(...chunk);
        isHeld = holds[writes++ % Math.max(1, holds.length)] === true;
        if (isHeld) {
          void later().then(() => {
            isHeld = false;
            askForMore();
          });
        }
        return !isHeld;
      },
      end() {
        assert.equal(isHeld, false, "nor the end");
        resolve({ bytes, end: "ends" });
      },
      fail(error) {
        assert.equal(isHeld, false, "nor the failure");
        assert.equal((error as Error).message, "broken");
        resolve({ bytes, end: "breaks" });
      },
    });
  });
}

async function readAll(source: ByteSource): Promise<{ bytes: number[]; end: string }> {
  const bytes: number[] = [];
  try {
    for (let chunk = await source.read(); chunk !== undefined; chunk = await source.read()) bytes.push(...chunk);
    return { bytes, end: "ends" };
  } catch {
    return { bytes, end: "breaks" };
  }
}

const anySteps = fc.array(fc.record({ bytes: fc.array(fc.nat(255), { maxLength: 5 }), isLate: fc.boolean() }), {
  maxLength: 6,
});
const anyEnd = fc.constantFrom<End>("ends", "breaks");

describe("a body", () => {
  it("is the same pushed, read, and pushed for a reader", () =>
    fc.assert(
      fc.asyncProperty(anySteps, anyEnd, fc.array(fc.boolean(), { maxLength: 4 }), async (steps, end, holds) => {
        const expected = { bytes: steps.flatMap(({ bytes }) => bytes), end };
        assert.deepEqual(await receive(readable(steps, end), holds), expected);
        assert.deepEqual(await receive(new Pushing(readable(steps, end)), holds), expected);
        assert.deepEqual(await readAll(new Pushing(readable(steps, end))), expected);
      }),
      { numRuns: 300 },
    ));

  it("that is cancelled ends a read that waits", async () => {
    const body = new Pushing({ read: () => new Promise(() => {}), cancel() {} });
    const reading = body.read();
    body.cancel();
    assert.equal(await reading, undefined);
  });

  it("that breaks while nobody reads tells its writer", async () => {
    let sink: ByteSink | undefined;
    const body = new Pushing({
      read: () => Promise.resolve(undefined),
      pushTo: (given) => {
        sink = given;
        return () => {};
      },
      cancel() {},
    });
    let isTold = false;
    body.onBroken = () => isTold = true;
    const reading = body.read();
    sink?.write(Uint8Array.of(1));
    assert.deepEqual(await reading, Uint8Array.of(1));
    sink?.fail(new Error("broken"));
    assert.equal(isTold, true);
    await assert.rejects(body.read(), /broken/);
  });
});
