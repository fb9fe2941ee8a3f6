/**
 * The gateway under test, with everything on: keys from a file, a limit of requests and one of
 * tokens with its reservation, usage, metrics, an access log of JSON lines. This is the only place
 * that says so.
 */
import { createHash, randomBytes } from "node:crypto";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { generateGatewayKey } from "../../src/keys/key_format.ts";
import { CACHE } from "./machine.ts";

/** The callers' key at the gateway, and at the provider. */
export const GATEWAY_KEY: string = generateGatewayKey();
export const UPSTREAM_KEY = "sk-bench-000000000000000000000000000000000000000000";
/** The host that callers name. */
export const HOST = "a.localhost";
/** More than any number of streams that is measured. */
const MAX_EXCHANGES = 200_000;
/** Tokens of output that are reserved for a call that states no maximum. */
const MAX_OUTPUT = 4096;

/**
 * Limits of a key where a check asks by how much one is exceeded: a minute's requests and tokens,
 * calls at once.
 */
export const LIMITS = { requests: 50, concurrency: 10, tokens: 10_000 } as const;
export type LimitKind = keyof typeof LIMITS;
const UNLIMITED = { requests: "1G/min", tokens: "1G/min" } as const;
const toLimit = (kind: LimitKind) => kind === "concurrency" ? LIMITS[kind] : `${LIMITS[kind]}/min`;

/** Keys of other callers: only their digests are known, as in a store. */
function makeKeys(count: number): object[] {
  return Array.from(
    { length: count },
    (_, index) => ({ id: `caller-${index}`, digest: randomBytes(32).toString("hex") }),
  );
}

/**
 * Writes the configuration.
 *
 * @param name Names the file
 * @param options Where it listens, where the provider is and under how many addresses, how many
 * keys there are, the limit that the caller's key is to reach or all limits that it has, and the
 * Redis that they are counted in
 * @returns Path of the file
 */
export function writeGatewayConfig(
  name: string,
  { port, upstream, keys, addresses, limit, limits, redis }: {
    port: number;
    upstream: string;
    keys: number;
    addresses: number;
    limit?: LimitKind | undefined;
    limits?: object | undefined;
    redis?: string | undefined;
  },
): string {
  const directory = join(CACHE, "config");
  mkdirSync(directory, { recursive: true });
  const file = name.replaceAll(/\W+/g, "-");
  const path = join(directory, file);
  const url = `${upstream}/v1`;
  const urls = Array.from(
    { length: addresses },
    (_, index) => url.replace("127.0.0.1", `127.0.0.${index + 1}`),
  );
  const config = {
    listen: [{ port }],
    providers: {
      a: { hosts: [HOST], upstream: addresses === 1 ? url : urls, maxOutput: MAX_OUTPUT },
      b: { hosts: ["b.localhost"], upstream: url, maxOutput: MAX_OUTPUT },
    },
    keys: { file: `${file}-keys.json` },
    limits: { exchanges: MAX_EXCHANGES },
    log: "json",
    ...(redis !== undefined && { redis }),
  };
  const own = {
    id: "bench",
    digest: createHash("sha256").update(GATEWAY_KEY).digest("hex"),
    providers: ["a", "b"],
    limits: limits ?? { ...UNLIMITED, ...(limit && { [limit]: toLimit(limit) }) },
  };
  const lines = [own, ...makeKeys(keys - 1)].map((key) => JSON.stringify(key));
  writeFileSync(`${path}-keys.json`, `{"keys":[\n${lines.join(",\n")}\n]}\n`);
  writeFileSync(`${path}.jsonc`, JSON.stringify(config, null, 1));
  return `${path}.jsonc`;
}
