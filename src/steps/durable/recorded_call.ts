/**
 * Durable exchanges in the flow of a request: a call that is recorded runs on its own, and its
 * caller reads the recording like those that attach to it later.
 *
 * @module
 */
import type { DurableConfig } from "../../config/durable.ts";
import type { NewRecording } from "../../durable/durable_exchanges.ts";
import type { RecordedExchange, Recording } from "../../durable/recording.ts";
import { OwnerKeys } from "../../durable/recording_keys.ts";
import { type RecordingName, toBase64Url } from "../../durable/recording_store.ts";
import { GatewayError } from "../../errors/gateway_error.ts";
import { type Exchange, toSettlement } from "../../exchange/exchange.ts";
import type { ExchangeRecord } from "../../exchange/record.ts";
import {
  type AnyBody,
  type GatewayRequest,
  type GatewayResponse,
  isSuccess,
  isWhole,
  push,
} from "../../http/message.ts";
import type { RequestBody } from "../../inbound/body.ts";
import { withoutBoundary } from "../../inbound/multipart.ts";
import type { RequestFacts } from "../../operations/request_facts.ts";
import { type ResolvedOperation, toQuery } from "../../operations/router.ts";
import { type Admission, type AdmissionParts, enter, giveBack } from "../admission.ts";
import { addressOf, attachTo, type DurableFlow } from "./attached_answer.ts";
import { type Caller, toOwner } from "./recording_request.ts";

/** The wish of a request to be recorded. */
export interface AskedDurable {
  readonly settings: DurableConfig;
  /** Key with which a retry finds its answer; `undefined` where the caller sent none. */
  readonly idempotencyKey: string | undefined;
  /** True if a client library sends the request again; `undefined` if that does not matter. */
  readonly isRetry: boolean | undefined;
}

interface RecordingTerms extends Pick<DurableConfig, "keepMs"> {
  /** Number of answers that the call has asked for. */
  readonly answers: number;
}

/** A call that is recorded. */
interface RecordedCall extends Caller {
  readonly operation: ResolvedOperation;
  readonly body: RequestBody | null;
  readonly facts: Pick<RequestFacts, "choices">;
}

/**
 * Header with which a caller asks for a recording without an idempotency key: a boolean of RFC 9651
 * §3.3.6.
 */
const ASKING_HEADER = "sallyport-durable";
/**
 * Number of a retry, as the client libraries of OpenAI and others send it; 0 for the first attempt.
 */
const RETRY_COUNT = "x-stainless-retry-count";
const IDEMPOTENCY_KEY = /^(?:"([\x20\x21\x23-\x5b\x5d-\x7e]{1,256})"|([\x21\x23-\x7e]{1,256}))$/;

/**
 * Reads whether a request asks to be recorded. Only calls that cost tokens are recorded.
 *
 * @throws {GatewayError} `invalid_idempotency_key`
 */
export function askedDurable(
  { headers }: GatewayRequest,
  { cost }: ResolvedOperation,
  settings: DurableConfig,
): AskedDurable | undefined {
  if (cost !== "tokens") return undefined;
  const sent = headers.get("idempotency-key");
  const [, quoted, bare] = IDEMPOTENCY_KEY.exec(sent ?? "") ?? [];
  const idempotencyKey = quoted ?? bare;
  if (sent !== null && idempotencyKey === undefined) {
    throw new GatewayError("invalid_idempotency_key");
  }
  const retries = settings.retries ? headers.get(RETRY_COUNT) : null;
  const isNamed = idempotencyKey !== undefined || retries !== null;
  if (!isNamed && !asksForRecording(headers)) return undefined;
  return { settings, idempotencyKey, isRetry: retries === null ? undefined : Number(retries) > 0 };
}

/** Tells whether a request asks for a recording in so many words. */
function asksForRecording(headers: Pick<Headers, "get">): boolean {
  return headers.get(ASKING_HEADER) === "?1";
}

/**
 * Admits a call that will be recorded, before its body is read. Where a limit is reached, a retry
 * of a recorded call goes on: it gets that call's answer, and takes nothing.
 *
 * @throws {GatewayError} As `enter` does
 */
export async function enterDurable(
  asked: AskedDurable,
  caller: Caller & Pick<RecordedCall, "operation">,
  admission: Admission,
  flow: DurableFlow & { readonly gateway: AdmissionParts },
): Promise<void> {
  try {
    await enter(admission, flow);
  } catch (refusal) {
    const isLimit = GatewayError.is(refusal) && refusal.limit !== undefined;
    if (!isLimit || !await isRepeated(asked, caller, flow)) throw refusal;
  }
}

/**
 * Tells whether a request can be the retry of a call that is recorded, as far as its headers say.
 */
async function isRepeated(
  { idempotencyKey, isRetry }: AskedDurable,
  caller: Caller & Pick<RecordedCall, "operation">,
  flow: DurableFlow,
): Promise<boolean> {
  const { durable } = flow.gateway;
  if (durable === undefined) return false;
  if (idempotencyKey === undefined) return isRetry === true && durable.hasUnread(caller.key.id);
  const keys = new OwnerKeys(toOwner(caller, flow));
  return await durable.isNamed(nameOfKey(keys, caller.operation, idempotencyKey));
}

/** The part of the flow that makes a call. */
export interface CallSteps<Flow> {
  readonly admission: Admission;
  /** Makes the call, for a request whose caller can't leave. */
  carry(flow: Flow): Promise<GatewayResponse>;
}

/**
 * Answers a call that is recorded: makes it, unless an earlier one has its name.
 *
 * @returns The provider's answer, from its first byte
 * @throws {GatewayError} As `carry` does, and `idempotency_key_reused`, `recordings_unavailable`
 */
export async function answerDurable<Flow extends DurableFlow>(
  asked: AskedDurable,
  call: RecordedCall,
  { admission, carry }: CallSteps<Flow>,
  flow: Flow,
): Promise<GatewayResponse> {
  const { request, exchange, gateway: { durable, limits: { writeStallMs } } } = flow;
  const { operation, provider, key } = call;
  // Any other call is a first attempt or a retry of a client library: it may go unrecorded.
  const isNeeded = asked.idempotencyKey !== undefined || asksForRecording(request.headers);
  if (durable === undefined) {
    if (isNeeded) throw new GatewayError("recordings_unavailable");
    return carry(flow);
  }
  const keys = new OwnerKeys(toOwner(call, flow));
  const { digest, name } = await nameCall(keys, asked, call, request);
  const facts = {
    provider: provider.name,
    keyId: key.id,
    operation: operation.name,
    startedAt: exchange.startedAt,
  };
  const onFound = () => giveBack(admission, flow);
  const claim = { keys, name, digest, settings: asked.settings, writeStallMs, facts, onFound };
  let begun;
  try {
    begun = await durable.begin(claim, exchange.signal);
  } catch (error) {
    const isUnavailable = GatewayError.is(error) && error.code === "recordings_unavailable";
    if (isNeeded || !isUnavailable) throw error;
    return carry(flow);
  }
  if ("attachment" in begun) {
    const { attachment } = begun;
    return attachTo(
      attachment,
      flow,
      attachment.isComplete ? { "idempotency-replayed": "true" } : {},
    );
  }
  const { choices: answers } = call.facts;
  return makeCall(
    begun,
    { ...claim.settings, answers },
    { ...flow, request: detach(request) },
    carry,
  );
}

/** Makes a call and records its answer. Only 2xx ones are: after any other, the name is free. */
async function makeCall<Flow extends DurableFlow>(
  begun: NewRecording,
  settings: RecordingTerms,
  flow: Flow,
  carry: (flow: Flow) => Promise<GatewayResponse>,
): Promise<GatewayResponse> {
  const { recording } = begun;
  const { exchange, gateway } = flow;
  const reader = recording.attach(0);
  reader.onOver(gateway.open.hold(exchange, (reason) => reader.fail(reason)));
  const call = new RunningCall(exchange);
  exchange.reader = reader;
  recording.exchange = call;
  /** Frees the name: there is no answer to record. */
  const giveBack = () => {
    recording.discard();
    reader.cancel();
  };
  try {
    const answer = await carry(flow);
    if (!isSuccess(answer.status)) {
      exchange.reader = undefined;
      giveBack();
      return answer;
    }
    beginAnswer(answer, begun, settings, flow);
    const { status, headers, body } = answer;
    if (!isWhole(body)) {
      call.relay(body, recording);
      return { status, headers, body: reader };
    }
    if (body !== null) {
      recording.write(typeof body === "string" ? new TextEncoder().encode(body) : body);
    }
    recording.end();
    reader.cancel();
    return answer;
  } catch (error) {
    giveBack();
    throw error;
  }
}

/** Records the head of an answer, and adds the address of the recording to its headers. */
function beginAnswer(
  { status, headers }: GatewayResponse,
  { recording, isRestarted }: NewRecording,
  { keepMs, answers }: RecordingTerms,
  { request, exchange }: DurableFlow,
): void {
  const own = ["x-request-id", "server-timing", ...Object.keys(exchange.headers)];
  const kept = Object.entries(headers).filter(([name]) => !own.includes(name));
  recording.begin({ status, headers: Object.fromEntries(kept), ...(answers > 1 && { answers }) });
  Object.assign(headers, addressOf(recording.id, exchange.startedAt + keepMs, request));
  if (isRestarted) headers["idempotency-restarted"] = "true";
}

/** The exchange of a call that runs, as its recording sees it. */
class RunningCall implements RecordedExchange {
  readonly #exchange: Exchange;
  #settled: Pick<ExchangeRecord, "outcome" | "code"> = { outcome: "failed" };
  #body: AnyBody | undefined;
  #askForMore = (): void => {};

  constructor(exchange: Exchange) {
    this.#exchange = exchange;
    exchange.onSettled(({ outcome, code }) => this.#settled = { outcome, ...(code && { code }) });
  }

  /** Relays the body of the answer to its recording. */
  relay(body: AnyBody, recording: Recording): void {
    this.#body = body;
    this.#askForMore = push(body, recording);
  }

  stop(): void {
    const reason = new GatewayError("exchange_stopped");
    // It settles after its recording.
    const settlesLater = this.#exchange.goesOn && !this.#exchange.isSettled;
    if (settlesLater) this.#settled = toSettlement(reason);
    this.#exchange.leave(reason);
  }

  outcome(): Pick<ExchangeRecord, "outcome" | "code"> {
    return this.#settled;
  }

  askForMore(): void {
    this.#askForMore();
  }

  announce(): void {
    if (this.#body !== undefined && "announce" in this.#body) this.#body.announce?.();
  }
}

/** Returns the request without its caller's connection, so that leaving does not end the call. */
function detach({ method, url, headers }: GatewayRequest): GatewayRequest {
  return { method, url, headers, body: null };
}

/** Returns the name that a call has by its idempotency key. */
const nameOfKey = (keys: OwnerKeys, { name }: ResolvedOperation, idempotencyKey: string): string =>
  keys.tag("idempotency key", name, idempotencyKey);

/**
 * Names a call: by its idempotency key, by its body where retries of client libraries attach, or
 * not at all.
 */
async function nameCall(
  keys: OwnerKeys,
  { idempotencyKey, isRetry }: AskedDurable,
  { operation, body }: RecordedCall,
  { url, headers }: GatewayRequest,
): Promise<{ readonly digest: string; readonly name: RecordingName | undefined }> {
  const bytes = withoutBoundary(body?.bytes ?? new Uint8Array(), headers.get("content-type") ?? "");
  const hash = toBase64Url(
    new Uint8Array(await crypto.subtle.digest("SHA-256", bytes as Uint8Array<ArrayBuffer>)),
  );
  const digest = keys.tag("request", operation.path, toQuery(url), hash);
  if (idempotencyKey !== undefined) {
    const text = nameOfKey(keys, operation, idempotencyKey);
    return { digest, name: { text, kind: "key", isRetry: true } };
  }
  return {
    digest,
    name: isRetry === undefined
      ? undefined
      : { text: keys.tag("body", digest), kind: "body", isRetry },
  };
}
