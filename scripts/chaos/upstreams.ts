/**
 * Stand-in providers: a healthy one, one whose streams fall silent, and one with many behaviours.
 * Each counts its open calls.
 */
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { chunk, COMPLETION, stream } from "../../tests/support/provider.ts";
import { createRandom } from "./random.ts";

/** The behaviours of the chaotic provider; the caller names one as the model. */
export const MOODS = [
  "good",
  "hang",
  "reset_early",
  "reset_mid",
  "truncate",
  "stall",
  "comments",
  "endless",
  "rate_limit",
  "html_500",
  "garbled",
  "drip",
  "huge",
] as const;
/** A behaviour of the chaotic provider. */
export type Mood = typeof MOODS[number];

/** Behaviours after which a caller can have received a complete answer. */
export const COMPLETE_MOODS: ReadonlySet<string> = new Set<Mood>(["good", "drip", "huge"]);

/** A stand-in provider that listens. */
export interface Upstream {
  /** Base URL, with `/v1`. */
  readonly url: string;
  /** Returns the number of open calls. */
  open(): number;
  /** Returns the number of calls so far. */
  calls(): number;
  closeIdle(): void;
  close(): Promise<void>;
}

const PIECE = 64 * 1024;
const HUGE_PIECES = 64;
/** Milliseconds between the events of a slow answer. */
const DRIP_MS = 300;
const ENDLESS_MS = 200;
const WORDS = ["One", " two", " three", " four"];

async function readBody(request: IncomingMessage): Promise<string> {
  let text = "";
  request.setEncoding("utf8");
  for await (const part of request) text += part;
  return text;
}

type Act = (response: ServerResponse, call: { isStream: boolean; mood: string }) => unknown;

async function listen(act: Act, port = 0) {
  const open = new Set<ServerResponse>();
  let calls = 0;
  const server = createServer(async (request, response) => {
    calls++;
    open.add(response);
    response.on("close", () => open.delete(response));
    response.on("error", () => {});
    try {
      const { model = "", stream: isStream = false } = JSON.parse(await readBody(request));
      await act(response, { isStream, mood: model });
    } catch {
      response.destroy();
    }
  });
  const start = (at: number) =>
    new Promise<void>((resolve, reject) => {
      server.once("error", reject);
      server.listen(at, "127.0.0.1", 4096, () => {
        server.removeListener("error", reject);
        resolve();
      });
    });
  await start(port);
  const bound = (server.address() as AddressInfo).port;
  const upstream: Upstream = {
    url: `http://127.0.0.1:${bound}/v1`,
    open: () => open.size,
    calls: () => calls,
    closeIdle: () => server.closeIdleConnections(),
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
  return { server, upstream, restart: () => start(bound) };
}

const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));
const beginEvents = (response: ServerResponse) =>
  response.writeHead(200, { "content-type": "text/event-stream" });

function answerWell(response: ServerResponse, isStream: boolean): void {
  if (isStream) return void beginEvents(response).end(stream(...WORDS));
  response.writeHead(200, { "content-type": "application/json" }).end(COMPLETION);
}

/** Answers every call correctly and at once. */
export async function startHealthy(): Promise<Upstream> {
  return (await listen((response, { isStream }) => answerWell(response, isStream))).upstream;
}

/** Answers with one event and then sends nothing. */
export async function startQuiet(): Promise<Upstream> {
  return (await listen((response) => void beginEvents(response).write(chunk("One")))).upstream;
}

/** Sends the first part of an answer, and never the second. */
function answerPartly(response: ServerResponse, isStream: boolean): void {
  if (isStream) {
    beginEvents(response).write(chunk("One") + chunk(" two"));
  } else {
    response.writeHead(200, {
      "content-type": "application/json",
      "content-length": COMPLETION.length,
    });
    response.write(COMPLETION.slice(0, 40));
  }
}

/** Sends a piece at intervals, until the call is over or the count is reached. */
async function drip(
  response: ServerResponse,
  text: string,
  ms: number,
  count: number,
): Promise<void> {
  for (let index = 0; index < count && !response.destroyed; index++) {
    response.write(text);
    await pause(ms);
  }
}

async function answerHugely(response: ServerResponse, isStream: boolean): Promise<void> {
  const filler = "x".repeat(PIECE);
  let wake = (): void => {};
  response.on("drain", () => wake());
  response.on("close", () => wake());
  const [head = "", tail = ""] = COMPLETION.split("Hello");
  if (isStream) beginEvents(response);
  else response.writeHead(200, { "content-type": "application/json" }).write(head);
  for (let index = 0; index < HUGE_PIECES && !response.destroyed; index++) {
    if (response.write(isStream ? chunk(filler) : filler)) continue;
    await new Promise<void>((resolve) => wake = resolve);
  }
  response.end(isStream ? stream("end") : tail);
}

const ACTS: Readonly<Record<Mood, (response: ServerResponse, isStream: boolean) => unknown>> = {
  good: answerWell,
  hang() {},
  reset_early: (response) => response.socket?.resetAndDestroy(),
  async reset_mid(response, isStream) {
    answerPartly(response, isStream);
    await pause(20);
    response.socket?.resetAndDestroy();
  },
  async truncate(response, isStream) {
    answerPartly(response, isStream);
    if (isStream) return response.end();
    await pause(20);
    response.socket?.end();
  },
  stall: answerPartly,
  async comments(response, isStream) {
    answerPartly(response, isStream);
    if (isStream) await drip(response, ": thinking\n\n", ENDLESS_MS, 100);
  },
  async endless(response, isStream) {
    if (isStream) beginEvents(response);
    else response.writeHead(200, { "content-type": "application/json" });
    await drip(response, isStream ? chunk("more") : " ", ENDLESS_MS, 100);
  },
  rate_limit: (response) =>
    response.writeHead(429, { "content-type": "application/json", "retry-after": "1" })
      .end('{"error":{"message":"slow down","type":"rate_limit","param":null,"code":null}}'),
  html_500: (response) =>
    response.writeHead(500, { "content-type": "text/html" }).end("<h1>Oh no</h1>"),
  garbled: (response) => response.socket?.end("HELLO 200 no such thing\r\n\r\n"),
  async drip(response, isStream) {
    if (!isStream) return answerWell(response, isStream);
    beginEvents(response);
    await drip(response, chunk("slow"), DRIP_MS, 6);
    response.end(stream("end"));
  },
  huge: answerHugely,
};

/** A chaotic provider, with a function that makes its port refuse connections. */
export interface Chaotic extends Upstream {
  /** Stops listening for some milliseconds; open calls continue. */
  leave(ms: number): Promise<void>;
}

/** Starts a provider that behaves as the model of each call says. */
export async function startChaotic(seed: number): Promise<Chaotic> {
  const random = createRandom(seed);
  const { server, upstream, restart } = await listen(async (response, { isStream, mood }) => {
    if (random.chance(0.2)) await pause(random.below(50));
    const act = Object.hasOwn(ACTS, mood) ? ACTS[mood as Mood] : ACTS.good;
    return act(response, isStream);
  });
  return {
    ...upstream,
    async leave(ms) {
      server.close();
      server.closeIdleConnections();
      await pause(ms);
      // Another connection can have received the port in the meantime.
      for (let attempt = 0; attempt < 50; attempt++) {
        try {
          return await restart();
        } catch {
          await pause(100);
        }
      }
    },
  };
}
