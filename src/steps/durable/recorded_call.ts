/**
 * Durable exchanges in the flow of a request: a recorded call runs independently of its caller,
 * which reads the recording like callers that attach later.
 *
 * @module
 */
import type { Begun, NewRecording } from "../../durable/durable_exchanges.ts";
import type { RecordedExchange, Recording } from "../../durable/recording.ts";
import type { OwnerKeys } from "../../durable/recording_keys.ts";
import { type RecordingName, toBase64Url } from "../../durable/recording_store.ts";
import { GatewayError } from "../../errors/gateway_error.ts";
import { type Exchange, toExchangeEnd } from "../../exchange/exchange.ts";
import type { ExchangeRecord } from "../../exchange/record.ts";
import {
  type AnyBody,
  type GatewayResponse,
  isSuccess,
  isWhole,
  push,
} from "../../http/message.ts";
import { withoutBoundary } from "../../inbound/multipart.ts";
import { toQuery } from "../../operations/router.ts";
import { undoAdmission } from "../admission.ts";
import { bytesOf, type Call } from "../call.ts";
import type { Flow, WantedRecording } from "../flow.ts";
import { addressOf, answerAttached } from "./attached_answer.ts";
import { nameOfKey, ownerKeysOf } from "./wanted_recording.ts";

/** Makes a call: the rest of the steps. */
type RunCall = (call: Call, flow: Flow) => Promise<GatewayResponse>;

/**
 * Answers a recorded call: makes it, unless an earlier call has the same name.
 *
 * @param runCall Makes the call, for a request whose caller cannot leave
 * @returns The provider's answer, from its first byte
 * @throws {GatewayError} As `runCall` does, and `idempotency_key_reused`, `recordings_unavailable`
 */
export async function runRecordedCall(
  wanted: WantedRecording,
  call: Call,
  flow: Flow,
  runCall: RunCall,
): Promise<GatewayResponse> {
  const begun = await beginRecording(wanted, call, flow);
  if (begun === undefined) return runCall(call, flow);
  if ("recording" in begun) {
    return recordNewCall(begun, wanted, call, detachFlow(flow), runCall);
  }
  const { attachment } = begun;
  const own: Readonly<Record<string, string>> = attachment.isComplete
    ? { "idempotency-replayed": "true" }
    : {};
  return answerAttached(attachment, flow, own);
}

/**
 * Begins the recording of a call, unless an earlier call has the same name.
 *
 * @returns `undefined` for a call that is made without a recording: none is possible, and the
 * caller did not ask for one
 */
async function beginRecording(
  wanted: WantedRecording,
  call: Call,
  flow: Flow,
): Promise<Begun | undefined> {
  const { exchange, gateway: { durable, limits }, provider, operation, key } = flow;
  if (durable === undefined) {
    if (wanted.isNeeded) throw new GatewayError("recordings_unavailable");
    return undefined;
  }
  const keys = ownerKeysOf(flow);
  const { digest, name } = await nameCall(keys, wanted, call, flow);
  const asked = {
    keys,
    name,
    digest,
    settings: wanted.settings,
    writeStallMs: limits.writeStallMs,
    facts: {
      provider: provider.name,
      keyId: key.id,
      operation: operation.name,
      startedAt: exchange.startedAt,
    },
    onFound: () => undoAdmission(flow),
  };
  try {
    return await durable.begin(asked, exchange.signal);
  } catch (error) {
    const isUnavailable = GatewayError.is(error) && error.code === "recordings_unavailable";
    if (wanted.isNeeded || !isUnavailable) throw error;
    return undefined;
  }
}

/**
 * Makes a call and records its answer if the status is 2xx. After any other status, the name is
 * free.
 */
async function recordNewCall(
  begun: NewRecording,
  wanted: WantedRecording,
  call: Call,
  flow: Flow,
  runCall: RunCall,
): Promise<GatewayResponse> {
  const { recording } = begun;
  const { exchange, gateway } = flow;
  const reader = recording.attach(0);
  reader.onOver(gateway.openExchanges.keepOpen(exchange, (reason) => reader.fail(reason)));
  const running = new RunningCall(exchange);
  exchange.reader = reader;
  recording.exchange = running;
  /** Frees the name, because there is no answer to record. */
  const discard = () => {
    recording.discard();
    reader.cancel();
  };
  try {
    const answer = await runCall(call, flow);
    if (!isSuccess(answer.status)) {
      exchange.reader = undefined;
      discard();
      return answer;
    }
    const expiresAt = exchange.startedAt + wanted.settings.keepMs;
    beginAnswer(answer, begun, { answers: call.facts.answers, expiresAt }, flow);
    const { status, headers, body } = answer;
    if (!isWhole(body)) {
      running.relay(body, recording);
      return { status, headers, body: reader };
    }
    if (body !== null) {
      recording.write(typeof body === "string" ? new TextEncoder().encode(body) : body);
    }
    recording.end();
    reader.cancel();
    return answer;
  } catch (error) {
    discard();
    throw error;
  }
}

/** Records the head of an answer, and adds the address of the recording to its headers. */
function beginAnswer(
  { status, headers }: GatewayResponse,
  { recording, isRestarted }: NewRecording,
  { answers, expiresAt }: { readonly answers: number; readonly expiresAt: number },
  { request, exchange }: Flow,
): void {
  const own = ["x-request-id", "server-timing", ...Object.keys(exchange.ownHeaders)];
  const kept = Object.entries(headers).filter(([name]) => !own.includes(name));
  recording.begin({ status, headers: Object.fromEntries(kept), ...(answers > 1 && { answers }) });
  Object.assign(headers, addressOf(recording.id, expiresAt, request));
  if (isRestarted) headers["idempotency-restarted"] = "true";
}

/** The exchange of a running call, as its recording uses it. */
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
    const { caller, isSettled } = this.#exchange;
    const settlesLater = caller.name !== "bound" && !isSettled;
    if (settlesLater) this.#settled = toExchangeEnd(reason);
    this.#exchange.endCallerPart(reason);
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

/** Returns the flow without the connection of its caller, who can leave without ending the call. */
function detachFlow(flow: Flow): Flow {
  const { method, url, headers } = flow.request;
  return { ...flow, request: { method, url, headers, body: null } };
}

/**
 * Names a call by its idempotency key, or by its body if retries of client libraries attach, or not
 * at all.
 */
async function nameCall(
  keys: OwnerKeys,
  { idempotencyKey, isRetry }: WantedRecording,
  { body, contentType }: Call,
  { request, operation }: Flow,
): Promise<{ readonly digest: string; readonly name: RecordingName | undefined }> {
  const { url } = request;
  const bytes = withoutBoundary(bytesOf(body), contentType);
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
