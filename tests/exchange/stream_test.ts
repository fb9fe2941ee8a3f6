/** Streams through the gateway: every byte unchanged and at its time, and a verdict at the end. */
// runtimes: all, workers
// long: a stream is silent for longer than the listeners' own deadlines
import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import type { ServerResponse } from "node:http";
import { setImmediate } from "node:timers";
import { afterEach, describe } from "@std/testing/bdd";
import { it } from "../support/cases.ts";
import {
  type Answering,
  chunk,
  type Provider,
  startProvider,
  stream,
} from "../support/provider.ts";
import { startUnderTest, STREAM_BODY, type UnderTest } from "../support/gateway.ts";
import { openRaw, parseAnswer, toRawRequest } from "../support/tcp_peer.ts";
import { until } from "../support/until.ts";

const ENDINGS = "data: [DONE]\n\n";
const ESCAPED = stream("a").replace(ENDINGS, "").replace(
  '"finish_reason":"stop"',
  '"finish_r\\u0065ason":"stop"',
);
const SAMPLES: Readonly<Record<string, string>> = {
  "plain events": stream("Hel", "lo"),
  "CRLF line ends": stream("Hel", "lo").replaceAll("\n", "\r\n"),
  "CR line ends": stream("Hel", "lo").replaceAll("\n", "\r"),
  "comments and unknown fields": `: OPENROUTER PROCESSING\n\nid: 7\nretry: 10\n${stream("a")}`,
  "a byte order mark": `\ufeff${stream("a")}`,
  "text of four bytes a character": stream("😀", "größe", "日本語"),
  "an event of 300 kB": stream("x".repeat(300_000)),
  "no space after the colon": stream("a").replaceAll("data: ", "data:"),
  "a finish reason without [DONE]": stream("a").replace(ENDINGS, ""),
  "a finish reason whose key has an escape": ESCAPED,
  "the same in an event of 300 kB": ESCAPED.replace(
    '"stop"',
    `"stop","x":"${"x".repeat(300_000)}"`,
  ),
  "an end without a blank line": stream("a").replace(ENDINGS, "data: [DONE]"),
};

/** Writes one piece at a time, each in its own packet. */
async function writePieces(response: ServerResponse, pieces: readonly Uint8Array[]): Promise<void> {
  for (const piece of pieces) {
    await new Promise<void>((resolve) => response.write(piece, () => setImmediate(resolve)));
  }
  response.end();
}

function cut(bytes: Buffer, size: number): Buffer[] {
  return Array.from(
    { length: Math.ceil(bytes.length / size) },
    (_, at) => bytes.subarray(at * size, (at + 1) * size),
  );
}

describe("a streamed chat completion", () => {
  let provider: Provider;
  let under: UnderTest;
  const start = async (answering: Answering, settings: Record<string, unknown> = {}) => {
    provider = await startProvider(answering);
    under = await startUnderTest({ upstreams: { a: provider.url }, provider: settings });
  };
  const call = (host: string, init: RequestInit = {}) =>
    fetch(`${host}/v1/chat/completions`, {
      method: "POST",
      headers: under.headers,
      body: STREAM_BODY,
      ...init,
    });
  afterEach(async () => {
    await under.close();
    await provider.close();
  });

  for (const [name, text] of Object.entries(SAMPLES)) {
    it(`relays ${name} byte for byte, however they are cut`, async () => {
      const bytes = Buffer.from(text);
      let size = 1;
      await start((response) => {
        response.writeHead(200, { "content-type": "text/event-stream" });
        return writePieces(response, cut(bytes, size));
      });
      for (size of bytes.length > 10_000 ? [7001, bytes.length] : [1, 5, bytes.length]) {
        for (const host of [under.a, under.b]) {
          const response = await call(host);
          assert.equal(response.headers.get("content-type"), "text/event-stream");
          assert.equal(response.headers.get("cache-control"), "no-cache, no-transform");
          assert.equal(response.headers.get("x-accel-buffering"), "no");
          assert.equal(
            Buffer.from(await response.arrayBuffer()).toString("hex"),
            bytes.toString("hex"),
          );
        }
      }
      for (const { outcome } of under.records) assert.equal(outcome, "ok");
    });
  }

  it.notOn(
    "workers",
    "workerd can divide an event",
    "hands on each event before the next one is sent",
    async () => {
      let next = (): void => {};
      await start(async (response) => {
        response.writeHead(200, { "content-type": "text/event-stream" });
        for (const word of ["a", "b", "c"]) {
          response.write(chunk(word));
          await new Promise<void>((resolve) => next = resolve);
        }
        response.end(chunk(null, "stop") + ENDINGS);
      });
      const reader = (await call(under.a)).body?.getReader();
      for (const word of ["a", "b", "c"]) {
        const { value } = await reader?.read() ?? {};
        assert.equal(Buffer.from(value ?? []).toString(), chunk(word));
        next();
      }
      let rest = "";
      for (let piece = await reader?.read(); piece?.done === false; piece = await reader?.read()) {
        rest += Buffer.from(piece.value).toString();
      }
      assert.equal(rest, chunk(null, "stop") + ENDINGS);
    },
  );

  it("sends the header before the first event", async () => {
    let finish = (): void => {};
    await start((response) => {
      response.writeHead(200, { "content-type": "text/event-stream" });
      response.flushHeaders();
      finish = () => response.end(stream("a"));
    });
    const response = await call(under.a);
    assert.equal(response.status, 200);
    finish();
    assert.equal((await response.text()).replace(": keep-alive\n\n", ""), stream("a"));
  });

  it("ends an unfinished event before the error event", async () => {
    await start((response) => {
      response.writeHead(200, { "content-type": "text/event-stream" });
      response.end(`${chunk("a")}data: {"half`);
    });
    const text = await (await call(under.a)).text();
    assert.ok(text.startsWith(`${chunk("a")}data: {"half\n\ndata: {"error":`), text);
    assert.ok(text.endsWith("}\n\n"));
  });

  it("needs a finish reason for every choice that began", async () => {
    await start((response) => {
      response.writeHead(200, { "content-type": "text/event-stream" });
      response.end(chunk("a", null, 0) + chunk("b", null, 1) + chunk(null, "stop", 0));
    });
    const body = STREAM_BODY.replace("{", '{"n":2,');
    assert.match(await (await call(under.a, { body })).text(), /upstream_stream_truncated/);
  });

  it("passes an answer that is not an event stream unchanged, with an error status too [odd 200]", async () => {
    for (const status of [200, 429, 500]) {
      await start((response) => {
        response.writeHead(status, {
          "content-type": "application/json",
          "retry-after": "7",
          "x-ratelimit-limit-requests": "5",
        });
        response.end('{"error":{"message":"slow down"}}');
      });
      const response = await call(under.a);
      assert.equal(response.status, status);
      assert.equal(response.headers.get("retry-after"), "7");
      assert.equal(response.headers.get("x-ratelimit-limit-requests"), "5");
      assert.equal(response.headers.get("sallyport-error"), null);
      assert.equal(await response.text(), '{"error":{"message":"slow down"}}');
      assert.equal((await under.settled()).outcome, status === 200 ? "ok" : "upstream_error");
      if (status !== 500) {
        await under.close();
        await provider.close();
      }
    }
  });

  it("cancels the upstream when the caller leaves: before the header, in a stream, in a plain answer small or large", async () => {
    const behaviours: Record<string, Answering> = {
      header: () => {},
      stream: (response) => {
        response.writeHead(200, { "content-type": "text/event-stream" });
        response.write(chunk("a"));
      },
      small: (response) => {
        response.writeHead(200, { "content-type": "application/json", "content-length": "1000" });
        response.write("{");
      },
      plain: (response) => {
        response.writeHead(200, { "content-type": "application/json", "content-length": "100000" });
        response.write("{");
      },
    };
    for (const [name, answering] of Object.entries(behaviours)) {
      await start(answering);
      const raw = openRaw(
        under.a,
        toRawRequest(under.a, { headers: under.headers, body: STREAM_BODY }),
      );
      await until(
        () =>
          provider.calls.length === 1 &&
          (name === "header" || name === "small" || raw.received().includes("{")),
        `${name} begins`,
      );
      raw.socket.destroy();
      await until(
        () => provider.calls[0]?.isCut === true,
        `the upstream of ${name} is closed`,
        1000,
      );
      assert.equal((await under.settled()).outcome, "client_closed");
      if (name !== "plain") {
        await under.close();
        await provider.close();
      }
    }
  });

  it("counts a stream as complete when the caller closes after [DONE]", async () => {
    await start((response) => {
      response.writeHead(200, { "content-type": "text/event-stream" });
      response.write(stream("a")); // and stays open
    });
    const raw = openRaw(
      under.a,
      toRawRequest(under.a, { headers: under.headers, body: STREAM_BODY }),
    );
    await until(() => raw.received().includes("[DONE]"), "the whole stream");
    raw.socket.destroy();
    assert.equal((await under.settled()).outcome, "ok");
  });

  it("stops reading from the upstream while the caller does not read [slow reader]", async () => {
    const event = chunk("x".repeat(16_000));
    let sent = 0;
    let isStalled = false;
    await start((response) => {
      response.writeHead(200, { "content-type": "text/event-stream" });
      const write = () => {
        while (!response.destroyed && sent < 200_000_000) {
          sent += event.length;
          if (!response.write(event)) {
            isStalled = true;
            response.once("drain", () => {
              isStalled = false;
              write();
            });
            return;
          }
        }
      };
      write();
    });
    const raw = openRaw(
      under.a,
      toRawRequest(under.a, { headers: under.headers, body: STREAM_BODY }),
    );
    raw.socket.pause();
    let before = -1;
    let calm = 0;
    await until(
      () => {
        calm = sent === before && isStalled ? calm + 1 : 0;
        before = sent;
        return calm > 20;
      },
      "the upstream is held back",
    );
    // The kernel alone can keep 75 MB: on each of two connections 33.5 MB received, 4.2 MB sent.
    assert.ok(
      sent < 100_000_000,
      `the upstream could send ${sent} bytes to a caller that reads nothing`,
    );
    raw.socket.destroy();
    assert.equal((await under.settled()).outcome, "client_closed");
  });

  it.notOn(
    "workers",
    "workerd ends a broken body like a whole one",
    "breaks the connection when a plain answer can't be completed",
    async () => {
      await start((response) => {
        response.writeHead(200, { "content-type": "application/json", "content-length": "200000" });
        response.write(`{"half":"${"x".repeat(100_000)}`, () => response.destroy());
      });
      const received = await openRaw(
        under.a,
        toRawRequest(under.a, { headers: under.headers, body: STREAM_BODY }),
      )
        .closed;
      assert.match(received, /^HTTP\/1\.1 200 /);
      assert.doesNotMatch(received, /\r\n0\r\n\r\n$/, "it must not look complete");
      assert.equal(parseAnswer(received).headers["content-length"] ?? "200000", "200000");
      const record = await under.settled();
      assert.equal(record.outcome, "upstream_cut");
      assert.equal(record.code, "upstream_disconnected");
    },
  );

  it.notOn(
    "workers",
    "`silent stream` has a separate case there",
    "lets a stream be silent for longer than any default of the runtime's listener",
    async () => {
      await start(async (response) => {
        response.writeHead(200, { "content-type": "text/event-stream" });
        response.write(chunk("a"));
        await new Promise((resolve) => setTimeout(resolve, 14_000)); // Bun's idle timeout
        response.end(chunk(null, "stop") + ENDINGS);
      });
      assert.equal(await (await call(under.a)).text(), chunk("a") + chunk(null, "stop") + ENDINGS);
    },
  );

  it.notOn(
    "workers",
    "records of a Worker are lines of its log",
    "the record tells when the first event came that is no comment",
    async () => {
      let goOn = (): void => {};
      const isRead = new Promise<void>((resolve) => goOn = resolve);
      await start(async (response) => {
        response.writeHead(200, { "content-type": "text/event-stream" });
        response.write(": PROCESSING\n\n");
        await isRead;
        await new Promise((resolve) => setTimeout(resolve, 60));
        response.end(stream("a"));
      });
      const { body } = await call(under.a);
      let text = "";
      for await (const piece of body?.pipeThrough(new TextDecoderStream()) ?? []) {
        text += piece;
        goOn();
      }
      assert.equal(text, `: PROCESSING\n\n${stream("a")}`);
      const { firstByteMs = NaN, firstTokenMs = NaN, durationMs } = await under.settled();
      assert.ok(firstTokenMs >= firstByteMs + 30, `${firstByteMs} and ${firstTokenMs}`);
      assert.ok(durationMs >= firstTokenMs);
    },
  );
});
