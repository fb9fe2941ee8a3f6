/**
 * Readers of foreign bytes: their work grows in proportion to the bytes, even for the worst bytes
 * that they accept. Work is counted, not timed: runs of the reader's blocks, and the bytes that
 * built-in functions read.
 */
// runtimes: once
import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { gzipSync } from "node:zlib";
import { afterAll, beforeAll, describe, it } from "@std/testing/bdd";
import { GatewayError } from "../../src/errors/gateway_error.ts";
import { beginCounting, countWork } from "../support/work.ts";

const BOUNDARY = `${"-".repeat(69)}x`;
const FORM = `multipart/form-data; boundary=${BOUNDARY}`;
const FILE_PART = 'Content-Disposition: form-data; name="file"; filename="a"';

/** Growth of the work per byte, for four times the input. Quadratic work grows by 4. */
const MAX_GROWTH = 2.5;
const MAX_WORK_PER_BYTE = 300;
/** Less than the length of the longest boundary, which a naive search compares at each byte. */
const MAX_WORK_IN_FORMS = 30;

/** A text repeated up to a length. */
const fill = (text: string, length: number) =>
  text.repeat(Math.ceil(length / text.length)).slice(0, length);

/** A form with one file. */
function toForm(content: string): Buffer {
  return Buffer.from(
    `--${BOUNDARY}\r\n${FILE_PART}\r\n\r\n${content}\r\n--${BOUNDARY}--\r\n`,
    "latin1",
  );
}

/** A field of a form, without the closing boundary. */
const toField = (name: string) =>
  `--${BOUNDARY}\r\nContent-Disposition: form-data; name="${name}"\r\n\r\na\r\n`;

/** Input of a growing size, and its reader. */
interface Case {
  readonly name: string;
  /** Makes input of about the given number of bytes. */
  readonly make: (size: number) => Buffer;
  readonly read: (input: Buffer) => unknown;
  /** The larger of two sizes. The smaller one is a quarter of it. */
  readonly size: number;
  /** The most work per byte. Default: {@link MAX_WORK_PER_BYTE}. */
  readonly maxPerByte?: number;
}

/** Calls a reader. It can refuse its input. */
function orRefuse(read: () => unknown): void {
  try {
    read();
  } catch (error) {
    if (
      !GatewayError.is(error) && !(error instanceof Error && error.name === "MalformedResponse")
    ) throw error;
  }
}

/** Passes bytes in pieces. Each piece is a copy, because readers can write into their input. */
function feed(input: Buffer, pieceBytes: number, push: (piece: Buffer) => void): void {
  for (let at = 0; at < input.length; at += pieceBytes) {
    push(Buffer.from(input.subarray(at, at + pieceBytes)));
  }
}

async function listCases(): Promise<readonly Case[]> {
  // Only modules that are loaded after counting has begun are counted block by block.
  const { parseView, parseWhole } = await import("../../src/inbound/json_guard.ts");
  const { readFields, withoutBoundary } = await import("../../src/inbound/multipart.ts");
  const { FACT_FIELDS } = await import("../../src/operations/request_facts.ts");
  const { isInputBounded } = await import("../../src/operations/request_size.ts");
  const { ResponseParser } = await import("../../src/upstream/http1/response_parser.ts");
  const { UsageChunkFilter } = await import("../../src/upstream/usage_chunk.ts");
  const { STREAM_OPTIONS } = await import("../../src/dialects/usage_opt_in.ts");
  const { unpackGzip } = await import("../../src/upstream/unpack.ts");
  const dialects = {
    chat: (await import("../../src/dialects/openai_chat.ts")).OPENAI_CHAT,
    responses: (await import("../../src/dialects/openai_responses.ts")).OPENAI_RESPONSES,
    messages: (await import("../../src/dialects/anthropic.ts")).ANTHROPIC,
    media: (await import("../../src/dialects/openai_media.ts")).OPENAI_MEDIA,
    other: (await import("../../src/dialects/opaque.ts")).OPAQUE,
  };
  const json = ([name, make]: readonly [string, (size: number) => string]): Case[] => {
    const makeBytes = (size: number) => Buffer.from(make(size));
    const size = 100_000;
    return [
      {
        name: `${name}, as a view`,
        make: makeBytes,
        size,
        read: (input) => orRefuse(() => parseView(input)),
      },
      {
        name: `${name}, as a whole`,
        make: makeBytes,
        size,
        read: (input) => orRefuse(() => parseWhole(input)),
      },
      {
        name: `${name}, for its bound`,
        make: makeBytes,
        size,
        read: (input) =>
          orRefuse(() =>
            isInputBounded(parseView(input) as Readonly<Record<string, unknown>>, input)
          ),
      },
    ];
  };
  const texts: readonly (readonly [string, (size: number) => string])[] = [
    ["backslashes", (size) => `{"a":"${fill("\\\\", size)}"}`],
    ["escaped quotes", (size) => `{"a":"${fill('\\"', size)}"}`],
    ["quotes", (size) => fill('"', size)],
    ["empty texts", (size) => `[${fill('"",', size)}""]`],
    ["white space", (size) => `{"a":${fill(" \n", size)}1}`],
    ["open brackets", (size) => fill("[", size)],
    ["escaped keys", (size) => `{${fill('"\\u006do":1,', size)}"b":1}`],
    ["one long key", (size) => `{"${fill("k", size)}":1}`],
    ["messages", (size) => `{"messages":[${fill('{"role":"user","content":"a"},', size)}{}]}`],
    ["digits", (size) => `{"n":${fill("1", size)}}`],
    ["a text without an end", (size) => `{"a":"${fill("b", size)}`],
    ["replacement characters", (size) => `{"a":"${fill("\ufffd", size / 3)}"}`],
  ];
  const forms: readonly (readonly [string, (size: number) => string])[] = [
    ["dashes", (size) => fill("-", size)],
    ["nearly the boundary", (size) => fill(`\r\n--${BOUNDARY.slice(0, -1)}`, size)],
    ["every other byte a dash", (size) => fill("-a", size)],
    ["line ends", (size) => fill("\r\n", size)],
    ["ends of headers", (size) => fill("\r\n\r\n", size)],
  ];
  const parts = (size: number) =>
    Buffer.from(
      `${fill(`--${BOUNDARY}\r\n${FILE_PART}\r\n\r\n\r\n`, size)}\r\n--${BOUNDARY}--\r\n`,
    );
  const responses: readonly (readonly [string, (size: number) => string])[] = [
    ["a long field", (size) => `HTTP/1.1 200 OK\r\nx: ${fill("a", size)}\r\n\r\n`],
    ["many fields", (size) => `HTTP/1.1 200 OK\r\n${fill("x: a\r\n", size)}\r\n`],
    ["a header without an end", (size) => `HTTP/1.1 200 OK\r\nx: ${fill("a\r", size)}`],
    ["line ends in a header", (size) => `HTTP/1.1 200 OK\r\nx: ${fill("a\r\n\r", size)}`],
    [
      "a long chunk extension",
      (size) => `HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1;${fill("a", size)}`,
    ],
    [
      "small chunks",
      (size) => `HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n${fill("1\r\na\r\n", size)}`,
    ],
    [
      "trailers",
      (size) =>
        `HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n${fill("x: a\r\n", size)}\r\n`,
    ],
    ["interim answers", (size) => fill("HTTP/1.1 100 Continue\r\n\r\n", size)],
    [
      "a body without a length",
      (size) => `HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n${fill("a", size)}`,
    ],
  ];
  const events: readonly (readonly [string, (size: number) => string])[] = [
    ["line ends", (size) => fill("\n", size)],
    ["carriage returns", (size) => fill("\r", size)],
    ["pairs of line ends", (size) => fill("\r\n", size)],
    ["comments", (size) => fill(":\n", size)],
    ["empty data lines", (size) => fill("data:\n", size)],
    ["one data line", (size) => `data: ${fill('{"a":[', size)}\n\n`],
    [
      "data lines within one text",
      (size) => `data: "\n${fill(`data: ${"a".repeat(40)}\n`, size)}\n`,
    ],
    ["data lines of one event", (size) => `${fill('data: {"a":\n', size)}\n`],
    [
      "one line of backslashes",
      (size) => `data: {"choices":[{"delta":{"content":"${fill("\\\\", size)}"}}]}\n\n`,
    ],
    ["events", (size) => fill('data: {"choices":[{"index":0,"delta":{"content":"a"}}]}\n\n', size)],
    ["marks of content", (size) => `data: ${fill('"content":"', size)}\n\n`],
    ["names of events", (size) => fill("event: response.output_text.delta\ndata: {}\n\n", size)],
  ];
  const pieces = [1, 100_000];
  return [
    ...texts.flatMap(json),
    ...forms.map(([name, make]): Case => ({
      name: `a form of ${name}`,
      make: (size) => toForm(make(size)),
      size: 200_000,
      maxPerByte: MAX_WORK_IN_FORMS,
      read: (input) => orRefuse(() => readFields(input, FORM, ["model"])),
    })),
    ...forms.map(([name, make]): Case => ({
      name: `a form of ${name}, without its boundary`,
      make: (size) => toForm(make(size)),
      size: 200_000,
      maxPerByte: MAX_WORK_IN_FORMS,
      read: (input) => withoutBoundary(input, FORM),
    })),
    {
      name: "a form of many parts",
      make: parts,
      size: 80_000,
      read: (input) => orRefuse(() => readFields(input, FORM, ["model"])),
    },
    {
      name: "a form of fields with long names",
      make: (size) =>
        Buffer.from(`${toField("[".repeat(8000)).repeat(size / 8000)}--${BOUNDARY}--\r\n`),
      size: 200_000,
      maxPerByte: MAX_WORK_IN_FORMS,
      read: (input) => orRefuse(() => readFields(input, FORM, FACT_FIELDS)),
    },
    ...pieces.flatMap((pieceBytes) => [
      ...responses.map(([name, make]): Case => ({
        name: `a response with ${name}, in pieces of ${pieceBytes}`,
        make: (size) => Buffer.from(make(size)),
        size: 40_000,
        read: (input) => {
          const parser = new ResponseParser({ head: () => {}, data: () => {}, end: () => {} });
          orRefuse(() => feed(input, pieceBytes, (piece) => parser.feed(piece)));
        },
      })),
      ...Object.entries(pieceBytes === 1 ? { chat: dialects.chat } : dialects).flatMap((
        [dialect, { createScanner }],
      ) =>
        events.map(([name, make]): Case => ({
          name: `a ${dialect} stream of ${name}, in pieces of ${pieceBytes}`,
          make: (size) => Buffer.from(make(size)),
          size: pieceBytes === 1 ? 64_000 : 400_000,
          read: (input) => {
            const scanner = createScanner(1);
            feed(input, pieceBytes, (piece) => scanner.push(piece));
            scanner.end();
          },
        }))
      ),
      ...Object.entries(dialects).map(([dialect, { createMeter }]): Case => ({
        name: `a plain ${dialect} answer, in pieces of ${pieceBytes}`,
        make: (size) => Buffer.from(`{"usage":${fill('{"a":', size)}`),
        size: pieceBytes === 1 ? 64_000 : 400_000,
        read: (input) => {
          const meter = createMeter();
          feed(input, pieceBytes, (piece) => meter.push(piece));
          return [meter.usage, meter.outputTokens];
        },
      })),
      ...events.map(([name, make]): Case => ({
        name: `a stream of ${name} whose usage was asked for, in pieces of ${pieceBytes}`,
        make: (size) => Buffer.from(make(size)),
        size: pieceBytes === 1 ? 64_000 : 400_000,
        read: (input) => {
          const source = {
            pushTo: (sink: { write(bytes: Uint8Array): boolean; end(): void }) => {
              feed(input, pieceBytes, (piece) => void sink.write(piece));
              sink.end();
              return () => {};
            },
            cancel: () => {},
          };
          const filter = new UsageChunkFilter(source, { bytesOut: 0 }, STREAM_OPTIONS);
          filter.pushTo({
            write: () => true,
            end: () => {},
            fail: (error) => assert.fail(String(error)),
          });
        },
      })),
    ]),
    {
      name: "a packed answer",
      make: (size) => gzipSync(Buffer.alloc(size * 100)),
      size: 400_000,
      read: async (input) => {
        const source = [input];
        const unpacked = unpackGzip("gzip", {
          read: () => Promise.resolve(source.pop()),
          cancel: () => Promise.resolve(),
        });
        while (await unpacked?.read() !== undefined);
      },
    },
  ];
}

describe("the work of a reader", () => {
  let endCounting = () => {};
  let cases: readonly Case[] = [];
  beforeAll(async () => {
    endCounting = beginCounting();
    cases = await listCases();
  });
  afterAll(() => endCounting());

  it("grows in proportion to the bytes that it reads, for any bytes", async () => {
    const wrong: string[] = [];
    for (const { name, make, read, size, maxPerByte = MAX_WORK_PER_BYTE } of cases) {
      const [less, more] = [make(size / 4), make(size)];
      await countWork(() => read(make(1000))); // one-time initialization
      const [forLess, forMore] = [
        await countWork(() => read(less)),
        await countWork(() => read(more)),
      ];
      const growth = forMore / forLess / (more.length / less.length);
      const perByte = forMore / more.length;
      const isBounded = growth <= MAX_GROWTH && perByte <= maxPerByte;
      if (!isBounded) {
        wrong.push(`${name}: ${perByte.toFixed(1)} a byte, growth ${growth.toFixed(2)}`);
      }
    }
    assert.deepEqual(wrong, []);
  });
});
