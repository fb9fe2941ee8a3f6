/** Frames of `application/vnd.amazon.eventstream`: in any chunks, too large, and damaged. */
// runtimes: once
import assert from "node:assert/strict";
import { describe, it } from "@std/testing/bdd";
import fc from "fast-check";
import { BEDROCK } from "../../src/dialects/bedrock.ts";
import { type Frame, FrameReader } from "../../src/dialects/event_frames.ts";

const utf8 = new TextEncoder();

/** A frame with one header of text, and a header of each other type. */
function frame(payload: Uint8Array): Uint8Array {
  const type = [...utf8.encode("metadata")];
  const name = (text: string) => [text.length, ...utf8.encode(text)];
  const headers = [
    ...[...name("true"), 0, ...name("byte"), 2, 7, ...name("short"), 3, 0, 7],
    ...[...name("int"), 4, 0, 0, 0, 7, ...name("long"), 5, ...Array(8).fill(7)],
    ...[...name("bytes"), 6, 0, 2, 7, 7, ...name("time"), 8, ...Array(8).fill(7)],
    ...[
      ...name("uuid"),
      9,
      ...Array(16).fill(7),
      ...name(":event-type"),
      7,
      0,
      type.length,
      ...type,
    ],
  ];
  const bytes = new Uint8Array(16 + headers.length + payload.length);
  const view = new DataView(bytes.buffer);
  view.setUint32(0, bytes.length);
  view.setUint32(4, headers.length);
  bytes.set(headers, 12);
  bytes.set(payload, 12 + headers.length);
  return bytes;
}

function read(chunks: readonly Uint8Array[]) {
  const frames: Frame[] = [];
  const reader = new FrameReader((each) => frames.push(each));
  for (const chunk of chunks) {
    const reused = new Uint8Array(chunk);
    reader.push(reused);
    reused.fill(0); // as a runtime can
  }
  return { frames, isAtBoundary: reader.isAtBoundary };
}

describe("frames", () => {
  const payloads = fc.array(fc.uint8Array({ maxLength: 200 }), { minLength: 1, maxLength: 5 });

  it("are the same in any chunks", () => {
    fc.assert(fc.property(payloads, fc.integer({ min: 1, max: 60 }), (all, size) => {
      const bytes = new Uint8Array(all.flatMap((each) => [...frame(each)]));
      const chunks = Array.from(
        { length: Math.ceil(bytes.length / size) },
        (_, index) => bytes.slice(index * size, (index + 1) * size),
      );
      const { frames, isAtBoundary } = read(chunks);
      assert.deepEqual(frames.map(({ payload }) => [...payload]), all.map((each) => [...each]));
      assert.ok(frames.every(({ headers }) => headers.get(":event-type") === "metadata"));
      assert.ok(isAtBoundary);
      assert.equal(read([bytes.slice(0, -1)]).isAtBoundary, false);
    }));
  });

  it("that are too large are read without their payload, and the next one is read whole", () => {
    const [large, small] = [frame(new Uint8Array(200_000)), frame(Uint8Array.of(1))];
    for (const at of [1, 11, 12, 30, 199_999]) {
      const { frames, isAtBoundary } = read([large.slice(0, at), large.slice(at), small]);
      assert.deepEqual(frames.map(({ payload }) => [...payload]), [[], [1]]);
      assert.ok(frames.every(({ headers }) => headers.get(":event-type") === "metadata"));
      assert.ok(isAtBoundary);
    }
    large.fill(0xff, 4, 8); // no headers can be as long
    assert.equal(read([large, small]).isAtBoundary, false);
  });

  it("that are damaged never end a stream", () => {
    const good = frame(utf8.encode('{"usage":{"inputTokens":1}}'));
    fc.assert(fc.property(
      fc.array(fc.tuple(fc.nat(good.length - 1), fc.nat(255)), { minLength: 1, maxLength: 4 }),
      fc.uint8Array({ maxLength: 40 }),
      (changes, more) => {
        const bytes = new Uint8Array([...good, ...more]);
        for (const [at, byte] of changes) bytes[at] = byte;
        const scanner = BEDROCK.createScanner(1);
        scanner.push(bytes);
        scanner.end();
        assert.equal(scanner.isComplete, false);
      },
    ));
  });
});
