/**
 * Explanation of a request: the gateway's decision and the reasons. The request passes through the
 * real steps of the pipeline. The provider call is intercepted before it is sent, and limits are
 * read but not charged.
 *
 * @module
 */
import type { Config } from "../config/config.ts";
import { CREDENTIAL_HEADERS } from "../config/credential.ts";
import { type Attribution, type Dimension, DIMENSIONS } from "../config/dimensions.ts";
import { type KeyConfig, PROVIDER_KEY } from "../config/key.ts";
import type { HeldKeySource } from "../config/held_key.ts";
import type { ProviderConfig } from "../config/provider.ts";
import { formatMoney } from "../config/units.ts";
import { type ErrorCode, ERRORS } from "../errors/codes.ts";
import { ClientClosed } from "../exchange/exchange.ts";
import type { ExchangeObserver } from "../exchange/observer.ts";
import type { ExchangeRecord } from "../exchange/record.ts";
import type { Gateway, GatewayParts } from "../gateway.ts";
import type { GatewayRequest, GatewayResponse } from "../http/message.ts";
import type { CallerTokens } from "../keys/identity/verifier.ts";
import type { Digest } from "../keys/key_format.ts";
import type { KeyStore } from "../keys/key_store.ts";
import { type AskedLimits, DryLimiter } from "../limits/dry_limiter.ts";
import { isMoney } from "../config/limit_kinds.ts";
import { type Limiter, reservedOf } from "../limits/limiter.ts";
import { subjectsOf } from "../steps/subjects.ts";
import { findSource } from "../steps/attribution.ts";
import { type Deadlines, shortenDeadlines } from "../upstream/forward.ts";
import type { HeldKeyReader } from "../upstream/held_keys.ts";
import type { Transport, UpstreamCall } from "../upstream/transport.ts";
import { type LimitUse, toLimitUse } from "./limit_use.ts";
import { findAdvice } from "./refusal_advice.ts";

/** The facts of a request's key that the gateway knows. */
export type ExplainedKey = Pick<KeyConfig, "id" | "name" | "team">;

/** A limit that applies to a request. */
export interface ExplainedLimit extends LimitUse {
  /** Owner of the limit, such as `key:x`, `team:search` or `provider:a`. */
  readonly subject: string;
  /** Amount that this request uses when it is admitted. */
  readonly takes: number;
  /** `observe` counts and never refuses. `strict` refuses a request that could exceed the limit. */
  readonly mode?: string | undefined;
}

/**
 * Amounts that are reserved for a request: an estimate that is corrected when the exchange settles.
 */
export interface ExplainedReservation {
  readonly tokens: number;
  /** Maximum number of tokens that it can use. Strict limits compare this number. */
  readonly mostTokens?: number;
  readonly spend?: number;
  readonly currency?: string;
}

/** The provider call for a request. */
export interface ExplainedCall {
  readonly method: string;
  /** URL of the first replica. Values in its query are masked. */
  readonly url: string;
  /** Headers, names in lower case. Values that can be secret are masked. */
  readonly headers: Readonly<Record<string, string>>;
  /** Size of the body, bytes. */
  readonly bodyBytes: number;
  readonly deadlines: Deadlines;
}

/** The refusal of a request. */
export interface ExplainedRefusal {
  readonly status: number;
  readonly code: ErrorCode;
  /** Message for the caller. */
  readonly message: string;
  /** Advice for the operator. */
  readonly fix: string;
}

/** The value of one dimension of attribution. */
export interface ExplainedValue {
  readonly value: string;
  /** The header that has the value, or `user-agent family`. */
  readonly source: string;
}

/** Explanation of a request. It contains no key and nothing of the body. */
export interface RequestExplanation {
  /** `answered` for a browser's preflight, which the gateway answers itself. */
  readonly outcome: "forwarded" | "refused" | "answered";
  readonly provider?: string;
  readonly operation?: string;
  readonly key?: ExplainedKey;
  readonly model?: string;
  readonly stream?: boolean;
  /** True if the call uses a provider key that the gateway holds. */
  readonly usesHeldKey?: boolean;
  /** Attribution of the call. Dimensions without a value are left out. */
  readonly attribution?: { readonly [Name in Dimension]?: ExplainedValue };
  /** Base URLs of the provider. One of them receives the call. */
  readonly replicas?: readonly string[];
  readonly limits?: readonly ExplainedLimit[];
  readonly reservation?: ExplainedReservation;
  /** The limit that would have refused the request if its mode were not `observe`. */
  readonly observedLimit?: string;
  readonly call?: ExplainedCall;
  /** Names of headers that are not forwarded. */
  readonly withheld?: readonly string[];
  readonly refusal?: ExplainedRefusal;
}

/** Parts of an explanation. */
export interface ExplanationParts {
  /** The configuration, with the stored teams. */
  readonly config: Config;
  readonly keys: KeyStore;
  /** Verifies identity tokens. Not set if none are accepted. */
  readonly identity?: CallerTokens | undefined;
  /** Reads the state of a subject's limits. */
  readonly status: Limiter["status"];
  readonly digest: Digest;
  /** Reads a held key from a file or a variable, to find whether it can be read. */
  readonly readHeldKey: HeldKeyReader;
  /** Creates a gateway. */
  readonly compose: (config: Config, parts: Partial<GatewayParts>) => Gateway;
}

/** Facts recorded during one request. */
interface Noted {
  /** True if a well-formed key was presented. */
  isLookedUp: boolean;
  key?: KeyConfig | undefined;
  call?: UpstreamCall;
  /** Size of the call's body, which is released at the end of the exchange. Bytes. */
  bodyBytes: number;
  record?: ExchangeRecord;
}

const MASK = "(masked)";
/** Names of headers whose values can be secret. */
const SECRET_NAME = /auth|cookie|credential|key|password|secret|token/i;

/** A value in a query string, or a name without a value. */
const QUERY_VALUE = /(?<=[?&][^=&]*=)[^&]+|(?<=[?&])[^=&]+(?=&|$)/g;

/** Verifies tokens with the given verifier and records their keys. */
function notingTokens(identity: CallerTokens, noted: Noted): CallerTokens {
  return {
    isToken: (credential) => identity.isToken(credential),
    isHeldIn: (text) => identity.isHeldIn(text),
    async resolve(token) {
      const resolved = await identity.resolve(token);
      if (resolved.fault === undefined) noted.key = resolved.key;
      return resolved;
    },
    close: () => identity.close(),
  };
}

/** Creates the parts of a gateway that makes no call, counts nothing, and records its decisions. */
function createDryParts({ keys, identity, status, digest, readHeldKey }: ExplanationParts) {
  const noted: Noted = { isLookedUp: false, bodyBytes: 0 };
  const limiter = new DryLimiter(status);
  const noting: KeyStore = {
    async find(wanted) {
      noted.isLookedUp = true;
      return noted.key = await keys.find(wanted);
    },
  };
  const onlyTransport: Transport = {
    send(call) {
      noted.call = call;
      noted.bodyBytes = call.body?.bytes?.byteLength ?? 0;
      call.exchange.abort(new ClientClosed()); // as if the caller left: not a failure
      return Promise.reject(call.exchange.reason);
    },
  };
  const observer: ExchangeObserver = {
    wantsWithheld: true,
    settled: (record) => void (noted.record = record),
  };
  const tokens = identity && notingTokens(identity, noted);
  const parts = {
    keys: noting,
    identity: tokens,
    limiter,
    digest,
    onlyTransport,
    async readHeldKey(source: HeldKeySource) {
      if (!("exec" in source)) await readHeldKey(source); // an explanation runs no command
      return MASK;
    },
    observers: [observer],
  };
  return { noted, limiter, parts };
}

/** Explains a request, and reads its body. */
export async function explain(
  request: GatewayRequest,
  parts: ExplanationParts,
): Promise<RequestExplanation> {
  const { config, compose } = parts;
  const { noted, limiter, parts: dry } = createDryParts(parts);
  const gateway = compose({ ...config, alerts: undefined }, dry); // no alert is sent
  const answer = await gateway.handle(request);
  const { key, call, record } = noted;
  if (record === undefined && answer.status < 400) return { outcome: "answered" };
  const facts: Partial<ExchangeRecord> = record ?? {};
  const { provider, operation, model, stream, keyId, usesHeldKey, observedLimit, withheld } = facts;
  const isForwarded = call !== undefined;
  const question = limiter.asked && await withUnasked(limiter.asked, key, provider, parts);
  return {
    outcome: isForwarded ? "forwarded" : "refused",
    ...(provider !== undefined &&
      { provider, replicas: providerOf(config, provider).upstreams }),
    ...(operation !== undefined && { operation }),
    ...(keyId !== undefined && { key: toExplainedKey(keyId, key) }),
    ...(model !== undefined && { model }),
    ...(stream !== undefined && { stream }),
    ...(usesHeldKey !== undefined && { usesHeldKey }),
    ...(facts.attribution !== undefined &&
      { attribution: toExplainedValues(facts.attribution, request, config) }),
    ...(question !== undefined && toExplainedLimits(question)),
    ...(observedLimit !== undefined && { observedLimit }),
    ...(call !== undefined && { call: toExplainedCall(call, request, noted, config) }),
    ...(withheld?.request !== undefined && { withheld: withheld.request }),
    ...(!isForwarded && { refusal: toExplainedRefusal(answer, noted, config) }),
  };
}

/** Adds the source of each value of a call. */
function toExplainedValues(
  values: Attribution,
  { headers }: GatewayRequest,
  { attribution }: Config,
): NonNullable<RequestExplanation["attribution"]> {
  const explained: { [Name in Dimension]?: ExplainedValue } = {};
  for (const name of DIMENSIONS) {
    const value = values[name];
    const source = findSource(attribution.sources[name] ?? [], headers);
    if (value !== undefined && source !== undefined) explained[name] = { value, source };
  }
  return explained;
}

/** Returns the settings of a provider that a request has reached. */
function providerOf({ providers }: Config, name: string): ProviderConfig {
  const settings = providers[name];
  if (settings === undefined) throw new Error(`Cannot explain a request: no provider ${name}`);
  return settings;
}

function toExplainedKey(id: string, { name, team }: Partial<KeyConfig> = {}): ExplainedKey {
  return { id, ...(name !== undefined && { name }), ...(team !== undefined && { team }) };
}

/** Adds the limits that were not checked because an earlier limit refused the request. */
async function withUnasked(
  asked: AskedLimits,
  key: KeyConfig | undefined,
  provider: string | undefined,
  { config, status }: ExplanationParts,
): Promise<AskedLimits> {
  if (key === undefined || provider === undefined) return asked;
  const { limits } = providerOf(config, provider);
  const shared = limits === undefined ? [] : [{ name: `provider:${provider}`, limits }];
  const { team = "" } = key;
  const settings = Object.hasOwn(config.teams, team) ? config.teams[team] : undefined;
  const found = subjectsOf(key, { subjects: shared }, settings).map(({ name, limits }) => {
    const known = asked.statuses.filter(({ subject }) => subject.name === name);
    return known.length > 0 ? known : status({ name, limits });
  });
  return { ...asked, statuses: (await Promise.all(found)).flat() };
}

function toExplainedLimits(
  { statuses, reservation }: AskedLimits,
): Pick<RequestExplanation, "limits" | "reservation"> {
  const { expected, most } = reservation;
  const currency = statuses.map(({ subject }) => subject.limits.spend?.currency).find((each) =>
    each !== undefined
  );
  const limits = statuses.map((status): ExplainedLimit => {
    const { subject, name } = status;
    const { mode } = subject.limits;
    const amount = reservedOf(status, reservation);
    return {
      subject: subject.name,
      ...toLimitUse(status),
      takes: isMoney(name) ? Number(formatMoney(amount)) : amount,
      ...(mode !== undefined && { mode }),
    };
  });
  if (expected.tokens === 0 && most.tokens === 0) return { limits };
  return {
    limits,
    reservation: {
      tokens: expected.tokens,
      ...(most.tokens > 0 && { mostTokens: most.tokens }),
      ...(currency !== undefined && { spend: Number(formatMoney(expected.spend)), currency }),
    },
  };
}

const mask = (value: string): string => /^Bearer /i.test(value) ? `Bearer ${MASK}` : MASK;

function toExplainedCall(
  call: UpstreamCall,
  request: GatewayRequest,
  noted: Noted,
  config: Config,
): ExplainedCall {
  const { provider = "", stream }: Partial<ExchangeRecord> = noted.record ?? {};
  const { headers: own, deadlines } = providerOf(config, provider);
  const isSecret = (name: string, value: string) => {
    const isCredential = CREDENTIAL_HEADERS.some((each) => each === name);
    const isSetHere = Object.hasOwn(own?.set ?? {}, name);
    const looksSecret = SECRET_NAME.test(name) || PROVIDER_KEY.test(value);
    return isCredential || isSetHere || looksSecret;
  };
  const shown = Object.entries(call.headers).map(([name, value]): [string, string] => [
    name,
    isSecret(name, value) ? mask(value) : value,
  ]);
  return {
    method: call.method,
    url: call.base.origin + call.target.replace(QUERY_VALUE, MASK),
    headers: Object.fromEntries(shown),
    bodyBytes: noted.bodyBytes,
    deadlines: shortenDeadlines(deadlines, request.headers, stream !== false),
  };
}

const isErrorCode = (text: string): text is ErrorCode => Object.hasOwn(ERRORS, text);

/** Reads the message of an error answer in any dialect. */
function readMessage({ body }: GatewayResponse): string {
  try {
    const { error } = JSON.parse(String(body));
    return String(error.message);
  } catch {
    return "";
  }
}

function toExplainedRefusal(
  answer: GatewayResponse,
  { isLookedUp, key, record }: Noted,
  config: Config,
): ExplainedRefusal {
  const stated = answer.headers["sallyport-error"] ?? "";
  const code = isErrorCode(stated) ? stated : "internal_error";
  const facts = { config, provider: record?.provider, isLookedUp, key, cause: record?.cause };
  return {
    status: answer.status,
    code,
    message: readMessage(answer),
    fix: findAdvice(code, facts),
  };
}
