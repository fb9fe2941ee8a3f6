/**
 * Random answers of providers, read by parts of the gateway without a network: the parser of
 * responses and the scanners of events have the same result for all pieces of the same bytes, and
 * the unpackers agree with `node:zlib`.
 */
import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import * as zlib from "node:zlib";
import fc from "fast-check";
import type { Dialect } from "../../src/dialects/dialect.ts";
import { ANTHROPIC } from "../../src/dialects/anthropic.ts";
import { OPAQUE } from "../../src/dialects/opaque.ts";
import { OPENAI_CHAT } from "../../src/dialects/openai_chat.ts";
import { OPENAI_MEDIA } from "../../src/dialects/openai_media.ts";
import { OPENAI_RESPONSES } from "../../src/dialects/openai_responses.ts";
import { readAll } from "../../src/http/read_all.ts";
import { MalformedResponse } from "../../src/upstream/http1/head_reader.ts";
import { ResponseParser } from "../../src/upstream/http1/response_parser.ts";
import { unpackNode } from "../../src/upstream/http1/unpack.ts";
import { anyResponse } from "./http1_fuzz.ts";

/** Places at which bytes are split, as fractions of their length. */
const cuts = fc.array(fc.noBias(fc.nat(9999)).map((part) => part / 10_000), { maxLength: 8 });

/** Splits bytes into pieces, each in separate memory. */
function toPieces(bytes: Uint8Array, cuts: readonly number[]): Buffer[] {
  const edges = [
    0,
    ...cuts.map((cut) => Math.floor(cut * bytes.length)).sort((a, b) => a - b),
    bytes.length,
  ];
  return edges.slice(1).map((edge, index) => Buffer.from(bytes.slice(edges[index], edge)));
}

function parse(pieces: readonly Buffer[]): unknown {
  const found = { heads: [] as unknown[], body: "", ends: 0 };
  const parser: ResponseParser = new ResponseParser({
    head: (status, headers) => void found.heads.push([status, ...headers]),
    data: (bytes) => void (found.body += Buffer.from(bytes).toString("latin1")),
    end: () => void found.ends++,
  });
  try {
    // A connection feeds nothing more after the end.
    for (const piece of pieces) if (piece.length > 0 && found.ends === 0) parser.feed(piece);
    parser.close();
  } catch (error) {
    if (!(error instanceof MalformedResponse)) throw error;
    return "refused"; // the number of bytes read before the refusal depends on the pieces
  }
  return found;
}

/**
 * Parses random responses whole and in pieces. @returns The number of responses that were refused
 */
export function fuzzParser(cases: number, seed: number): number {
  let refused = 0;
  const property = fc.property(anyResponse, cuts, ({ text }, cuts) => {
    const bytes = Buffer.from(text, "latin1");
    const whole = parse([Buffer.from(bytes)]);
    assert.deepEqual(parse(toPieces(bytes, cuts)), whole);
    assert.deepEqual(
      parse(toPieces(bytes, Array.from(bytes, (_, at) => at / bytes.length))),
      whole,
      "byte by byte",
    );
    if (whole === "refused") refused++;
  });
  fc.assert(property, { numRuns: cases, seed });
  return refused;
}

const DIALECTS: readonly Dialect[] = [
  OPENAI_CHAT,
  OPENAI_RESPONSES,
  OPENAI_MEDIA,
  ANTHROPIC,
  OPAQUE,
];
const eventParts = [
  ..."\r\n:",
  ...[
    "\n\n",
    "\r\n\r\n",
    "\ufeff",
    "data",
    "data:",
    "data: ",
    "event: ",
    "error",
    "[DONE]",
    "größe",
    "x".repeat(70_000),
  ],
  ...[
    '{"type":"',
    "response.completed",
    "message_stop",
    "error",
    '"}',
    '{"choices":[{"index":0,"finish_reason":"stop"}]}',
  ],
  ...[
    '{"usage":{"prompt_tokens":1,"completion_tokens":2}}',
    '"error":{}',
    "{",
    "}",
    "[",
    "]",
    '"',
    "\\",
    "1",
  ],
];
const eventText = fc.array(fc.constantFrom(...eventParts), { maxLength: 25 }).map((parts) =>
  parts.join("")
);

function scan(dialect: Dialect, pieces: readonly Buffer[]): unknown {
  const scanner = dialect.createScanner(1);
  for (const piece of pieces) scanner.push(piece);
  scanner.end();
  const {
    payloadCount,
    hasLastEvent,
    isComplete,
    hasError,
    usage,
    outputTokens,
    isAtBoundary,
    boundary,
  } = scanner;
  return {
    payloadCount,
    hasLastEvent,
    isComplete,
    hasError,
    usage,
    outputTokens,
    isAtBoundary,
    boundary,
  };
}

/** Scans random streams of events whole and in pieces, in each dialect. */
export function fuzzEvents(cases: number, seed: number): void {
  const property = fc.property(
    eventText,
    cuts,
    fc.constantFrom(...DIALECTS),
    (text, cuts, dialect) => {
      const bytes = Buffer.from(text);
      assert.deepEqual(scan(dialect, toPieces(bytes, cuts)), scan(dialect, [bytes]));
    },
  );
  fc.assert(property, { numRuns: cases, seed });
}

interface Packing {
  readonly coding: string;
  pack(bytes: Uint8Array): Buffer;
  unpack(bytes: Uint8Array): Buffer;
}
const PACKINGS: readonly Packing[] = [
  {
    coding: "gzip",
    pack: (bytes) => zlib.gzipSync(bytes),
    unpack: (bytes) => zlib.gunzipSync(bytes),
  },
  {
    coding: "deflate",
    pack: (bytes) => zlib.deflateSync(bytes),
    unpack: (bytes) => zlib.inflateSync(bytes),
  },
  {
    coding: "br",
    pack: (bytes) => zlib.brotliCompressSync(bytes),
    unpack: (bytes) => zlib.brotliDecompressSync(bytes),
  },
];

async function unpackPieces(coding: string, pieces: Buffer[]): Promise<string> {
  const body = unpackNode(coding, {
    read: () => Promise.resolve(pieces.shift()),
    cancel: () => {},
  });
  assert.ok(body !== undefined);
  return Buffer.from(await readAll(body)).toString("latin1");
}

/**
 * Unpacks random bodies. An intact body is read completely. A truncated body, or one with
 * additional bytes, is refused. From a changed body nothing is read that `node:zlib` would not read
 * too.
 */
export async function fuzzPacked(cases: number, seed: number): Promise<void> {
  const plain = fc.oneof(
    fc.uint8Array({ maxLength: 300 }),
    fc.nat(9).map((times) => Buffer.from("data: a\n".repeat(9 ** (times / 2)))),
  );
  const change = fc.constantFrom("none", "none", "cut off", "append", "replace");
  const place = fc.noBias(fc.nat(9999)).map((part) => part / 10_000);
  const property = fc.asyncProperty(
    fc.record({
      plain,
      change,
      place,
      byte: fc.nat(255),
      cuts,
      packing: fc.constantFrom(...PACKINGS),
    }),
    async ({ plain, change, place, byte, cuts, packing }) => {
      const whole = packing.pack(plain);
      const at = Math.floor(place * whole.length);
      let sent = Buffer.from(whole);
      if (change === "cut off") sent = sent.subarray(0, Math.max(1, at));
      if (change === "append") sent = Buffer.concat([sent, Buffer.from([byte])]);
      if (change === "replace") sent[at] = byte;
      const result = await unpackPieces(packing.coding, toPieces(sent, cuts)).catch(() =>
        "refused"
      );
      const expected = Buffer.from(plain).toString("latin1");
      if (sent.equals(whole)) assert.equal(result, expected);
      else if (change !== "replace") assert.equal(result, "refused");
      else if (result !== "refused") assert.equal(result, packing.unpack(sent).toString("latin1"));
    },
  );
  await fc.assert(property, { numRuns: cases, seed });
}
