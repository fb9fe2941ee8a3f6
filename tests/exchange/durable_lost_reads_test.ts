/**
 * Reads of a recorded answer after its gateway died: each read learns that the answer is over, and
 * how it ended.
 */
// runtimes: bun, node
import assert from "node:assert/strict";
import { afterEach, beforeEach, describe, it } from "@std/testing/bdd";
import { systemClock } from "../../src/exchange/clock.ts";
import { createDurableExchanges } from "../../src/steps/durable/setup.ts";
import { startUnderTest, type UnderTest } from "../support/gateway.ts";
import { chunk, startProvider } from "../support/provider.ts";
import { ObservedRecordings } from "../support/recordings.ts";
import { closeAfterEach } from "../support/scenes.ts";
import { until } from "../support/until.ts";

const FIRST = chunk("Hel");
const LOST = /^\n\ndata: \{"error":.*"code":"exchange_lost"\}\}\n\n$/;
const token = (offset: number) => `${String(offset).padStart(15, "0")}b`;

describe("an answer whose gateway has died", () => {
  let under: UnderTest;
  let get: (query?: string, headers?: Record<string, string>, method?: string) => Promise<Response>;

  beforeEach(async () => {
    const store = new ObservedRecordings();
    under = await startUnderTest({
      upstreams: { a: "http://127.0.0.1:9" },
      provider: { durable: {} },
      parts: { durable: createDurableExchanges(store, systemClock) },
    });
    const id = await store.beginAndDie(under, { keepMs: 600_000 });
    get = (query = "", headers = {}, method = "GET") =>
      fetch(`${under.a}/v1/exchanges/${id}${query}`, {
        method,
        headers: { ...under.headers, ...headers },
      });
  });
  afterEach(() => under.close());

  for (const query of ["", "?offset=-1", "?offset=-1&live=long-poll", "?ids=1"]) {
    it(`is reported as lost to the first reader: GET ${query}`, async () => {
      const answer = await get(query);
      const text = (await answer.text()).replaceAll(/^id: \d+\n/gm, "");
      assert.equal(text.slice(0, FIRST.length), FIRST);
      assert.match(text.slice(FIRST.length), LOST);
      const isNative = !query.includes("offset");
      assert.equal(answer.headers.get("stream-closed"), isNative ? null : "true");
    });
  }

  it("is reported as closed to a HEAD, and as an event of the protocol", async () => {
    const head = await get("", {}, "HEAD");
    assert.equal(head.headers.get("stream-closed"), "true");
    const length = parseInt(head.headers.get("stream-next-offset") ?? "", 10);
    assert.ok(length > FIRST.length);
    const text = await (await get("?offset=-1&live=sse")).text();
    assert.match(text, /exchange_lost/);
    assert.ok(
      text.includes(`{"streamNextOffset":"${token(length)}","streamClosed":true,"upToDate":true}`),
      text,
    );
  });

  it("repeats the whole event for a caller that has more of it than was stored, and ends as lost", async () => {
    const more = FIRST.length + 7; // sent by the dead gateway, but not in the store
    const native = await (await get(`?offset=${more}`)).text();
    assert.match(native, LOST);
    const end = FIRST.length + native.length;
    const snapshot = await get(`?offset=${token(more)}`);
    assert.equal(await snapshot.text(), native);
    assert.equal(snapshot.headers.get("stream-next-offset"), token(end));
    const events = await (await get(`?offset=${token(more)}&live=sse`)).text();
    assert.match(events, /exchange_lost.*\}\}\n/);
    const next = Array.from(
      events.matchAll(/"streamNextOffset":"(\d+)b"/g),
      ([, offset]) => Number(offset),
    );
    assert.deepEqual(next, [end, end]);
    const numbered = await (await get(`?offset=${more}&ids=1`)).text();
    const ids = Array.from(numbered.matchAll(/^id: (\d+)$/gm), ([, id]) => Number(id));
    assert.equal(ids.at(-1), end);
    assert.equal((await get("?ids=1", { "last-event-id": String(end) })).status, 204);
    for (
      const query of [`?offset=${end + 1}`, `?offset=${token(end + 1)}`, `?offset=${end + 1}&ids=1`]
    ) {
      const beyond = await get(query);
      assert.equal(beyond.status, 502);
      assert.equal((await beyond.json()).error.code, "exchange_lost");
    }
  });

  it("has no bytes for a caller that has more than that, and says so in its answer", async () => {
    const beyond = await get("?offset=100000");
    assert.equal(beyond.status, 502);
    assert.equal((await beyond.json()).error.code, "exchange_lost");
  });
});

describe("a stream that ended with an error of its provider before its gateway died", () => {
  const { keep } = closeAfterEach();

  it("is read unchanged, and is no complete answer", async () => {
    const store = new ObservedRecordings();
    const under = keep(
      await startUnderTest({
        upstreams: { a: "http://127.0.0.1:9" },
        provider: { durable: {} },
        parts: { durable: createDurableExchanges(store, systemClock) },
      }),
    );
    const text = `${FIRST}data: {"error":{"message":"overloaded"}}\n\ndata: [DONE]\n\n`;
    const id = await store.beginAndDie(under, { text });
    const answer = await fetch(`${under.a}/v1/exchanges/${id}`, { headers: under.headers });
    assert.equal(await answer.text(), text);
    assert.equal((await store.find(id))?.state, "broken");
  });
});

/** A store that other gateways read while an answer is written. */
class ReadRecordings extends ObservedRecordings {
  override readonly gatherMs = 1;
}

describe("a stream of two images whose gateway has died", () => {
  const image = `data: ${
    JSON.stringify({ type: "image_generation.completed", b64_json: "aaaa" })
  }\n\n`;
  const { keep, after } = closeAfterEach();

  it("is lost after the first image", async () => {
    const provider = await startProvider((response) => {
      response.writeHead(200, { "content-type": "text/event-stream" }).write(image);
    });
    keep(provider);
    const store = new ReadRecordings();
    const start = () =>
      startUnderTest({
        upstreams: { a: provider.url },
        provider: { durable: {} },
        config: { keys: [{ id: "own", key: "own-key-of-a-team" }] },
        parts: { durable: createDurableExchanges(store, systemClock) },
      });
    const [writer, other] = await Promise.all([start(), start()]);
    const leave = new AbortController();
    keep(writer);
    keep(other);
    after(() => leave.abort());
    const headers = { ...writer.headers, "gateway-auth": "Bearer own-key-of-a-team" };
    await fetch(`${writer.a}/v1/images/generations`, {
      method: "POST",
      headers: { ...headers, "sallyport-durable": "?1" },
      body: JSON.stringify({ model: "m", prompt: "A cat", n: 2, stream: true }),
      signal: leave.signal,
    });
    const read = async (query = "") =>
      await (await fetch(`${other.a}/v1/exchanges/${store.ids[0]}${query}`, { headers })).text();
    await until(async () => await read("?offset=-1") === image, "the first image is stored");
    store.deaths[0]?.();
    const text = await read();
    assert.equal(text.slice(0, image.length), image);
    assert.match(text.slice(image.length), /exchange_lost/);
  });
});
