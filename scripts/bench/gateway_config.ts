/**
 * The gateway under test, with everything on: keys from a file, a limit of requests and one of
 * tokens with its reservation, usage, metrics, an access log of JSON lines. This is the only
 * definition of that configuration.
 */
import { createHash, randomBytes } from "node:crypto";
import { mkdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { generateGatewayKey } from "../../src/keys/key_format.ts";
import { CACHE } from "./machine.ts";

/** The callers' key at the gateway, and at the provider. */
export const GATEWAY_KEY: string = generateGatewayKey();
export const UPSTREAM_KEY = "sk-bench-000000000000000000000000000000000000000000";
/** The host that callers name. */
export const HOST = "a.localhost";
/** More than the largest number of streams that is measured. */
const MAX_EXCHANGES = 200_000;
/** Tokens of output that are reserved for a call that states no maximum. */
const MAX_OUTPUT = 4096;

/**
 * Limits of a key for the checks that exceed them: requests and tokens a minute, concurrent calls.
 */
export const LIMITS = { requests: 50, concurrency: 10, tokens: 10_000 } as const;
export type LimitKind = keyof typeof LIMITS;
const UNLIMITED = { requests: "1G/min", tokens: "1G/min" } as const;
const toLimit = (kind: LimitKind) => kind === "concurrency" ? LIMITS[kind] : `${LIMITS[kind]}/min`;

/** Keys of other callers: only their digests are stored. */
function makeKeys(count: number): object[] {
  return Array.from(
    { length: count },
    (_, index) => ({ id: `caller-${index}`, digest: randomBytes(32).toString("hex") }),
  );
}

/**
 * Writes the configuration.
 *
 * @param name The name of the file
 * @param options The gateway's port, the provider's address and the number of its addresses, the
 * number of keys, the limit that the caller's key reaches or all limits of that key, and the Redis
 * that counts them
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
  // An older build cannot read the usage that a newer one wrote.
  for (const old of ["keys.json", "keys.usage.jsonl"]) rmSync(`${path}-${old}`, { force: true });
  writeFileSync(`${path}-keys.json`, `{"keys":[\n${lines.join(",\n")}\n]}\n`, { mode: 0o600 });
  writeFileSync(`${path}.jsonc`, JSON.stringify(config, null, 1));
  return `${path}.jsonc`;
}
