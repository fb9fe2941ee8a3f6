/** Bodies that are pushed or read: they reach their receiver the same, at the receiver's pace. */
// runtimes: all
import assert from "node:assert/strict";
import { describe } from "@std/testing/bdd";
import fc from "fast-check";
import { type AnyBody, type ByteSource, push, type PushedBody } from "../../src/http/message.ts";
import { toReadableStream } from "../../src/http/web.ts";
import { it } from "../support/cases.ts";

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

/** A body that pushes, and respects the demand of its receiver. */
const pushing = (source: ByteSource): PushedBody => ({
  pushTo: (sink) => push(source, sink),
  cancel: (reason) => source.cancel(reason),
});

/** A receiver that stops after some of the bytes, and asks for the rest later. */
function receive(
  source: AnyBody,
  holds: readonly boolean[],
): Promise<{ bytes: number[]; end: string }> {
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

async function readAll(source: AnyBody): Promise<{ bytes: number[]; end: string }> {
  const bytes: number[] = [];
  try {
    for await (const chunk of toReadableStream(source)) bytes.push(...chunk);
    return { bytes, end: "ends" };
  } catch {
    return { bytes, end: "breaks" };
  }
}

const anySteps = fc.array(
  fc.record({ bytes: fc.array(fc.nat(255), { maxLength: 5 }), isLate: fc.boolean() }),
  {
    maxLength: 6,
  },
);
const anyEnd = fc.constantFrom<End>("ends", "breaks");

describe("a body", () => {
  it("can end at the receiver's pace if one read returns all", async () => {
    const source = { ...readable([{ bytes: [1, 2], isLate: false }], "ends"), isWhole: true };
    assert.deepEqual(await receive(source, [true]), { bytes: [1, 2], end: "ends" });
  });

  it.large("is the same pushed, and as a web stream", () =>
    fc.assert(
      fc.asyncProperty(
        anySteps,
        anyEnd,
        fc.array(fc.boolean(), { maxLength: 4 }),
        async (steps, end, holds) => {
          const expected = { bytes: steps.flatMap(({ bytes }) => bytes), end };
          const empty = steps.some(({ bytes }) => bytes.length === 0);
          assert.deepEqual(await receive(readable(steps, end), holds), expected);
          assert.deepEqual(await receive(pushing(readable(steps, end)), holds), expected);
          if (!empty) assert.deepEqual(await readAll(pushing(readable(steps, end))), expected);
        },
      ),
      { numRuns: 200 },
    ));

  it("is asked for no bytes that a web stream's reader does not want, and is cancelled with it", async () => {
    const asked: string[] = [];
    const reader = toReadableStream({
      pushTo(sink) {
        asked.push("first");
        sink.write(Uint8Array.of(1));
        return () => {
          asked.push("more");
          setTimeout(() => sink.write(Uint8Array.of(2)), 0);
        };
      },
      cancel: (reason) => void asked.push(`cancel ${reason}`),
    }).getReader();
    await later();
    assert.deepEqual(asked, []);
    assert.deepEqual((await reader.read()).value, Uint8Array.of(1));
    await later();
    assert.deepEqual(asked, ["first"]);
    assert.deepEqual((await reader.read()).value, Uint8Array.of(2));
    await reader.cancel("x");
    assert.deepEqual(asked, ["first", "more", "cancel x"]);
  });
});
