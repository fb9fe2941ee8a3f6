/**
 * Masking of the secrets in a configuration before it is shown, and a digest to compare the
 * configurations of two gateways.
 *
 * @module
 */
import { createHash } from "node:crypto";
import type { Config } from "../config/config.ts";
import type { HeldKeySource } from "../config/held_key.ts";
import type { IdentityConfig } from "../config/identity.ts";
import type { KeyConfig } from "../config/key.ts";
import type { ProviderConfig } from "../config/provider.ts";
import type { RedisConfig } from "../config/redis.ts";
import type { TeamConfig } from "../config/team.ts";

const MASK = "(masked)";

function maskKey(config: KeyConfig): Record<string, unknown> {
  const { key, digest, previous, ...rest } = config;
  return {
    ...rest,
    ...(key !== undefined && { key: MASK }),
    ...(digest !== undefined && { digest: MASK }),
    ...(previous !== undefined && { previous: { ...previous, digest: MASK } }),
  };
}

/** Masks the credentials in a proxy URL. */
function maskProxy(text: string): string {
  const { protocol, host, username, password } = new URL(text);
  return username + password === "" ? text : `${protocol}//${MASK}@${host}`;
}

/**
 * Masks the credentials of a proxy, and the headers added to provider calls, which can contain a
 * key.
 */
function maskProvider(config: ProviderConfig): Record<string, unknown> {
  const { headers, egress, upstreamKey, ...rest } = config;
  const set = Object.fromEntries(Object.keys(headers?.set ?? {}).map((name) => [name, MASK]));
  const proxy = egress?.proxy === undefined ? {} : { proxy: maskProxy(egress.proxy) };
  return {
    ...rest,
    ...(upstreamKey !== undefined && { upstreamKey: maskSource(upstreamKey) }),
    ...(headers !== undefined && { headers: { ...headers, set } }),
    ...(egress !== undefined && { egress: { ...egress, ...proxy } }),
  };
}

/** Masks the arguments of a command that prints a held key: one of them can be a secret. */
function maskSource(source: HeldKeySource): HeldKeySource {
  if (!("exec" in source)) return source;
  const [command = "", ...args] = source.exec;
  return { ...source, exec: [command, ...args.map(() => MASK)] };
}

/** Masks the secret with which the gateway identifies itself at an issuer. */
function maskIssuer(config: IdentityConfig): IdentityConfig {
  const { admin } = config;
  if (typeof admin?.signIn?.clientSecret !== "string") return config;
  return { ...config, admin: { ...admin, signIn: { ...admin.signIn, clientSecret: MASK } } };
}

function maskTeam({ upstreamKeys, ...rest }: TeamConfig): Record<string, unknown> {
  if (upstreamKeys === undefined) return rest;
  const masked = Object.entries(upstreamKeys).map(([name, each]) => [name, maskSource(each)]);
  return { ...rest, upstreamKeys: Object.fromEntries(masked) };
}

/** Masks passwords, and credentials in a URL. */
function maskRedis(config: RedisConfig): Record<string, unknown> {
  const { url, sentinel, password, ...rest } = config;
  return {
    ...(url !== undefined && { url: url.replace(/\/\/[^/]*@/, `//${MASK}@`) }),
    ...(sentinel !== undefined && {
      sentinel: { ...sentinel, ...(sentinel.password !== undefined && { password: MASK }) },
    }),
    ...(password !== undefined && { password: MASK }),
    ...rest,
  };
}

/** Masks the secrets of a configuration. */
export function maskSecrets(config: Config): Record<string, unknown> {
  const { providers, teams, keys, admin, identity, redis, alerts, ...rest } = config;
  return {
    ...rest,
    providers: Object.fromEntries(
      Object.entries(providers).map(([name, each]) => [name, maskProvider(each)]),
    ),
    teams: Object.fromEntries(Object.entries(teams).map(([name, each]) => [name, maskTeam(each)])),
    keys: Array.isArray(keys) ? keys.map(maskKey) : keys,
    ...(admin !== undefined &&
      { admin: { ...admin, ...(admin.token !== undefined && { token: MASK }) } }),
    ...(identity !== undefined && { identity: identity.map(maskIssuer) }),
    // The path of such an address often contains a secret too.
    ...(alerts !== undefined &&
      { alerts: { url: `${new URL(alerts.url).origin}/${MASK}`, secret: MASK } }),
    ...(redis !== undefined && { redis: maskRedis(redis) }),
  };
}

/**
 * Sorts the members of an object by name, because their order in a file has no meaning. A replacer
 * for `JSON.stringify`.
 */
function sortMembers(_name: string, value: unknown): unknown {
  if (typeof value !== "object" || value === null || Array.isArray(value)) return value;
  return Object.fromEntries(Object.entries(value).sort(([one], [other]) => one < other ? -1 : 1));
}

/**
 * Computes the digest of a configuration. Equal configurations have equal digests, on every machine
 * and runtime. Its input is the result of {@link maskSecrets}: no secret can be guessed from it,
 * and a changed secret does not change it. The name of a gateway is not included.
 *
 * @returns SHA-256 in hexadecimal
 */
export function digestConfig({ instance: _, ...config }: Config): string {
  return createHash("sha256").update(JSON.stringify(maskSecrets(config), sortMembers)).digest(
    "hex",
  );
}
