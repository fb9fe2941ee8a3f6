/** The measured processes in front of the provider: bare proxies, the gateway, and its peers. */
import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { request } from "node:http";
import { join, resolve } from "node:path";
import { buildSync } from "esbuild";
import { findRuntimes, type RuntimeOnMachine } from "../runtimes.ts";
import {
  GATEWAY_KEY,
  HOST,
  type LimitKind,
  LIMITS,
  UPSTREAM_KEY,
  writeGatewayConfig,
} from "./gateway_config.ts";
import { CACHE, CORES, findPort, start, type Started } from "./machine.ts";
import { PLAIN } from "./requests.ts";

/** Milliseconds until a process must give its first correct answer, and between two attempts. */
const READY_MS = 60_000;
const LOOK_MS = 2;
/** Bun's fetch makes 256 calls at once by default; the gateway does not use it. */
const BUN_CAP = { BUN_CONFIG_MAX_HTTP_REQUESTS: "65535" };
/**
 * Portkey's gateway, as published on npm; never a dependency. This version answers every stream
 * with a 500 ("TypeError: immutable" in its log), on Node 20 and 26.
 */
const PORTKEY = { name: "@portkey-ai/gateway", version: "1.15.2" };

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

const credentials = { "host": HOST, "authorization": `Bearer ${UPSTREAM_KEY}` };
const bothCredentials = { ...credentials, "gateway-auth": `Bearer ${GATEWAY_KEY}` };

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
): Subject {
  const source = join("scripts", "bench", folder, `${kind}.ts`);
  return {
    name: `${folder} ${label}`,
    ...(folder === "floor" && { base: `bare ${label}`, isFloor: true }),
    isExact: true,
    isOld: !runsTypeScript,
    headers: () => credentials,
    command: (port, upstream) => ({
      command: [command, ...RUN[kind], runsTypeScript ? source : toJavaScript(source)],
      env: { PORT: String(port), UPSTREAM: upstream, ...BUN_CAP },
    }),
  };
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
 * limits, and the Redis that counts them
 */
export function gatewayOn(
  runtime: RuntimeOnMachine,
  file: string,
  keys: number,
  { addresses = 1, limit, limits, redis }: {
    addresses?: number;
    limit?: LimitKind;
    limits?: object;
    redis?: string | undefined;
  } = {},
): Subject {
  const { label, kind, command, runsTypeScript } = runtime;
  return {
    name: `gateway ${label}`,
    base: `bare ${label}`,
    isExact: true,
    isOld: !runsTypeScript,
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
      });
      return { command: [command, ...RUN[kind], file, "serve", "--config", config] };
    },
  };
}

/**
 * Replaces every {{name}} in a peer's configuration, and writes it into a new directory.
 * @returns The file and its directory
 */
function fillIn(
  source: string,
  peer: string,
  values: Readonly<Record<string, string>>,
): [string, string] {
  const directory = resolve(CACHE, peer);
  mkdirSync(directory, { recursive: true });
  let text = readFileSync(join("scripts", "bench", "bare", source), "utf8");
  for (const [name, value] of Object.entries({ directory, ...values })) {
    text = text.replaceAll(`{{${name}}}`, value);
  }
  const path = join(directory, source);
  writeFileSync(path, text);
  return [path, directory];
}

/**
 * A peer from a Debian package: the places of its binary, its configuration, and how that
 * configuration sets a limit.
 */
interface Peer {
  readonly name: string;
  readonly binaries: readonly string[];
  readonly source: string;
  readonly limits: Readonly<Partial<Record<LimitKind, string>>>;
  command(binary: string, path: string, directory: string): readonly string[];
}

const HAPROXY: Peer = {
  name: "haproxy",
  binaries: ["/usr/sbin/haproxy", "/usr/bin/haproxy"],
  source: "haproxy.cfg",
  limits: {
    requests: `http-request deny deny_status 429 if { sc_http_req_rate(0) gt ${LIMITS.requests} }`,
    concurrency: `http-request deny deny_status 429 if { sc_conn_cur(0) gt ${LIMITS.concurrency} }`,
  },
  command: (binary, path) => [binary, "-db", "-f", path],
};
const NGINX: Peer = {
  name: "nginx",
  binaries: ["/usr/sbin/nginx", "/usr/bin/nginx"],
  source: "nginx.conf",
  limits: {
    requests: `limit_req zone=requests burst=${LIMITS.requests - 1} nodelay;`,
    concurrency: `limit_conn calls ${LIMITS.concurrency};`,
  },
  command: (binary, path, directory) => [binary, "-c", path, "-p", directory],
};
/** Directive that HAProxy needs before it can count the calls of a key. */
const HAPROXY_TRACK = "http-request track-sc0 req.fhdr(gateway-auth) table counts\n  ";

function findPeer(peer: Peer, limit?: LimitKind): Subject[] {
  const { name, binaries, source, limits } = peer;
  const binary = binaries.find((path) => existsSync(path));
  if (binary === undefined) return [];
  const track = name === "haproxy" ? HAPROXY_TRACK : "";
  return [{
    name,
    isExact: true,
    headers: () => bothCredentials,
    limited: (kind) => limits[kind] === undefined ? undefined : findPeer(peer, kind)[0],
    command(port, upstream) {
      const rule = limit === undefined ? "" : `${track}${limits[limit] ?? ""}`;
      const values = {
        port: String(port),
        upstream: new URL(upstream).host,
        key: GATEWAY_KEY,
        limit: rule,
      };
      return { command: peer.command(binary, ...fillIn(source, name, values)) };
    },
  }];
}

/** HAProxy, if the machine has it. */
export const findHaproxy = (): Subject[] => findPeer(HAPROXY);
/** nginx, if the machine has it. */
export const findNginx = (): Subject[] => findPeer(NGINX);

/** Portkey's gateway on Node, installed on the first run. */
export function installPortkey(node: RuntimeOnMachine): Subject {
  const directory = join(CACHE, "portkey");
  const home = join(directory, "node_modules", PORTKEY.name);
  if (!existsSync(home)) {
    mkdirSync(directory, { recursive: true });
    writeFileSync(join(directory, "package.json"), "{}\n");
    const wanted = `${PORTKEY.name}@${PORTKEY.version}`;
    execFileSync("npm", ["install", "--ignore-scripts", "--prefix", directory, wanted], {
      timeout: 300_000,
    });
  }
  const { version, bin } = JSON.parse(readFileSync(join(home, "package.json"), "utf8"));
  const program = join(
    home,
    typeof bin === "string" ? bin : Object.values(bin as Record<string, string>)[0] ?? "",
  );
  return {
    name: `portkey ${version}`,
    isExact: false,
    headers: (upstream) => ({
      ...credentials,
      "x-portkey-provider": "openai",
      "x-portkey-custom-host": `${upstream}/v1`,
    }),
    command: (port) => ({ command: [node.command, program, `--port=${port}`, "--headless"] }),
  };
}

/** Makes one plain call. Resolves with the text of a correct answer, or with `undefined`. */
export function callOnce(
  port: number,
  headers: Readonly<Record<string, string>>,
  body: string = PLAIN.body,
): Promise<string | undefined> {
  return new Promise((resolveCall) => {
    const give = (text?: string) => resolveCall(text);
    const call = request({
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
  const running = start(CORES.subject, command, { name: subject.name, ...(env && { env }) });
  const headers = subject.headers(upstream);
  while (await callOnce(port, headers) === undefined) {
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
