/**
 * Streams of every interface through the gateway: byte for byte, with their own end, usage and
 * error events.
 */
// runtimes: bun, node
import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { createHash } from "node:crypto";
import type { ServerResponse } from "node:http";
import { setImmediate } from "node:timers";
import { afterEach, describe, it } from "@std/testing/bdd";
import type { TokenUsage } from "../../src/exchange/billing.ts";
import { closeAll, startWith } from "../support/aimock.ts";
import {
  EDIT_EVENTS,
  IMAGE_EVENTS,
  MESSAGE_EVENTS,
  responseEvents,
  SPEECH_EVENTS,
  toEvent,
  toStream,
  TRANSCRIPT_EVENTS,
  type TypedEvent,
} from "../support/event_streams.ts";
import { PROMPT, type UnderTest } from "../support/gateway.ts";
import { chunk, stream } from "../support/provider.ts";

interface Sample {
  readonly path: string;
  /** Its body. A GET has none. */
  readonly body?: Record<string, unknown>;
  readonly text: string;
  /**
   * Its tokens. `tests/dialects/` checks their details, because the log, and so a Worker's record,
   * has none.
   */
  readonly usage?: Pick<TokenUsage, "total" | "input" | "output">;
}

const IMAGE = { model: "test-1", prompt: PROMPT, stream: true };
const MESSAGE = {
  model: "test-1",
  max_tokens: 9,
  messages: [{ role: "user", content: PROMPT }],
  stream: true,
};
const RESPONSE = toStream(responseEvents());
const SAMPLES: Readonly<Record<string, Sample>> = {
  "a response": {
    path: "/responses",
    body: { model: "test-1", input: PROMPT, stream: true },
    text: RESPONSE,
    usage: { total: 27, input: 20, output: 7 },
  },
  "a response that is asked for again": {
    path: "/responses/resp_1?stream=true&starting_after=3",
    text: toStream(responseEvents().slice(4)),
  },
  "an image": {
    path: "/images/generations",
    body: IMAGE,
    text: toStream(IMAGE_EVENTS),
    usage: { total: 110, input: 10, output: 100 },
  },
  "two edited images": {
    path: "/images/edits",
    body: { ...IMAGE, n: 2 },
    text: toStream([...EDIT_EVENTS, ...EDIT_EVENTS]),
    usage: { total: 220, input: 20, output: 200 },
  },
  "speech": {
    path: "/audio/speech",
    body: { model: "test-1", input: PROMPT, voice: "alloy", stream_format: "sse" },
    text: toStream(SPEECH_EVENTS),
    usage: { total: 115, input: 14, output: 101 },
  },
  "a transcript": {
    path: "/audio/transcriptions",
    body: { model: "test-1", stream: true },
    text: toStream(TRANSCRIPT_EVENTS),
    usage: { total: 16, input: 14, output: 2 },
  },
  "a message": {
    path: "/messages",
    body: MESSAGE,
    text: toStream(MESSAGE_EVENTS),
    usage: { total: 36, input: 23, output: 13 },
  },
  "a legacy completion": {
    path: "/completions",
    body: { model: "test-1", prompt: PROMPT, stream: true },
    text: stream("Hel", "lo"),
  },
};

/** Writes one piece at a time, each in its own packet. */
async function writePieces(response: ServerResponse, bytes: Buffer, size: number): Promise<void> {
  response.writeHead(200, { "content-type": "text/event-stream; charset=utf-8" });
  for (let at = 0; at < bytes.length; at += size) {
    await new Promise<void>((resolve) =>
      response.write(bytes.subarray(at, at + size), () => setImmediate(resolve))
    );
  }
  response.end();
}

const countsOf = (usage: Sample["usage"]) => [usage?.total, usage?.input, usage?.output];
const digestOf = (bytes: Uint8Array) => createHash("sha256").update(bytes).digest("hex");

async function call(base: string, { headers }: UnderTest, { path, body }: Sample): Promise<Buffer> {
  const init = body === undefined
    ? { headers }
    : { method: "POST", headers, body: JSON.stringify(body) };
  const response = await fetch(`${base}/v1${path}`, init);
  assert.equal(response.status, 200);
  return Buffer.from(await response.arrayBuffer());
}

describe("a stream of any interface", () => {
  afterEach(closeAll);

  for (const [name, sample] of Object.entries(SAMPLES)) {
    it(`passes byte for byte as ${name}, however it is cut`, async () => {
      const bytes = Buffer.from(sample.text);
      let size = 1;
      const { under } = await startWith((response) => writePieces(response, bytes, size));
      for (size of [1, 17, bytes.length]) {
        // Over https, `stream_test.ts` sends single bytes.
        for (const base of size === 1 ? [under.a] : [under.a, under.b]) {
          assert.equal(digestOf(await call(base, under, sample)), digestOf(bytes));
          const { outcome, usage, isEstimated } = await under.settled();
          const stated = isEstimated ? undefined : usage;
          assert.deepEqual([outcome, countsOf(stated)], ["ok", countsOf(sample.usage)]);
        }
      }
    });

    it(`ends with an error event when ${name} breaks off`, async () => {
      const half = sample.text.slice(
        0,
        sample.text.lastIndexOf("\n\n", sample.text.length - 3) + 2,
      );
      const bytes = Buffer.from(
        name.startsWith("a legacy") ? half.slice(0, half.indexOf("\n\n") + 2) : half,
      );
      const { under } = await startWith((response) => writePieces(response, bytes, bytes.length));
      const answer = await call(under.a, under, sample);
      assert.equal(digestOf(answer.subarray(0, bytes.length)), digestOf(bytes));
      const event = answer.subarray(bytes.length).toString();
      assert.match(
        event,
        /^(?:event: error\n)?data: \{.*"code":"upstream_stream_truncated".*\}\n\n$/,
      );
      assert.equal((await under.settled()).outcome, "upstream_cut");
    });
  }

  const MANY: Readonly<Record<string, [path: string, body: object, answers: number]>> = {
    "several choices": ["/chat/completions", {
      messages: [{ role: "user", content: PROMPT }],
      n: 2,
    }, 2],
    "several prompts": ["/completions", { prompt: [PROMPT, "And then?"] }, 2],
    "several prompts in tokens": ["/completions", { prompt: [[1, 2], [3]] }, 2],
    "several choices of several prompts": ["/completions", { prompt: ["a", "b"], n: 2 }, 4],
  };
  for (const [name, [path, asked, answers]] of Object.entries(MANY)) {
    it(`of ${name} breaks off with an error event unless each answer in it has its end`, async () => {
      const all = Array.from(
        { length: answers },
        (_, index) => chunk("Hi", null, index) + chunk(null, "stop", index),
      );
      let text = "";
      let isCut = false;
      let calls = 0;
      const { under } = await startWith((response) => {
        response.writeHead(200, { "content-type": "text/event-stream" });
        response.write(text, () => setImmediate(() => isCut ? response.destroy() : response.end()));
      });
      const sample = { path, body: { model: "test-1", stream: true, ...asked }, text };
      for (isCut of [false, true]) {
        for (let count = 1; count < answers; count++) {
          text = all.slice(0, count).join("");
          const code = isCut ? "upstream_disconnected" : "upstream_stream_truncated";
          const answer = (await call(under.a, under, sample)).toString();
          assert.ok(
            answer.startsWith(text) && answer.slice(text.length).includes(`"code":"${code}"`),
            answer,
          );
          assert.equal((await under.settled(++calls)).outcome, "upstream_cut");
        }
      }
      isCut = false;
      text = all.join("");
      assert.equal((await call(under.a, under, sample)).toString(), text);
      assert.equal((await under.settled(++calls)).outcome, "ok");
    });
  }

  it("is complete only if the provider says so", async () => {
    const failed = responseEvents({
      type: "response.failed",
      response: { ...responseEvents()[0] } as never,
    });
    const cases: readonly [name: keyof typeof SAMPLES, text: string][] = [
      ["a response", toStream(failed)],
      ["a response", toEvent({ type: "error", code: "server_error", message: "no" } as TypedEvent)],
      ["an image", 'event: error\ndata: {"error":{"message":"no"}}\n\n'],
      [
        "a message",
        'event: error\ndata: {"type":"error","error":{"type":"overloaded_error","message":"no"}}\n\n',
      ],
    ];
    let text = "";
    const { under } = await startWith((response) =>
      writePieces(response, Buffer.from(text), text.length)
    );
    for (const [name, own] of cases) {
      text = own;
      const sample = SAMPLES[name] ?? assert.fail(name);
      assert.equal((await call(under.a, under, sample)).toString(), own);
      const { outcome, code } = await under.settled();
      assert.deepEqual([outcome, code], ["upstream_error", undefined], own);
    }
  });

  it("of an unknown interface is complete when it ends, and is cut for the caller if the provider cuts it", async () => {
    const text = 'event: thread.created\ndata: {"id":"thread_1"}\n\nevent: done\ndata: [DONE]\n\n';
    let isBroken = false;
    const { under } = await startWith((response) => {
      response.writeHead(200, { "content-type": "text/event-stream" });
      response.write(
        text,
        () => setImmediate(() => isBroken ? response.destroy() : response.end()),
      );
    }, { provider: { operations: ["all"] } });
    const sample = { path: "/threads/runs", body: { assistant_id: "asst_1", stream: true }, text };
    assert.equal((await call(under.a, under, sample)).toString(), text);
    assert.equal((await under.settled()).outcome, "ok");
    isBroken = true;
    await assert.rejects(call(under.a, under, sample));
    assert.equal((await under.settled(2)).outcome, "upstream_cut");
  });

  it("can contain an image of several megabytes", async () => {
    const events = IMAGE_EVENTS.map((event) => ({ ...event, b64_json: "iVBO".repeat(1_500_000) }));
    const bytes = Buffer.from(toStream(events));
    const { under } = await startWith((response) => writePieces(response, bytes, 60_001));
    const sample = SAMPLES["an image"] ?? assert.fail();
    assert.equal(digestOf(await call(under.a, under, sample)), digestOf(bytes));
    const { outcome, usage } = await under.settled();
    assert.deepEqual([outcome, countsOf(usage)], ["ok", countsOf(sample.usage)]);
  });
});
