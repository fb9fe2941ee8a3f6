/**
 * Durable exchanges in the flow of a request: a call that is recorded runs on its own, and its
 * caller reads the recording like those that attach to it later.
 *
 * @module
 */
import type { DurableConfig } from "../../config/durable.ts";
import type { NewRecording } from "../../durable/durable_exchanges.ts";
import { OwnerKeys } from "../../durable/recording_keys.ts";
import { type RecordingName, toBase64Url } from "../../durable/recording_store.ts";
import { GatewayError } from "../../errors/gateway_error.ts";
import { toSettlement } from "../../exchange/exchange.ts";
import type { ExchangeRecord } from "../../exchange/record.ts";
import {
  type AnyBody,
  type GatewayRequest,
  type GatewayResponse,
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
  /** Key by which a retry finds its answer; `undefined` where the caller sent none. */
  readonly idempotencyKey: string | undefined;
  /** True if a client library sends the request again; `undefined` if that does not matter. */
  readonly isRetry: boolean | undefined;
}

/** A call that is recorded. */
interface RecordedCall extends Caller {
  readonly operation: ResolvedOperation;
  readonly body: RequestBody | null;
  readonly facts: Pick<RequestFacts, "choices">;
}

/**
 * Header by which a caller asks for a recording without an idempotency key: a boolean of RFC 9651
 * §3.3.6.
 */
const ASKING_HEADER = "sallyport-durable";
/**
 * Number of a retry, as the client libraries of OpenAI and others send it; 0 for the first attempt.
 */
const RETRY_COUNT = "x-stainless-retry-count";
const IDEMPOTENCY_KEY = /^(?:"([\x20\x21\x23-\x5b\x5d-\x7e]{1,256})"|([\x21\x23-\x7e]{1,256}))$/;

/**
 * Reads whether a request asks to be recorded.
 *
 * @param request The request
 * @param operation Its operation: only calls that cost tokens are recorded
 * @param settings Settings of its provider
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
  if (idempotencyKey === undefined && retries === null && headers.get(ASKING_HEADER) !== "?1") {
    return undefined;
  }
  return { settings, idempotencyKey, isRetry: retries === null ? undefined : Number(retries) > 0 };
}

/**
 * Admits a call that is to be recorded, before its body is read. Where a limit is reached, a retry
 * of a recorded call goes on: it gets that call's answer, and takes nothing.
 *
 * @param asked The wish to be recorded
 * @param caller The caller and the operation
 * @param admission The admission
 * @param flow The request
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
 * @param asked The wish to be recorded
 * @param call The call
 * @param steps Its admission, which is given back if an earlier call has its name, and the steps
 * that make it
 * @param flow The request
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
  // A first attempt or a retry of a client library asks for no recording in so many words: it may
  // go unrecorded.
  const isNeeded = asked.idempotencyKey !== undefined ||
    request.headers.get(ASKING_HEADER) === "?1";
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
    if (isNeeded || !GatewayError.is(error) || error.code !== "recordings_unavailable") throw error;
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
  { recording, isRestarted }: NewRecording,
  { keepMs, answers }: Pick<DurableConfig, "keepMs"> & { readonly answers: number },
  flow: Flow,
  carry: (flow: Flow) => Promise<GatewayResponse>,
): Promise<GatewayResponse> {
  const { exchange, gateway: { open } } = flow;
  const reader = recording.attach(0);
  reader.onOver(open.hold(exchange, (reason) => reader.fail(reason)));
  let settled: Pick<ExchangeRecord, "outcome" | "code"> = { outcome: "failed" };
  exchange.onSettled(({ outcome, code }) => settled = { outcome, ...(code && { code }) });
  exchange.reader = reader;
  const stop = () => {
    const reason = new GatewayError("exchange_stopped");
    if (exchange.goesOn && !exchange.isSettled) settled = toSettlement(reason); // it settles after its recording
    exchange.leave(reason);
  };
  let relayed: AnyBody | undefined;
  let askForMore = (): void => {};
  recording.exchange = {
    stop,
    outcome: () => settled,
    askForMore: () => askForMore(),
    announce: () => relayed !== undefined && "announce" in relayed && relayed.announce?.(),
  };
  try {
    const answer = await carry(flow);
    const { status, headers, body } = answer;
    if (status < 200 || status > 299) {
      exchange.reader = undefined;
      giveBack();
      return answer;
    }
    const own = ["x-request-id", "server-timing", ...Object.keys(exchange.headers)];
    const kept = Object.entries(headers).filter(([name]) => !own.includes(name));
    recording.begin({ status, headers: Object.fromEntries(kept), ...(answers > 1 && { answers }) });
    Object.assign(headers, addressOf(recording.id, exchange.startedAt + keepMs, flow.request));
    if (isRestarted) headers["idempotency-restarted"] = "true";
    if (isWhole(body)) {
      if (body !== null) {
        recording.write(typeof body === "string" ? new TextEncoder().encode(body) : body);
      }
      recording.end();
      reader.cancel();
      return answer;
    }
    relayed = body;
    askForMore = push(body, recording);
    return { status, headers, body: reader };
  } catch (error) {
    giveBack();
    throw error;
  }

  /** Frees the name: there is no answer to record. */
  function giveBack(): void {
    recording.discard();
    reader.cancel();
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
