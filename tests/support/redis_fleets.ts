/**
 * Several `redis-server` processes from Debian, for one test: a Cluster, and a primary with a
 * replica and Sentinels. Also servers that are reached by TLS or by a Unix socket.
 */
import { execFile, spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { promisify } from "node:util";
import { Redis } from "ioredis";
import { freePort } from "./free_port.ts";
import { until } from "./until.ts";

const run = promisify(execFile);

/** The longest time for a start, and for a fleet to agree. Milliseconds. */
const AGREE_MS = 30_000;

/** A server with any settings. */
export interface AnyServer {
  readonly port: number;
  /** The test's own connection. */
  readonly raw: Redis;
  /** The folder of its files, including its socket. */
  readonly folder: string;
  pause(): void;
  resume(): void;
  kill(): Promise<void>;
  stop(): Promise<void>;
}

/** Options of the test's own connection, and of special kinds of servers. */
interface ServerOptions {
  /** Instead of a free one. */
  readonly port?: number;
  readonly password?: string;
  /** Certificates; the server then uses TLS. */
  readonly tls?: Texts;
  /** The settings of a Sentinel; if set, the server is one. */
  readonly sentinel?: string;
}

/**
 * Starts a server.
 *
 * @param args Its arguments in addition to port and folder
 */
export async function startServer(
  args: readonly string[] = [],
  { port: given, sentinel, ...raw }: ServerOptions = {},
): Promise<AnyServer> {
  const port = given ?? await freePort();
  const folder = mkdtempSync(join(tmpdir(), "sallyport-redis-"));
  const isTls = raw.tls !== undefined;
  const ports = isTls ? ["--port", "0", "--tls-port", String(port)] : ["--port", String(port)];
  const common = [...ports, "--bind", "127.0.0.1", "--dir", folder];
  const file = join(folder, "redis.conf");
  // A Sentinel, and a node of a Cluster, write to their configuration file.
  writeFileSync(file, sentinel ?? 'save ""\nappendonly no\n');
  const mode = sentinel === undefined ? [] : ["--sentinel"];
  const child = spawn("redis-server", [file, ...common, ...args, ...mode], { stdio: "ignore" });
  const ended = new Promise<void>((resolve) => {
    child.once("close", () => resolve());
    child.once("error", () => resolve());
  });
  const end = () => void child.kill("SIGKILL");
  process.on("exit", end);
  const login = { ...raw, host: "127.0.0.1", port };
  const connection = new Redis({ ...login, retryStrategy: () => 20, maxRetriesPerRequest: null });
  connection.on("error", () => {});
  const kill = async () => {
    end();
    await ended;
  };
  const stop = async () => {
    process.removeListener("exit", end);
    connection.disconnect();
    await kill();
    rmSync(folder, { recursive: true, force: true });
  };
  try {
    await until(
      () => {
        if (child.exitCode !== null) throw new Error(`redis-server ended: ${child.exitCode}`);
        return connection.status === "ready";
      },
      "redis-server answers",
      AGREE_MS,
    );
  } catch (error) {
    await stop();
    throw error;
  }
  const { pid } = child;
  const signal = (name: NodeJS.Signals) => void (pid !== undefined && process.kill(pid, name));
  return {
    port,
    raw: connection,
    folder,
    pause: () => signal("SIGSTOP"),
    resume: () => signal("SIGCONT"),
    kill,
    stop,
  };
}

/** Starts several servers in parallel. If one start fails, the others are stopped. */
async function startAll(starts: readonly Promise<AnyServer>[]): Promise<AnyServer[]> {
  const results = await Promise.allSettled(starts);
  const servers = results.flatMap((result) => result.status === "fulfilled" ? [result.value] : []);
  const failed = results.find(({ status }) => status === "rejected");
  if (failed === undefined) return servers;
  await Promise.all(servers.map((server) => server.stop()));
  throw (failed as PromiseRejectedResult).reason;
}

/** Certificates as texts. */
interface Texts {
  readonly ca: string;
  readonly cert: string;
  readonly key: string;
}

/** A running Cluster. */
export interface RedisCluster {
  /** URLs of its primaries. */
  readonly urls: readonly string[];
  /** The primaries, then a replica of the first one if there is one. */
  readonly servers: readonly AnyServer[];
  stop(): Promise<void>;
}

/** The number of slots of every Cluster. */
const SLOTS = 16_384;

/**
 * Starts a Cluster of three primaries.
 *
 * @param options True if the first one has a replica, arguments for each server, and certificates
 * for TLS
 */
export async function startCluster(
  { hasReplica = false, args = [], tls }: {
    hasReplica?: boolean;
    args?: readonly string[];
    tls?: Texts;
  } = {},
): Promise<RedisCluster> {
  const settings = ["--cluster-enabled", "yes", "--cluster-node-timeout", "1000", ...args];
  // By default its bus uses a port 10000 above, in the range for outgoing connections.
  const buses = await Promise.all(Array.from({ length: hasReplica ? 4 : 3 }, freePort));
  const servers = await startAll(
    buses.map((bus) => startServer([...settings, "--cluster-port", String(bus)], given({ tls }))),
  );
  const stop = async () => void await Promise.all(servers.map((server) => server.stop()));
  try {
    const [first, , , replica] = servers;
    const ends = [0, 5461, 10_923, SLOTS];
    for (const [index, { raw, port }] of servers.entries()) {
      await raw.cluster("SET-CONFIG-EPOCH", index + 1);
      if (index < 3) {
        await raw.call("CLUSTER", "ADDSLOTSRANGE", ends[index] ?? 0, (ends[index + 1] ?? 0) - 1);
      }
      if (index > 0) await first?.raw.call("CLUSTER", "MEET", "127.0.0.1", port, buses[index] ?? 0);
    }
    const knowsAll = async ({ raw }: AnyServer) =>
      String(await raw.cluster("NODES")).trim().split("\n").length === servers.length;
    for (const server of servers) await until(() => knowsAll(server), "each knows all", AGREE_MS);
    if (replica !== undefined && first !== undefined) {
      await replica.raw.cluster("REPLICATE", String(await first.raw.cluster("MYID")));
      await until(() => isLinked(replica), "the replica follows", AGREE_MS);
    }
    for (const { raw } of servers) {
      await until(
        async () => String(await raw.cluster("INFO")).includes("cluster_state:ok"),
        "all agree",
        AGREE_MS,
      );
    }
  } catch (error) {
    await stop();
    throw error;
  }
  const protocol = tls === undefined ? "redis" : "rediss";
  return {
    urls: servers.slice(0, 3).map(({ port }) => `${protocol}://127.0.0.1:${port}`),
    servers,
    stop,
  };
}

function given<T extends object>(members: T): { [K in keyof T]: Exclude<T[K], undefined> } {
  return Object.fromEntries(
    Object.entries(members).filter(([, value]) => value !== undefined),
  ) as never;
}

async function isLinked({ raw }: AnyServer): Promise<boolean> {
  return (await raw.info("replication")).includes("master_link_status:up");
}

/** Moves a slot of a Cluster from one of its servers to another, without keys. */
export async function moveSlot(
  slot: number,
  from: AnyServer,
  to: AnyServer,
  all: readonly AnyServer[],
): Promise<void> {
  const id = String(await to.raw.cluster("MYID"));
  await to.raw.cluster("SETSLOT", slot, "IMPORTING", String(await from.raw.cluster("MYID")));
  await from.raw.cluster("SETSLOT", slot, "MIGRATING", id);
  for (;;) {
    const keys = await from.raw.cluster("GETKEYSINSLOT", slot, 100) as string[];
    if (keys.length === 0) break;
    await from.raw.call("MIGRATE", "127.0.0.1", to.port, "", 0, 5000, "KEYS", ...keys);
  }
  for (const { raw } of [to, from, ...all]) {
    await raw.cluster("SETSLOT", slot, "NODE", id).catch(() => {});
  }
}

/** A primary and a replica, with Sentinels. */
export interface SentinelFleet {
  readonly name: string;
  /** Addresses of the Sentinels. */
  readonly nodes: readonly string[];
  /** The initial primary, and its replica. */
  readonly servers: readonly [AnyServer, AnyServer];
  readonly sentinels: readonly AnyServer[];
  /** Requests a failover like an operator, and waits until the other server is the primary. */
  failOver(): Promise<void>;
  stop(): Promise<void>;
}

/** Credentials and TLS of servers and Sentinels. */
interface SentinelFleetOptions {
  /** Password of the servers. */
  readonly servers?: string;
  /** Password of the Sentinels. */
  readonly sentinels?: string;
  /** Arguments for each server. */
  readonly args?: readonly string[];
  /** Certificates for TLS. */
  readonly tls?: Texts;
}

/**
 * Starts a primary, its replica and three Sentinels.
 *
 * @param options Credentials and TLS of servers and Sentinels
 */
export async function startSentinelFleet(
  options: SentinelFleetOptions = {},
): Promise<SentinelFleet> {
  const name = "mymaster";
  const { servers: secret, sentinels: ownSecret, args: common = [], tls } = options;
  const args = [
    ...common,
    ...(secret === undefined ? [] : ["--requirepass", secret, "--masterauth", secret]),
  ];
  const login = given({ password: secret, tls });
  const primary = await startServer(args, login);
  const started = [primary];
  const stop = async () => void await Promise.all(started.map((server) => server.stop()));
  try {
    const replica = await startServer(
      ["--replicaof", "127.0.0.1", String(primary.port), ...args],
      login,
    );
    started.push(replica);
    await until(() => isLinked(replica), "the replica follows", AGREE_MS);
    const sentinel = [
      `sentinel monitor ${name} 127.0.0.1 ${primary.port} 2`,
      `sentinel down-after-milliseconds ${name} 500`,
      `sentinel failover-timeout ${name} 3000`,
      ...(secret === undefined ? [] : [`sentinel auth-pass ${name} "${secret}"`]),
      ...(ownSecret === undefined ? [] : [`requirepass ${ownSecret}`]),
    ].join("\n");
    const own = { sentinel: `${sentinel}\n`, ...given({ password: ownSecret, tls }) };
    const sentinels = await startAll([0, 1, 2].map(() => startServer(common, own)));
    started.push(...sentinels);
    for (const { raw } of sentinels) {
      // By default they would need seconds to find each other, and to notice changes of the
      // servers.
      await raw.call(
        "SENTINEL",
        "DEBUG",
        "INFO-PERIOD",
        300,
        "PUBLISH-PERIOD",
        200,
        "PING-PERIOD",
        200,
        "ASK-PERIOD",
        200,
      );
    }
    for (const { raw } of sentinels) {
      const knows = async () => {
        const text = String(await raw.info("sentinel"));
        return text.includes("slaves=1,sentinels=3") && text.includes("status=ok");
      };
      await until(knows, "the Sentinels know all", AGREE_MS);
    }
    const failOver = async () => {
      const [first] = sentinels;
      // A Sentinel that has just seen a failover refuses the next one for a while.
      await until(
        async () =>
          await first?.raw.call("SENTINEL", "FAILOVER", name).then(() => true, () => false) ??
            false,
        "a Sentinel takes it on",
        AGREE_MS,
      );
      await until(
        async () => (await replica.raw.role())[0] === "master",
        "the replica takes over",
        AGREE_MS,
      );
    };
    const nodes = sentinels.map(({ port }) => `127.0.0.1:${port}`);
    return { name, nodes, servers: [primary, replica], sentinels, failOver, stop };
  } catch (error) {
    await stop();
    throw error;
  }
}

/** An authority, and its certificates, as files. */
export interface Certificates {
  readonly ca: string;
  readonly server: { readonly cert: string; readonly key: string };
  readonly client: { readonly cert: string; readonly key: string };
  /** Arguments of a server that presents its certificate, and requires one. */
  readonly args: readonly string[];
  remove(): void;
}

/** Makes certificates with openssl. */
export async function makeCertificates(): Promise<Certificates> {
  const folder = mkdtempSync(join(tmpdir(), "sallyport-tls-"));
  const at = (file: string) => join(folder, file);
  const openssl = (...args: string[]) => run("openssl", args, { cwd: folder });
  const key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];
  await openssl(
    "req",
    "-x509",
    ...key,
    "-keyout",
    "ca.key",
    "-out",
    "ca.crt",
    "-days",
    "2",
    "-subj",
    "/CN=authority",
  );
  writeFileSync(at("names"), "subjectAltName=DNS:localhost,IP:127.0.0.1\n");
  for (const name of ["server", "client"]) {
    await openssl(
      "req",
      ...key,
      "-keyout",
      `${name}.key`,
      "-out",
      `${name}.csr`,
      "-subj",
      `/CN=${name}`,
    );
    await openssl(
      "x509",
      "-req",
      "-in",
      `${name}.csr`,
      "-CA",
      "ca.crt",
      "-CAkey",
      "ca.key",
      "-CAcreateserial",
      "-out",
      `${name}.crt`,
      "-days",
      "2",
      "-extfile",
      "names",
    );
  }
  const pair = (name: string) => ({ cert: at(`${name}.crt`), key: at(`${name}.key`) });
  const server = pair("server");
  return {
    ca: at("ca.crt"),
    server,
    client: pair("client"),
    args: [
      "--tls-cert-file",
      server.cert,
      "--tls-key-file",
      server.key,
      "--tls-ca-cert-file",
      at("ca.crt"),
      "--tls-auth-clients",
      "yes",
    ],
    remove: () => rmSync(folder, { recursive: true, force: true }),
  };
}

/** Reads the certificates in the form that a connection accepts. */
export function readCertificates({ ca, client }: Certificates): Texts {
  return {
    ca: readFileSync(ca, "utf8"),
    cert: readFileSync(client.cert, "utf8"),
    key: readFileSync(client.key, "utf8"),
  };
}
