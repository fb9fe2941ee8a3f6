/**
 * The scanner of server-sent events: for all ways to split a stream, it finds the same as a simple
 * reference.
 */
// runtimes: all
import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { describe } from "@std/testing/bdd";
import fc from "fast-check";
import { MAX_KEPT_BYTES } from "../../src/dialects/dialect.ts";
import { OPENAI_CHAT } from "../../src/dialects/openai_chat.ts";
import { it } from "../support/cases.ts";
import { chunk, stream } from "../support/provider.ts";

interface Findings {
  readonly payloadCount: number;
  readonly hasLastEvent: boolean;
  readonly isComplete: boolean;
  readonly hasError: boolean;
  readonly isAtBoundary: boolean;
}

/** Signs that a chunk must be parsed if one choice was requested. */
const TELLING = /"finish_reason" *: *"[^"]|"expires_at"|"error" *: *[^n ]/;

/** The same findings from the whole text: split into lines, parse each payload. */
function reference(text: string, choices: number): Findings {
  const lines = text.replace(/^\ufeff/, "").split(/\r\n|\r|\n/);
  const last = lines.pop() ?? "";
  const begun = new Set<number>();
  const finished = new Set<number>();
  let payloadCount = 0;
  let hasLastEvent = false;
  let hasError = false;
  let isInEvent = false;
  let name = "";
  let data: string[] = [];
  const read = (json: string) => {
    try {
      const { error, choices = [] } = JSON.parse(json);
      if (error) hasError = true;
      for (const { index = 0, finish_reason: reason, delta } of choices) {
        begun.add(Number(index));
        if (reason === "error") hasError = true;
        const { expires_at: expiry, ...rest } = delta?.audio ?? {};
        const isEndOfAudio = typeof expiry === "number" && Object.keys(rest).length === 0;
        if (reason || isEndOfAudio) finished.add(Number(index));
      }
    } catch {
      // Not a chunk.
    }
  };
  for (const line of lines.concat(last === "" ? [] : [last])) {
    if (line === "") [isInEvent, name, data] = [false, "", []];
    if (line === "" || line.startsWith(":")) continue;
    isInEvent = true;
    if (line.startsWith("event:")) name = line.slice(6).replace(/^ /, "");
    const value = line.startsWith("data:") ? line.slice(5).replace(/^ /, "") : "";
    if (value !== "") {
      payloadCount++;
      data.push(value);
      if (value === "[DONE]") hasLastEvent = true;
      if (choices > 1 || TELLING.test(value)) read(value);
      if (data.length > 1) read(data.join("\n"));
    }
    if (name === "error" && data.length > 0) hasError = true;
  }
  const isComplete = hasLastEvent ||
    (begun.size >= choices && [...begun].every((index) => finished.has(index)));
  return {
    payloadCount,
    hasLastEvent,
    isComplete,
    hasError,
    isAtBoundary: last === "" && !isInEvent && text !== "\ufeff",
  };
}

function scan(bytes: Uint8Array, cuts: readonly number[], choices: number): Findings {
  const scanner = OPENAI_CHAT.createScanner(choices);
  const edges = [0, ...[...cuts].sort((a, b) => a - b), bytes.length];
  for (const [index, edge] of edges.slice(1).entries()) {
    scanner.push(bytes.subarray(edges[index], edge));
  }
  scanner.end();
  const { payloadCount, hasLastEvent, isComplete, hasError, isAtBoundary } = scanner;
  return { payloadCount, hasLastEvent, isComplete, hasError, isAtBoundary };
}

/** An event with its data on several lines. */
function inLines(data: unknown): string {
  return JSON.stringify(data, null, 1).split("\n").map((line) => `data: ${line}`).join("\n");
}

const text = fc.oneof(
  fc.string({ unit: "binary", maxLength: 20 }),
  fc.constantFrom('"finish_reason":"stop"', "data: [DONE]", "größe", "😀", "finish_reason", "_"),
).map((content) => content.replace(/[\r\n]/g, ""));

const event = fc.oneof(
  fc.record({
    content: text,
    reason: fc.constantFrom(null, "stop", "length", "", "error"),
    index: fc.nat(2),
  })
    .map(({ content, reason, index }) => chunk(content, reason, index).trimEnd()),
  fc.record({
    content: text,
    reason: fc.constantFrom(null, "stop", ""),
    index: fc.constantFrom(0, 1, "0", "1"),
  })
    .map(({ content, reason, index }) =>
      inLines({ choices: [{ index, delta: { content }, finish_reason: reason }], usage: null })
    ),
  fc.constantFrom<unknown>(null, "", "text", {}, { message: "busy" }, 0, false).map((error) =>
    `data: ${
      JSON.stringify({
        id: "a",
        choices: [{ delta: { content: "error" }, finish_reason: null }],
        error,
      })
    }`
  ),
  fc.constantFrom({ expires_at: 1 }, { expires_at: 1, data: "AA" }, { expires_at: "1" }, {
    data: "AA",
  }).map((audio) => `data: ${JSON.stringify({ choices: [{ index: 0, delta: { audio } }] })}`),
  fc.constantFrom(
    "data: [DONE]",
    "data:[DONE]",
    "data: [DONE]x",
    "data:",
    "data: ",
    "data",
    "event: ping",
    "event: error",
    "event:error",
    "event: errors",
    "id: 7",
    "",
  ),
  text.map((comment) => `:${comment}`),
  text.map((value) => `data: ${value}`),
  text.map((line) => `x${line}`),
  fc.constant('data: {"choices":[{"index":0,"finish_reason" : "stop"}]}'),
);
const lineEnd = fc.constantFrom("\n", "\r\n", "\r", "\n\n", "\r\n\r\n");
const streamText = fc.tuple(
  fc.constantFrom("", "\ufeff"),
  fc.array(fc.tuple(event, lineEnd), { maxLength: 12 }),
  event,
)
  .map(([mark, lines, last]) => mark + lines.flat().join("") + last);

const FINISH = chunk(null, "stop").trimEnd();
const CASES: Readonly<
  Record<string, [content: string, expected: Partial<Findings> & { payloadCount: number }]>
> = {
  "nothing": ["", { payloadCount: 0 }],
  "line feeds": [`${FINISH}\n\n`, { payloadCount: 1, isComplete: true }],
  "carriage returns with line feeds": [`${FINISH}\r\n\r\n`, { payloadCount: 1, isComplete: true }],
  "carriage returns": [`${FINISH}\r\r`, { payloadCount: 1, isComplete: true }],
  "mixed line ends": [`data: a\r\n\rdata: b\n\r\n`, { payloadCount: 2 }],
  "a byte order mark": [`\ufeff${FINISH}\n\n`, { payloadCount: 1, isComplete: true }],
  "a byte order mark later on": [`data: a\n\n\ufeff${FINISH}\n\n`, { payloadCount: 1 }],
  "a byte order mark before a blank line": ["\ufeff\n", { payloadCount: 0 }],
  "comments": [": keep-alive\n\n: OPENROUTER PROCESSING\n:\n\n", { payloadCount: 0 }],
  "a comment that names the end": [":data: [DONE]\n\n", { payloadCount: 0 }],
  "empty data": ["data:\n\ndata: \n\ndata\n\n", { payloadCount: 0 }],
  "data of two spaces": ["data:  \n\n", { payloadCount: 1 }],
  "other fields": ["event: ping\nid: 1\nretry: 5\ndatax: [DONE]\n\n", { payloadCount: 0 }],
  "characters of several bytes": [`data: größe 😀 字\n\n`, { payloadCount: 1 }],
  "the end": ["data: [DONE]\n\n", { payloadCount: 1, hasLastEvent: true, isComplete: true }],
  "the end without a space": ["data:[DONE]\n\n", {
    payloadCount: 1,
    hasLastEvent: true,
    isComplete: true,
  }],
  "the end without a blank line": [
    "data: [DONE]\n",
    { payloadCount: 1, hasLastEvent: true, isComplete: true, isAtBoundary: false },
  ],
  "the end without a line end": ["data: [DONE]", {
    payloadCount: 1,
    hasLastEvent: true,
    isComplete: true,
    isAtBoundary: false,
  }],
  "the end after a carriage return": ["data: [DONE]\r", {
    payloadCount: 1,
    hasLastEvent: true,
    isComplete: true,
    isAtBoundary: false,
  }],
  "more than the end": ["data: [DONE]]\n\ndata: x[DONE]\n\ndata: [DONE\n\n", { payloadCount: 3 }],
  "a finish reason without a line end": [FINISH, {
    payloadCount: 1,
    isComplete: true,
    isAtBoundary: false,
  }],
  "half a chunk": [FINISH.slice(0, -1), { payloadCount: 1, isAtBoundary: false }],
  "a finish reason that is null": ['data: {"choices":[{"index":0,"finish_reason":null}]}\n\n', {
    payloadCount: 1,
  }],
  "usage without choices": ['data: {"choices":[],"usage":{"total_tokens":1}}\n\n', {
    payloadCount: 1,
  }],
  "a finish reason that is empty": ['data: {"choices":[{"index":0,"finish_reason":""}]}\n\n', {
    payloadCount: 1,
  }],
  "an error": ['data: {"error":{"message":"finish_reason"}}\n\n', {
    payloadCount: 1,
    hasError: true,
  }],
  "an error that is a text": ['data: { "error" : "busy" }\n\n', {
    payloadCount: 1,
    hasError: true,
  }],
  "an error that is null": ['data: {"error":null}\n\ndata: {"error": null}\n\n', {
    payloadCount: 2,
  }],
  "an error that is talked about": ['data: {"delta":{"error":{"x":"\\"error\\":1"}}}\n\n', {
    payloadCount: 1,
  }],
  "an error next to choices": [
    'data: {"id":"x","choices":[{"index":0,"delta":{},"finish_reason":null}],"error":{"code":502}}\n\n',
    { payloadCount: 1, hasError: true },
  ],
  "an error as finish reason": [chunk("", "error"), {
    payloadCount: 1,
    isComplete: true,
    hasError: true,
  }],
  "an event that is named an error": ["event: error\ndata: {}\n\n", {
    payloadCount: 1,
    hasError: true,
  }],
  "a name after its data": ["data: {}\nevent: error\n\n", { payloadCount: 1, hasError: true }],
  "a name without data": ["event: error\n\ndata: {}\n\n", { payloadCount: 1 }],
  "names that only begin alike": ["event: errors\ndata: {}\n\nevents: error\ndata: {}\n\n", {
    payloadCount: 2,
  }],
  "an error in several lines": ['data: {\ndata: "error":\ndata: {}}\n\n', {
    payloadCount: 3,
    hasError: true,
  }],
  "a finish reason in several lines": [
    'data: {"choices":[{\r\n: between\r\ndata: "index": 0, "finish_reason":\r\ndata: "stop"}]}\r\n\r\n',
    { payloadCount: 3, isComplete: true },
  ],
  "lines of two events": ['data: {"choices":[{\n\ndata: "finish_reason":"stop"}]}\n\n', {
    payloadCount: 2,
  }],
  "an index that is a text": ['data: {"choices":[{"index":"0","finish_reason":"stop"}]}\n\n', {
    payloadCount: 1,
    isComplete: true,
  }],
  "the end of audio": [
    'data: {"choices":[{"index":0,"delta":{"audio":{"expires_at":1741}}}]}\n\n',
    {
      payloadCount: 1,
      isComplete: true,
    },
  ],
  "audio that says with each part until when it is kept": [
    'data: {"choices":[{"index":0,"delta":{"audio":{"data":"AA==","expires_at":1741}}}]}\n\n',
    { payloadCount: 1 },
  ],
  "choices that are none": ['data: {"choices":7,"finish_reason":"stop"}\n\n', { payloadCount: 1 }],
};

describe("the scanner of events", () => {
  it.large("finds the same as the reference for all ways to split the stream", () => {
    fc.assert(
      fc.property(
        streamText,
        fc.infiniteStream(fc.nat(1000)),
        fc.constantFrom(1, 2, 3),
        (content, random, choices) => {
          const bytes = Buffer.from(content);
          const expected = reference(bytes.toString(), choices);
          const cuts = [...random.take(6)].map((number) => number % (bytes.length + 1));
          assert.deepEqual(scan(bytes, [], choices), expected);
          assert.deepEqual(scan(bytes, cuts, choices), expected);
          assert.deepEqual(scan(bytes, Array.from(bytes.keys()), choices), expected);
        },
      ),
      { numRuns: 2000 },
    );
  });

  it("ignores a finish reason in a model's text", () => {
    const bytes = Buffer.from(
      chunk('"finish_reason":"stop"') + chunk('{"choices":[{"finish_reason": "stop"}]}'),
    );
    assert.equal(scan(bytes, [], 1).isComplete, false);
  });

  it("accepts [DONE] at the end without a line end", () => {
    const bytes = Buffer.from(`${chunk("a")}data: [DONE]`);
    assert.equal(scan(bytes, [bytes.length - 3], 1).isComplete, true);
  });

  for (const [name, [content, expected]] of Object.entries(CASES)) {
    it(`reads ${name} the same whole, in halves and byte by byte`, () => {
      const bytes = Buffer.from(content);
      for (const cuts of [[], [bytes.length >> 1], Array.from(bytes.keys())]) {
        const rest = {
          hasLastEvent: false,
          isComplete: false,
          hasError: false,
          isAtBoundary: true,
        };
        assert.deepEqual(scan(bytes, cuts, 1), { ...rest, ...expected });
      }
    });
  }

  it("waits for every requested choice, even if it has not begun", () => {
    const first = chunk("a", null, 0) + chunk(null, "stop", 0);
    for (const choices of [1, 2, 3]) {
      assert.equal(scan(Buffer.from(first), [], choices).isComplete, choices === 1);
    }
    const second = chunk("b", null, 1) + chunk(null, "stop", 1);
    for (const choices of [2, 2.5, 3]) {
      assert.equal(scan(Buffer.from(first + second), [], choices).isComplete, choices < 3);
    }
    const all = Array.from({ length: 128 }, (_, index) => chunk(null, "stop", index)).join("");
    for (const choices of [128, 129]) {
      assert.equal(scan(Buffer.from(all), [], choices).isComplete, choices === 128);
    }
    assert.equal(scan(Buffer.from(`${all}data: [DONE]\n\n`), [], 129).isComplete, true);
  });

  it("waits for every choice that began if several were requested", () => {
    const begun = chunk("a", null, 0) + chunk("b", null, 1) + chunk(null, "stop", 1);
    assert.equal(scan(Buffer.from(begun), [], 2).isComplete, false);
    assert.equal(scan(Buffer.from(begun + chunk(null, "length", 0)), [], 2).isComplete, true);
    const texts = begun.replaceAll(/"index":(\d)/g, '"index":"$1"');
    assert.equal(scan(Buffer.from(texts + chunk(null, "length", 0)), [], 2).isComplete, true);
    assert.equal(
      scan(Buffer.from(begun + chunk("c", null, 2) + chunk(null, "length", 0)), [], 3).isComplete,
      false,
    );
  });

  it("finds the same in lines around its limit and far above it, for all ways to split them", () => {
    const frame = Buffer.byteLength(chunk("", "stop").trimEnd());
    for (const extra of [-1, 0, 1, 2, 100_000]) {
      for (const reason of ["stop", "error", null]) {
        const long = chunk("\\\n".repeat((MAX_KEPT_BYTES - frame) / 4 - 10), reason);
        const fill = MAX_KEPT_BYTES - Buffer.byteLength(long.trimEnd()) + extra;
        const bytes = Buffer.from(
          `${chunk("a")}${long.replace('"content":"', `$&${"x".repeat(fill)}`)}: c\n\n`,
        );
        const cut = fc.array(fc.nat(bytes.length), { maxLength: 8 });
        const [isComplete, hasError] = [reason !== null, reason === "error"];
        fc.assert(
          fc.property(cut, (cuts) => {
            const expected = {
              payloadCount: 2,
              hasLastEvent: false,
              isComplete,
              hasError,
              isAtBoundary: true,
            };
            assert.deepEqual(scan(bytes, cuts, 1), expected);
          }),
          { numRuns: 30 },
        );
      }
    }
  });

  it("reads an event of long lines, and does not read other long lines as data", () => {
    const long = "x".repeat(MAX_KEPT_BYTES);
    const several =
      `data: {"choices":[{"delta":{"content":"${long}"},\nid: ${long}\ndata: "finish_reason":"stop"}]}\n\n`;
    const comment = `data: {"choices":[{\n:"finish_reason":"stop"}],"x":"${long}"}\n\n`;
    for (
      const [text, payloadCount, isComplete] of [[several, 2, true], [comment, 1, false]] as const
    ) {
      const bytes = Buffer.from(text);
      for (const cuts of [[], [30], [bytes.length - 30], [30, 70_000, bytes.length - 1]]) {
        const expected = {
          payloadCount,
          hasLastEvent: false,
          isComplete,
          hasError: false,
          isAtBoundary: true,
        };
        assert.deepEqual(scan(bytes, cuts, 1), expected);
      }
    }
  });

  it("does not read the beginning of a long line as the whole line", () => {
    const done = Buffer.from(`data: [DONE]${" ".repeat(MAX_KEPT_BYTES)}\n\n`);
    const finish = chunk(null, "stop").trimEnd();
    const cut = Buffer.from(`${finish}${" ".repeat(MAX_KEPT_BYTES - finish.length)}x\n\n`);
    for (const bytes of [done, cut]) {
      for (const cuts of [[], [10], [MAX_KEPT_BYTES], [MAX_KEPT_BYTES + 1]]) {
        assert.equal(scan(bytes, cuts, 1).isComplete, false);
      }
    }
  });

  it("returns the bytes that end an unfinished event", () => {
    const boundaries = {
      "": "",
      [chunk("a")]: "",
      "data: x\n": "\n",
      "data: x\r\n": "\n",
      "data: x\r": "\n\n",
      "data: x": "\n\n",
      ":c\n": "",
    };
    for (const [text, boundary] of Object.entries(boundaries)) {
      const scanner = OPENAI_CHAT.createScanner(1);
      scanner.push(Buffer.from(text));
      assert.equal(scanner.boundary, boundary, text);
      scanner.end();
      assert.equal(scanner.boundary, boundary, `${text} at the end`);
    }
  });

  it("searches a stream of line ends once, for all kinds of line ends", () => {
    const bytes = 20_000;
    const units = ["\n", "\r", "\r\n", "\n\r", "data:a\r\r", "data:a\n\n", ":\r", "a\n"];
    for (const unit of units) {
      let calls = 0;
      let searched = 0;
      const indexOf = (target: Buffer) => (value: number, from: number) => {
        calls++;
        const found = target.indexOf(value, from);
        searched += (found === -1 ? target.length : found + 1) - from;
        return found;
      };
      const text = Buffer.from(unit.repeat(bytes / unit.length));
      const counted = new Proxy(text, {
        get(target, key) {
          if (key === "indexOf") return indexOf(target);
          const value: unknown = Reflect.get(target, key, target);
          return typeof value === "function" ? value.bind(target) : value;
        },
      });
      const scanner = OPENAI_CHAT.createScanner(1);
      scanner.push(counted);
      assert.ok(
        searched <= 3 * bytes,
        `${JSON.stringify(unit)}: ${searched / bytes} bytes searched for each byte`,
      );
      const lines = /^[\r\n]+$/.test(unit) ? 0 : text.toString().split(/[\r\n]/).length;
      assert.ok(
        calls <= lines + 4,
        `${JSON.stringify(unit)}: ${calls} searches for ${lines} lines with text`,
      );
      assert.equal(scanner.payloadCount, unit.startsWith("data") ? bytes / unit.length : 0);
    }
  });

  it("counts a line above its limit once, and continues after it", () => {
    const long = chunk("x".repeat(MAX_KEPT_BYTES + 1));
    const scanner = OPENAI_CHAT.createScanner(1);
    for (const piece of [long.slice(0, 70_000), long.slice(70_000)]) {
      scanner.push(Buffer.from(piece));
    }
    assert.equal(scanner.payloadCount, 1);
    assert.equal(scanner.isComplete, false);
    scanner.push(Buffer.from(stream("a")));
    assert.equal(scanner.payloadCount, 4);
    assert.equal(scanner.isComplete, true);
  });
});
