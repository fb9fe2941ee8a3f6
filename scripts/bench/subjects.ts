/** What stands before the provider and is measured: bare proxies, the gateway, and its peers. */
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

/** Milliseconds for a process to give its first right answer, and between two looks. */
const READY_MS = 60_000;
const LOOK_MS = 2;
/** Bun's fetch makes 256 calls at once unless it is told otherwise; the gateway does not use it. */
const BUN_CAP = { BUN_CONFIG_MAX_HTTP_REQUESTS: "65535" };
/**
 * Portkey's gateway, as its npm package comes; never a dependency. This version answers every
 * stream with a 500 ("TypeError: immutable" in its log), on Node 20 and 26.
 */
const PORTKEY = { name: "@portkey-ai/gateway", version: "1.15.2" };

/** Something that can be started and measured. */
export interface Subject {
  /** Such as `bare bun`, `gateway node 26`, `nginx`. */
  readonly name: string;
  /** The subject that it is compared with. */
  readonly base?: string;
  /** Whether its answers are the provider's, byte for byte. */
  readonly isExact: boolean;
  /**
   * Whether it only shows what a runtime cannot do without: then it is measured where that is in
   * question.
   */
  readonly isFloor?: boolean;
  /** Whether its runtime is an old one: then it is measured where a goal says so. */
  readonly isOld?: boolean;
  /** Whether it is the load's side itself, for the others to be judged by. */
  readonly isReference?: boolean;
  /** The same with a limit that callers reach, where it knows such a limit. */
  limited?(kind: LimitKind): Subject | undefined;
  /** What callers send beside the body's own headers. */
  headers(upstream: string): Readonly<Record<string, string>>;
  /** Command and variables, once the port is known. */
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
  /** What measurements have made hot in it so far. */
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
 * The runtimes that are compared: all, or those of these names, of which `node` is the newest Node.
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
 * A small server on a runtime: `bare`, ten lines of what the runtime has, or `floor`, which does by
 * hand only what no gateway can leave out.
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

/** For Node 20, which does not run TypeScript. @returns Path of the same server in JavaScript */
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
 * @param keys How many gateway keys there are
 * @param options Under how many addresses it calls the provider, and the limit that callers are to
 * reach; or its limits, and the Redis that they are counted in
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
      const config = writeGatewayConfig(`${label}-${keys}`, {
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
 * Replaces every {{name}} in a peer's configuration, and writes it into a directory of its own.
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
 * A peer of Debian's: where its binary may be, its configuration, and how that one puts a limit.
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
/** What HAProxy must do before it can count the calls of a key. */
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

/** HAProxy, where the machine has it. */
export const findHaproxy = (): Subject[] => findPeer(HAPROXY);
/** nginx, where the machine has it. */
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

/**
 * One plain call; resolves with the answer's text, or with nothing where there is no right answer.
 */
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

/** The version that a runtime tells of itself. */
export function readVersion(command: string): string {
  const text = execFileSync(command, ["--version"], { stdio: ["ignore", "pipe", "pipe"] })
    .toString();
  return /\d+\.\d+\.\d+/.exec(text)?.[0] ?? "";
}
