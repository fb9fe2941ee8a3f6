/**
 * The memory that bodies share: which bytes are counted, for how long, and how much one key can
 * use.
 */
// runtimes: once
import assert from "node:assert/strict";
import { describe, it } from "@std/testing/bdd";
import fc from "fast-check";
import type { ByteSource } from "../../src/http/message.ts";
import { GatewayError } from "../../src/errors/gateway_error.ts";
import { type Clock, systemClock } from "../../src/exchange/clock.ts";
import { Exchange } from "../../src/exchange/exchange.ts";
import { BodyMemory, JSON_ONLY, readBody, type RequestBody } from "../../src/inbound/body.ts";

const unpack = () => undefined;
/**
 * A clock without timers, so that the deadline of an unfinished body does not keep the test process
 * alive.
 */
const clock: Clock = { ...systemClock, timer: () => () => {} };

describe("the memory for bodies", () => {
  const limits = { maxBodyBytes: 1000, bodyTimeMs: 60_000 };
  const start = (maxBytes = 1000) => {
    const memory = new BodyMemory(maxBytes);
    /** Reads a body in chunks of these sizes. `null`: the rest never arrives. */
    const read = (
      length: string | undefined,
      sizes: readonly (number | null)[],
      isWhole = false,
      owner = "a",
    ) => {
      const exchange = new Exchange(clock);
      const headers = new Headers({
        "content-type": "application/json",
        ...(length && { "content-length": length }),
      });
      const left = sizes.map((size) => size === null ? null : new Uint8Array(size));
      const pieces: ByteSource = {
        read: () =>
          left[0] === null ? new Promise(() => {}) : Promise.resolve(left.shift() ?? undefined),
        cancel() {},
      };
      const body = isWhole ? { ...pieces, isWhole, inPieces: () => pieces } : pieces;
      const request = { method: "POST", url: "/", headers, body };
      return {
        exchange,
        reading: readBody(request, {
          limits,
          types: JSON_ONLY,
          unpack,
          memory,
          owner,
          clock,
          exchange,
        }),
      };
    };
    return { memory, read };
  };
  const turn = () => new Promise((resolve) => setTimeout(resolve, 0));

  it("is used as bytes arrive, and is released once: with the body or at the end of its exchange", async () => {
    for (const length of [undefined, "100", "500"]) {
      for (const isReleasedFirst of [true, false]) {
        const { memory, read } = start();
        const { exchange, reading } = read(length, [200, 300]);
        assert.equal(memory.heldBytes, 0);
        const body = await reading;
        assert.deepEqual([memory.heldBytes, body.bytes?.byteLength], [500, 500]);
        if (isReleasedFirst) body.release();
        else exchange.settle({ outcome: "ok" });
        assert.deepEqual([memory.heldBytes, body.bytes], [0, null]);
        exchange.settle({ outcome: "ok" });
        body.release();
        assert.equal(memory.heldBytes, 0);
      }
    }
  });

  it("is not used by announced bytes that do not arrive", async () => {
    const { memory, read } = start();
    for (let number = 0; number < 100; number++) read("900", [1, null]).reading.catch(() => {});
    await turn();
    assert.equal(memory.heldBytes, 100);
  });

  it("is reserved at once for a small body in one piece; larger ones arrive in pieces", async () => {
    const { memory, read } = start();
    const { reading } = read("100", [90], true);
    assert.equal(memory.heldBytes, 100);
    assert.equal((await reading).bytes?.byteLength, 90);
    assert.equal(memory.heldBytes, 90);
    read("200", [10, null], true).reading.catch(() => {});
    await turn();
    assert.equal(memory.heldBytes, 100);
    // However many bodies are announced, most of a key's share stays free for its other bodies.
    for (let number = 0; number < 1000; number++) read("50", [null], true).reading.catch(() => {});
    assert.ok(memory.open("a").room >= 50, `${memory.open("a").room} bytes are left`);
  });

  it("is free again when a body breaks off, is too late or too large, or has no room", async () => {
    const { memory, read } = start();
    const tooLarge = read(undefined, [400, 500, 600]);
    await assert.rejects(tooLarge.reading, { code: "body_too_large" });
    const aborted = read(undefined, [400, null]);
    await turn();
    assert.equal(memory.heldBytes, 400);
    const noRoom = read(undefined, [400], false, "b");
    await noRoom.reading;
    const refused = read(undefined, [300], false, "c");
    await assert.rejects(refused.reading, { code: "gateway_overloaded" });
    aborted.exchange.abort(new GatewayError("body_timeout"));
    await assert.rejects(aborted.reading, { code: "body_timeout" });
    assert.equal(memory.heldBytes, 400);
    noRoom.exchange.settle({ outcome: "client_closed" });
    for (const { exchange } of [tooLarge, aborted, refused]) {
      exchange.settle({ outcome: "refused" });
    }
    assert.equal(memory.heldBytes, 0);
  });

  it("counts correctly with an invalid length that a framework passes on", async () => {
    for (const length of ["x", "-400", "0.5", "NaN"]) {
      const { memory, read } = start();
      await read(length, [200]).reading;
      assert.equal(memory.heldBytes, 200, length);
    }
  });

  it("is at most half used by one key, except for its only body; and every key leaves room for the next", () => {
    const act = fc.record({
      owner: fc.constantFrom("a", "b", "c"),
      bytes: fc.integer({ min: 1, max: 400 }),
      kind: fc.constantFrom("open", "grow", "release"),
      pick: fc.nat(),
    });
    fc.assert(fc.property(fc.array(act, { maxLength: 80 }), (acts) => {
      const memory = new BodyMemory(1000);
      const open: { owner: string; body: RequestBody; bytes: number }[] = [];
      for (const { owner, bytes, kind, pick } of acts) {
        const chosen = kind === "open" || open.length === 0
          ? { owner, body: memory.open(owner), bytes: 0 }
          : open[pick % open.length] ?? assert.fail();
        if (!open.includes(chosen)) open.push(chosen);
        if (kind === "release") {
          open.splice(open.indexOf(chosen), 1);
          chosen.body.release();
        } else {
          try {
            chosen.body.reserve(chosen.bytes + bytes);
            chosen.bytes += bytes;
          } catch (error) {
            assert.ok(GatewayError.is(error) && error.code === "gateway_overloaded");
          }
        }
        assert.equal(memory.heldBytes, open.reduce((sum, each) => sum + each.bytes, 0));
        assert.ok(memory.heldBytes <= 1000);
        for (const name of ["a", "b", "c"]) {
          const sizes = open.filter((each) => each.owner === name && each.bytes > 0).map((each) =>
            each.bytes
          );
          const sum = sizes.reduce((total, size) => total + size, 0);
          const isOnly = sizes.length <= 1;
          assert.ok(isOnly || sum <= 500 || sum === Math.max(...sizes), `${name} holds ${sizes}`);
        }
      }
      for (const { body } of open) body.release();
      assert.equal(memory.heldBytes, 0);
    }));
  });

  it("has room for another key while one key uses all that it can get", () => {
    const memory = new BodyMemory(1 << 20);
    for (let number = 0; number < 10_000; number++) {
      try {
        memory.open("greedy").reserve(100 + number % 1000);
      } catch {
        // refused
      }
    }
    assert.ok(memory.heldBytes > 500_000);
    assert.ok(memory.open("other").room >= 1 << 19);
  });
});
