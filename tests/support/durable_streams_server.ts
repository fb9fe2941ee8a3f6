/**
 * A durable-streams server in front of a gateway, for the protocol's own conformance tests. The
 * suite creates, appends and closes by HTTP. Each of its streams becomes a durable exchange whose
 * provider sends exactly these bytes. Reads are passed to the gateway unchanged, with one
 * exception: a read without an offset is sent with the offset `-1`, which means the same in the
 * protocol. The gateway's native answer to a read without an offset is the rest of the answer and
 * the bytes that follow.
 */
import assert from "node:assert/strict";
import type { IncomingMessage, ServerResponse } from "node:http";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { Buffer } from "node:buffer";
import { type DurableStage, type HeldExchange, startDurableStage } from "./held_exchange.ts";
import { until } from "./until.ts";

/** A server that listens. */
export interface DurableStreamsServer {
  readonly url: string;
  /** Errors that broke off an answer; its reader sees only the end of the connection. */
  readonly errors: readonly unknown[];
  close(): Promise<void>;
}

/** An address of the gateway without an exchange. */
const NOTHING = `/v1/exchanges/AAAAAA.${"A".repeat(22)}`;
/** Headers of an answer that belong to its connection. */
const HOP = new Set(["connection", "keep-alive", "transfer-encoding", "content-length", "date"]);

interface CreatedStream {
  readonly exchange: HeldExchange;
  readonly type: string;
  length: number;
}

async function readBody(request: IncomingMessage): Promise<Buffer> {
  const chunks: Uint8Array[] = [];
  for await (const chunk of request) chunks.push(chunk);
  return Buffer.concat(chunks);
}

/**
 * Appends to a stream, and waits until the gateway has stored it: the suite reads its own writes.
 */
async function append(
  stream: CreatedStream,
  bytes: Uint8Array,
  isLast: boolean,
): Promise<Response> {
  const { upstream, get } = stream.exchange;
  // A message of JSON can be read once its answer has ended.
  const isAwaited = isLast || !stream.type.includes("json");
  stream.length += bytes.length;
  if (isLast) upstream.end(bytes);
  else if (bytes.length > 0) upstream.write(bytes);
  const has: { head?: Response } = {};
  await until(async () => {
    const { headers, status } = has.head = await get("", {}, { method: "HEAD" });
    const isThere = parseInt(headers.get("stream-next-offset") ?? "0", 10) >= stream.length;
    return !isAwaited || status !== 200 || (isThere && (!isLast || headers.has("stream-closed")));
  }, "the gateway has what was appended");
  return has.head ?? assert.fail();
}

/** Forwards an answer of the gateway. */
async function pass(answer: Response, response: ServerResponse): Promise<void> {
  const headers = Object.fromEntries(Array.from(answer.headers).filter(([name]) => !HOP.has(name)));
  response.writeHead(answer.status, headers);
  if (answer.body === null) return void response.end();
  response.flushHeaders();
  for await (const chunk of answer.body) response.write(chunk);
  response.end();
}

async function write(
  stage: DurableStage,
  streams: Map<string, CreatedStream>,
  request: IncomingMessage,
) {
  const { method, url = "", headers } = request;
  const { pathname } = new URL(url, "http://server");
  const body = await readBody(request);
  const isLast = headers["stream-closed"] === "true";
  const known = streams.get(pathname);
  if (method === "POST") {
    if (known === undefined) return { status: 404, headers: {} };
    return {
      status: 204,
      headers: Object.fromEntries((await append(known, body, isLast)).headers),
    };
  }
  if (known !== undefined) return { status: 200, headers: {} };
  const type = headers["content-type"] ?? "application/octet-stream";
  const exchange = await stage.begin(type);
  void exchange.answer.arrayBuffer().catch(() => {});
  const stream = { exchange, type, length: 0 };
  streams.set(pathname, stream);
  const head = await append(stream, body, isLast);
  return { status: 201, headers: { ...Object.fromEntries(head.headers), location: pathname } };
}

/** Starts one, with a separate gateway. */
export async function startDurableStreamsServer(): Promise<DurableStreamsServer> {
  const stage = await startDurableStage({
    provider: { durable: { keep: "1m", linger: "1m", size: "16MB" } },
    config: { cors: { origins: ["*"] } },
  });
  const streams = new Map<string, CreatedStream>();
  const read = async (request: IncomingMessage, response: ServerResponse) => {
    const { method = "", url = "", headers } = request;
    const { pathname, searchParams, search } = new URL(url, "http://server");
    const { location } = streams.get(pathname)?.exchange ?? { location: NOTHING };
    const isCatchUp = method === "GET" && !searchParams.has("offset") && !searchParams.has("live");
    const query = isCatchUp ? `${search === "" ? "?" : `${search}&`}offset=-1` : search;
    // Without a timeout in the request the gateway waits longer than a test of the suite.
    const wait = searchParams.get("live") === "long-poll" ? "&timeout=2" : "";
    const leave = new AbortController();
    response.on("close", () => leave.abort());
    const sent = Object.entries(headers).filter(([name]) =>
      /^(?:if-none-match|origin|access-control-.*)$/.test(name)
    );
    const answer = await fetch(stage.under.a + location + query + wait, {
      method,
      headers: { ...stage.under.headers, ...Object.fromEntries(sent) as Record<string, string> },
      signal: leave.signal,
    });
    await pass(answer, response);
  };
  const errors: unknown[] = [];
  // The suite keeps its connections: a slow one must not be closed while its next request is sent.
  const server = createServer({ keepAliveTimeout: 60_000 }, async (request, response) => {
    try {
      if (request.method !== "PUT" && request.method !== "POST") {
        return await read(request, response);
      }
      const { status, headers } = await write(stage, streams, request);
      const own = Object.entries(headers).filter(([name]) => !HOP.has(name));
      response.writeHead(status, Object.fromEntries(own)).end();
    } catch (error) {
      if (!response.destroyed) errors.push(error);
      response.destroy();
    }
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    errors,
    async close() {
      for (const { exchange } of streams.values()) exchange.upstream.destroy();
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
      await stage.close();
    },
  };
}
