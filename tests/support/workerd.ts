/**
 * Starts the gateway as a Cloudflare Worker in plain workerd, for the test files that run on all
 * runtimes. Without a proxy in front of it, a start needs half of the CPU time that it needs with
 * miniflare.
 */
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, symlinkSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join, resolve } from "node:path";
import type { Readable } from "node:stream";
import type { ExchangeRecord } from "../../src/exchange/record.ts";
import { makeFolder } from "./program.ts";
import { until } from "./until.ts";

/** The compatibility date and flags of the sample in `ops/workers/`. */
export const COMPATIBILITY_DATE = "2026-04-01";
export const COMPATIBILITY_FLAGS: readonly string[] = ["enable_request_signal"];
/** The program for Workers. */
export const ONE_MODULE: string = resolve("dist/workers.js");

/** Path of workerd itself: its package is CommonJS, and each runtime imports that differently. */
const { default: WORKERD } = createRequire(import.meta.url)("workerd") as {
  readonly default: string;
};

/** Forbidden acts of a Worker, by the messages of workerd. */
const UNSOUND = /Cannot perform I\/O|never generate a response|Disallowed operation/i;

/**
 * A module in front that reports the start of each call: a Worker does not report its open calls.
 */
const COUNTING = `import worker from "./workers.js";
export { SallyportLimits, SallyportRecordings } from "./workers.js";
export default { fetch: (request, env) => (console.log("begun"), worker.fetch(request, env)) };
`;

/** Converts a line of the log to its record, as far as the line contains it. */
function toRecord(line: string): ExchangeRecord | undefined {
  if (!line.startsWith('{"time":')) return undefined;
  const { time, key, inputTokens, outputTokens, tokens, estimated, ...rest } = JSON.parse(line);
  return {
    ...rest,
    startedAt: Date.parse(time),
    ...(key !== undefined && { keyId: key }),
    ...(estimated === true && { isEstimated: true }),
    ...(tokens !== undefined &&
      { usage: { total: tokens, input: inputTokens, output: outputTokens } }),
  };
}

/** The output of a Worker on its console. */
export class WorkerOutput {
  /** All output. */
  told = "";
  /** The records in its access log. */
  readonly records: ExchangeRecord[] = [];
  /** Number of exchanges that have begun, if the Worker reports them. */
  begun = 0;
  #line = "";

  /** Reads a stream of its output. */
  listen(output: Readable): void {
    output.setEncoding("utf8").on("data", (text: string) => {
      this.told += text;
      const lines = (this.#line + text).split("\n");
      this.#line = lines.pop() ?? "";
      this.begun += lines.filter((each) => each === "begun").length;
      this.records.push(...lines.map(toRecord).filter((record) => record !== undefined));
    });
  }

  /** Fails if the Worker has done something that only this runtime forbids. */
  assertSound(): void {
    assert.doesNotMatch(this.told, UNSOUND, this.told);
  }
}

/**
 * A text of Cap'n Proto. It has the same escapes as C, and JSON text without control characters
 * uses no others.
 */
const toText = (text: string): string => JSON.stringify(text);

/** The options of a Worker. */
export interface WorkerdOptions {
  /** The setting `SALLYPORT_CONFIG`. */
  readonly config: string;
  readonly port: number;
  readonly tlsPort: number;
  readonly tls: { readonly cert: string; readonly key: string };
}

/**
 * Writes the configuration of workerd:
 * https://github.com/cloudflare/workerd/blob/main/src/workerd/server/workerd.capnp
 */
function toConfig({ config, port, tlsPort, tls: { cert, key } }: WorkerdOptions): string {
  const keypair = `(privateKey = ${toText(key)}, certificateChain = ${toText(cert)})`;
  const objects = { LIMITS: "SallyportLimits", RECORDINGS: "SallyportRecordings" };
  const bindings = Object.entries(objects)
    .map(([name, object]) =>
      `(name = "${name}", durableObjectNamespace = (className = "${object}"))`
    );
  const namespaces = Object.values(objects)
    .map((object) => `(className = "${object}", uniqueKey = "${object}", enableSql = true)`);
  return `using Workerd = import "/workerd/workerd.capnp";
const config :Workerd.Config = (
  services = [
    (name = "main", worker = .worker),
    (name = "objects", disk = (path = "objects", writable = true)),
    (name = "internet", network = (
      allow = ["public", "private"],
      tlsOptions = (trustBrowserCas = true, trustedCertificates = [${toText(cert)}]),
    )),
  ],
  sockets = [
    (name = "http", address = "127.0.0.1:${port}", http = (), service = "main"),
    (name = "https", address = "127.0.0.1:${tlsPort}", service = "main",
      https = (options = (), tlsOptions = (keypair = ${keypair}))),
  ],
);
const worker :Workerd.Worker = (
  modules = [
    (name = "main.js", esModule = ${toText(COUNTING)}),
    (name = "workers.js", esModule = embed "workers.js"),
  ],
  compatibilityDate = "${COMPATIBILITY_DATE}",
  compatibilityFlags = [${COMPATIBILITY_FLAGS.map(toText).join(", ")}],
  bindings = [(name = "SALLYPORT_CONFIG", text = ${toText(config)}), ${bindings.join(", ")}],
  durableObjectNamespaces = [${namespaces.join(", ")}],
  durableObjectStorage = (localDisk = "objects"),
);
`;
}

/** Starts it. @returns Its output, and a function that stops it */
export async function startWorkerd(
  options: WorkerdOptions,
): Promise<{ output: WorkerOutput; close(): Promise<void> }> {
  const folder = makeFolder();
  symlinkSync(ONE_MODULE, join(folder.path, "workers.js"));
  mkdirSync(join(folder.path, "objects"));
  writeFileSync(join(folder.path, "config.capnp"), toConfig(options));
  const child = spawn(WORKERD, ["serve", "--control-fd=3", "config.capnp"], {
    cwd: folder.path,
    stdio: ["ignore", "pipe", "pipe", "pipe"],
  });
  const output = new WorkerOutput();
  for (const stream of [child.stdout, child.stderr]) output.listen(stream as Readable);
  let control = "";
  (child.stdio[3] as Readable).setEncoding("utf8").on("data", (text: string) => control += text);
  const exit = once(child, "exit");
  let isOver = false;
  void exit.then(() => isOver = true);
  const end = async () => {
    child.kill("SIGKILL");
    await exit;
    folder.remove();
  };
  try {
    await until(
      () => isOver || control.split('"listen"').length > 2,
      "workerd listens on both ports",
    );
    assert.ok(!isOver, `workerd has ended: ${output.told}`);
  } catch (error) {
    await end();
    throw error;
  }
  return {
    output,
    async close() {
      await end();
      output.assertSound();
    },
  };
}
