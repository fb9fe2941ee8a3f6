/**
 * Durable exchanges in requests to the gateway: an answer survives its connection, and a retry does
 * not call the provider twice.
 */
// runtimes: all, workers
import assert from "node:assert/strict";
import type { ServerResponse } from "node:http";
import { afterEach, beforeEach, describe, it } from "@std/testing/bdd";
import {
  GOOD_BODY,
  startUnderTest,
  STREAM_BODY,
  type UnderTest,
  UPSTREAM_KEY,
} from "../support/gateway.ts";
import {
  answerPlain,
  chunk,
  COMPLETION,
  type Provider,
  startProvider,
  stream,
} from "../support/provider.ts";
import { isWorkers } from "../support/runtimes.ts";
import { until } from "../support/until.ts";

const DURABLE = { keep: "1m", linger: "1m" };

/** Calls with an idempotency key. */
function call(
  under: UnderTest,
  init: RequestInit & { path?: string; key?: string; headers?: Record<string, string> } = {},
) {
  const { path = "/v1/chat/completions", key, headers, ...rest } = init;
  const named = key === undefined ? {} : { "idempotency-key": key };
  const method = rest.method ?? "POST";
  const body = method === "POST" ? STREAM_BODY : undefined;
  return fetch(under.a + path, {
    method,
    ...(body && { body }),
    headers: { ...under.headers, ...named, ...headers },
    ...rest,
  });
}

/** Reads the given number of bytes and leaves. */
async function readSome(
  response: Response,
  bytes: number,
  leave: AbortController,
): Promise<string> {
  const reader = response.body?.getReader();
  let text = "";
  while (reader !== undefined && text.length < bytes) {
    const { value, done } = await reader.read();
    if (done) break;
    text += new TextDecoder().decode(value);
  }
  leave.abort();
  await reader?.cancel().catch(() => {});
  return text;
}

describe("durable exchanges", () => {
  let provider: Provider;
  let under: UnderTest;
  let answering: (response: ServerResponse) => unknown = answerPlain;

  beforeEach(async () => {
    provider = await startProvider((response) => answering(response));
    under = await startUnderTest({
      upstreams: { a: provider.url },
      provider: { durable: DURABLE },
    });
  });

  afterEach(async () => {
    await under.close();
    await provider.close();
  });

  for (const status of [204, 205]) {
    it(`replays an answer without a body: ${status}`, async () => {
      answering = (response) => response.writeHead(status).end();
      const read = async (init: Parameters<typeof call>[1]) => {
        const answer = await call(under, init);
        return { status: answer.status, text: await answer.text(), headers: answer.headers };
      };
      const first = await read({ key: `without-${status}` });
      const path = first.headers.get("location") ?? "";
      for (
        const again of [
          await read({ key: `without-${status}` }),
          await read({ path, method: "GET" }),
        ]
      ) {
        assert.deepEqual([again.status, again.text], [first.status, ""]);
      }
      assert.equal(provider.calls.length, 1);
      const events = await read({ path: `${path}?offset=-1&live=sse`, method: "GET" });
      assert.deepEqual([events.status, events.text.includes('"streamClosed":true')], [200, true]);
    });
  }

  /** Starts a stream. The test decides when it continues. */
  function hold(first: string) {
    const held: { response?: ServerResponse } = {};
    answering = (response) => {
      held.response = response;
      response.writeHead(200, { "content-type": "text/event-stream" });
      response.write(first);
    };
    return held;
  }

  it("answers as usual, with an address that serves the answer again", async () => {
    answering = answerPlain;
    const answer = await call(under, { key: "one", body: GOOD_BODY });
    assert.equal(answer.status, 200);
    assert.equal(await answer.text(), COMPLETION);
    assert.match(answer.headers.get("location") ?? "", /^\/v1\/exchanges\/[\w-]{6}\.[\w-]{22}$/);
    assert.ok(Date.parse(answer.headers.get("exchange-expires") ?? "") > Date.now());
    assert.equal(answer.headers.get("idempotency-replayed"), null);
    const again = await call(under, { method: "GET", path: answer.headers.get("location") ?? "" });
    assert.equal(again.headers.get("content-type"), "application/json");
    assert.equal(await again.text(), COMPLETION);
    assert.equal(provider.calls.length, 1);
  });

  it("returns the same answer for the same key, and makes one call", async () => {
    answering = answerPlain;
    await (await call(under, { key: '"one"', body: GOOD_BODY })).text();
    // If recordings are stored in another process, a recording is complete a moment after its
    // answer. Until then a retry joins the call.
    await until(async () => {
      const second = await call(under, { key: "one", body: GOOD_BODY });
      assert.equal(await second.text(), COMPLETION);
      const isReplayed = second.headers.get("idempotency-replayed") === "true";
      assert.ok(isReplayed || isWorkers);
      return isReplayed;
    }, "it is complete");
    assert.equal(provider.calls.length, 1);
    const other = await call(under, { key: "one", body: STREAM_BODY });
    assert.equal(other.status, 422);
    assert.equal((await other.json()).error.code, "idempotency_key_reused");
  });

  it("uses no limits of its key for a retry, which passes also if they are reached", async () => {
    const limits = { requests: "1/h", concurrency: 1, tokens: "10k/h" };
    const key = "a-gateway-key-of-a-retry";
    const limited = await startUnderTest({
      upstreams: { a: provider.url },
      provider: { durable: { ...DURABLE, retries: true } },
      config: { keys: [{ id: "retry", key, limits }] },
    });
    try {
      const held = hold(chunk("a"));
      const leave = new AbortController();
      const send = (name: string | undefined, signal?: AbortSignal, count = "0") => {
        const headers = {
          ...limited.headers,
          "gateway-auth": `Bearer ${key}`,
          "x-stainless-retry-count": count,
        };
        const named = name === undefined ? headers : { ...headers, "idempotency-key": name };
        return call(limited, { headers: named, ...(signal && { signal }) });
      };
      await readSome(await send("one", leave.signal), 1, leave);
      const retry = await send("one");
      assert.equal(retry.status, 200);
      const other = await send("two");
      assert.equal(other.status, 429, "another call has no place");
      await other.text();
      held.response?.end(stream("b"));
      assert.equal(await retry.text(), chunk("a") + stream("b"));
      await until(async () => {
        const again = await send("one");
        assert.equal(again.status, 200, "its request was the only one of the hour");
        assert.equal(await again.text(), chunk("a") + stream("b"));
        return again.headers.get("idempotency-replayed") === "true" || isWorkers;
      }, "it is complete");
      const refused = await send("two");
      assert.equal(refused.headers.get("sallyport-error"), "rate_limit_exceeded");
      await refused.text();
      assert.equal(provider.calls.length, 1);
    } finally {
      await limited.close();
    }
  });

  it("recognizes a form with a new boundary, and no other form", async () => {
    answering = answerPlain;
    const send = (text: string) => {
      const form = new FormData();
      form.set("model", "test-1");
      form.set("file", new File([text], "speech.wav"));
      const { "content-type": _, ...headers } = under.headers;
      const named = { ...headers, "idempotency-key": "form" };
      return fetch(`${under.a}/v1/audio/transcriptions`, {
        method: "POST",
        headers: named,
        body: form,
      });
    };
    await (await send("one")).text();
    const again = await send("one");
    assert.equal(again.headers.get("idempotency-replayed"), "true");
    await again.text();
    assert.notEqual(provider.calls[0]?.headers["content-type"], undefined);
    const other = await send("two");
    assert.equal(other.status, 422);
    await other.text();
    assert.equal(provider.calls.length, 1);
  });

  it("belongs to one operation, query, provider and pair of keys", async () => {
    answering = answerPlain;
    const first = await call(under, { key: "seven", body: GOOD_BODY });
    await first.text();
    const query = await call(under, {
      key: "seven",
      body: GOOD_BODY,
      path: "/v1/chat/completions?a=b",
    });
    assert.equal(query.status, 422);
    await query.text();
    const others = [{ path: "/v1/responses" }, {
      headers: { authorization: "Bearer sk-of-somebody-else" },
    }];
    for (const other of others) {
      const answer = await call(under, {
        key: "seven",
        body: JSON.stringify({
          model: "test-1",
          input: "Hi",
          messages: [{ role: "user", content: "Hi" }],
        }),
        ...other,
      });
      assert.equal(answer.headers.get("idempotency-replayed"), null);
      assert.equal(answer.status, 200);
      await answer.text();
    }
    assert.equal(provider.calls.length, 3);
    const path = first.headers.get("location") ?? "";
    for (const method of ["GET", "HEAD", "DELETE"]) {
      for (
        const [at, headers] of [[under.b, under.headers], [under.a, {
          ...under.headers,
          authorization: "Bearer sk-other",
        }]] as const
      ) {
        const answer = await fetch(at + path, { method, headers });
        assert.equal(answer.status, 404, `${method} ${at}`);
        await answer.text();
      }
    }
    for (
      const odd of ["a%2Fb", "..%2f..", "%00", "a".repeat(1000), "AAAAAA.AAAAAAAAAAAAAAAAAAAAAA"]
    ) {
      const answer = await call(under, { method: "GET", path: `/v1/exchanges/${odd}` });
      assert.ok([400, 404].includes(answer.status), `${answer.status} for ${odd}`);
      await answer.text();
    }
  });

  it("is found with the scheme of its caller's credential in any case", async () => {
    const first = await call(under, { key: "scheme" });
    await first.text();
    for (const scheme of ["Bearer", "bearer", "BEARER"]) {
      const headers = { authorization: `${scheme} ${UPSTREAM_KEY}` };
      const read = await call(under, {
        method: "GET",
        path: first.headers.get("location") ?? "",
        headers,
      });
      assert.equal(read.status, 200, scheme);
      await read.text();
      const retry = await call(under, { key: "scheme", headers });
      assert.equal(retry.headers.get("idempotency-replayed"), "true", scheme);
      await retry.text();
    }
    assert.equal(provider.calls.length, 1);
  });

  it("continues when its caller leaves, and can be read from an offset", async () => {
    const words = Array.from({ length: 50 }, (_, index) => `word-${index}`);
    const whole = stream(...words);
    const held = hold(chunk("word-0"));
    const leave = new AbortController();
    const first = await call(under, { key: "two", signal: leave.signal });
    const location = first.headers.get("location") ?? "";
    const start = await readSome(first, chunk("word-0").length, leave);
    const reading = call(under, { method: "GET", path: `${location}?offset=${start.length}` });
    held.response?.end(whole.slice(chunk("word-0").length));
    assert.equal(start + await (await reading).text(), whole);
    assert.equal(await (await call(under, { key: "two" })).text(), whole);
    assert.equal(provider.calls.length, 1);
    const record = under.records.find(({ operation }) => operation === "chat.completions");
    assert.equal(record?.outcome, "ok");
  });

  it("attaches a retry to a running call, before its answer began", async () => {
    let begin = () => {};
    answering = (response) => begin = () => answerPlain(response);
    const leave = new AbortController();
    const first = call(under, { key: "three", signal: leave.signal, body: GOOD_BODY }).catch(
      () => {},
    );
    await until(() => provider.calls.length === 1, "the call at the provider");
    leave.abort();
    await first;
    const second = call(under, { key: "three", body: GOOD_BODY });
    await until(() => under.gateway.openExchanges === 2, "the retry");
    begin();
    assert.equal(await (await second).text(), COMPLETION);
    assert.equal(provider.calls.length, 1);
  });

  it("frees the key after a refusal of the provider", async () => {
    answering = (response) =>
      response.writeHead(500, { "content-type": "application/json" }).end("{}");
    const first = await call(under, { key: "four" });
    assert.equal(first.status, 500);
    assert.equal(first.headers.get("location"), null);
    await first.text();
    answering = answerPlain;
    assert.equal((await call(under, { key: "four" })).status, 200);
    assert.equal(provider.calls.length, 2);
  });

  it("can be stopped from any connection", async () => {
    hold(chunk("word"));
    const first = await call(under, { key: "five" });
    const path = first.headers.get("location") ?? "";
    const stopped = await call(under, { method: "DELETE", path });
    assert.equal(stopped.status, 204);
    assert.match(await first.text(), /exchange_stopped/);
    await until(() => provider.calls[0]?.isCut === true, "the end of the call at the provider");
  });

  it("is found only by its owner", async () => {
    answering = answerPlain;
    const first = await call(under, { key: "six", body: GOOD_BODY });
    await first.text();
    const path = first.headers.get("location") ?? "";
    const stranger = await call(under, {
      method: "GET",
      path,
      headers: { authorization: "Bearer sk-of-somebody-else" },
    });
    assert.equal(stranger.status, 404);
    assert.equal((await call(under, { method: "GET", path: "/v1/exchanges/nothing" })).status, 404);
  });
});
