/**
 * The chunk of usage that is removed from a stream, compared with a reference that has the whole
 * text.
 */
// runtimes: bun, node
import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { describe, it } from "@std/testing/bdd";
import fc from "fast-check";
import { STREAM_OPTIONS } from "../../src/dialects/usage_opt_in.ts";
import type { ByteSink, PushedBody } from "../../src/http/message.ts";
import { UsageChunkFilter } from "../../src/upstream/usage_chunk.ts";

const USAGE = '{"id":"x","choices":[],"usage":{"total_tokens":3}}';
const chunkOf = (data: string) => `data: ${data}\n\n`;

/** Filters a text in these pieces. Returns the output of each. */
function filter(pieces: readonly Uint8Array[]): { passed: string[]; bytesOut: number } {
  const exchange = { bytesOut: 0 };
  const source: PushedBody = {
    pushTo(sink) {
      for (const each of pieces) {
        const piece = new Uint8Array(each);
        exchange.bytesOut += piece.length;
        sink.write(piece);
        piece.fill(0x78); // a runtime can reuse its buffer
      }
      sink.end();
      return () => {};
    },
    cancel() {},
  };
  const passed: string[] = [];
  let isOver = false;
  new UsageChunkFilter(source, exchange, STREAM_OPTIONS).pushTo({
    write(piece) {
      assert.ok(piece.length > 0, "nothing passed");
      passed.push(Buffer.from(piece).toString("latin1"));
      return true;
    },
    end: () => isOver = true,
    fail: assert.fail,
  });
  assert.equal(isOver, true);
  return { passed, bytesOut: exchange.bytesOut };
}

function toPieces(text: string, size: number): Uint8Array[] {
  const bytes = Buffer.from(text, "latin1");
  return Array.from(
    { length: Math.ceil(bytes.length / size) },
    (_, at) => bytes.subarray(at * size, (at + 1) * size),
  );
}

/** The same for a whole text of finished events. */
function reference(text: string): string {
  const events = text.match(/(?:[^\r\n]+(?:\r\n|\r|\n))*(?:\r\n|\r|\n)/g) ?? [];
  return events.map((event) => {
    const comments = /^(?::[^\r\n]*(?:\r\n|\r|\n))*/.exec(event)?.[0] ?? "";
    const lines = event.slice(comments.length).split(/\r\n|\r|\n/);
    const data = lines.filter((line) => /^data(?::|$)/.test(line));
    const isUsage = data.length === 1 && data[0]?.replace(/^data: ?/, "").trim() === USAGE;
    return isUsage ? comments : event;
  }).join("");
}

const line = fc.constantFrom(
  `data: ${USAGE}`,
  `data:${USAGE}`,
  'data: {"choices":[{"index":0,"delta":{"content":"\\"choices\\":[]"}}],"usage":null}',
  'data: {"choices":[],"usage":null}',
  "data: [DONE]",
  "data: ",
  ": quiet",
  ":",
  "event: message",
  "id: 7",
  "\u00e9",
);
const events = fc.array(fc.array(line, { maxLength: 3 }), { maxLength: 6 });
const lineEnd = fc.constantFrom("\n", "\r\n", "\r");

describe("a stream whose usage was requested by the gateway", () => {
  it("loses the chunk with usage and nothing else, however it is written and cut", () => {
    fc.assert(
      fc.property(events, lineEnd, fc.constantFrom(1, 2, 3, 7, 17, 1e6), (all, end, size) => {
        const text = all.map((lines) => lines.map((each) => each + end).join("") + end).join("");
        const { passed, bytesOut } = filter(toPieces(text, size));
        assert.equal(passed.join(""), reference(text));
        assert.equal(bytesOut, reference(text).length);
      }),
      { numRuns: 2000 },
    );
  });

  it("passes each piece at once, except for the beginning of a possible usage chunk", () => {
    const held = 'data: {"id":"x","choices" : [';
    const cases: readonly [pieces: string[], passed: string[]][] = [
      [["data: {", '"choices":[{"a":1}', "]}\n", "\n"], [
        'data: {"choices":[{"a":1}',
        "]}\n",
        "\n",
      ]],
      [["data: [", "DONE]\n\n"], ["data: [", "DONE]\n\n"]],
      [[": qui", "et\n", "\n"], [": qui", "et\n", "\n"]],
      [[held, "{"], [`${held}{`]],
      [[held, "]", ',"usage":null}', "\n", "\n"], [`${held}],"usage":null}\n`, "\n"]],
      [[held, '],"usage":{}}\n', "\n", "data: [DONE]\n\n"], ["data: [DONE]\n\n"]],
      [["event: x\n", `data: ${USAGE}\n`, 'data: {"more":1}\n', "\n"], [
        `event: x\ndata: ${USAGE}\ndata: {"more":1}\n`,
        "\n",
      ]],
      [[`data: ${USAGE}\r\n\r`, "\ndata: [DONE]\r\n\r", "\n"], ["data: [DONE]\r\n\r", "\n"]],
      [[chunkOf(USAGE) + chunkOf("[DONE]")], [chunkOf("[DONE]")]],
      [[chunkOf("[DONE]"), `data: ${USAGE}`], [chunkOf("[DONE]")]],
      [[held, "", "{"], [`${held}{`]],
    ];
    for (const [pieces, passed] of cases) {
      assert.deepEqual(filter(pieces.map((piece) => Buffer.from(piece))).passed, passed);
    }
  });

  it("buffers at most a few kilobytes", () => {
    const pieces = [
      `data: {"a":"${"x".repeat(5000)}`,
      "x".repeat(5000),
      "x".repeat(5000),
      `","choices":[],"usage":{}}\n\n`,
    ];
    const { passed } = filter(pieces.map((piece) => Buffer.from(piece)));
    assert.deepEqual(passed.map(({ length }) => length), [10_012, 5000, 28]);
    assert.equal(passed.join(""), pieces.join(""));
  });

  it("passes `announce` on to its source, except within an event", () => {
    const calls: string[] = [];
    let into: ByteSink | undefined;
    const source: PushedBody = {
      pushTo(sink) {
        into = sink;
        return () => void calls.push("more");
      },
      cancel: (reason) => void calls.push(`cancel ${reason}`),
      announce: () => void calls.push("announce"),
    };
    const filtered = new UsageChunkFilter(source, { bytesOut: 0 }, STREAM_OPTIONS);
    const askForMore = filtered.pushTo({
      write(bytes) {
        calls.push(Buffer.from(bytes).toString());
        return false;
      },
      end: () => void calls.push("end"),
      fail: (error) => void calls.push(`fail ${error}`),
    });
    filtered.announce();
    assert.equal(into?.write(Buffer.from('data: {"id"')), true, "what is held back asks for more");
    filtered.announce();
    assert.equal(into?.write(Buffer.from(":1}\n\n")), false);
    filtered.announce();
    askForMore();
    into?.fail("broken");
    filtered.cancel("x");
    const event = 'data: {"id":1}\n\n';
    assert.deepEqual(calls, ["announce", event, "announce", "more", "fail broken", "cancel x"]);
  });
});
