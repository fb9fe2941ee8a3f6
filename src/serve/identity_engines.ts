/**
 * The parts of a process that verify identity tokens: the public keys of issuers and the revoked
 * tokens. They outlive a change of the configuration.
 *
 * @module
 */
import type { ReportEvent } from "../exchange/reported_event.ts";
import { readFile } from "node:fs/promises";
import { resolve } from "node:path";
import type { Config } from "../config/config.ts";
import type { IdentityConfig } from "../config/identity.ts";
import { describeKeyStore } from "../config/keys.ts";
import { systemClock } from "../exchange/clock.ts";
import { IssuerKeys } from "../keys/identity/key_set.ts";
import type { RevocationRegistry } from "../keys/identity/revocations.ts";
import { FileRevocations } from "../keys/identity/revocations_file.ts";
import { TokenVerifier } from "../keys/identity/verifier.ts";
import type { Digest } from "../keys/key_format.ts";
import { createDocumentFetcher, toKeySetReader } from "../steps/token_verifier_setup.ts";
import type { RedisClient } from "../storage/redis_client.ts";
import { SharedFile } from "../storage/shared_file.ts";
import type { EngineReferences, Engines } from "./engines.ts";

/** The longest wait at the start for the public keys of all issuers. Milliseconds. */
const FIRST_FETCH_MS = 2000;
/** File of revoked tokens if there is no file of keys. */
const DEFAULT_FILE = "gateway.revoked.json";

/** The connection to Redis, and its shared name among configurations. */
export interface RedisPlace {
  readonly name: string;
  readonly client: RedisClient;
}

/** Options for opening these parts. */
interface IdentityOptions {
  readonly directory: string;
  readonly report: ReportEvent;
  readonly isServing: boolean;
  readonly engines: Engines;
  readonly references: EngineReferences;
  readonly digest: Digest;
  /** Redis, if configured. It then stores the revocations. */
  readonly redis: RedisPlace | undefined;
}

/** The parts that verify identity tokens. */
export interface Identity {
  readonly verifier: TokenVerifier;
  readonly revocations: RevocationRegistry;
}

/** Returns the file of revoked tokens: next to the file of keys, or next to the configuration. */
export function revocationsFile({ keys }: Pick<Config, "keys">, directory: string): string {
  const { mainFile } = describeKeyStore(keys);
  const name = mainFile === undefined
    ? DEFAULT_FILE
    : `${mainFile.replace(/\.json$/, "")}.revoked.json`;
  return resolve(directory, name);
}

/** Opens the revoked tokens. */
async function openRevocations(
  config: Config,
  options: IdentityOptions,
): Promise<RevocationRegistry> {
  const { directory, report, isServing, references, redis } = options;
  if (redis !== undefined) {
    const open = async () => {
      const { RedisRevocations } = await import("../keys/redis/revocations.ts");
      const revocations = new RedisRevocations(redis.client, systemClock);
      if (isServing) await revocations.start();
      return revocations;
    };
    return await references.use(
      `revoked tokens in ${redis.name}`,
      open,
      (each) => Promise.resolve(each.close()),
    );
  }
  const file = new SharedFile(revocationsFile(config, directory));
  const open = async () => {
    const revocations = new FileRevocations(file, { clock: systemClock, report });
    if (isServing) await revocations.start();
    return revocations;
  };
  return await references.use(
    `revoked tokens ${file.path}`,
    open,
    (each) => Promise.resolve(each.close()),
  );
}

/** Opens the public keys of an issuer, and starts to fetch them. */
function openKeys(
  config: IdentityConfig,
  options: IdentityOptions,
): Promise<{ keys: IssuerKeys; started: Promise<void> }> {
  const { directory, report, isServing, references } = options;
  const { issuer, jwks, refreshMs } = config;
  const open = () => {
    const readText = (path: string) => readFile(resolve(directory, path), "utf8");
    const read = toKeySetReader(config, createDocumentFetcher(systemClock), readText);
    const keys = new IssuerKeys({
      issuer,
      read,
      refreshMs,
      clock: systemClock,
      report,
      hasTimers: true,
    });
    return Promise.resolve({ keys, started: isServing ? keys.start() : Promise.resolve() });
  };
  const name = `public keys ${JSON.stringify([issuer, jwks, refreshMs])}`;
  return references.use(name, open, ({ keys }) => Promise.resolve(keys.close()));
}

/**
 * Opens the parts that a configuration needs to verify identity tokens. A gateway starts even if an
 * issuer does not answer.
 *
 * @returns The parts; `undefined` without issuers
 * @throws {ConfigError} If the revoked tokens can't be read
 */
export async function openIdentity(
  config: Config,
  options: IdentityOptions,
): Promise<Identity | undefined> {
  const { identity = [], teams } = config;
  if (identity.length === 0) return undefined;
  const { digest, report, engines: { tokenCounts: counts } } = options;
  const revocations = await openRevocations(config, options);
  const opened = await Promise.all(identity.map((each) => openKeys(each, options)));
  const keysOf = (each: IdentityConfig): IssuerKeys => {
    const keys = opened[identity.indexOf(each)]?.keys;
    if (keys === undefined) throw new Error("each issuer has its keys");
    return keys;
  };
  let cancel = (): void => {};
  const late = new Promise<void>((done) =>
    cancel = systemClock.timer(FIRST_FETCH_MS, done, { isBackground: true })
  );
  await Promise.race([Promise.all(opened.map(({ started }) => started)), late]);
  cancel();
  const clock = systemClock;
  const verifier = new TokenVerifier(identity, {
    keysOf,
    revocations,
    digest,
    clock,
    teams,
    hasStoredTeams: !Array.isArray(config.keys),
    counts,
    report,
  });
  return { verifier, revocations };
}
