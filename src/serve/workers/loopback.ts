/**
 * A call to a listener of this program's own, for a supervisor, which has workers and no gateway: what the playground
 * sends reaches one of them as any caller's request does.
 *
 * @module
 */
import { type IncomingMessage, request as requestHttp } from "node:http";
import { request as requestHttps } from "node:https";
import { PLAYGROUND_HEADERS } from "../../admin/api/operation.ts";
import { AdminError } from "../../admin/api/answers.ts";
import type { ByteSource } from "../../http/byte_source.ts";
import type { GatewayRequest, GatewayResponse } from "../../http/message.ts";
import { fromIncomingMessage } from "../incoming_body.ts";

/** What says how the connection is used, which is not the answer's. */
const CONNECTION_HEADERS = ["connection", "keep-alive", "transfer-encoding"];

/** The address of a listener as it is reached from the same machine. */
function toLoopback(url: string): URL {
  const target = new URL(url);
  if (target.hostname === "0.0.0.0") target.hostname = "127.0.0.1";
  if (target.hostname === "[::]") target.hostname = "[::1]";
  return target;
}

function toAnswer(response: IncomingMessage, body: ByteSource): GatewayResponse {
  const headers = Object.entries(response.headers).filter(([name]) => !CONNECTION_HEADERS.includes(name));
  return {
    status: response.statusCode ?? 502,
    headers: Object.fromEntries(headers.map(([name, value]) => [name, [value].flat().join(", ")])),
    body,
  };
}

/**
 * Makes the call.
 *
 * @param url Where the listener is, such as `https://0.0.0.0:8787`; its certificate is not looked at, for it is ours
 * @param request What to send: its body whole, and of its headers those of the playground
 * @returns The answer as it comes
 * @throws {AdminError} When nobody answers there
 */
export async function callListener(url: string, request: GatewayRequest): Promise<GatewayResponse> {
  const target = toLoopback(url);
  const { method, url: path } = request;
  const headers = Object.fromEntries(
    PLAYGROUND_HEADERS.flatMap((name) => {
      const value = request.headers.get(name);
      return value === null ? [] : [[name, value]];
    }),
  );
  const body = await request.body?.read();
  const send = target.protocol === "https:" ? requestHttps : requestHttp;
  return await new Promise<GatewayResponse>((resolve, reject) => {
    const call = send(new URL(path, target), {
      method,
      headers: { ...headers, connection: "close" },
      agent: false,
      rejectUnauthorized: false,
    }, (response) => {
      const source = fromIncomingMessage(response);
      const cancel = () => {
        source.cancel();
        call.destroy();
      };
      resolve(toAnswer(response, { read: () => source.read(), cancel }));
    });
    request.signal?.addEventListener("abort", () => call.destroy());
    call.on("error", () => reject(new AdminError(502, "unreachable", "Cannot reach the gateway: no worker answered")));
    call.end(body);
  });
}
