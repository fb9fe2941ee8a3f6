/**
 * Calls from the supervisor to a listener of its workers. A supervisor has no gateway itself, so
 * requests of the playground reach a worker like any caller's.
 *
 * @module
 */
import { type IncomingMessage, request as requestHttp } from "node:http";
import { request as requestHttps } from "node:https";
import { PLAYGROUND_HEADERS } from "../../../admin/api/operator_actions.ts";
import { GatewayError } from "../../../errors/gateway_error.ts";
import {
  type GatewayRequest,
  type GatewayResponse,
  type PushedBody,
  whenGone,
} from "../../../http/message.ts";
import { readAll } from "../../../http/read_all.ts";
import { IncomingBody } from "../../incoming_body.ts";

/** Headers of the connection. They are not part of the answer. */
const CONNECTION_HEADERS = ["connection", "keep-alive", "transfer-encoding"];

/** Returns an address of the listener on the same machine. */
function toLoopback(url: string): URL {
  const target = new URL(url);
  if (target.hostname === "0.0.0.0") target.hostname = "127.0.0.1";
  if (target.hostname === "[::]") target.hostname = "[::1]";
  return target;
}

function toAnswer(response: IncomingMessage, body: PushedBody): GatewayResponse {
  const headers = Object.entries(response.headers).filter(([name]) =>
    !CONNECTION_HEADERS.includes(name)
  );
  return {
    status: response.statusCode ?? 502,
    headers: Object.fromEntries(headers.map(([name, value]) => [name, [value].flat().join(", ")])),
    body,
  };
}

/**
 * Sends a request to a listener of this program.
 *
 * @param url The listener's address, such as `https://0.0.0.0:8787`. Its certificate is not
 * verified, because it is our own
 * @param request The request. Its whole body is sent, but only those of its headers that the
 * playground allows
 * @throws {GatewayError} If no worker answers
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
  const body = request.body === null ? undefined : await readAll(request.body);
  const send = target.protocol === "https:" ? requestHttps : requestHttp;
  return await new Promise<GatewayResponse>((resolve, reject) => {
    const call = send(new URL(path, target), {
      method,
      headers: { ...headers, connection: "close" },
      agent: false,
      rejectUnauthorized: false,
    }, (response) => {
      const source = new IncomingBody(response);
      const cancel = () => {
        source.cancel();
        call.destroy();
      };
      resolve(toAnswer(response, { pushTo: (sink) => source.pushTo(sink), cancel }));
    });
    whenGone(request, () => call.destroy());
    call.on("error", () => reject(new GatewayError("unreachable")));
    call.end(body);
  });
}
