/** `"transport": "fetch"`: calls use the runtime's own client, and callers see no difference. */
// runtimes: all
import assert from "node:assert/strict";
import { afterEach, describe, it } from "@std/testing/bdd";
import { GOOD_BODY, startUnderTest, STREAM_BODY, type UnderTest } from "../support/gateway.ts";
import {
  type Answering,
  answerLong,
  answerPlain,
  answerStream,
  COMPLETION,
  startProvider,
  stream,
} from "../support/provider.ts";
import { timeKept } from "../support/kept_alive.ts";
import { toRawRequest } from "../support/tcp_peer.ts";

describe("a provider with transport: fetch", () => {
  const { fetch: runtimeFetch } = globalThis;
  let under: UnderTest;
  let close: () => Promise<unknown>;
  let fetched: string[];
  const start = async (transport: string, answering: Answering) => {
    const provider = await startProvider(answering);
    ({ close } = provider);
    under = await startUnderTest({ upstreams: { a: provider.url }, provider: { transport } });
    fetched = [];
    globalThis.fetch = (input, init) => {
      fetched.push(String(input));
      return runtimeFetch(input, init);
    };
    return provider;
  };
  const call = (body: string) =>
    runtimeFetch(`${under.a}/v1/chat/completions`, {
      method: "POST",
      headers: under.headers,
      body,
    });
  afterEach(async () => {
    globalThis.fetch = runtimeFetch;
    await under.close();
    await close();
  });

  it("is called by the runtime's client, with the caller's bytes", async () => {
    const provider = await start("fetch", (response) => answerPlain(response));
    const response = await call(GOOD_BODY);
    assert.equal(await response.text(), COMPLETION);
    assert.deepEqual(fetched, [`${provider.url}/chat/completions`]);
    assert.equal(provider.calls[0]?.body.toString(), GOOD_BODY);
    assert.equal((await under.settled()).outcome, "ok");
  });

  it("relays its streams", async () => {
    await start("fetch", (response) => answerStream(response, stream("Hello")));
    const response = await call(STREAM_BODY);
    assert.equal(await response.text(), stream("Hello"));
    assert.equal(fetched.length, 1);
    assert.equal((await under.settled()).outcome, "ok");
  });

  it("answers calls on a kept connection without waiting for an acknowledgement", async () => {
    await start("fetch", answerLong);
    const request = toRawRequest(under.b, {
      headers: { ...under.headers, connection: undefined },
      body: GOOD_BODY,
    });
    const ms = await timeKept(under.b, request, 50);
    assert.ok(ms < 35, `a call takes ${ms} ms`); // with a wait it takes 44 ms
    assert.equal(fetched.length, 50);
  });

  it("gets a call once, also if it closes the connection without an answer", async () => {
    const provider = await start("fetch", (response) => response.socket?.resetAndDestroy());
    const response = await call(GOOD_BODY);
    assert.equal(response.status, 502);
    await response.body?.cancel();
    assert.equal(provider.calls.length, 1);
    assert.equal(provider.calls[0]?.headers["content-length"], String(GOOD_BODY.length));
  });

  it("that cannot be reached causes a 502", async () => {
    const provider = await start("fetch", (response) => answerPlain(response));
    await provider.close();
    close = () => Promise.resolve();
    const response = await call(GOOD_BODY);
    assert.equal(response.status, 502);
    assert.equal((await response.json()).error.code, "upstream_unreachable");
    assert.equal(fetched.length, 1);
  });

  it("is not called in this way by default", async () => {
    await start("http1", (response) => answerPlain(response));
    assert.equal((await call(GOOD_BODY)).status, 200);
    assert.deepEqual(fetched, []);
  });
});
