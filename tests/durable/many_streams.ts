/** A thousand durable streams at once, through a gateway whose provider a test controls. */
import assert from "node:assert/strict";
import process from "node:process";
import v8 from "node:v8";
import vm from "node:vm";
import { parseConfig } from "../../src/config/config.ts";
import type { RecordingStore } from "../../src/durable/recording_store.ts";
import type { Clock } from "../../src/exchange/clock.ts";
import { createGateway } from "../../src/gateway.ts";
import type { ByteSink } from "../../src/http/message.ts";
import { createDurableExchanges } from "../../src/steps/durable/setup.ts";
import type { Transport } from "../../src/upstream/transport.ts";
import { STREAM_BODY } from "../support/gateway.ts";
import { stream } from "../support/provider.ts";
import { until } from "../support/until.ts";

export const STREAMS = 1000;
export const KEEP_MS = 60_000;
/** An answer, and the part of it that is sent while a stream runs. */
export const WHOLE: Uint8Array = new TextEncoder().encode(
  stream(...Array.from({ length: 60 }, (_, at) => `${at} ${"x".repeat(150)}`)),
);
export const HALF: Uint8Array = WHOLE.subarray(0, WHOLE.length / 2);
/** Bytes of a recording in addition to its ciphertext: facts, names, tags of some entries. */
export const RECORDING_BYTES = 4096;
/** Noise, and code that is compiled in the meantime: less than 3 kB for each stream. Bytes. */
export const NOISE_BYTES = 3e6;

/** Bytes in use after a garbage collection. */
export async function readMemory(): Promise<number> {
  const { Bun: bun } = globalThis as unknown as { Bun?: { gc(isForced: boolean): void } };
  v8.setFlagsFromString("--expose-gc");
  const collect = bun === undefined ? vm.runInNewContext("gc") as () => void : () => bun.gc(true);
  for (let round = 0; round < 3; round++) {
    // Objects that a finalizer releases are collected by the next collection.
    await new Promise((resolve) => setTimeout(resolve, 0));
    collect();
  }
  const { heapUsed, external } = process.memoryUsage();
  return bun === undefined ? heapUsed + external : heapUsed; // Bun's heap includes external memory
}

/** Streams through a gateway whose provider the test controls. */
export class Streams {
  readonly #sinks = new Set<ByteSink>();
  readonly #fetch: (request: Request) => Promise<Response>;
  #readers: ReadableStreamDefaultReader<Uint8Array>[] = [];
  readonly locations: string[] = [];
  readonly open: () => number;

  constructor(store: RecordingStore, clock: Clock) {
    const transport: Transport = {
      send: ({ body }) => {
        body?.release();
        const headers = new Headers({ "content-type": "text/event-stream" });
        const pushTo = (sink: ByteSink) => {
          this.#sinks.add(sink);
          sink.write(HALF.slice());
          return () => {};
        };
        return Promise.resolve({ status: 200, headers, body: { pushTo, cancel() {} } });
      },
    };
    const durable = { keep: `${KEEP_MS}ms`, linger: "1h" };
    const config = parseConfig({
      providers: { a: { hosts: ["*"], upstream: "http://127.0.0.1:1/v1", durable } },
      keys: [{ id: "me", key: "a-gateway-key-of-mine" }],
    });
    const gateway = createGateway(config, {
      transport,
      clock,
      durable: createDurableExchanges(store, clock),
    });
    this.#fetch = gateway.fetch;
    this.open = () => gateway.openExchanges;
  }

  call(path: string, init: RequestInit = {}): Promise<Response> {
    const headers = {
      "authorization": "Bearer sk-1",
      "gateway-auth": "Bearer a-gateway-key-of-mine",
      "content-type": "application/json",
      "sallyport-durable": "?1",
      "host": "gateway.test",
    };
    return this.#fetch(new Request(`http://gateway.test${path}`, { ...init, headers }));
  }

  /** Starts a number of streams, each with half of its answer, which its caller has read. */
  async begin(count: number): Promise<void> {
    await Promise.all(Array.from({ length: count }, async () => {
      const answer = await this.call("/v1/chat/completions", { method: "POST", body: STREAM_BODY });
      this.locations.push(
        answer.headers.get("location") ?? assert.fail(`no address: ${answer.status}`),
      );
      const reader = answer.body?.getReader() ?? assert.fail("no body");
      for (let got = 0; got < HALF.length;) {
        got += (await reader.read()).value?.length ?? assert.fail("it ended");
      }
      this.#readers.push(reader);
    }));
  }

  /** Every second caller leaves; then all answers end, and the other callers read them. */
  async end(): Promise<void> {
    const [leaving, staying] = [0, 1].map((rest) =>
      this.#readers.filter((_, at) => at % 2 === rest)
    );
    this.#readers = [];
    for (const reader of leaving ?? []) await reader.cancel();
    for (const sink of this.#sinks) {
      sink.write(WHOLE.slice(HALF.length));
      sink.end();
    }
    this.#sinks.clear();
    for (const reader of staying ?? []) while (!(await reader.read()).done);
    await until(() => this.open() === 0, "all exchanges are settled");
  }
}
