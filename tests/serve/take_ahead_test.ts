/** What of a body is there already is taken ahead, and nothing else is different. */
// runtimes: all
import assert from "node:assert/strict";
import { describe, it } from "@std/testing/bdd";
import * as fc from "fast-check";
import type { ByteSource } from "../../src/http/message.ts";
import { takeAhead } from "../../src/serve/take_ahead.ts";

type Step = { bytes: number[]; isLate: boolean };

/** A body that brings its chunks at once or later, and ends or breaks. */
function sourceOf(steps: readonly Step[], end: "ends" | "breaks" | "ends late" | "breaks late") {
  const told: { reads: number; open: number; cancelled: unknown[] } = { reads: 0, open: 0, cancelled: [] };
  const later = () => new Promise<void>((resolve) => setTimeout(resolve, 0));
  const source: ByteSource = {
    get isReady() {
      return !(steps[told.reads]?.isLate ?? end.endsWith("late"));
    },
    async read() {
      assert.equal(++told.open, 1, "one read at a time");
      try {
        const step = steps[told.reads++];
        if (step === undefined ? end.endsWith("late") : step.isLate) await later();
        if (step !== undefined) return Uint8Array.from(step.bytes);
        if (end.startsWith("breaks")) throw new Error("broken");
        return undefined;
      } finally {
        told.open--;
      }
    },
    cancel: (reason) => void told.cancelled.push(reason),
  };
  return { source, told };
}

async function readAll(body: Uint8Array | ByteSource): Promise<{ bytes: number[]; error?: string }> {
  if (body instanceof Uint8Array) return { bytes: Array.from(body) };
  const bytes: number[] = [];
  try {
    for (let chunk = await body.read(); chunk !== undefined; chunk = await body.read()) bytes.push(...chunk);
    return { bytes };
  } catch (error) {
    return { bytes, error: String(error) };
  }
}

const anySteps = fc.array(fc.record({ bytes: fc.array(fc.nat(255), { maxLength: 5 }), isLate: fc.boolean() }), {
  maxLength: 6,
});
const anyEnd = fc.constantFrom("ends" as const, "breaks" as const, "ends late" as const, "breaks late" as const);

describe("taking ahead", () => {
  it("leaves the bytes and the end as they are, however they come", async () => {
    await fc.assert(
      fc.asyncProperty(anySteps, anyEnd, fc.nat(12), async (steps, end, maxBytes) => {
        const plain = await readAll(sourceOf(steps, end).source);
        const taken = await takeAhead(sourceOf(steps, end).source, maxBytes);
        assert.deepEqual(await readAll(taken), plain);
      }),
      { numRuns: 200 },
    );
  });

  it("gives as a whole what is there as a whole", async () => {
    const { source } = sourceOf([{ bytes: [1, 2], isLate: false }, { bytes: [3], isLate: false }], "ends");
    assert.deepEqual(await takeAhead(source, 100), Uint8Array.of(1, 2, 3));
  });

  it("waits for nothing that is still to come", async () => {
    const { source, told } = sourceOf([{ bytes: [1], isLate: false }, { bytes: [2], isLate: true }], "ends");
    const body = await takeAhead(source, 100);
    assert.ok(!(body instanceof Uint8Array));
    assert.equal(told.reads, 1, "the second is not there yet");
    assert.deepEqual(await body.read(), Uint8Array.of(1));
    assert.deepEqual(await readAll(body), { bytes: [2] });
  });

  it("takes no more than it may", async () => {
    const steps = Array.from({ length: 20 }, () => ({ bytes: [1, 2, 3, 4], isLate: false }));
    const { source, told } = sourceOf(steps, "ends");
    const body = await takeAhead(source, 10);
    assert.ok(!(body instanceof Uint8Array));
    assert.equal(told.reads, 3);
    assert.equal((await readAll(body)).bytes.length, 80);
  });

  it("hands on what its reader says", async () => {
    const { source, told } = sourceOf([{ bytes: [1], isLate: true }], "ends");
    const body = await takeAhead(source, 10);
    assert.ok(!(body instanceof Uint8Array));
    let isBroken = false;
    body.onBroken = () => isBroken = true;
    source.onBroken?.();
    assert.ok(isBroken);
    body.cancel("gone");
    assert.deepEqual(told.cancelled, ["gone"]);
  });
});
