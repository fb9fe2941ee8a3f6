/** The two ends of a run: a tap next to the agent, and a stand-in provider. Both record. */
import { Buffer } from "node:buffer";
import { createServer, type IncomingMessage, request, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { zstdDecompressSync } from "node:zlib";
import {
  ANSWER_HEADERS,
  answerTo,
  type Interface,
  isPlainMessage,
  plainMessage,
} from "./answers.ts";

/** A call as one end saw it. Headers are pairs in the order and the spelling of the wire. */
export interface Seen {
  readonly method: string;
  readonly path: string;
  readonly headers: readonly string[];
  readonly body: Buffer;
  status?: number;
  answerHeaders?: readonly string[];
  answer?: Buffer;
  /** True if the answer's connection ended before the answer did. */
  isCut?: boolean;
}

/** A server that records its calls. */
export interface Recorder {
  readonly origin: string;
  readonly seen: readonly Seen[];
  close(): Promise<void>;
}

async function readAll(message: IncomingMessage): Promise<Buffer> {
  const parts: Buffer[] = [];
  for await (const part of message) parts.push(part as Buffer);
  return Buffer.concat(parts);
}

async function listen(server: Server, seen: readonly Seen[]): Promise<Recorder> {
  await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
  const { port } = server.address() as AddressInfo;
  return {
    origin: `http://127.0.0.1:${port}`,
    seen,
    close: () =>
      new Promise((done) => {
        server.close(() => done());
        server.closeAllConnections();
      }),
  };
}

async function arrive(message: IncomingMessage, seen: Seen[]): Promise<Seen> {
  const { method = "", url = "", rawHeaders } = message;
  const call: Seen = { method, path: url, headers: rawHeaders, body: await readAll(message) };
  seen.push(call);
  return call;
}

/** Unpacks the body of a call, if it is packed. */
function textOf({ headers, body }: Seen): Buffer {
  const at = headers.findIndex((name) => name.toLowerCase() === "content-encoding");
  return headers[at + 1] === "zstd" && at >= 0 ? zstdDecompressSync(body) : body;
}

/** How a stand-in answers. */
export interface StandInOptions {
  readonly interface: Interface;
  /** True to close the connection of each streamed answer after its second event. */
  readonly isCutting: boolean;
}

/** Starts a stand-in provider. */
export function startStandIn(options: StandInOptions): Promise<Recorder> {
  const seen: Seen[] = [];
  const server = createServer(async (incoming, response) => {
    const call = await arrive(incoming, seen);
    if (
      call.method !== "POST" || !/messages|responses|completions|GenerateContent/.test(call.path)
    ) {
      response.writeHead(404, { "content-type": "application/json" });
      response.end('{"error":{"type":"not_found_error","message":"Not here"}}');
      return;
    }
    const isPlain = isPlainMessage(options.interface, textOf(call));
    response.writeHead(200, [
      ...["content-type", isPlain ? "application/json" : "text/event-stream"],
      ...ANSWER_HEADERS[options.interface],
    ]);
    if (isPlain) {
      response.end(plainMessage());
      return;
    }
    const events = answerTo(options.interface, textOf(call));
    if (!options.isCutting) {
      response.end(events.join(""));
      return;
    }
    const beginning = events.slice(0, options.interface === "gemini" ? 1 : 2).join("");
    response.write(beginning, () => response.destroy());
  });
  return listen(server, seen);
}

/** Starts a tap, which passes calls to a target and back as they are, except for their Host. */
export function startTap(target: string): Promise<Recorder> {
  const seen: Seen[] = [];
  const { host } = new URL(target);
  const server = createServer(async (incoming, response) => {
    const call = await arrive(incoming, seen);
    const headers = call.headers.flatMap((each, at, all) => {
      if (at % 2 === 1) return [];
      return [each, each.toLowerCase() === "host" ? host : all[at + 1] ?? ""];
    });
    const options = { method: call.method, headers, agent: false as const };
    const onward = request(new URL(call.path, target), options, (answer) => {
      const parts: Buffer[] = [];
      call.status = answer.statusCode ?? 0;
      call.answerHeaders = answer.rawHeaders;
      response.writeHead(call.status, answer.rawHeaders);
      answer.on("data", (part: Buffer) => {
        parts.push(part);
        response.write(part);
      });
      answer.on("close", () => {
        call.answer = Buffer.concat(parts);
        call.isCut = !answer.complete;
        if (answer.complete) response.end();
        else response.destroy();
      });
      answer.on("error", () => {}); // `close` follows
    });
    onward.on("error", () => response.destroy());
    response.on("close", () => onward.destroy());
    onward.end(call.body);
  });
  return listen(server, seen);
}
