/**
 * The verifier of identity tokens, made from a configuration and functions that fetch the issuers'
 * keys.
 *
 * @module
 */
import type { ReportEvent } from "../exchange/reported_event.ts";
import type { Config } from "../config/config.ts";
import { ConfigError } from "../config/config.ts";
import type { IdentityConfig } from "../config/identity.ts";
import type { Clock } from "../exchange/clock.ts";
import type { AnyBody } from "../http/message.ts";
import { readAll } from "../http/read_all.ts";
import type { FetchIssuer } from "../keys/identity/code_sign_in.ts";
import {
  discoverKeySet,
  type FetchDocument,
  IssuerKeys,
  type IssuerKeysOptions,
  type ReadKeySet,
} from "../keys/identity/key_set.ts";
import { MemoryRevocations, type RevocableToken } from "../keys/identity/revocations.ts";
import { TokenVerifier } from "../keys/identity/verifier.ts";
import type { Digest } from "../keys/key_format.ts";
import type { UpstreamResponse } from "../upstream/transport.ts";
import { createOwnCaller } from "./own_call.ts";

/** Deadline of one document. Milliseconds. */
const FETCH_MS = 5000;
/** Maximum size of one document. Documents of the largest issuers are under 50 kB. Bytes. */
const MAX_DOCUMENT_BYTES = 512 * 1024;

/** Creates the function that fetches the documents of issuers. It follows no redirects. */
export function createDocumentFetcher(clock: Clock): FetchDocument {
  const call = createOwnCaller(FETCH_MS, clock);
  const request = { method: "GET", headers: { accept: "application/json" }, body: null };
  return (url) => call(url, request, readDocument);
}

/** Creates the function that calls an issuer to sign operators in. It follows no redirects. */
export function createIssuerCaller(clock: Clock): FetchIssuer {
  const call = createOwnCaller(FETCH_MS, clock);
  return (url, { method, headers, body }) => {
    const bytes = body === undefined ? undefined : new TextEncoder().encode(String(body));
    const request = {
      method,
      headers: { ...headers },
      body: bytes === undefined ? null : { bytes, release() {} },
    };
    return call(new URL(url), request, async (answer) => {
      const { status } = answer;
      const text = await readText(answer.body);
      return new Response(text, { status, headers: { "content-type": "application/json" } });
    });
  };
}

async function readDocument({ status, body }: UpstreamResponse): Promise<string> {
  if (status !== 200 || body === null) {
    body?.cancel();
    throw new Error(`the answer has status ${status}`);
  }
  return await readText(body);
}

/** Reads a text of limited size. */
async function readText(body: AnyBody | null): Promise<string> {
  if (body === null) return "";
  const accept = (byteLength: number) => {
    if (byteLength <= MAX_DOCUMENT_BYTES) return;
    body.cancel();
    throw new Error("the answer is larger than 512 kB");
  };
  return new TextDecoder("utf-8", { fatal: true }).decode(await readAll(body, { accept }));
}

/**
 * Returns the function that reads the public keys of an issuer.
 *
 * @param readFile Reads a file that the configuration names. Left out on runtimes without files
 * @throws {ConfigError} For a file without `readFile`
 */
export function toKeySetReader(
  { name, issuer, jwks }: IdentityConfig,
  fetchDocument: FetchDocument,
  readFile?: (path: string) => Promise<string>,
): ReadKeySet {
  if (jwks === undefined) return discoverKeySet(issuer, fetchDocument);
  if (typeof jwks !== "string") return () => Promise.resolve(JSON.stringify(jwks));
  if (/^https?:/.test(jwks)) return () => fetchDocument(new URL(jwks));
  if (readFile !== undefined) return () => readFile(jwks);
  const message = `expected the keys themselves or a URL for ${name}: here are no files`;
  throw new ConfigError([{ path: "identity", message }]);
}

/** Parts of the verifier of an embedded gateway. */
export interface EmbeddedIdentityParts
  extends Partial<Pick<IssuerKeysOptions, "hasTimers" | "keepAlive">> {
  readonly digest: Digest;
  readonly clock: Clock;
  /** Returns whether a token is revoked. If left out, no token is. */
  readonly isRevoked?: ((token: RevocableToken) => boolean) | undefined;
  readonly report?: ReportEvent | undefined;
}

/**
 * Creates the verifier of a gateway that was created without one. It begins to fetch the keys of
 * the issuers.
 *
 * @returns The verifier; `undefined` if the configuration has no issuers
 * @throws {ConfigError} For keys in a file
 */
export function embedIdentity(
  { identity, teams }: Config,
  parts: EmbeddedIdentityParts,
): TokenVerifier | undefined {
  const { digest, clock, isRevoked, report = () => {}, hasTimers = true, keepAlive } = parts;
  if (identity === undefined || identity.length === 0) return undefined;
  const fetchDocument = createDocumentFetcher(clock);
  const all: IssuerKeys[] = [];
  const keysOf = (config: IdentityConfig) => {
    const { issuer, refreshMs } = config;
    const read = toKeySetReader(config, fetchDocument);
    const keys = new IssuerKeys({ issuer, read, refreshMs, clock, report, hasTimers, keepAlive });
    all.push(keys);
    return keys;
  };
  const revocations = isRevoked === undefined
    ? new MemoryRevocations(clock.now)
    : { isReady: true, isRevoked };
  const close = () => {
    for (const keys of all) keys.close();
  };
  const verifier = new TokenVerifier(identity, {
    keysOf,
    revocations,
    digest,
    clock,
    teams,
    report,
    close,
  });
  for (const keys of all) {
    const started = keys.start();
    keepAlive?.(started);
  }
  return verifier;
}
