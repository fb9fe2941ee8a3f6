/**
 * Starts the gateway as a Cloudflare Worker in workerd, with miniflare, which includes KV and needs
 * Node 22 or newer.
 */
import { readFileSync } from "node:fs";
import type { Readable } from "node:stream";
import { Miniflare } from "miniflare";
import type { ExchangeRecord } from "../../src/exchange/record.ts";
import { freePort } from "./free_port.ts";
import { COMPATIBILITY_DATE, COMPATIBILITY_FLAGS, ONE_MODULE, WorkerOutput } from "./workerd.ts";

/** The options of a Worker. */
export interface WorkerOptions {
  /** Variables, including secrets. */
  readonly variables: Readonly<Record<string, unknown>>;
  /** Entries of the KV namespace `KEYS`; without them there is no namespace. */
  readonly keys?: Readonly<Record<string, string>>;
  /** True if there is the Durable Object `LIMITS`. */
  readonly hasLimits?: boolean;
  /** True if there is the Durable Object `RECORDINGS`. */
  readonly hasRecordings?: boolean;
  readonly flags?: readonly string[];
  /** The folder of the Durable Objects; without it, they end with the Worker. */
  readonly persist?: string;
  /** A module that replaces the whole program, next to `workers.js`. */
  readonly main?: string;
}

/** A Worker that listens. */
export interface TestWorker {
  readonly miniflare: Miniflare;
  /** Address without `/v1`. */
  readonly url: string;
  /** Everything on its console. */
  told(): string;
  /** The records in its access log. */
  readonly records: ExchangeRecord[];
  close(): Promise<void>;
}

/**
 * The part of a KV namespace that the tests use: miniflare's types need a package that is not
 * installed.
 */
export interface TestNamespace {
  put(name: string, value: string): Promise<void>;
  delete(name: string): Promise<void>;
}

/** The namespace `KEYS`. */
export async function namespaceOf(miniflare: Miniflare): Promise<TestNamespace> {
  return await miniflare.getKVNamespace("KEYS") as unknown as TestNamespace;
}

/** Starts it. */
export async function startWorker(options: WorkerOptions): Promise<TestWorker> {
  const { variables, keys, flags = COMPATIBILITY_FLAGS, main, persist } = options;
  const { hasLimits = true, hasRecordings = true } = options;
  const durableObjects = {
    ...(hasLimits && { LIMITS: { className: "SallyportLimits", useSQLite: true } }),
    ...(hasRecordings && { RECORDINGS: { className: "SallyportRecordings", useSQLite: true } }),
  };
  const [port, ownPort] = [await freePort(), await freePort()];
  const output = new WorkerOutput();
  const module = (path: string, contents: string) => ({
    type: "ESModule" as const,
    path,
    contents,
  });
  const built = module("workers.js", readFileSync(ONE_MODULE, "utf8"));
  const miniflare = new Miniflare({
    host: "127.0.0.1",
    port: ownPort,
    modules: main === undefined ? [built] : [module("main.js", main), built],
    modulesRoot: ".",
    compatibilityDate: COMPATIBILITY_DATE,
    compatibilityFlags: [...flags],
    bindings: variables as Record<string, never>,
    durableObjects,
    ...(persist !== undefined && { durableObjectsPersist: persist }),
    ...(keys !== undefined && { kvNamespaces: ["KEYS"] }),
    // By default miniflare puts another Worker in front, which hides the disconnect of a caller.
    unsafeDirectSockets: [{ host: "127.0.0.1", port }],
    handleRuntimeStdio(out: Readable, err: Readable) {
      output.listen(out);
      output.listen(err);
    },
  });
  await miniflare.ready.catch(async (error) => {
    // Otherwise the process that failed to start would remain.
    await miniflare.dispose().catch(() => {});
    throw error;
  });
  if (keys !== undefined) {
    const namespace = await namespaceOf(miniflare);
    for (const [name, value] of Object.entries(keys)) await namespace.put(name, value);
  }
  return {
    miniflare,
    url: `http://127.0.0.1:${port}`,
    told: () => output.told,
    records: output.records,
    async close() {
      await miniflare.dispose();
      output.assertSound();
    },
  };
}
