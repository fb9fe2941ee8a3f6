/**
 * Durable exchanges whose caller is cut off at every byte of the answer: the bytes before and after
 * the cut are together the provider's bytes, through the same gateway and through another one.
 */
// runtimes: bun, node
import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { afterEach, beforeEach, describe } from "@std/testing/bdd";
import { systemClock } from "../../src/exchange/clock.ts";
import type { DurableExchanges } from "../../src/durable/durable_exchanges.ts";
import type { RecordingStore } from "../../src/durable/recording_store.ts";
import { RedisRecordings } from "../../src/durable/redis/recording_store.ts";
import { RedisClient } from "../../src/storage/redis_client.ts";
import { MemoryRecordings } from "../../src/durable/recording_store_memory.ts";
import { createDurableExchanges } from "../../src/steps/durable/setup.ts";
import {
  IMAGE_EVENTS,
  MESSAGE_EVENTS,
  responseEvents,
  SPEECH_EVENTS,
  toStream,
} from "../support/event_streams.ts";
import { it } from "../support/cases.ts";
import { startUnderTest, STREAM_BODY, type UnderTest } from "../support/gateway.ts";
import { type RedisServer, startRedis, withRedis } from "../support/redis.ts";
import { COMPLETION, type Provider, startProvider, stream } from "../support/provider.ts";

const EVENTS = "text/event-stream";
/** Answers of each dialect, with the paths of their operations. */
const ANSWERS = [
  {
    name: "chat completions",
    path: "/v1/chat/completions",
    type: EVENTS,
    text: stream("Hello 👋"),
  },
  {
    name: "a plain answer",
    path: "/v1/chat/completions",
    type: "application/json",
    text: COMPLETION,
  },
  { name: "responses", path: "/v1/responses", type: EVENTS, text: toStream(responseEvents()) },
  { name: "images", path: "/v1/images/generations", type: EVENTS, text: toStream(IMAGE_EVENTS) },
  { name: "audio", path: "/v1/audio/speech", type: EVENTS, text: toStream(SPEECH_EVENTS) },
  { name: "messages", path: "/v1/messages", type: EVENTS, text: toStream(MESSAGE_EVENTS) },
];
/** Cuts in progress at once. */
const PARALLEL = 16;
/**
 * Number of cuts of an answer at even distances (each byte of a short answer), plus each of the
 * last bytes.
 */
interface Cuts {
  readonly most: number;
  readonly last: number;
}
const MANY: Cuts = { most: 300, last: 64 };
/** For answers that differ from the first one only in their dialect or their store. */
const FEW: Cuts = { most: 60, last: 16 };
/** Deadline of Redis, long enough for a busy machine. Milliseconds. */
const PATIENCE_MS = 5000;

/** Reads the given number of bytes of an answer, or all of them. */
async function read(answer: Response, length = Infinity): Promise<Buffer> {
  const reader = answer.body?.getReader();
  const chunks: Uint8Array[] = [];
  let read = 0;
  while (reader !== undefined && read < length) {
    const { value, done } = await reader.read();
    if (done) break;
    chunks.push(value);
    read += value.length;
  }
  return Buffer.concat(chunks).subarray(0, length);
}

/**
 * Returns the positions of the cuts. The first is after one byte, because Bun sends no head before
 * it.
 */
function toPlaces(length: number, { most, last }: Cuts): number[] {
  const step = Math.ceil(length / most);
  return Array.from({ length }, (_, index) => index + 1).filter((at) =>
    at % step === 0 || at > length - last
  );
}

describe("a caller that is cut off", () => {
  let provider: Provider;
  let gateways: UnderTest[];
  /** Lets the provider send the rest of an answer, by the id of its call. */
  const goOn = new Map<string, () => void>();
  let bytes: Buffer;
  let type: string;

  beforeEach(async () => {
    provider = await startProvider((response, { headers }) => {
      const at = Number(headers["x-client-request-id"]);
      response.writeHead(200, { "content-type": type });
      response.write(bytes.subarray(0, at));
      goOn.set(String(at), () => response.end(bytes.subarray(at)));
    });
  });

  afterEach(async () => {
    await provider.close();
    goOn.clear();
  });

  /** Starts two gateways on these stores, and cuts answers through them. */
  async function cutAll(
    { text, path }: { readonly text: string; readonly path: string },
    stores: readonly RecordingStore[],
    cuts: Cuts,
  ): Promise<void> {
    bytes = Buffer.from(text);
    const all = stores.map((store) => createDurableExchanges(store, systemClock));
    const start = (durable: DurableExchanges | undefined) =>
      startUnderTest({
        upstreams: { a: provider.url },
        provider: { durable: {}, operations: ["all"] },
        config: {
          keys: [{ id: "tester", key: "a-key-of-both-gateways" }],
          limits: { exchanges: 1000 },
        },
        parts: { durable },
      });
    gateways = [await start(all[0]), await start(all.at(-1))];
    const places = toPlaces(bytes.length, cuts);
    const one = async () => {
      for (let at = places.pop(); at !== undefined; at = places.pop()) await cut(path, at);
    };
    await Promise.all(Array.from({ length: PARALLEL }, one));
    assert.equal(
      new Set(provider.calls.map(({ headers }) => headers["idempotency-key"])).size,
      provider.calls.length,
    );
    for (const gateway of gateways) await gateway.close();
    for (const durable of all) await durable.close();
  }

  /** Makes a call, leaves after the given number of bytes, and continues to read. */
  async function cut(path: string, at: number): Promise<void> {
    const [first, second] = gateways as [UnderTest, UnderTest];
    const headers = {
      ...first.headers,
      "gateway-auth": "Bearer a-key-of-both-gateways",
      "x-client-request-id": String(at),
      "idempotency-key": `cut-${at}`,
    };
    const leave = new AbortController();
    const call = { method: "POST", headers, body: STREAM_BODY };
    const answer = await fetch(first.a + path, { ...call, signal: leave.signal });
    assert.equal(
      answer.status,
      200,
      `${answer.headers.get("sallyport-error")} for the cut at ${at}`,
    );
    const before = await read(answer, at);
    leave.abort();
    const reader = at % 2 === 0 ? first : second;
    const goOnSoon = goOn.get(String(at)) ?? assert.fail("the provider was not called");
    if (at % 3 === 0) goOnSoon(); // before or after the reader returns
    const after = fetch(`${reader.a}${answer.headers.get("location")}?offset=${at}`, { headers });
    if (at % 3 === 1) setTimeout(goOnSoon, 20);
    else if (at % 3 === 2) goOnSoon();
    assert.equal(
      Buffer.concat([before, await read(await after)]).compare(bytes),
      0,
      `cut at ${at}`,
    );
    const again = await fetch(reader.a + path, call);
    assert.equal((await read(again)).compare(bytes), 0, `again after the cut at ${at}`);
  }

  for (const [index, { name, path, type: contentType, text }] of ANSWERS.entries()) {
    const [every, where, cuts] = index === 0
      ? [it, "at any byte", MANY] as const
      : [it.once, "at cuts", FEW] as const;
    every(`reads on ${where}: ${name}`, () => {
      type = contentType;
      return cutAll({ text, path }, [
        new MemoryRecordings({ clock: systemClock, maxBytes: 100_000_000 }),
      ], cuts);
    });
  }

  withRedis.describe("over Redis", () => {
    let server: RedisServer;
    let clients: RedisClient[];

    beforeEach(async () => {
      server = await startRedis();
      const join = () =>
        new RedisClient({ url: server.url, timeoutMs: PATIENCE_MS }, systemClock, () => {});
      clients = [join(), join()];
      for (const client of clients) await client.ready();
    });

    afterEach(async () => {
      for (const client of clients) client.close();
      await server.stop();
    });

    // The store's own test suite covers the store: a stream and a plain answer are enough here.
    for (const { name, path, type: contentType, text } of ANSWERS.slice(0, 2)) {
      it(`continues at every cut, also through another gateway: ${name}`, async () => {
        type = contentType;
        const stores = clients.map((client) =>
          new RedisRecordings({ client, clock: systemClock, maxBytes: () => 1e8 })
        );
        await cutAll({ text, path }, stores, FEW);
      });
    }
  });
});
