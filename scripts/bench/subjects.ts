/** The measured processes in front of the provider: bare proxies and the gateway. */
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import * as http from "node:http";
import * as https from "node:https";
import { join } from "node:path";
import { buildSync } from "esbuild";
import { findRuntimes, type RuntimeOnMachine } from "../runtimes.ts";
import { makeCertificates, TLS_HOST } from "./certificates.ts";
import {
  GATEWAY_KEY,
  HOST,
  type LimitKind,
  UPSTREAM_KEY,
  writeGatewayConfig,
} from "./gateway_config.ts";
import { CACHE, CORES, type Cores, findPort, start, type Started } from "./machine.ts";
import { PLAIN } from "./requests.ts";

/** Milliseconds until a process must give its first correct answer, and between two attempts. */
const READY_MS = 60_000;
const LOOK_MS = 2;
/** Bun's fetch makes 256 calls at once by default; the gateway does not use it. */
const BUN_CAP = { BUN_CONFIG_MAX_HTTP_REQUESTS: "65535" };
/** A process that can be started and measured. */
export interface Subject {
  /** Such as `bare bun`, `gateway node 26`, `nginx`. */
  readonly name: string;
  /** The subject that it is compared with. */
  readonly base?: string;
  /** True if it returns the provider's answers byte for byte. */
  readonly isExact: boolean;
  /**
   * True if it shows only the minimum that a runtime needs. It is then measured only where that
   * matters.
   */
  readonly isFloor?: boolean;
  /** True if its runtime is an old one. It is then measured only if there is a goal. */
  readonly isOld?: boolean;
  /** True if it serves https and calls the provider over https. */
  readonly isTls?: boolean;
  /** Its cores, if it has not only its own. */
  readonly cores?: Cores;
  /** True if it is the load generator and provider alone, as the reference for the others. */
  readonly isReference?: boolean;
  /** The same process with a limit that callers reach, if it supports such a limit. */
  limited?(kind: LimitKind): Subject | undefined;
  /** Headers that callers send in addition to the body's own. */
  headers(upstream: string): Readonly<Record<string, string>>;
  /** Command and environment variables, once the port is known. */
  command(
    port: number,
    upstream: string,
  ): { command: readonly string[]; env?: Readonly<Record<string, string>> };
}

/** A subject that answers. */
export interface RunningSubject {
  readonly subject: Subject;
  readonly name: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly port: number;
  readonly process: Started;
  /** Milliseconds from its start to its first answer. */
  readonly startUpMs: number;
  /** The code that measurements have warmed up in it so far. */
  readonly heated: Set<string>;
}

type Headers = Readonly<Record<string, string>>;

/** Headers of callers with the key for the provider, and with both keys. */
export const credentials: Headers = { "host": HOST, "authorization": `Bearer ${UPSTREAM_KEY}` };
export const bothCredentials: Headers = { ...credentials, "gateway-auth": `Bearer ${GATEWAY_KEY}` };

const RUN: Readonly<Record<RuntimeOnMachine["kind"], readonly string[]>> = {
  bun: ["run"],
  deno: ["run", "-A", "--no-config", "--no-lock"],
  node: [],
};

/**
 * The runtimes that are compared: all, or those with the given names. `node` is the newest Node.
 */
export function selectRuntimes(names: readonly string[] | undefined): RuntimeOnMachine[] {
  const found = findRuntimes();
  if (names === undefined) return found;
  return found.filter(({ kind, label }, index) =>
    names.includes(label) ||
    (names.includes(kind) && found.findIndex((each) => each.kind === kind) === index)
  );
}

/**
 * A small server on a runtime: `bare`, ten lines with the runtime's own functions, or `floor`,
 * which implements by hand only the parts that every gateway needs.
 */
export function serverOn(
  folder: "bare" | "floor",
  { label, kind, command, runsTypeScript }: RuntimeOnMachine,
  isTls: boolean = false,
): Subject {
  const source = join("scripts", "bench", folder, `${kind}.ts`);
  return {
    name: `${folder} ${label}`,
    ...(folder === "floor" && { base: `bare ${label}`, isFloor: true }),
    isExact: true,
    isOld: !runsTypeScript,
    isTls,
    headers: () => credentials,
    command: (port, upstream) => ({
      command: [command, ...RUN[kind], runsTypeScript ? source : toJavaScript(source)],
      env: {
        PORT: String(port),
        UPSTREAM: upstream,
        ...BUN_CAP,
        ...(isTls && toTlsVariables()),
      },
    }),
  };
}

/** The variables of a bare server over TLS. Each runtime has its own name for authorities. */
function toTlsVariables(): Record<string, string> {
  const { ca, cert, key } = makeCertificates();
  return { CERT: cert, KEY: key, NODE_EXTRA_CA_CERTS: ca, DENO_CERT: ca };
}

/**
 * Compiles a server for Node 20, which does not run TypeScript. @returns Path of the JavaScript
 * file
 */
function toJavaScript(source: string): string {
  const outfile = join(CACHE, `${source.replaceAll(/\W+/g, "-")}.mjs`);
  buildSync({
    entryPoints: [source],
    outfile,
    bundle: true,
    platform: "node",
    format: "esm",
    logLevel: "error",
  });
  return outfile;
}

/**
 * The one file on a runtime.
 *
 * @param runtime The runtime
 * @param file Path of the one file
 * @param keys The number of gateway keys
 * @param options The number of the provider's addresses, and the limit that callers reach; or all
 * limits, and the Redis that counts them; whether it uses TLS on both sides; further arguments
 */
export function gatewayOn(
  runtime: RuntimeOnMachine,
  file: string,
  keys: number,
  { addresses = 1, limit, limits, redis, isTls = false, args = [] }: {
    addresses?: number;
    limit?: LimitKind;
    limits?: object;
    redis?: string | undefined;
    isTls?: boolean;
    args?: readonly string[];
  } = {},
): Subject {
  const { label, kind, command, runsTypeScript } = runtime;
  return {
    name: `gateway ${label}`,
    base: `bare ${label}`,
    isExact: true,
    isOld: !runsTypeScript,
    isTls,
    limited: (limit) => gatewayOn(runtime, file, keys, { addresses, limit }),
    headers: () => bothCredentials,
    command: (port, upstream) => {
      const config = writeGatewayConfig({
        port,
        upstream,
        keys,
        addresses,
        limit,
        limits,
        redis,
        tls: isTls ? makeCertificates() : undefined,
      });
      return { command: [command, ...RUN[kind], file, "serve", "--config", config, ...args] };
    },
  };
}

/**
 * Makes one plain call. Resolves with the text of a correct answer, or with `undefined`.
 *
 * @param port The port on this machine
 * @param headers Headers in addition to those of the body
 * @param options The body, and whether the call uses TLS
 */
export function callOnce(
  port: number,
  headers: Readonly<Record<string, string>>,
  { body = PLAIN.body, isTls = false }: { body?: string; isTls?: boolean } = {},
): Promise<string | undefined> {
  const trust = isTls ? { ca: readFileSync(makeCertificates().ca), servername: TLS_HOST } : {};
  return new Promise((resolveCall) => {
    const give = (text?: string) => resolveCall(text);
    const call = (isTls ? https : http).request({
      ...trust,
      host: "127.0.0.1",
      port,
      method: "POST",
      path: "/v1/chat/completions",
      agent: false,
      headers: {
        ...headers,
        "content-type": "application/json",
        "content-length": new TextEncoder().encode(body).length,
      },
      timeout: 5000,
    }, (response) => {
      let text = "";
      response.setEncoding("utf8").on("data", (part: string) => text += part);
      response.on("error", () => give());
      response.on("end", () => give(response.statusCode === 200 ? text : undefined));
    });
    call.on("timeout", () => call.destroy());
    call.on("error", () => give());
    call.end(body);
  });
}

/**
 * Starts a subject and waits for its first right answer.
 *
 * @param subject What to start
 * @param upstream The provider's address
 */
export async function startSubject(subject: Subject, upstream: string): Promise<RunningSubject> {
  const port = await findPort();
  const { command, env } = subject.command(port, upstream);
  const begun = performance.now();
  const running = start(subject.cores ?? CORES.subject, command, {
    name: subject.name,
    ...(env && { env }),
  });
  const headers = subject.headers(upstream);
  const isTls = subject.isTls === true;
  while (await callOnce(port, headers, { isTls }) === undefined) {
    if (!running.isRunning() || performance.now() - begun > READY_MS) {
      await running.stop();
      throw new Error(`Cannot start ${subject.name}: it gives no right answer. ${running.log()}`);
    }
    await new Promise((wake) => setTimeout(wake, LOOK_MS));
  }
  const startUpMs = performance.now() - begun;
  return {
    subject,
    name: subject.name,
    headers,
    port,
    process: running,
    startUpMs,
    heated: new Set(),
  };
}

/** The version that a runtime prints. */
export function readVersion(command: string): string {
  const text = execFileSync(command, ["--version"], { stdio: ["ignore", "pipe", "pipe"] })
    .toString();
  return /\d+\.\d+\.\d+/.exec(text)?.[0] ?? "";
}
