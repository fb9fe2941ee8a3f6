/**
 * Recorded answers for callers that attach to them: by a retry, or by the address that the call's answer stated.
 *
 * @module
 */
import { type KeyConfig, TOKEN_ID_PREFIX } from "../config/key.ts";
import type { Attachment, DurableExchanges } from "../durable/durable_exchanges.ts";
import { type Owner, OwnerKeys } from "../durable/recording_keys.ts";
import { GatewayError } from "../errors/gateway_error.ts";
import { type Exchange, toSettlement } from "../exchange/exchange.ts";
import type { OpenExchanges } from "../exchange/open_exchanges.ts";
import type { GatewayRequest, GatewayResponse } from "../http/message.ts";
import { type ResolvedOperation, toQuery } from "../operations/router.ts";

/** The request, its exchange and the parts of its gateway. */
export interface DurableFlow {
  readonly request: GatewayRequest;
  readonly exchange: Exchange;
  readonly gateway: {
    readonly durable: DurableExchanges | undefined;
    readonly open: OpenExchanges;
    readonly limits: { readonly writeStallMs: number };
  };
  readonly credentials: Readonly<Record<string, string>>;
}

/** The caller of a recording. */
export interface Caller {
  readonly provider: { readonly name: string };
  readonly key: KeyConfig;
  /** The gateway key in plain text. */
  readonly presentedKey: string;
}

/**
 * Answers a request for the answer of a recorded call: attaches to it, or stops it.
 *
 * @param caller The caller
 * @param operation The operation, whose path has the id
 * @param flow The request
 * @throws {GatewayError} `exchange_not_found`, `exchange_expired`, `invalid_offset`, `recordings_unavailable`
 */
export async function answerRecorded(
  caller: Caller,
  { path, method }: ResolvedOperation,
  flow: DurableFlow,
): Promise<GatewayResponse> {
  const { request: { url, method: sent }, exchange, gateway: { durable, limits: { writeStallMs } } } = flow;
  if (durable === undefined) throw new GatewayError("not_found");
  const keys = new OwnerKeys(toOwner(caller, flow));
  const id = path.slice(path.lastIndexOf("/") + 1);
  if (method === "DELETE") {
    await durable.stop(id, keys);
    exchange.status = 204;
    exchange.settle({ outcome: "ok" });
    return { status: 204, headers: exchange.addHeaders({}), body: null };
  }
  const offset = readOffset(toQuery(url));
  const attachment = await durable.attach(id, { keys, offset, signal: exchange.signal, writeStallMs });
  const answer = attachTo(attachment, exchange);
  if (sent !== "HEAD") return answer;
  attachment.reader.cancel();
  return { ...answer, body: null };
}

/** Makes the answer for a caller that attaches. Its exchange counts no tokens: that of the call does. */
export function attachTo(
  { id, head: { status, headers }, reader, expiresAt }: Attachment,
  exchange: Exchange,
  own: Readonly<Record<string, string>> = {},
): GatewayResponse {
  exchange.facts.operation = "exchange.attach";
  exchange.facts.isMetered = false;
  delete exchange.facts.genAi;
  exchange.status = status;
  exchange.leave = () => reader.cancel();
  exchange.onAbort(() => reader.fail(exchange.reason, toSettlement(exchange.reason)));
  reader.onOver = ({ outcome, code }) => {
    exchange.bytesOut = reader.bytesOut;
    exchange.settle({ outcome, ...(code && { code }) });
  };
  return { status, headers: exchange.addHeaders({ ...headers, ...own, ...addressOf(id, expiresAt) }), body: reader };
}

/** Returns the headers that say where an answer can be read again, and until when at least. */
export function addressOf(id: string, expiresAt: number): Record<string, string> {
  return { "location": `/v1/exchanges/${id}`, "exchange-expires": new Date(expiresAt).toUTCString() };
}

/** Returns the owner of a caller's recordings. */
export function toOwner({ provider, key, presentedKey }: Caller, { credentials }: DurableFlow): Owner {
  const gatewayKey = key.id.startsWith(TOKEN_ID_PREFIX) ? key.id : presentedKey;
  return { gatewayKey, credentials, provider: provider.name };
}

/** Reads the offset of a query; 0 if it has none. @throws {GatewayError} `invalid_offset` */
function readOffset(query: string): number {
  const text = new URLSearchParams(query).get("offset") ?? "0";
  if (!/^\d{1,15}$/.test(text)) throw new GatewayError("invalid_offset");
  return Number(text);
}
