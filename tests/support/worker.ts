/** Starts the gateway as a Cloudflare Worker in workerd, by miniflare, which needs Node 22 or newer. */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import type { Readable } from "node:stream";
import { Miniflare } from "miniflare";
import type { ExchangeRecord } from "../../src/exchange/record.ts";
import { freePort } from "./free_port.ts";

/** What a Worker is started with. */
export interface WorkerOptions {
  /** Variables, secrets among them. */
  readonly variables: Readonly<Record<string, unknown>>;
  /** Entries of the KV namespace `KEYS`; without them there is none. */
  readonly keys?: Readonly<Record<string, string>>;
  /** Whether there is the Durable Object `LIMITS`. */
  readonly hasLimits?: boolean;
  /** Whether there is the Durable Object `RECORDINGS`. */
  readonly hasRecordings?: boolean;
  /** Of the http listener, which leads to the Worker alone; a free one if left out. */
  readonly port?: number;
  /** Of the https listener; a free one if left out. */
  readonly tlsPort?: number;
  readonly tls?: { readonly cert: string; readonly key: string };
  readonly flags?: readonly string[];
  /** A folder that Durable Objects are kept in; else they end with the Worker. */
  readonly persist?: string;
  /** A module that takes the place of the whole program, beside `workers.js`. */
  readonly main?: string;
}

/** A Worker that listens. */
export interface TestWorker {
  readonly miniflare: Miniflare;
  /** Addresses without `/v1`: over http, and over https where there is a certificate. */
  readonly url: string;
  readonly tlsUrl: string;
  /** Everything on its console. */
  told(): string;
  /** What the lines of its access log say. */
  readonly records: ExchangeRecord[];
  /** Exchanges that have begun, for a Worker with {@link COUNTING} in front. */
  begun(): number;
  close(): Promise<void>;
}

/** The date that the sample in `ops/workers/` has. */
export const COMPATIBILITY_DATE = "2026-04-01";

/** A module in front that says of each call that it has begun: a Worker tells nobody what is open. */
export const COUNTING = `import worker from "./workers.js";
export { SallyportLimits, SallyportRecordings } from "./workers.js";
export default { fetch: (request, env) => (console.log("begun"), worker.fetch(request, env)) };
`;

/** A line of the log as the record it was made of, as far as it says. */
function toRecord(line: string): ExchangeRecord | undefined {
  if (!line.startsWith('{"time":')) return undefined;
  const { time, key, inputTokens, outputTokens, tokens, estimated, ...rest } = JSON.parse(line);
  return {
    ...rest,
    startedAt: Date.parse(time),
    ...(key !== undefined && { keyId: key }),
    ...(estimated === true && { isEstimated: true }),
    ...(tokens !== undefined && { usage: { total: tokens, input: inputTokens, output: outputTokens } }),
  };
}

/** What of a KV namespace the tests use: miniflare's types need a package that is not installed. */
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
  const { variables, keys, tls, flags = ["enable_request_signal"], main, persist } = options;
  const { hasLimits = true, hasRecordings = true } = options;
  const durableObjects = {
    ...(hasLimits && { LIMITS: { className: "SallyportLimits", useSQLite: true } }),
    ...(hasRecordings && { RECORDINGS: { className: "SallyportRecordings", useSQLite: true } }),
  };
  const [port, tlsPort] = [options.port ?? await freePort(), options.tlsPort ?? await freePort()];
  const records: ExchangeRecord[] = [];
  let told = "";
  let line = "";
  let begun = 0;
  const listen = (output: Readable) => {
    output.setEncoding("utf8");
    output.on("data", (text: string) => {
      told += text;
      const lines = (line + text).split("\n");
      line = lines.pop() ?? "";
      begun += lines.filter((each) => each === "begun").length;
      records.push(...lines.map(toRecord).filter((record) => record !== undefined));
    });
  };
  const module = (path: string, contents: string) => ({ type: "ESModule" as const, path, contents });
  const built = module("workers.js", readFileSync("dist/workers.js", "utf8"));
  const miniflare = new Miniflare({
    host: "127.0.0.1",
    port: tlsPort,
    ...(tls !== undefined && { https: true, httpsKey: tls.key, httpsCert: tls.cert }),
    modules: main === undefined ? [built] : [module("main.js", main), built],
    modulesRoot: ".",
    compatibilityDate: COMPATIBILITY_DATE,
    compatibilityFlags: [...flags],
    bindings: variables as Record<string, never>,
    durableObjects,
    ...(persist !== undefined && { durableObjectsPersist: persist }),
    ...(keys !== undefined && { kvNamespaces: ["KEYS"] }),
    // Miniflare's own way in is a Worker in front: it hides from ours that a caller left.
    unsafeDirectSockets: [{ host: "127.0.0.1", port }],
    handleRuntimeStdio(out: Readable, err: Readable) {
      listen(out);
      listen(err);
    },
  });
  const { origin: tlsUrl } = await miniflare.ready.catch(async (error) => {
    await miniflare.dispose().catch(() => {}); // else it keeps the process that failed to start it
    throw error;
  });
  if (keys !== undefined) {
    const namespace = await namespaceOf(miniflare);
    for (const [name, value] of Object.entries(keys)) await namespace.put(name, value);
  }
  return {
    miniflare,
    url: `http://127.0.0.1:${port}`,
    tlsUrl,
    told: () => told,
    records,
    begun: () => begun,
    async close() {
      await miniflare.dispose();
      assert.doesNotMatch(told, /Cannot perform I\/O|never generate a response|Disallowed operation/i, told);
    },
  };
}
