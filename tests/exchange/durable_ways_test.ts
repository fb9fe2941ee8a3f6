/**
 * Ways back to a recorded answer: its address, the ids of its events, its end, and reads by pages
 * in browsers.
 */
// runtimes: bun, node
import assert from "node:assert/strict";
import { afterEach, describe } from "@std/testing/bdd";
import { ENTRY_KIND, TAG_BYTES } from "../../src/durable/recording_store.ts";
import { MemoryRecordings } from "../../src/durable/recording_store_memory.ts";
import { systemClock } from "../../src/exchange/clock.ts";
import { createDurableExchanges } from "../../src/steps/durable/setup.ts";
import { it } from "../support/cases.ts";
import { GOOD_BODY, startUnderTest } from "../support/gateway.ts";
import {
  type DurableStage,
  type HeldExchange,
  startDurableStage,
} from "../support/held_exchange.ts";
import { chunk, COMPLETION, startProvider, stream } from "../support/provider.ts";
import { callRaw, openRaw, toRawRequest } from "../support/tcp_peer.ts";
import { until } from "../support/until.ts";

/** Ends an exchange with the rest of its answer, and reads it. */
async function finish({ upstream, answer }: HeldExchange, rest = ""): Promise<void> {
  upstream.end(rest);
  await answer.arrayBuffer();
}

/** Waits until the store has the end of a recording. */
async function untilEnded({ get }: HeldExchange): Promise<void> {
  await until(async () => {
    const { headers, status } = await get("", {}, { method: "HEAD" });
    return status !== 200 || headers.get("stream-closed") === "true";
  }, "the end");
}

describe("the way back to a recorded answer", () => {
  let stage: DurableStage;

  afterEach(() => stage.close());

  it("starts with the path that selected the provider, and names no host", async () => {
    stage = await startDurableStage({ prefix: "/team/a" });
    const exchange = await stage.begin("text/plain", "x");
    assert.match(exchange.location, /^\/team\/a\/v1\/exchanges\/[\w-]{6}\.[\w-]{22}$/);
    await finish(exchange);
    for (const init of [{}, { method: "HEAD" }]) {
      const again = await exchange.get("", {}, init);
      assert.equal(await again.text(), init.method === "HEAD" ? "" : "x");
      assert.equal(again.headers.get("location"), exchange.location);
    }
  });

  it("adds ids to events that say where to read on, for callers that ask for them", async () => {
    stage = await startDurableStage();
    const whole = `: hello\n\nid: own\ndata: 1\r\n\r\ndata: \u{1f600}\r\rdata: 3\n\n${
      stream("a", "b")
    }`;
    const bytes = new TextEncoder().encode(whole);
    const exchange = await stage.begin("text/event-stream", bytes);
    const { get } = exchange;
    await finish(exchange);
    const text = await (await get("?ids=1")).text();
    assert.equal(text.replaceAll(/^id: \d+\n/gm, ""), whole, "nothing else is changed");
    const ids = Array.from(text.matchAll(/^id: (\d+)$/gm), ([, id]) => Number(id));
    assert.equal(ids.at(-1), bytes.length);
    for (const id of ids) {
      const rest = await get("?ids=1", { "last-event-id": String(id) });
      if (id === bytes.length) {
        assert.equal(rest.status, 204, "an EventSource stops at the end");
        continue;
      }
      const got = (await rest.text()).replaceAll(/^id: \d+\n/gm, "");
      assert.equal(got, new TextDecoder().decode(bytes.subarray(id)));
      assert.match(new TextDecoder().decode(bytes.subarray(0, id)), /(\n\n|\r\r|\r\n\r\n)$/);
    }
    assert.equal(
      await (await get("", { "last-event-id": "5" })).text(),
      whole,
      "without ids=1 it says nothing",
    );
    assert.equal(
      await (await get("?ids=1&offset=9")).text(),
      text.slice(text.indexOf("id: 9\n\n") + 7),
    );
    const junk = await get("?ids=1", { "last-event-id": "own" });
    assert.equal((await junk.json()).error.code, "invalid_offset");
  });

  it("uses entries of a bounded size, however large an answer arrives at once", async () => {
    const store = new MemoryRecordings({ clock: systemClock, maxBytes: 10_000_000 });
    stage = await startDurableStage({
      parts: { durable: createDurableExchanges(store, systemClock) },
    });
    const text = Array.from({ length: 40_000 }, (_, index) => `word-${index} `).join("");
    for (
      const [type, whole] of [["application/json", JSON.stringify({ text })], [
        "text/event-stream",
        stream(text),
      ]]
    ) {
      const exchange = await stage.begin(type, whole);
      await finish(exchange);
      const id = exchange.location.split("/").at(-1) ?? "";
      await until(async () => (await store.find(id))?.state !== "running", "the store has it");
      let offset = 0;
      for (const end = whole?.length ?? 0; offset < end;) {
        const { entries } = await store.read(id, { offset, waitMs: 0 }) ??
          assert.fail("it is kept");
        assert.ok(entries.length > 0, `nothing at ${offset} of ${end}`);
        for (const { kind, sealed } of entries) {
          assert.ok(sealed.byteLength <= 65_536 + TAG_BYTES, `${sealed.byteLength} bytes`);
          if (kind === ENTRY_KIND.bytes) offset += sealed.byteLength - TAG_BYTES;
        }
      }
      for (const from of [0, 1, 65_535, 65_536, 70_000, offset - 1]) {
        assert.ok(
          await (await exchange.get(`?offset=${from}`)).text() === whole?.slice(from),
          `from ${from}`,
        );
      }
    }
    await store.close();
  });

  for (
    const last of ["data: [DONE]\n", "data: [DONE]", "data: [DONE]\n\n: bye", "data: [DONE]\r\n\r"]
  ) {
    it(`stops an EventSource also after a stream whose last event is unfinished: ${JSON.stringify(last)}`, async () => {
      stage = await startDurableStage();
      const exchange = await stage.begin("text/event-stream", `${chunk("one", "stop")}${last}`);
      await finish(exchange);
      await untilEnded(exchange);
      const text = await (await exchange.get("?ids=1")).text();
      assert.match(text, /^data: \[DONE\]\r?\n(id: \d+)?\r?\n/m, "it is an event");
      const id = Array.from(text.matchAll(/^id: (\d+)$/gm), ([, id]) => id).at(-1) ?? "";
      assert.equal((await exchange.get("?ids=1", { "last-event-id": id })).status, 204);
    });
  }

  it("uses the same ids wherever a chunk ends, for several readers at once", async () => {
    stage = await startDurableStage();
    const whole = "data: 1\r\n\r\ndata: 2\n\n: c\r\rdata: [DONE]\n\n";
    const exchange = await stage.begin("text/event-stream", whole.slice(0, 1));
    const readings = [1, 2, 3].map(() => exchange.get("?ids=1"));
    const readers = (await Promise.all(readings)).map((response) => response.text());
    for (const [index, byte] of Array.from(whole).entries().drop(1)) {
      exchange.upstream.write(byte);
      await until(async () => {
        const { headers } = await exchange.get("", {}, { method: "HEAD" });
        return parseInt(headers.get("stream-next-offset") ?? "", 10) > index;
      }, "the byte");
    }
    await finish(exchange);
    const [one, ...others] = await Promise.all(readers);
    for (const other of others) assert.equal(other, one);
    const events = (text = "") =>
      Array.from(text.matchAll(/^data: (.*)\r?$/gm), ([, data]) => data?.trim());
    assert.deepEqual(events(one), ["1", "2", "[DONE]"]);
    const ids = Array.from((one ?? "").matchAll(/^id: (\d+)$/gm), ([, id]) => Number(id));
    for (const id of ids) {
      const rest = await (await exchange.get(`?offset=${id}`)).text();
      const had = (one ?? "").slice(0, (one ?? "").indexOf(`id: ${id}\n`));
      assert.deepEqual([...events(had), ...events(rest)], ["1", "2", "[DONE]"], `after ${id}`);
    }
  });

  it("is closed by DELETE: a running exchange stops, a recording is deleted, and its key is free", async () => {
    stage = await startDurableStage();
    const { under, provider } = stage;
    const exchange = await stage.begin("text/event-stream", chunk("one"), {
      "idempotency-key": "k",
    });
    const { get, answer } = exchange;
    assert.equal((await get("", {}, { method: "DELETE" })).status, 204);
    assert.match(await answer.text(), /exchange_stopped/);
    await until(() => provider.calls[0]?.isCut === true, "the end of the call at the provider");
    await untilEnded(exchange);
    assert.match(await (await get()).text(), /exchange_stopped/, "it says how it ended");
    const stranger = await get("", { authorization: "Bearer sk-of-somebody-else" }, {
      method: "DELETE",
    });
    assert.equal(stranger.status, 404);
    const deleted = await get("", {}, { method: "DELETE" });
    assert.equal(deleted.status, 204);
    assert.equal(await deleted.text(), "");
    for (const method of ["GET", "HEAD", "DELETE"]) {
      assert.equal((await get("", {}, { method })).status, 404);
    }

    const second = await stage.begin("text/plain", "two", { "idempotency-key": "k" });
    await finish(second);
    await untilEnded(second);
    assert.equal((await second.get("", {}, { method: "DELETE" })).status, 204);
    const third = await stage.begin("text/plain", "three", { "idempotency-key": "k" });
    assert.equal(provider.calls.length, 3);
    await finish(third);
    const stops = under.records.filter(({ operation }) => operation === "exchange.stop");
    assert.deepEqual(stops.map(({ outcome, status }) => [outcome, status]), [
      ["ok", 204],
      ["refused", 404],
      ["ok", 204],
      ["refused", 404],
      ["ok", 204],
    ]);
  });

  it("answers 410 after the recording expired, and 404 if there never was one", async () => {
    stage = await startDurableStage({ durable: { keep: "1ms", linger: "1m" } });
    const exchange = await stage.begin("text/plain", "x");
    await finish(exchange);
    await until(
      async () => (await exchange.get("", {}, { method: "HEAD" })).status === 410,
      "it expires",
    );
    for (const query of ["", "?offset=-1", "?offset=0&live=sse", "?offset=now&live=long-poll"]) {
      const refused = await exchange.get(query);
      assert.equal(refused.status, 410);
      assert.equal((await refused.json()).error.code, "exchange_expired");
    }
    assert.equal((await exchange.get("", {}, { method: "HEAD" })).status, 410);
    assert.equal((await exchange.get("", {}, { method: "DELETE" })).status, 410);
    const unknown = exchange.location.replace(/.{22}$/, "A".repeat(22));
    const { status, headers } = await fetch(stage.under.a + unknown, {
      headers: stage.under.headers,
    });
    assert.deepEqual([status, headers.get("x-content-type-options")], [404, "nosniff"]);
  });

  it("breaks off when the recording disappears during a read: never with a clean end", async () => {
    const size = 32_000_000;
    stage = await startDurableStage({
      provider: { durable: { keep: "1m", size: "64MB" } },
      config: { limits: { recordings: "128MB" } },
    });
    const { under } = stage;
    const exchange = await stage.begin("application/octet-stream", new Uint8Array(size).fill(65));
    await finish(exchange);
    await untilEnded(exchange);
    const held = ["", "?offset=-1", "?offset=-1&live=sse"].map((query) => {
      const headers = { ...under.headers, "content-length": undefined };
      const call = { method: "GET", path: exchange.location + query, headers, body: "" };
      const peer = openRaw(under.a, toRawRequest(under.a, call));
      peer.socket.once("data", () => peer.socket.pause());
      return peer;
    });
    for (const { received } of held) await until(() => received().includes("200 OK"), "the head");
    await exchange.get("", {}, { method: "DELETE" });
    for (const { socket } of held) socket.resume();
    for (const { closed } of held) {
      const received = await closed;
      assert.ok(received.length < size);
      assert.ok(!received.endsWith("\r\n0\r\n\r\n"), "the last chunk");
    }
  });

  it("is not evicted by answers of another key that stores more", async () => {
    const keys = ["careful", "greedy"].map((id) => ({ id, key: `0123456789-key-of-${id}` }));
    const provider = await startProvider((response) => {
      response.writeHead(200, { "content-type": "application/json" }).end(
        COMPLETION + " ".repeat(20_000),
      );
    });
    const under = await startUnderTest({
      upstreams: { a: provider.url },
      provider: { durable: { keep: "1m" } },
      config: { keys, limits: { recordings: "1MB" } },
    });
    try {
      const call = async (id: string, name: string) => {
        const headers = {
          ...under.headers,
          "gateway-auth": `Bearer 0123456789-key-of-${id}`,
          "idempotency-key": name,
        };
        const answer = await fetch(`${under.a}/v1/chat/completions`, {
          method: "POST",
          headers,
          body: GOOD_BODY,
        });
        assert.equal(answer.status, 200, await answer.text());
        return answer.headers.get("idempotency-replayed");
      };
      for (const name of ["one", "two", "three"]) await call("careful", name);
      for (let number = 0; number < 100; number++) await call("greedy", String(number));
      for (const name of ["one", "two", "three"]) assert.equal(await call("careful", name), "true");
      assert.equal(await call("greedy", "99"), "true", "its own newest");
      assert.equal(await call("greedy", "0"), null);
    } finally {
      await under.close();
      await provider.close();
    }
  });

  it("is open to pages of allowed origins, with all of its methods and headers", async () => {
    const page = "https://app.example.com";
    stage = await startDurableStage({ config: { cors: { origins: [page] } } });
    const { under } = stage;
    const exchange = await stage.begin("text/event-stream", chunk("one"), {
      "idempotency-key": "k",
      origin: page,
    });
    const exposed = ({ headers }: Response) =>
      (headers.get("access-control-expose-headers") ?? "").split(",").map((name) =>
        name.trim().toLowerCase()
      );
    for (const name of ["location", "exchange-expires"]) {
      assert.ok(exposed(exchange.answer).includes(name), name);
    }
    const requested =
      "authorization,gateway-auth,idempotency-key,if-none-match,last-event-id,sallyport-durable";
    for (const method of ["GET", "HEAD", "DELETE", "POST"]) {
      const preflight = await callRaw(under.a, {
        method: "OPTIONS",
        path: method === "POST" ? "/v1/chat/completions" : exchange.location,
        headers: {
          origin: page,
          "access-control-request-method": method,
          "access-control-request-headers": requested,
          "content-length": undefined,
        },
        body: "",
      });
      assert.equal(preflight.status, 204);
      assert.equal(preflight.headers["access-control-allow-origin"], page);
      assert.match(
        preflight.headers["access-control-allow-methods"] ?? "",
        new RegExp(`\\b${method}\\b`),
      );
      const allowed = preflight.headers["access-control-allow-headers"]?.split(", ") ?? [];
      assert.deepEqual(allowed.toSorted(), requested.split(",").toSorted());
    }
    await finish(exchange, stream());
    const read = await exchange.get("?offset=-1", { origin: page });
    await read.text();
    assert.equal(read.headers.get("access-control-allow-origin"), page);
    for (
      const name of ["stream-next-offset", "stream-up-to-date", "stream-closed", "etag", "location"]
    ) {
      assert.ok(exposed(read).includes(name), name);
    }
    const polled = await exchange.get("?offset=now&live=long-poll", { origin: page });
    for (const name of ["stream-next-offset", "stream-cursor"]) {
      assert.ok(exposed(polled).includes(name), name);
    }
    const replayed = await fetch(`${under.a}/v1/chat/completions`, {
      method: "POST",
      headers: { ...under.headers, "idempotency-key": "k", origin: page },
      body: GOOD_BODY,
    });
    await replayed.text();
    assert.ok(exposed(replayed).includes("idempotency-replayed"));
    await untilEnded(exchange);
    const gone = await exchange.get("", { origin: page }, { method: "DELETE" });
    assert.deepEqual([gone.status, gone.headers.get("access-control-allow-origin")], [204, page]);
  });
});
