/**
 * Streams whose events state their types: the verdict, the tokens and the error event, for all ways
 * to split a stream.
 */
// runtimes: bun, node
import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { describe } from "@std/testing/bdd";
import fc from "fast-check";
import { ANTHROPIC } from "../../src/dialects/anthropic.ts";
import { type Dialect, MAX_KEPT_BYTES, type StreamScanner } from "../../src/dialects/dialect.ts";
import { OPENAI_MEDIA } from "../../src/dialects/openai_media.ts";
import { OPENAI_RESPONSES } from "../../src/dialects/openai_responses.ts";
import { GatewayError } from "../../src/errors/gateway_error.ts";
import type { TokenUsage } from "../../src/exchange/billing.ts";
import { it } from "../support/cases.ts";
import {
  EDIT_EVENTS,
  FINAL_RESPONSE,
  IMAGE_EVENTS,
  MESSAGE_EVENTS,
  responseEvents,
  SPEECH_EVENTS,
  toEvent,
  toStream,
  TRANSCRIPT_EVENTS,
  type TypedEvent,
} from "../support/event_streams.ts";

interface Sample {
  readonly dialect: Dialect;
  readonly choices?: number;
  readonly events: readonly TypedEvent[];
  readonly usage: TokenUsage;
  readonly hasError?: boolean;
}

const RESPONSE_USAGE: TokenUsage = { total: 27, input: 20, output: 7, cached: 8, reasoning: 3 };
const MESSAGE_USAGE: TokenUsage = {
  ...{ total: 36, input: 23, output: 13, cached: 11, reasoning: 2 },
  parts: [{
    classes: { input: 5, cacheRead: 11, cacheWrite: 7, output: 11, reasoning: 2 },
    tariff: { context: 23 },
  }],
};
/** The tokens of one image. */
const IMAGE_PART = {
  classes: { input: 10, outputImage: 100 },
  tariff: { context: 10, asked: { quality: "low", size: "1024x1024" } },
};
const IMAGE_USAGE: TokenUsage = { total: 110, input: 10, output: 100, parts: [IMAGE_PART] };
const SAMPLES: Readonly<Record<string, Sample>> = {
  "a response": { dialect: OPENAI_RESPONSES, events: responseEvents(), usage: RESPONSE_USAGE },
  "a response that is asked for again": {
    dialect: OPENAI_RESPONSES,
    events: responseEvents(undefined, 40).slice(3),
    usage: RESPONSE_USAGE,
  },
  "an incomplete response": {
    dialect: OPENAI_RESPONSES,
    events: responseEvents({
      type: "response.incomplete",
      response: { ...FINAL_RESPONSE, status: "incomplete" },
    }),
    usage: RESPONSE_USAGE,
  },
  "a failed response": {
    dialect: OPENAI_RESPONSES,
    events: responseEvents({
      type: "response.failed",
      response: {
        ...FINAL_RESPONSE,
        status: "failed",
        error: { code: "server_error", message: "no" },
      },
    }),
    usage: RESPONSE_USAGE,
    hasError: true,
  },
  "an image": {
    dialect: OPENAI_MEDIA,
    events: IMAGE_EVENTS,
    usage: IMAGE_USAGE,
  },
  "three images": {
    dialect: OPENAI_MEDIA,
    choices: 3,
    events: [...IMAGE_EVENTS, ...IMAGE_EVENTS, ...IMAGE_EVENTS],
    usage: { total: 330, input: 30, output: 300, parts: [IMAGE_PART, IMAGE_PART, IMAGE_PART] },
  },
  "an edited image": {
    dialect: OPENAI_MEDIA,
    events: EDIT_EVENTS,
    usage: IMAGE_USAGE,
  },
  "speech": {
    dialect: OPENAI_MEDIA,
    events: SPEECH_EVENTS,
    usage: {
      ...{ total: 115, input: 14, output: 101 },
      parts: [{ classes: { input: 14, outputAudio: 101 }, tariff: { context: 14 } }],
    },
  },
  "a transcript": {
    dialect: OPENAI_MEDIA,
    events: TRANSCRIPT_EVENTS,
    usage: { total: 16, input: 14, output: 2 },
  },
  "a message": { dialect: ANTHROPIC, events: MESSAGE_EVENTS, usage: MESSAGE_USAGE },
};

/**
 * Findings of a scanner, without `payloadCount` and the boundary, which `event_stream_test.ts` tests
 * for every scanner.
 */
const findingsOf = ({ hasLastEvent, isComplete, hasError, usage }: StreamScanner) => ({
  hasLastEvent,
  isComplete,
  hasError,
  usage,
});

function scan(
  { dialect, choices = 1 }: Pick<Sample, "dialect" | "choices">,
  ...chunks: readonly Uint8Array[]
) {
  const scanner = dialect.createScanner(choices);
  for (const chunk of chunks) scanner.push(chunk);
  scanner.end();
  return scanner;
}

const inBytes = (bytes: Uint8Array) => Array.from(bytes.keys(), (at) => bytes.subarray(at, at + 1));
const NOTHING = { hasLastEvent: false, isComplete: false, hasError: false, usage: undefined };
const CUT = new GatewayError("upstream_stream_truncated");

/** The data of the error event for a stream that ends here. */
function errorDataOf(scanner: StreamScanner): Record<string, unknown> {
  const text = scanner.toErrorEvent(CUT);
  assert.match(text, /^event: error\ndata: .*\n\n$/);
  return JSON.parse(text.slice("event: error\ndata: ".length));
}

/** Ways in which a provider can write the same events. */
const FORMS: Readonly<Record<string, (events: readonly TypedEvent[]) => string>> = {
  "as they are": toStream,
  "with CRLF": (events) => toStream(events).replaceAll("\n", "\r\n"),
  "with CR": (events) => toStream(events).replaceAll("\n", "\r"),
  "without names": (events) => toStream(events).replaceAll(/^event: .*\n/gm, ""),
  "with blanks in the JSON": (events) => toStream(events).replaceAll('{"type":', '{ "type" : '),
  "with the type last": (events) =>
    events.map(({ type, ...rest }) =>
      `event: ${type}\ndata: ${JSON.stringify({ ...rest, type })}\n\n`
    ).join(""),
  "with the type last and without names": (events) =>
    events.map(({ type, ...rest }) => `data: ${JSON.stringify({ ...rest, type })}\n\n`).join(""),
  "with the type in the name alone": (events) =>
    events.map(({ type, ...rest }) => `event: ${type}\ndata: ${JSON.stringify(rest)}\n\n`).join(""),
  "in several lines": (events) =>
    events.map((event) => {
      const lines = JSON.stringify(event, null, 1).split("\n").map((line) => `data: ${line}\n`);
      return `event: ${event.type}\n${lines.join("")}\n`;
    }).join(""),
  "next to comments and pings": (events) =>
    events.map((event) => `: quiet\n\n${toEvent(event)}${toEvent({ type: "ping" })}`).join(""),
  "before [DONE]": (events) => `${toStream(events)}data: [DONE]\n\n`,
};

/**
 * The forms that are also split in two at every byte; the others are read whole and byte by byte.
 */
const EVERY_CUT = ["as they are", "with CRLF"];

describe("a stream of typed events", () => {
  for (const [name, sample] of Object.entries(SAMPLES)) {
    const expected = {
      hasLastEvent: true,
      isComplete: true,
      hasError: sample.hasError ?? false,
      usage: sample.usage,
    };
    const text = toStream(sample.events);

    for (const [form, write] of Object.entries(FORMS)) {
      it(`is complete for ${name} ${form}, for all ways to split it`, () => {
        const bytes = Buffer.from(write(sample.events));
        assert.deepEqual(findingsOf(scan(sample, bytes)), expected);
        assert.deepEqual(findingsOf(scan(sample, ...inBytes(bytes))), expected);
        if (!EVERY_CUT.includes(form)) return;
        for (const at of bytes.keys()) {
          assert.deepEqual(
            findingsOf(scan(sample, bytes.subarray(0, at), bytes.subarray(at))),
            expected,
            `${at}`,
          );
        }
      });
    }

    it(`is not complete for ${name} that ends before its last byte`, () => {
      const bytes = Buffer.from(text);
      for (const at of bytes.keys()) {
        const { hasLastEvent, isComplete, hasError } = scan(sample, bytes.subarray(0, at));
        assert.deepEqual([hasLastEvent, isComplete, hasError], [false, false, false], `${at}`);
      }
    });

    it(`has an error for the library if ${name} ends after any of its events`, () => {
      for (const index of sample.events.keys()) {
        const scanner = scan(sample, Buffer.from(toStream(sample.events.slice(0, index))));
        assert.equal(scanner.boundary, "");
        const { error } = errorDataOf(scanner) as { error: Record<string, unknown> };
        assert.deepEqual([error.code, error.message], [CUT.code, CUT.message]);
        assert.equal(scanner.isComplete, false);
      }
    });

    it(`has the same completeness for ${name} after the end as at the end`, () => {
      const after = Buffer.from(`${text}: late\n\ndata: {"type":"x"}\n\ndata: {"half`);
      assert.deepEqual(findingsOf(scan(sample, after)), expected);
    });
  }

  it("waits for the requested number of images", () => {
    const two = Buffer.from(toStream([...IMAGE_EVENTS, ...IMAGE_EVENTS]));
    assert.equal(scan({ dialect: OPENAI_MEDIA, choices: 3 }, two).isComplete, false);
    assert.equal(scan({ dialect: OPENAI_MEDIA, choices: 2 }, two).isComplete, true);
    assert.equal(scan({ dialect: OPENAI_MEDIA }, two).isComplete, true);
  });

  it("yields the tokens so far", () => {
    const started = Buffer.from(toStream(MESSAGE_EVENTS.slice(0, 3)));
    assert.deepEqual(scan({ dialect: ANTHROPIC }, started).usage, {
      total: 24,
      input: 23,
      output: 1,
      cached: 11,
      parts: [{
        classes: { input: 5, cacheRead: 11, cacheWrite: 7, output: 1 },
        tariff: { context: 23 },
      }],
    });
    const image = Buffer.from(toStream(IMAGE_EVENTS));
    assert.equal(scan({ dialect: OPENAI_MEDIA, choices: 2 }, image).usage?.total, 110);
    assert.equal(
      scan({ dialect: OPENAI_RESPONSES }, Buffer.from(toStream(responseEvents().slice(0, -1))))
        .usage,
      undefined,
    );
  });

  it("uses the last stated running totals of a message", () => {
    const usages = [{ output_tokens: 5 }, { output_tokens: 9, input_tokens: 6 }, {
      output_tokens: 8,
      input_tokens: null,
    }];
    const deltas = usages.map((usage) => toEvent({ type: "message_delta", usage } as TypedEvent))
      .join("");
    const { usage } = scan(
      { dialect: ANTHROPIC },
      Buffer.from(toStream(MESSAGE_EVENTS.slice(0, 1)) + deltas),
    );
    assert.deepEqual(usage, {
      ...{ total: 32, input: 24, output: 8, cached: 11 },
      parts: [{
        classes: { input: 6, cacheRead: 11, cacheWrite: 7, output: 8 },
        tariff: { context: 24 },
      }],
    });
  });

  it("uses the next number for the error event of a response", () => {
    const cases: readonly [text: string, number: number][] = [
      ["", 0],
      [toStream(responseEvents().slice(0, 4)), 4],
      [toStream(responseEvents(undefined, 40).slice(0, 4)), 44],
      [
        'event: x\ndata: {"delta":"\\"sequence_number\\":99","sequence_number" : 12 ,"type":"x"}\n\n',
        13,
      ],
      ['event: x\ndata: {"sequence_number":"7","type":"x"}\n\n', 0],
      ['data: {"type":"x","sequence_number":7,"delta":"never en', 8],
      [`data: {"type":"x","b":"${"A".repeat(100_000)}","sequence_number":7}\n\n`, 8],
      ['data: {"type":"x",\ndata: "sequence_number":\ndata: 3}\n\n', 4],
    ];
    for (const [text, number] of cases) {
      const { type, message, param, code, error, sequence_number } = errorDataOf(
        scan({ dialect: OPENAI_RESPONSES }, Buffer.from(text)),
      );
      assert.deepEqual({ type, message, param, code, sequence_number }, {
        type: "error",
        message: CUT.message,
        param: null,
        code: CUT.code,
        sequence_number: number,
      }, text.slice(0, 80));
      assert.deepEqual(error, { message, type: "upstream_error", param, code });
    }
  });

  it("writes the error event in the form of the interface", () => {
    const error = { message: CUT.message, type: "upstream_error", param: null, code: CUT.code };
    assert.deepEqual(errorDataOf(OPENAI_MEDIA.createScanner(1)), { error });
    assert.deepEqual(errorDataOf(ANTHROPIC.createScanner(1)), {
      type: "error",
      error: { ...error, type: "api_error", details: { error_code: CUT.code } },
    });
  });
});

const OWN_ERRORS: Readonly<Record<string, [dialect: Dialect, text: string]>> = {
  "of a response": [
    OPENAI_RESPONSES,
    toEvent(
      {
        type: "error",
        code: "server_error",
        message: "no",
        param: null,
        sequence_number: 3,
      } as TypedEvent,
    ),
  ],
  "of a response, without a name": [
    OPENAI_RESPONSES,
    'data: {"sequence_number":3,"type":"error"}\n\n',
  ],
  "of an image": [OPENAI_MEDIA, 'event: error\ndata: {"error":{"message":"no"}}\n\n'],
  "without a name and a type": [OPENAI_MEDIA, 'data: {"error":{"message":"no"}}\n\n'],
  "in an event of another name": [
    OPENAI_MEDIA,
    'event: message\ndata: {"a":1,"error":{"message":"no"}}\n\n',
  ],
  "of a message": [
    ANTHROPIC,
    'event: error\ndata: {"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}\n\n',
  ],
  "that is no JSON": [ANTHROPIC, "event: error\ndata: busy\n\n"],
  "named after its data": [ANTHROPIC, "data: {}\nevent: error\n\n"],
};

describe("an error of the provider's own", () => {
  for (const [name, [dialect, text]] of Object.entries(OWN_ERRORS)) {
    it(`${name} ends the stream`, () => {
      const bytes = Buffer.from(text);
      for (const chunks of [[bytes], inBytes(bytes)]) {
        const { hasError, hasLastEvent } = scan({ dialect }, ...chunks);
        assert.deepEqual([hasError, hasLastEvent], [true, true]);
      }
      const cut = scan({ dialect }, bytes.subarray(0, -1));
      assert.equal(cut.hasError, false, "no library sees an event without its blank line");
    });
  }

  it("is not found in a null field, or in a model's text", () => {
    const texts = [
      'data: {"error":null}\n\nevent: x\ndata: {"error": null,"a":1}\n\n',
      'event: error\n\ndata: {"type":"x"}\n\n',
      'event: errors\ndata: {"type":"errors"}\n\n',
      toStream(responseEvents().slice(0, -1)).replaceAll("Hello", '\\"error\\":{}'),
    ];
    for (const { dialect } of Object.values(SAMPLES)) {
      for (const text of texts) {
        assert.deepEqual(findingsOf(scan({ dialect }, Buffer.from(text))), NOTHING);
      }
    }
  });
});

const DIALECTS = { ANTHROPIC, OPENAI_MEDIA, OPENAI_RESPONSES } as const;
const ENDS: Readonly<Record<keyof typeof DIALECTS, readonly string[]>> = {
  ANTHROPIC: ["message_stop"],
  OPENAI_MEDIA: [
    "image_generation.completed",
    "image_edit.completed",
    "speech.audio.done",
    "transcript.text.done",
  ],
  OPENAI_RESPONSES: ["response.completed", "response.incomplete", "response.failed"],
};

/** The verdict from the whole text: split into lines, parse all data, decide at each blank line. */
function reference(text: string, ends: readonly string[]) {
  const lines = text.replace(/^\ufeff/, "").split(/\r\n|\r|\n/);
  const last = lines.pop() ?? "";
  const findings = { hasLastEvent: false, isComplete: false, hasError: false };
  let [name, data, isError, type]: [
    name: string | undefined,
    data: string[],
    isError: boolean,
    type: unknown,
  ] = [
    undefined,
    [],
    false,
    undefined,
  ];
  let event: Record<string, unknown> | undefined;
  const read = (json: string) => {
    try {
      const parsed = JSON.parse(json);
      const own = Object.keys(parsed)[0] === "type" ? parsed.type : undefined;
      [event, type] = [parsed, own ?? name ?? parsed.type];
    } catch {
      // Not an event.
    }
  };
  for (const line of last === "" ? lines : [...lines, last]) {
    if (line === "") {
      if (type === "error" || event?.error || isError) findings.hasError = true;
      if (ends.includes(String(type))) findings.hasLastEvent = true;
      if (type === "response.failed" && ends.includes(type)) findings.hasError = true;
      if (findings.hasError) findings.hasLastEvent = true;
      [name, data, isError, type, event] = [undefined, [], false, undefined, undefined];
    }
    if (line === "" || line.startsWith(":")) continue;
    if (line.startsWith("event:")) name = line.slice(6).replace(/^ /, "");
    const value = line.startsWith("data:") ? line.slice(5).replace(/^ /, "") : "";
    if (value === "[DONE]" && data.length === 0) findings.hasLastEvent = true;
    if (value !== "") {
      data.push(value);
      read(data.join("\n"));
    }
    if (name === "error" && data.length > 0) isError = true;
  }
  return { ...findings, isComplete: findings.hasLastEvent };
}

const TELLING = [...Object.values(ENDS).flat(), "message_start", "message_delta"];
const typeName = fc.constantFrom(
  ...TELLING,
  "error",
  "errors",
  "ping",
  "response.output_text.delta",
  "",
  "response.complete",
);
const text = fc.oneof(
  fc.string({ unit: "binary", maxLength: 20 }),
  fc.constantFrom(
    '"type":"message_stop"',
    '{"type":"error"}',
    '"error":{}',
    "data: [DONE]",
    "\\",
    "größe 😀",
  ),
);
const typed = fc.record({
  type: typeName,
  delta: text,
  error: fc.constantFrom(undefined, null, "", {}, "busy"),
});
const lineEnd = fc.constantFrom("\n", "\r\n", "\r", "\n\n", "\r\n\r\n");
const line = fc.oneof(
  fc.tuple(typed, fc.constantFrom(undefined, " ", 1)).map(([event, space]) =>
    JSON.stringify(event, null, space === 1 ? 1 : undefined).split("\n").map((each) =>
      `data: ${each}`
    ).join("\n")
  ),
  typed.map(({ type, ...rest }) => `data: ${JSON.stringify({ ...rest, type })}`),
  typed.map((event) => `event: ${event.type}\ndata: ${JSON.stringify(event)}`),
  typed.map(({ type, ...rest }) => `event: ${type}\ndata: ${JSON.stringify(rest)}`),
  typeName.map((name) => `event: ${name}`),
  fc.constantFrom(
    "data: [DONE]",
    "data:[DONE]",
    "data:",
    "id: 7",
    "data: null",
    "data: 5",
    'data: "text"',
    "data: [1]",
  ),
  text.map((comment) => `:${comment.replaceAll(/[\r\n]/g, "")}`),
  text.map((value) => `data: ${value.replaceAll(/[\r\n]/g, "")}`),
);
const streamText = fc.tuple(
  fc.constantFrom("", "\ufeff"),
  fc.array(fc.tuple(line, lineEnd), { maxLength: 10 }),
)
  .map(([mark, lines]) => mark + lines.flat().join(""));

describe("the scanner of typed events", () => {
  for (const [name, dialect] of Object.entries(DIALECTS) as [keyof typeof DIALECTS, Dialect][]) {
    it.large(`of ${name} finds the same as the reference for all ways to split the stream`, () => {
      fc.assert(
        fc.property(streamText, fc.array(fc.nat(), { maxLength: 6 }), (content, random) => {
          const bytes = Buffer.from(content);
          const expected = reference(bytes.toString(), ENDS[name]);
          const edges = [
            0,
            ...random.map((number) => number % (bytes.length + 1)).sort((a, b) => a - b),
            bytes.length,
          ];
          const pieces = edges.slice(1).map((edge, index) => bytes.subarray(edges[index], edge));
          for (const chunks of [[bytes], pieces, inBytes(bytes)]) {
            const { usage: _, ...findings } = findingsOf(scan({ dialect }, ...chunks));
            assert.deepEqual(findings, expected);
          }
        }),
        { numRuns: 2000 },
      );
    });
  }
});

/** Pieces of the given size, without copies. */
function piecesOf(bytes: Uint8Array, size: number): readonly Uint8Array[] {
  return Array.from(
    { length: Math.ceil(bytes.length / size) },
    (_, at) => bytes.subarray(at * size, (at + 1) * size),
  );
}

describe("an event of several megabytes", () => {
  const base64 = "iVBO".repeat(2_000_000);

  for (const [form, write] of Object.entries(FORMS)) {
    it(`${form} is read like a short one`, () => {
      const events = IMAGE_EVENTS.map((event) => ({ ...event, b64_json: base64 }));
      const bytes = Buffer.from(write(events));
      for (const size of [7001, MAX_KEPT_BYTES, bytes.length]) {
        const { isComplete, usage } = scan({ dialect: OPENAI_MEDIA }, ...piecesOf(bytes, size));
        assert.deepEqual([isComplete, usage], [true, IMAGE_USAGE]);
      }
      const cut = scan({ dialect: OPENAI_MEDIA }, bytes.subarray(0, bytes.length >> 1));
      assert.equal(cut.isComplete, false);
    });
  }

  it("ends a response with its whole content", () => {
    const output = Array.from(
      { length: 500 },
      () => ({ ...FINAL_RESPONSE.output[0], result: "x".repeat(5000) }),
    );
    const response = { ...FINAL_RESPONSE, instructions: '"\\{['.repeat(20_000), output };
    const bytes = Buffer.from(
      toStream([
        ...responseEvents().slice(0, -1),
        { type: "response.completed", response } as TypedEvent,
      ]),
    );
    for (const size of [7001, bytes.length]) {
      const { isComplete, usage } = scan({ dialect: OPENAI_RESPONSES }, ...piecesOf(bytes, size));
      assert.deepEqual([isComplete, usage], [true, RESPONSE_USAGE]);
    }
  });
});
