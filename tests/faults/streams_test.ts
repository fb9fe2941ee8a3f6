/** Streams and deadlines of real providers and client libraries. Each has one right outcome. */
// runtimes: all, workers
import assert from "node:assert/strict";
import type { ServerResponse } from "node:http";
import { describe } from "@std/testing/bdd";
import { type Clock, systemClock } from "../../src/exchange/clock.ts";
import type { ExchangeRecord } from "../../src/exchange/record.ts";
import { it } from "../support/cases.ts";
import {
  GOOD_BODY,
  STREAM_BODY,
  type UnderTest,
  type UnderTestOptions,
} from "../support/gateway.ts";
import { chunk, COMPLETION, stream } from "../support/provider.ts";
import { runtime } from "../support/runtimes.ts";
import { useScenes } from "../support/scenes.ts";
import { openRaw, parseAnswer, type RawConnection, toRawRequest } from "../support/tcp_peer.ts";
import { until } from "../support/until.ts";

const DONE = "data: [DONE]\n\n";
const MINUTE_MS = 60_000;

/** A clock that only the test moves forward. */
class HandClock implements Clock {
  #elapsed = 0;
  readonly #timers = new Set<{ readonly dueAt: number; fire(): void }>();

  now(): number {
    return systemClock.now() + this.#elapsed;
  }

  monotonic(): number {
    return this.#elapsed;
  }

  timer(ms: number, fire: () => void): () => void {
    const timer = { dueAt: this.#elapsed + ms, fire };
    this.#timers.add(timer);
    return () => void this.#timers.delete(timer);
  }

  advance(ms: number): void {
    this.#elapsed += ms;
    for (const timer of this.#timers) { // timers set meanwhile are visited last
      if (timer.dueAt <= this.#elapsed && this.#timers.delete(timer)) timer.fire();
    }
  }
}

/** An event that is not a chunk of a completion. */
const event = (data: unknown): string => `data: ${JSON.stringify(data)}\n\n`;
const choice = (choice: Record<string, unknown>): Record<string, unknown> => ({
  choices: [choice],
});
const ERROR = { message: "disconnected", code: 502 };
/** Chunks as some servers send them, each with an empty finish reason. */
const emptyReason = (content: string): string => chunk(content, "");
/** A chunk whose JSON spans several lines. */
const inLines = (data: unknown): string =>
  `${JSON.stringify(data, null, 1).split("\n").map((line) => `data: ${line}`).join("\n")}\n\n`;

/** Errors of providers. All of them pass unchanged. */
const OWN_ERRORS: Readonly<Record<string, string>> = {
  "an error event": chunk("a") + event({ error: ERROR }),
  "an error event before all others": event({ error: ERROR }),
  "an event that is named an error": `${chunk("a")}event: error\n${
    event({ message: "overloaded" })
  }`,
  "an error as finish reason": chunk("a") + chunk("", "error"),
  "an error next to choices, and [DONE]": chunk("a") +
    event({
      id: "gen-1",
      error: ERROR,
      ...choice({ index: 0, delta: { content: "" }, finish_reason: "error" }),
    }) +
    DONE,
  "an error next to choices that are not finished": chunk("a") +
    event({ ...choice({ index: 0, delta: {}, finish_reason: null }), error: ERROR }),
  "an error that is a text, without a line end": `${chunk("a")}data: {"error":"model crashed"}`,
};

const long = "x".repeat(70_000);
/** Streams that end well without [DONE], each in a different way. */
const ODD_ENDS: Readonly<Record<string, string>> = {
  "in a chunk of over 64 KiB": chunk("a") + chunk(long, "stop"),
  "in a chunk of many small things": chunk("a") + event(choice({
    index: 0,
    delta: {},
    logprobs: {
      content: Array.from({ length: 5000 }, () => ({ token: "a", logprob: -0.5, bytes: [97] })),
    },
    finish_reason: "stop",
  })),
  "in a chunk over several lines": chunk("a") +
    inLines(choice({ index: 0, delta: {}, finish_reason: "stop" })),
  "in a long chunk over several lines": chunk("a") +
    inLines(choice({ index: 0, delta: { content: long }, finish_reason: "stop" })),
  "with an index that is a text": chunk("a") +
    event(choice({ index: "0", delta: {}, finish_reason: "stop" })),
  "with the end of its audio":
    event(choice({ index: 0, delta: { audio: { id: "audio_1", data: "AAAA" } } })) +
    event(choice({ index: 0, delta: { audio: { expires_at: 1_741_000_000 } } })),
};

describe("streams and deadlines", () => {
  const { start } = useScenes();
  const open = (
    under: UnderTest,
    body: string,
    headers: Record<string, string> = {},
  ): RawConnection =>
    openRaw(under.a, toRawRequest(under.a, { headers: { ...under.headers, ...headers }, body }));
  /** Returns the caller's answer to a stream. */
  const call = async (under: UnderTest, body = STREAM_BODY) =>
    parseAnswer(await open(under, body).closed);
  const beginStream = (response: ServerResponse) => {
    response.writeHead(200, { "content-type": "text/event-stream" });
    response.flushHeaders();
  };
  const dripping = (response: ServerResponse, drop: string, drops: number, end: string) => {
    const timer = setInterval(() => {
      if (drops-- > 0) return response.write(drop);
      clearInterval(timer);
      response.end(end);
    }, 50);
    response.on("close", () => clearInterval(timer));
  };
  const isBroken = (received: string): boolean => !/\r\n0\r\n\r\n$/.test(received);

  it("comments for longer than the idle deadline, then the first event, are a good stream [late first event]", async () => {
    const { under } = await start((response) => {
      beginStream(response);
      dripping(response, ": queued\n\n", 65, stream("a"));
    }, { provider: { deadlines: { idle: "3s" } } });
    assert.equal((await call(under)).body.replaceAll(": queued\n\n", ""), stream("a"));
    assert.equal((await under.settled()).outcome, "ok");
  });

  it("a stream with nothing after its header ends at the idle deadline [late first event]", async () => {
    const { under } = await start(beginStream, { provider: { deadlines: { idle: "300ms" } } });
    assert.match((await call(under)).body, /"code":"upstream_idle_timeout"/);
    assert.equal((await under.settled()).outcome, "timeout");
  });

  it("blank lines for longer than the idle deadline, then a plain answer, are a good answer [late first event]", async () => {
    const { under } = await start((response) => {
      response.writeHead(200, { "content-type": "application/json" });
      dripping(response, "\n", 65, COMPLETION);
    }, { provider: { deadlines: { idle: "3s" } } });
    assert.deepEqual(JSON.parse((await call(under, GOOD_BODY)).body), JSON.parse(COMPLETION));
    const { outcome, usage } = await under.settled();
    assert.equal(outcome, "ok");
    assert.equal(usage?.total, 2);
  });

  it.notOn(
    "workers",
    "a Worker accepts no parts from a test",
    "ten minutes of comments are allowed by default [late first event]",
    async () => {
      const clock = new HandClock();
      const held: { response?: ServerResponse } = {};
      const { under } = await start((response) => {
        beginStream(response);
        held.response = response;
      }, { parts: { clock }, provider: { keepAlive: "off" } });
      const raw = open(under, STREAM_BODY);
      await until(() => held.response !== undefined, "the provider is called");
      for (let number = 1; number <= 10; number++) {
        held.response?.write(`: ${number}.\n\n`);
        await until(() => raw.received().includes(`: ${number}.`), `comment ${number}`);
        clock.advance(MINUTE_MS - 1);
      }
      held.response?.end(stream("a"));
      assert.ok(parseAnswer(await raw.closed).body.endsWith(stream("a")));
      assert.equal((await under.settled()).outcome, "ok");
    },
  );

  it.notOn(
    "workers",
    "a Worker accepts no parts from a test",
    "a plain answer after nine minutes is allowed by default [late answer]",
    async () => {
      const clock = new HandClock();
      const held: { response?: ServerResponse } = {};
      const { under } = await start((response) => void (held.response = response), {
        parts: { clock },
      });
      const raw = open(under, GOOD_BODY);
      await until(() => held.response !== undefined, "the provider is called");
      clock.advance(9 * MINUTE_MS);
      held.response?.writeHead(200, { "content-type": "application/json" }).end(COMPLETION);
      assert.equal(parseAnswer(await raw.closed).status, 200);
    },
  );

  it.notOn(
    "workers",
    "a Worker accepts no parts from a test",
    "a caller's deadline in whole seconds lasts until the end of its last second [cut clock]",
    async () => {
      const cases = [["1", 1600, 200], ["1", 2000, 504], ["0", 900, 200], ["0", 1000, 504], [
        "1.5",
        1499,
        200,
      ]] as const;
      for (const body of [GOOD_BODY, STREAM_BODY]) {
        for (const [timeout, ms, status] of [...cases, ["1.5", 1500, 504] as const]) {
          const clock = new HandClock();
          const held: { response?: ServerResponse } = {};
          const { under } = await start((response) => void (held.response = response), {
            parts: { clock },
          });
          const raw = open(under, body, { "x-stainless-timeout": timeout });
          await until(() => held.response !== undefined, "the provider is called");
          clock.advance(ms);
          if (status === 200) {
            held.response?.writeHead(200, { "content-type": "application/json" }).end(COMPLETION);
          }
          assert.equal(parseAnswer(await raw.closed).status, status, `${timeout}: ${ms} ms`);
        }
      }
    },
  );

  for (const [name, events] of Object.entries(OWN_ERRORS)) {
    it(`${name} from the provider passes unchanged, with nothing after it [error event]`, async () => {
      const { under } = await start((response) => {
        beginStream(response);
        response.end(events);
      });
      assert.equal((await call(under)).body, events);
      const { outcome, code } = await under.settled();
      assert.deepEqual([outcome, code], ["upstream_error", undefined]);
    });
  }

  it("an empty finish reason does not finish a stream [error event]", async () => {
    const events = emptyReason("a") + emptyReason("b");
    const { under } = await start((response) => {
      beginStream(response);
      response.end(events);
    });
    const { body } = await call(under);
    assert.ok(body.startsWith(events));
    assert.match(
      body.slice(events.length),
      /^data: \{"error":\{.*"code":"upstream_stream_truncated"\}\}\n\n$/,
    );
    assert.equal((await under.settled()).outcome, "upstream_cut");
  });

  /** A provider whose connection breaks as soon as the caller has its events. */
  async function cutAfter(events: string): Promise<{ received: string; record: ExchangeRecord }> {
    const held: { response?: ServerResponse } = {};
    const { under } = await start((response) => {
      beginStream(response);
      response.write(events);
      held.response = response;
    });
    const raw = open(under, STREAM_BODY);
    await until(() => raw.received().includes(events.slice(-20)), "the events");
    held.response?.destroy();
    return { received: await raw.closed, record: await under.settled() };
  }

  it.notOn(
    "workers",
    "workerd ends a broken body like a whole one",
    "a cut between the finish and the usage is a cut for the caller too [error event]",
    async () => {
      const events = chunk("a") + chunk(null, "stop");
      const { received, record } = await cutAfter(events);
      assert.ok(isBroken(received));
      assert.equal(parseAnswer(received).body, events);
      assert.deepEqual([record.outcome, record.code], ["upstream_cut", "upstream_disconnected"]);
    },
  );

  it.notOn(
    "workers",
    "workerd ends a broken body like a whole one",
    "a cut after an error event of the provider is a cut for the caller too [error event]",
    async () => {
      const events = chunk("a") + event({ error: ERROR });
      const { received, record } = await cutAfter(events);
      assert.ok(isBroken(received));
      assert.equal(parseAnswer(received).body, events);
      assert.deepEqual([record.outcome, record.code], ["upstream_error", undefined]);
    },
  );

  const GEMINI =
    'data: {"candidates":[{"content":{"parts":[{"text":"Hel"}],"role":"model"}}]}\r\n\r\n';
  /**
   * A stream of an interface that the gateway does not know. @param end Ends the provider's answer
   */
  async function callUnknown(
    end: (response: ServerResponse) => unknown,
    options: Partial<UnderTestOptions> = {},
  ) {
    const { under } = await start((response) => {
      beginStream(response);
      response.write(GEMINI);
      return end(response);
    }, { ...options, provider: { operations: ["all"], ...options.provider } });
    const path = "/v1/gemini/models/test-1:streamGenerateContent?alt=sse";
    const call = { path, headers: under.headers, body: '{"contents":[]}' };
    const raw = openRaw(under.a, toRawRequest(under.a, call));
    return { received: await raw.closed, record: await under.settled() };
  }

  it.notOn(
    "workers",
    "workerd ends a broken body like a whole one",
    "a broken stream of an unknown interface breaks for the caller too",
    async () => {
      const idle = { provider: { deadlines: { idle: "300ms" } } };
      const breaks: [code: string, () => ReturnType<typeof callUnknown>][] = [
        [
          "upstream_disconnected",
          () => callUnknown((response) => setTimeout(() => response.destroy(), 20)),
        ],
        ["upstream_idle_timeout", () => callUnknown(() => {}, idle)],
      ];
      for (const [code, breakOff] of breaks) {
        const { received, record } = await breakOff();
        assert.ok(isBroken(received) && !/^content-length:/mi.test(received), received);
        const [first, ...more] = parseAnswer(received).body.split("event: error\ndata: ");
        assert.equal(first, GEMINI);
        assert.ok(
          more.every((data) => data.includes(`"code":"${code}"`)),
          "the event, if it came before the break",
        );
        assert.equal(record.code, code);
      }
      const whole = await callUnknown((response) => response.end());
      assert.equal(parseAnswer(whole.received).body, GEMINI);
      assert.equal(whole.record.outcome, "ok");
    },
  );

  it("a cut after [DONE] is a complete stream [error event]", async () => {
    const { received, record } = await cutAfter(stream("a"));
    assert.ok(!isBroken(received));
    assert.equal(record.outcome, "ok");
  });

  it("a caller that leaves after the error event has seen the end [error event]", async () => {
    const { under } = await start((response) => {
      beginStream(response);
      response.write(chunk("a") + event({ error: ERROR }));
    });
    const raw = open(under, STREAM_BODY);
    await until(() => raw.received().includes(ERROR.message), "the error event");
    raw.socket.destroy();
    assert.equal((await under.settled()).outcome, "upstream_error");
  });

  for (const [name, events] of Object.entries(ODD_ENDS)) {
    it(`a stream that ends ${name} is complete [odd ending]`, async () => {
      const { under } = await start((response) => {
        beginStream(response);
        response.end(events);
      });
      assert.equal((await call(under)).body, events);
      assert.equal((await under.settled()).outcome, "ok");
    });
  }

  it("the header is sent before the first event, and a comment only if the listener needs one [early header]", async () => {
    const held: { response?: ServerResponse } = {};
    const { under } = await start((response) => {
      beginStream(response);
      held.response = response;
    });
    const raw = open(under, STREAM_BODY);
    await until(() => raw.received().includes("\r\n\r\n"), "the header");
    held.response?.end(stream("a"));
    const { status, headers, body } = parseAnswer(await raw.closed);
    assert.equal(status, 200);
    assert.equal(headers["content-type"], "text/event-stream");
    assert.equal(body, runtime === "bun" ? `: keep-alive\n\n${stream("a")}` : stream("a"));
    const { bytesOut, outcome } = await under.settled();
    assert.deepEqual([bytesOut, outcome], [body.length, "ok"]);
  });
});
