/** Durable exchanges of a Worker, whose recordings are in Durable Objects. */
// runtimes: workers
import assert from "node:assert/strict";
import type { ServerResponse } from "node:http";
import { join } from "node:path";
import { afterEach, beforeEach, describe, it } from "@std/testing/bdd";
import { readConfig } from "../../src/cloudflare/bindings.ts";
import { StoredRecordings } from "../../src/cloudflare/stored_recordings.ts";
import { RemoteRecordings } from "../../src/durable/recording_store_remote.ts";
import { TOMBSTONE_MS } from "../../src/durable/recording_store.ts";
import { MovedClock } from "../durable/recording_places.ts";
import {
  claimOf,
  endOf,
  entryOf,
  headOf,
  NotedHolder,
  readAll,
} from "../durable/recording_store_suite.ts";
import { STREAM_BODY } from "../support/gateway.ts";
import { createStorage } from "../support/object_storage.ts";
import { makeFolder } from "../support/program.ts";
import { chunk, type Provider, startProvider, stream } from "../support/provider.ts";
import { callRaw, openRaw, toRawRequest } from "../support/tcp_peer.ts";
import { until } from "../support/until.ts";
import { startWorker, type TestWorker } from "../support/worker.ts";

const KEY = "0123456789-secret-key";
const headers = {
  "authorization": "Bearer sk-1",
  "gateway-auth": `Bearer ${KEY}`,
  "content-type": "application/json",
};
const WHOLE = stream(...Array.from({ length: 100 }, (_, index) => `word-${index}`));
const FIRST = chunk("word-0");

describe("durable exchanges of a Worker", () => {
  let folder: ReturnType<typeof makeFolder>;
  let provider: Provider;
  let workers: TestWorker[];
  let held: ServerResponse[];

  beforeEach(async () => {
    folder = makeFolder();
    workers = [];
    held = [];
    provider = await startProvider((response) => {
      response.writeHead(200, { "content-type": "text/event-stream" });
      response.write(FIRST);
      held.push(response);
    });
  });
  afterEach(async () => {
    for (const response of held) if (!response.writableEnded) response.end();
    for (const worker of workers) await worker.close();
    await provider.close();
    folder.remove();
  });

  const start = async (durable: Record<string, string> = {}) => {
    const a = {
      hosts: ["*"],
      upstream: provider.url,
      durable: { keep: "1m", linger: "1m", ...durable },
    };
    const SALLYPORT_CONFIG = { providers: { a }, keys: [{ id: "me", key: KEY }] };
    const worker = await startWorker({
      variables: { SALLYPORT_CONFIG },
      persist: join(folder.path, "objects"),
    });
    workers.push(worker);
    return worker;
  };
  const get = async ({ url }: TestWorker, path: string) => {
    const answer = await fetch(url + path, { headers });
    return { status: answer.status, body: await answer.text() };
  };
  const begin = async ({ url }: TestWorker, key: string) => {
    const all = { ...headers, "idempotency-key": key };
    const caller = openRaw(url, toRawRequest(url, { headers: all, body: STREAM_BODY }));
    await until(() => caller.received().includes("word-0"), "the answer begins");
    const path = /^location: (\S+)\r$/im.exec(caller.received())?.[1] ??
      assert.fail("it has an address");
    return { caller, path };
  };

  it("continue after their caller has left, and exist after the Worker restarts", async () => {
    const first = await start();
    const { caller, path } = await begin(first, "one");
    caller.socket.resetAndDestroy();
    const reading = get(first, `${path}?offset=10`);
    held[0]?.write(WHOLE.slice(FIRST.length, 3000));
    held[0]?.end(WHOLE.slice(3000));
    assert.equal((await reading).body, WHOLE.slice(10));
    await until(
      () => first.records.some(({ operation }) => operation === "chat.completions"),
      "it is over",
    );
    assert.equal(
      first.records.find(({ operation }) => operation === "chat.completions")?.outcome,
      "ok",
    );
    await first.close();
    workers.pop();
    const second = await start();
    assert.deepEqual(await get(second, path), { status: 200, body: WHOLE });
    const again = await callRaw(second.url, {
      headers: { ...headers, "idempotency-key": "one" },
      body: STREAM_BODY,
    });
    assert.equal(again.headers["idempotency-replayed"], "true");
    assert.equal(provider.calls.length, 1);
  });

  it("are stopped without a reader for the linger time", async () => {
    const worker = await start({ linger: "100ms" });
    const { caller, path } = await begin(worker, "two");
    caller.socket.resetAndDestroy();
    await until(() => provider.calls[0]?.isCut === true, "the call is cancelled");
    assert.match((await get(worker, path)).body, /exchange_stopped/);
  });

  it("are lost with the Worker that made their call, and readers get an error within 10 s", async () => {
    const first = await start();
    const { path } = await begin(first, "three");
    await until(
      async () => (await fetch(first.url + path, { method: "HEAD", headers })).status === 200,
      "it is kept",
    );
    const early = new AbortController();
    const some = await fetch(first.url + path, { headers, signal: early.signal });
    await some.body?.getReader().read(); // the entry is now stored
    early.abort();
    await first.miniflare.dispose();
    workers.pop();
    const second = await start();
    const startedAt = performance.now();
    const { body } = await get(second, path);
    assert.ok(performance.now() - startedAt < 10_000);
    assert.ok(body.startsWith(FIRST), body);
    assert.match(body, /exchange_lost/);
  });
});

describe("the Durable Object of recordings", () => {
  const open = (clock: MovedClock, maxBytes = 10_000_000) => {
    const storage = createStorage();
    const object = { current: new StoredRecordings(storage, clock, maxBytes) };
    const send = async (message: Parameters<StoredRecordings["handle"]>[0]) =>
      structuredClone(await object.current.handle(structuredClone(message)));
    const store = new RemoteRecordings({ send, clock, gatherMs: 100 });
    return {
      storage,
      object,
      store,
      renew: () => object.current = new StoredRecordings(storage, clock, maxBytes),
    };
  };
  const begin = async (store: RemoteRecordings, keepMs = 60_000) => {
    const claimed = await store.claim(claimOf(undefined, keepMs), new NotedHolder());
    return "held" in claimed ? claimed.held : assert.fail("a new recording");
  };

  it("stores an entry of any size, and reads it back byte for byte", async () => {
    const { store, renew } = open(new MovedClock());
    const held = await begin(store);
    await held.append(headOf());
    const texts = ["a", "b".repeat(3_500_000), "c".repeat(1_000_000 - 16), "d"];
    let length = 0;
    for (const text of texts) {
      await held.append(entryOf(2, length, text));
      length += text.length;
    }
    renew();
    await held.end(endOf(length), "complete");
    renew();
    const { text, isWhole } = await readAll(store, held.id);
    assert.ok(isWhole && text === texts.join(""));
  });

  it("sets an alarm for the expiry of recordings, and then empties its storage", async () => {
    const clock = new MovedClock();
    const { storage, store, object, renew } = open(clock);
    const held = await begin(store);
    await held.append(headOf());
    await held.end(endOf(0), "complete");
    const ring = async () => {
      const ms = Math.max(0, (storage.alarmAt ?? assert.fail("an alarm")) - clock.now());
      renew(); // the object was evicted from memory in the meantime
      await clock.pass(ms);
      await object.current.alarm();
    };
    for (let alarms = 0; storage.stored.size > 1; alarms++) {
      assert.ok(alarms < 5);
      await ring();
    }
    assert.equal((await store.find(held.id))?.state, "expired");
    await clock.pass(TOMBSTONE_MS);
    await ring();
    await clock.pass(1); // timers that were due during its absence
    assert.equal(storage.stored.size, 0);
    assert.equal(await store.find(held.id), undefined);
  });

  it("sets an alarm for a recording that begins directly after the last one was deleted with all stored data", async () => {
    const clock = new MovedClock();
    const { storage, store } = open(clock);
    const first = await begin(store);
    await first.append(headOf());
    await store.delete(first.id);
    await clock.pass(2700); // its holder has waited long enough for news, and the storage is empty
    assert.equal(storage.stored.size, 0);
    const second = await begin(store);
    await second.append(headOf());
    await second.end(endOf(0), "complete");
    assert.ok(storage.alarmAt !== undefined && storage.alarmAt <= clock.now() + 60_000);
  });

  it("must be bound if exchanges are durable", () => {
    const SALLYPORT_CONFIG = { providers: { a: { upstream: "openai", durable: { keep: "1m" } } } };
    assert.throws(
      () => readConfig({ SALLYPORT_CONFIG }),
      /providers\.a\.durable: expected a binding RECORDINGS to the Durable Object SallyportRecordings/,
    );
    const RECORDINGS = { getByName: () => ({}) };
    assert.equal(
      readConfig({ SALLYPORT_CONFIG, RECORDINGS }).providers["a"]?.durable?.keepMs,
      60_000,
    );
  });
});
