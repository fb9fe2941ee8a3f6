/**
 * The gateway under test, with everything on: keys from a file, a limit of requests and one of
 * tokens with its reservation, usage, metrics, an access log of JSON lines. This is the only
 * definition of that configuration.
 */
import { createHash, randomBytes } from "node:crypto";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import type { TlsFiles } from "./certificates.ts";
import { generateGatewayKey } from "../../src/keys/key_format.ts";

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

/** The folders of all configurations. They are removed when this process exits. */
const folders: string[] = [];
process.once("exit", () => {
  for (const folder of folders) rmSync(folder, { recursive: true, force: true });
});

/**
 * Writes the configuration into a new folder, so that gateways which run side by side do not share
 * the files of keys and usage.
 *
 * @param options The gateway's port, the provider's address and the number of its addresses, the
 * number of keys, the limit that the caller's key reaches or all limits of that key, and the Redis
 * that counts them, and the certificates if it uses TLS on both sides
 * @returns Path of the file
 */
export function writeGatewayConfig(
  { port, upstream, keys, addresses, limit, limits, redis, tls }: {
    port: number;
    upstream: string;
    keys: number;
    addresses: number;
    limit?: LimitKind | undefined;
    limits?: object | undefined;
    redis?: string | undefined;
    tls?: TlsFiles | undefined;
  },
): string {
  const folder = mkdtempSync(join(tmpdir(), "sallyport-bench-"));
  folders.push(folder);
  const url = `${upstream}/v1`;
  const urls = Array.from(
    { length: addresses },
    (_, index) => url.replace("127.0.0.1", `127.0.0.${index + 1}`),
  );
  const config = {
    listen: [{ port, ...(tls && { tls: { cert: tls.cert, key: tls.key } }) }],
    ...(tls && { egress: { ca: [tls.ca] } }),
    providers: {
      a: { hosts: [HOST], upstream: addresses === 1 ? url : urls, maxOutput: MAX_OUTPUT },
      b: { hosts: ["b.localhost"], upstream: url, maxOutput: MAX_OUTPUT },
    },
    keys: { file: "keys.json" },
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
  const keysFile = join(folder, "keys.json");
  writeFileSync(keysFile, `{"keys":[\n${lines.join(",\n")}\n]}\n`, { mode: 0o600 });
  const path = join(folder, "gateway.jsonc");
  writeFileSync(path, JSON.stringify(config, null, 1));
  return path;
}
