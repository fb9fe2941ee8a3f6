/** The behaviours that every place of the gateway must show, tested with a Worker in workerd. */
// runtimes: workers
import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { gzipSync } from "node:zlib";
import { afterAll, beforeAll, beforeEach, describe } from "@std/testing/bdd";
import { it } from "../support/cases.ts";
import { GOOD_BODY, STREAM_BODY } from "../support/gateway.ts";
import {
  type Answering,
  answerPlain,
  chunk,
  type Provider,
  startProvider,
  stream,
} from "../support/provider.ts";
import { callRaw, openRaw, parseAnswer, toRawRequest } from "../support/tcp_peer.ts";
import { until, untilSoon } from "../support/until.ts";
import { startWorker, type TestWorker } from "../support/worker.ts";

const KEY = "0123456789-secret-key";
const headers = {
  "authorization": "Bearer sk-1",
  "gateway-auth": `Bearer ${KEY}`,
  "content-type": "application/json",
};
/** The silence of a provider. Milliseconds. */
const SILENT_MS = 700;
const EVENTS = { "content-type": "text/event-stream" };

describe("a Worker", () => {
  let provider: Provider;
  let worker: TestWorker;
  let answering: Answering = answerPlain;
  beforeAll(async () => {
    provider = await startProvider((response, call) => answering(response, call));
    const providers = {
      a: { hosts: ["*"], upstream: provider.url, keepAlive: "100ms", operations: ["all"] },
    };
    worker = await startWorker({
      variables: { SALLYPORT_CONFIG: { providers, keys: [{ id: "me", key: KEY }] } },
    });
  });
  afterAll(async () => {
    await worker.close();
    await provider.close();
  });
  beforeEach(() => {
    worker.records.length = provider.calls.length = 0;
    answering = answerPlain;
  });
  const call = (body = GOOD_BODY) => callRaw(worker.url, { headers, body });
  const open = (body = STREAM_BODY) =>
    openRaw(worker.url, toRawRequest(worker.url, { headers, body }));
  const settled = async () => {
    await until(() => worker.records.length > 0, "a line in the log");
    return worker.records[0] ?? assert.fail();
  };

  it("behaviour: abort (Workers)", async () => {
    const stages: Record<string, Answering> = {
      "before the header": () => {},
      "in a quiet stream": (response) => void response.writeHead(200, EVENTS).write(chunk("a")),
      "in a plain answer": (response) =>
        void response.writeHead(200, { "content-length": "100000" }).write("{"),
    };
    for (const [stage, answers] of Object.entries(stages)) {
      worker.records.length = provider.calls.length = 0;
      answering = answers;
      const caller = open();
      await until(() => provider.calls.length === 1, "the call arrives");
      if (stage !== "before the header") {
        await until(() => caller.received().includes("{"), "the answer begins");
      }
      caller.socket.resetAndDestroy();
      await until(() => provider.calls[0]?.isCut === true, `the upstream is closed ${stage}`);
      assert.equal((await settled()).outcome, "client_closed", stage);
    }
  });

  it("behaviour: silent stream (Workers)", async () => {
    let finish = (): void => {};
    answering = (response) => {
      response.writeHead(200, EVENTS).write(chunk("a"));
      finish = () => void response.end(stream("b"));
    };
    const caller = open();
    const begun = performance.now();
    await untilSoon(
      () => (caller.received().match(/: keep-alive\n\n/g)?.length ?? 0) >= 3,
      "three comments",
      2000,
    );
    await until(() => performance.now() - begun > SILENT_MS, "the silence is over");
    finish();
    const { body } = parseAnswer(await caller.closed);
    assert.equal(body.replaceAll(": keep-alive\n\n", ""), chunk("a") + stream("b"));
    assert.equal((await settled()).outcome, "ok");
  });

  it("behaviour: split UTF-8 (Workers)", async () => {
    const bytes = Buffer.from(stream("😀", "größe", "日本語"));
    answering = async (response) => {
      response.writeHead(200, EVENTS);
      for (const byte of bytes) {
        await new Promise((resolve) => response.write(Buffer.of(byte), resolve));
      }
      response.end();
    };
    assert.equal(
      Buffer.from((await call(STREAM_BODY)).body, "latin1").toString("hex"),
      bytes.toString("hex"),
    );
  });

  it("behaviour: truncated stream (Workers)", async () => {
    answering = (response) => {
      response.writeHead(200, EVENTS).write(`${chunk("a")}data: {"half`);
      setTimeout(() => response.destroy(), 50);
    };
    const { body } = await call(STREAM_BODY);
    assert.ok(body.startsWith(`${chunk("a")}data: {"half\n\ndata: {"error":`), body);
    assert.doesNotMatch(body, /\[DONE\]/);
    const { outcome, code } = await settled();
    assert.deepEqual([outcome, code], ["upstream_cut", "upstream_disconnected"]);
  });

  it("ends a broken stream of an unknown interface with an error event, because it cannot break the connection", async () => {
    const text = 'event: thread.created\ndata: {"id":"thread_1"}\n\n';
    answering = (response) => {
      response.writeHead(200, EVENTS).write(text, () => setTimeout(() => response.destroy()));
    };
    const body = JSON.stringify({ assistant_id: "asst_1", stream: true });
    const answer = await callRaw(worker.url, { path: "/v1/threads/runs", headers, body });
    assert.ok(answer.body.startsWith(text), answer.body);
    assert.match(answer.body, /event: error\n.*upstream_disconnected/);
    assert.equal((await settled()).outcome, "upstream_cut");
  });

  it("behaviour: large body (Workers)", async () => {
    const bodyOf = (length: number) => GOOD_BODY.replace("Hi", "x".repeat(length));
    const large = bodyOf(7_000_000);
    answering = (response, { body }) =>
      response.writeHead(200, { "content-type": "text/plain" }).end(body);
    const response = await fetch(`${worker.url}/v1/chat/completions`, {
      method: "POST",
      headers,
      body: large,
    });
    assert.equal(response.status, 200);
    assert.ok(await response.text() === large, "the same bytes, there and back");
    const { status, body } = await callRaw(worker.url, {
      headers: { ...headers, "content-length": "9000000" },
    });
    assert.equal(status, 413);
    assert.match(body, /body_too_large/);
    assert.equal(provider.calls.length, 1);
  });

  it("behaviour: compressed upstream (Workers)", async () => {
    for (const text of [stream("a"), `{"plain":"${"x".repeat(100)}"}`]) {
      const type = text.startsWith("{") ? "application/json" : "text/event-stream";
      answering = (response) =>
        response.writeHead(200, { "content-type": type, "content-encoding": "gzip" }).end(
          gzipSync(text),
        );
      const { headers: answered, body } = await call(STREAM_BODY);
      assert.equal(answered["content-encoding"], undefined);
      assert.equal(body, text);
    }
    assert.equal(provider.calls[0]?.headers["accept-encoding"], "identity");
  });

  it("behaviour: redirect (Workers)", async () => {
    const other = await startProvider();
    answering = (response) =>
      response.writeHead(307, { location: `${other.url}/chat/completions` }).end();
    const { status, headers: answered, body } = await call();
    assert.equal(status, 502);
    assert.match(body, /upstream_bad_response/);
    assert.equal(answered.location, undefined);
    assert.equal(other.calls.length, 0);
    await other.close();
  });

  // The platform moves callers to a new version and lets open exchanges finish; a Worker cannot be
  // asked to drain.
  it.notOn(
    "workers",
    "the platform ends a Worker by itself",
    "behaviour: drain (Workers)",
    () => {},
  );
});
