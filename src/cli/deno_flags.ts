/**
 * `sallyport check --deno-flags`: the minimal Deno permissions that serving a configuration needs.
 *
 * @module
 */
import { readdirSync, realpathSync } from "node:fs";
import { basename, dirname, resolve } from "node:path";
import process from "node:process";
import type { Config } from "../config/config.ts";
import type { IdentityConfig } from "../config/identity.ts";
import { describeKeyStore } from "../config/keys.ts";
import {
  readRedisUrl,
  readSentinelNode,
  type RedisAddress,
  type RedisConfig,
} from "../config/redis.ts";
import type { ProviderConfig } from "../config/provider.ts";
import { listSecretSources } from "../keys/identity/code_sign_in.ts";
import { EGRESS_VARIABLES, readEgress } from "../serve/egress.ts";
import { loadConfig, type LoadedConfig, readSetVariables } from "../serve/load_config.ts";
import { revocationsFile } from "../serve/identity_engines.ts";
import { listHeldKeys } from "../upstream/held_keys.ts";
import { type Egress, findProxy } from "../upstream/http1/egress.ts";
import { print, report } from "./command.ts";
import { readEnvNames } from "./env_file.ts";

/** Default ports by protocol: RFC 9110 §4.2. */
const DEFAULT_PORTS: Readonly<Record<string, number>> = { "http:": 80, "https:": 443 };

/** Formats the host and port of a URL for `--allow-net`. */
function toPeer(text: string): string {
  const { protocol, hostname, port } = new URL(text);
  return `${hostname}:${port === "" ? DEFAULT_PORTS[protocol] : port}`;
}

/** Formats an address to listen on for `--allow-net`. */
function toAddress({ hostname, port }: { hostname: string; port: number }): string {
  return `${hostname.includes(":") ? `[${hostname}]` : hostname}:${port}`;
}

function toFlag(name: string, values: readonly string[]): string[] {
  return values.length === 0 ? [] : [`--allow-${name}=${[...new Set(values)].join(",")}`];
}

function redisAddresses({ url, cluster = [] }: RedisConfig): RedisAddress[] {
  return [...url === undefined ? [] : [url], ...cluster].map(readRedisUrl).filter((each) =>
    typeof each === "object"
  );
}

/**
 * Lists the hosts and ports in the settings of Redis. Sentinels and nodes of a Cluster can refer to
 * further ones.
 */
function redisPeers(redis: RedisConfig): { hostname: string; port: number }[] {
  const sentinels = redis.sentinel?.nodes.map(readSentinelNode) ?? [];
  const nodes = [...redisAddresses(redis), ...sentinels];
  return nodes.flatMap(({ host, port }) =>
    host === undefined || port === undefined ? [] : [{ hostname: host, port }]
  );
}

/** Lists the TLS files and the Unix sockets in the settings of Redis. */
function redisFiles(redis: RedisConfig, directory: string): { pems: string[]; sockets: string[] } {
  const pems = Object.values(redis.tls ?? {}).filter((pem) => pem !== undefined);
  return {
    pems: pems.map((pem) => resolve(directory, pem)),
    sockets: redisAddresses(redis).flatMap(({ path }) => path === undefined ? [] : [path]),
  };
}

/** Lists the peers of calls to a provider: its proxies, and its upstreams without a proxy. */
function providerPeers({ upstreams }: ProviderConfig, egress: Egress | undefined): string[] {
  return upstreams.map((upstream) => {
    const proxy = egress === undefined ? undefined : findProxy(egress, new URL(upstream));
    return toPeer(proxy?.url ?? upstream);
  });
}

/** Lists the files and the variables that configure egress. */
function egressSources({ providers }: Config, directory: string): {
  files: string[];
  variables: readonly string[];
  /** True if authorities are added to Deno's own, which must then be read. */
  addsRoots: boolean;
} {
  const all = Object.values(providers).flatMap(({ egress }) => egress ?? []);
  const files = all.flatMap((each) => [...each.ca ?? [], each.cert, each.key, each.credentials]);
  // `ca` extends Deno's own authorities, which must be read for that.
  const addsRoots = all.some(({ ca, caOnly }) => ca !== undefined && !caOnly);
  const { DENO_CERT: roots } = addsRoots ? process.env : {};
  return {
    addsRoots,
    files: [
      ...files.filter((file) => file !== undefined).map((file) => resolve(directory, file)),
      ...(roots === undefined ? [] : [resolve(roots)]),
    ],
    variables: [
      ...(all.some(({ fromEnvironment }) => fromEnvironment) ? EGRESS_VARIABLES : []),
      // Deno itself reads this variable, and needs a permission to do so.
      ...(addsRoots ? ["NODE_USE_SYSTEM_CA"] : []),
      ...(roots === undefined ? [] : ["DENO_CERT"]),
    ],
  };
}

/** Lists the hosts that an issuer's public keys are fetched from. */
function issuerPeers({ issuer, jwks }: IdentityConfig): string[] {
  if (jwks === undefined) return [toPeer(issuer)];
  return typeof jwks === "string" && URL.canParse(jwks) ? [toPeer(jwks)] : [];
}

function netOf({ config, directory }: LoadedConfig): string[] {
  const { listen, admin, providers, redis, alerts, identity = [] } = config;
  const egress = readEgress(config, directory);
  return [
    ...listen.map(toAddress),
    ...(admin === undefined ? [] : [toAddress(admin)]),
    ...Object.entries(providers).flatMap(([name, provider]) =>
      providerPeers(provider, egress.get(name))
    ),
    ...(redis === undefined ? [] : redisPeers(redis).map(toAddress)),
    ...(alerts === undefined ? [] : [toPeer(alerts.url)]),
    ...identity.flatMap(issuerPeers),
  ];
}

/** Returns the folder of a file of keys, and the folder of the file that it links to. */
function foldersOf(file: string): string[] {
  try {
    return [dirname(file), dirname(realpathSync(file))];
  } catch {
    return [dirname(file)]; // the file does not exist yet
  }
}

/**
 * Finds unrelated files in the folders of written files. Returns a folder, and the name of another
 * file in it.
 */
function findForeign(
  files: readonly string[],
): { readonly folder: string; readonly name: string } | undefined {
  const stems = files.map((file) => basename(file).replace(/\.json$/, "."));
  for (const folder of new Set(files.flatMap(foldersOf))) {
    const name = listFolder(folder).find((each) => !stems.some((stem) => each.startsWith(stem)));
    if (name !== undefined) return { folder, name };
  }
  return undefined;
}

function listFolder(folder: string): string[] {
  try {
    return readdirSync(folder).toSorted();
  } catch {
    return []; // the folder does not exist yet
  }
}

/**
 * Lists the files that a gateway replaces. Each is replaced by a draft next to it, with a lock. The
 * file of spent budgets is in the same folder.
 */
function replacedFiles({ config, directory }: LoadedConfig): string[] {
  const { keys, redis, identity = [] } = config;
  const written = describeKeyStore(keys).writtenFile;
  const revoked = identity.length > 0 && redis === undefined
    ? [revocationsFile(config, directory)]
    : [];
  return [...(written === undefined ? [] : [resolve(directory, written)]), ...revoked];
}

/** Lists the files, variables and commands that held keys and client secrets are read from. */
function heldKeySources({ config, directory }: LoadedConfig) {
  const sources = [...listHeldKeys(config), ...listSecretSources(config.identity)]
    .map(({ source }) => source);
  return {
    files: sources.flatMap((each) => "file" in each ? [resolve(directory, each.file)] : []),
    variables: sources.flatMap((each) => "env" in each ? [each.env] : []),
    commands: sources.flatMap((each) => "exec" in each ? each.exec.slice(0, 1) : []),
  };
}

/**
 * Returns the flags of `deno run` for one process.
 *
 * @param variables Environment variables that configure the gateway
 */
function toDenoFlags(
  loaded: LoadedConfig,
  variables: readonly string[],
  envFiles: readonly string[],
): string[] {
  const { config, file, directory, priceFiles } = loaded;
  const { listen, redis, identity = [] } = config;
  const egress = egressSources(config, directory);
  const { pems: redisPems, sockets } = redis === undefined
    ? { pems: [], sockets: [] }
    : redisFiles(redis, directory);
  const pems = listen.flatMap(({ tls }) => tls === undefined ? [] : [tls.cert, tls.key]);
  const folders = replacedFiles(loaded).flatMap(foldersOf);
  const held = heldKeySources(loaded);
  const keySets = identity.flatMap(({ jwks }) =>
    typeof jwks === "string" && !URL.canParse(jwks) ? [jwks] : []
  );
  return [
    "--no-prompt",
    ...toFlag("net", netOf(loaded)),
    ...toFlag("read", [
      ...(file === undefined ? [] : [file]),
      ...envFiles.map((envFile) => resolve(envFile)),
      ...priceFiles,
      ...[...pems, ...keySets].map((pem) => resolve(directory, pem)),
      ...redisPems,
      ...egress.files,
      ...held.files,
      ...sockets,
      ...folders,
    ]),
    ...toFlag("write", [...folders, ...sockets]),
    ...toFlag("sys", egress.addsRoots ? ["ca"] : []),
    // Names of variables contain names of providers. Without a file that lists the providers, all
    // variables must be examined.
    ...(file === undefined && variables.length > 0
      ? ["--allow-env"]
      : toFlag("env", [...variables, ...egress.variables, ...held.variables].toSorted())),
    ...toFlag("run", held.commands),
  ];
}

/** Quotes a flag for a shell only if needed. Without quotes it also works in `$(…)`. */
function quote(flag: string): string {
  return /^[\w@%+=:,./[\]-]+$/.test(flag) ? flag : `'${flag.replaceAll("'", `'\\''`)}'`;
}

/**
 * Prints the flags in one line.
 *
 * @param named The configuration's file, if it was named
 * @param envFiles Files of variables that are already in the environment
 * @throws {ConfigError} For a mistake in it
 */
export function printDenoFlags(named: string | undefined, envFiles: readonly string[] = []): void {
  const loaded = loadConfig(named);
  const variables = new Set([...readSetVariables(loaded), ...readEnvNames(envFiles)]);
  print(`${toDenoFlags(loaded, [...variables], envFiles).map(quote).join(" ")}\n`);
  const { listen, redis } = loaded.config;
  if (redis?.cluster !== undefined || redis?.sentinel !== undefined) {
    report("Redis names more servers than the configuration: add each of them to --allow-net");
  }
  if (loaded.config.identity?.some(({ jwks }) => jwks === undefined)) {
    report(
      "an issuer can publish its keys at another host: add the host of its jwks_uri to --allow-net",
    );
  }
  if (listen.some(({ port }) => port === 0)) {
    report("port 0 means any free port: name a port to allow no other");
  }
  const foreign = findForeign(replacedFiles(loaded));
  if (foreign !== undefined) {
    report(
      `warning: the flags open the folder ${foreign.folder} to reading and writing, ` +
        `which also contains ${foreign.name}. ` +
        "Put the key file into a folder that contains nothing else, such as keys/gateway-keys.json",
    );
  }
}
