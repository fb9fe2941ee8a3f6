/**
 * Masking of the secrets in a configuration before it is shown, and a digest to compare the
 * configurations of two gateways.
 *
 * @module
 */
import { createHash } from "node:crypto";
import type { Config } from "../config/config.ts";
import type { AlertsConfig } from "../config/alerts.ts";
import type { HeldKeySource } from "../config/held_key.ts";
import type { IdentityConfig } from "../config/identity.ts";
import type { KeyConfig } from "../config/key.ts";
import {
  type FileKeysConfig,
  type RedisKeysConfig,
  refuseKeyStore,
  type StoredKeysConfig,
} from "../config/keys.ts";
import type { AdminConfig } from "../config/listeners.ts";
import type { ProviderConfig } from "../config/provider.ts";
import type { RedisConfig } from "../config/redis.ts";
import type { SignInConfig } from "../config/sign_in.ts";
import type { TeamConfig } from "../config/team.ts";

const MASK = "(masked)";
const hide = (): string => MASK;

/**
 * Masks of all members of an object. A new setting does not compile until it has one, or is known to
 * have no secret.
 */
type Masks<T> = {
  readonly [Name in keyof T]-?: "shown" | ((value: NonNullable<T[Name]>) => unknown);
};

function maskMembers<T extends object>(config: T, masks: Masks<T>): Record<string, unknown> {
  return Object.fromEntries(
    Object.entries(config).map(([name, value]) => {
      const mask = masks[name as keyof T] as "shown" | ((value: unknown) => unknown);
      return [name, mask === "shown" || value === undefined ? value : mask(value)];
    }),
  );
}

const maskEach = <T>(objects: Readonly<Record<string, T>>, mask: (value: T) => unknown) =>
  Object.fromEntries(Object.entries(objects).map(([name, each]) => [name, mask(each)]));

/** Masks the arguments of a command that prints a held key: one of them can be a secret. */
function maskSource(source: HeldKeySource): HeldKeySource {
  if (!("exec" in source)) return source;
  const [command = "", ...args] = source.exec;
  return { ...source, exec: [command, ...args.map(hide)] };
}

/** Masks the credentials in a proxy URL. */
function maskProxy(text: string): string {
  const { protocol, host, username, password } = new URL(text);
  return username + password === "" ? text : `${protocol}//${MASK}@${host}`;
}

const KEY: Masks<KeyConfig> = {
  id: "shown",
  name: "shown",
  key: hide,
  digest: hide,
  previous: (previous) => ({ ...previous, digest: MASK }),
  providers: "shown",
  models: "shown",
  operations: "shown",
  team: "shown",
  limits: "shown",
  durable: "shown",
  disabled: "shown",
  heldKeys: "shown",
  metadata: "shown",
  expiresAt: "shown",
  revokedAt: "shown",
  createdAt: "shown",
};

const PROVIDER: Masks<ProviderConfig> = {
  hosts: "shown",
  upstreams: "shown",
  shape: "shown",
  operations: "shown",
  messages: "shown",
  deadlines: "shown",
  keepAliveMs: "shown",
  transport: "shown",
  egress: ({ proxy, ...rest }) => ({ ...rest, ...(proxy && { proxy: maskProxy(proxy) }) }),
  credential: "shown",
  combinedKey: "shown",
  upstreamKey: maskSource,
  // An added header can contain a key.
  headers: (headers) => ({ ...headers, set: maskEach(headers.set ?? {}, hide) }),
  durable: "shown",
  limits: "shown",
  usage: "shown",
  maxOutput: "shown",
  maxInput: "shown",
  prices: "shown",
  region: "shown",
  statesCost: "shown",
  tiers: "shown",
  maxCalls: "shown",
  callPrices: "shown",
  chargeTimeouts: "shown",
};

const TEAM: Masks<TeamConfig> = {
  limits: "shown",
  heldKeys: "shown",
  upstreamKeys: (keys) => maskEach(keys, maskSource),
};

const SIGN_IN: Masks<SignInConfig> = {
  clientId: "shown",
  clientSecret: (secret) => typeof secret === "string" ? MASK : secret,
  url: "shown",
  scopes: "shown",
  token: "shown",
};

const ISSUER: Masks<IdentityConfig> = {
  name: "shown",
  issuer: "shown",
  audience: "shown",
  jwks: "shown",
  algorithms: "shown",
  require: "shown",
  claims: "shown",
  plans: "shown",
  callers: "shown",
  admin: ({ signIn, ...rest }) => ({
    ...rest,
    ...(signIn && { signIn: maskMembers(signIn, SIGN_IN) }),
  }),
  leewayMs: "shown",
  maxAgeMs: "shown",
  refreshMs: "shown",
};

const REDIS: Masks<RedisConfig> = {
  url: (url) => url.replace(/\/\/[^/]*@/, `//${MASK}@`),
  cluster: "shown",
  sentinel: ({ password, ...rest }) => ({ ...rest, ...(password && { password: MASK }) }),
  username: "shown",
  password: hide,
  tls: "shown",
  gateways: "shown",
  timeoutMs: "shown",
};

const ADMIN: Masks<AdminConfig> = {
  hostname: "shown",
  port: "shown",
  token: hide,
};

const ALERTS: Masks<AlertsConfig> = {
  // The path of such an address often contains a secret too.
  url: (url) => `${new URL(url).origin}/${MASK}`,
  secret: hide,
};

function maskKeyStore(keys: StoredKeysConfig): Record<string, unknown> {
  switch (keys.store) {
    case "file":
      return maskMembers<FileKeysConfig>(keys, { store: "shown", file: "shown" });
    case "redis":
      return maskMembers<RedisKeysConfig>(keys, { store: "shown", snapshot: "shown" });
    default:
      return refuseKeyStore(keys);
  }
}

const CONFIG: Masks<Config> = {
  listen: "shown",
  providers: (providers) => maskEach(providers, (each) => maskMembers(each, PROVIDER)),
  keys: (keys) =>
    Array.isArray(keys) ? keys.map((each) => maskMembers(each, KEY)) : maskKeyStore(keys),
  teams: (teams) => maskEach(teams, (each) => maskMembers(each, TEAM)),
  identity: (issuers) => issuers.map((each) => maskMembers(each, ISSUER)),
  limits: "shown",
  cors: "shown",
  admin: (admin) => maskMembers(admin, ADMIN),
  redis: (redis) => maskMembers(redis, REDIS),
  instance: "shown",
  prices: "shown",
  currency: "shown",
  usage: "shown",
  attribution: "shown",
  runs: "shown",
  alerts: (alerts) => maskMembers(alerts, ALERTS),
  metrics: "shown",
  log: "shown",
  drain: "shown",
};

/** Masks the secrets of a configuration. */
export const maskSecrets = (config: Config): Record<string, unknown> => maskMembers(config, CONFIG);

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
