/**
 * Callers of many kinds: the `openai` client library, and raw sockets that misbehave as no library
 * would.
 */
import { Buffer } from "node:buffer";
import { connect, type Socket } from "node:net";
import OpenAI from "openai";
import { GOOD_BODY, UPSTREAM_KEY } from "../../tests/support/gateway.ts";
import { toRawRequest } from "../../tests/support/tcp_peer.ts";
import type { Random } from "./random.ts";
import { COMPLETE_MOODS, type Mood, MOODS } from "./upstreams.ts";

/** Milliseconds after which a raw caller leaves in any case. */
const PATIENCE_MS = 8_000;
/** Wrong keys sent on one connection, one after another. */
const FLOOD = 40;

const pause = (ms: number) => new Promise<void>((resolve) => setTimeout(resolve, ms));

/** State that the callers share. */
export interface Scene {
  /** Addresses of the two hosts, without `/v1`. */
  readonly a: string;
  readonly b: string;
  readonly key: string;
  /** True while callers should continue. */
  isOn: boolean;
  /** Records the outcome of a call. */
  note(row: string, outcome: string): void;
  /** Records a broken guarantee. */
  violate(what: string): void;
  /** Request ids that callers saw. */
  readonly ids: Set<string>;
}

function toClient(scene: Scene, url: string): OpenAI {
  return new OpenAI({
    baseURL: `${url}/v1`,
    apiKey: UPSTREAM_KEY,
    maxRetries: 0,
    timeout: 30_000,
    defaultHeaders: { "Gateway-Auth": `Bearer ${scene.key}` },
  });
}

const messages = [{ role: "user" as const, content: "Hi" }];

/** Makes a plain call. True if its answer is complete. */
async function callPlain(
  client: OpenAI,
  scene: Scene,
  model: string,
  signal: AbortSignal,
): Promise<boolean> {
  const call = client.chat.completions.create({ model, messages }, { signal });
  const { data, request_id: id } = await call.withResponse();
  if (id !== null) scene.ids.add(id);
  return data.choices?.[0]?.finish_reason === "stop";
}

/**
 * Makes a streamed call. True if the stream reported its completion. The library only requires a
 * clean end.
 */
async function callStream(
  client: OpenAI,
  scene: Scene,
  model: string,
  signal: AbortSignal,
): Promise<boolean> {
  const call = client.chat.completions.create({ model, messages, stream: true }, { signal });
  const { data, request_id: id } = await call.withResponse();
  if (id !== null) scene.ids.add(id);
  let isComplete = false;
  for await (const { choices } of data) {
    if (choices[0]?.finish_reason === "stop") isComplete = true;
  }
  return isComplete;
}

function describeError(error: unknown): string {
  if (error instanceof OpenAI.APIUserAbortError) return "left";
  if (error instanceof OpenAI.APIConnectionError) return "connection broke";
  if (error instanceof OpenAI.APIError) return error.code ?? `status ${error.status}`;
  // The error of Node's fetch for an answer that broke off after its header.
  return error instanceof TypeError || error instanceof SyntaxError
    ? "answer broke off"
    : String(error);
}

async function callLibrary(
  scene: Scene,
  client: OpenAI,
  { row, model, isStream, leaveMs }: {
    row: string;
    model: string;
    isStream: boolean;
    leaveMs?: number;
  },
): Promise<string> {
  const controller = new AbortController();
  const timer = leaveMs === undefined ? undefined : setTimeout(() => controller.abort(), leaveMs);
  let outcome: string;
  try {
    const isComplete = await (isStream ? callStream : callPlain)(
      client,
      scene,
      model,
      controller.signal,
    );
    // The library ends an aborted stream without an error.
    outcome = isComplete ? "complete" : controller.signal.aborted ? "left" : "incomplete";
  } catch (error) {
    outcome = controller.signal.aborted ? "left" : describeError(error);
  }
  clearTimeout(timer);
  scene.note(row, outcome);
  if (outcome === "incomplete") scene.violate(`${row}: an incomplete answer ended cleanly`);
  if (outcome === "complete" && !COMPLETE_MOODS.has(model)) {
    scene.violate(`${row}: it looked complete`);
  }
  return outcome;
}

const kindOf = (isStream: boolean) => isStream ? "stream" : "plain";

/** Calls the healthy provider all the time, and must never get an error. */
export async function callSteadily(scene: Scene, random: Random): Promise<void> {
  const client = toClient(scene, scene.a);
  while (scene.isOn) {
    const isStream = random.chance(0.5);
    const row = `a steady ${kindOf(isStream)}`;
    const outcome = await callLibrary(scene, client, { row, model: "good", isStream });
    if (outcome !== "complete") scene.violate(`the healthy provider's caller saw: ${outcome}`);
    await pause(5 + random.below(20));
  }
}

/** Calls the chaotic provider, and sometimes leaves. */
export async function callChaotically(scene: Scene, random: Random): Promise<void> {
  const client = toClient(scene, scene.b);
  while (scene.isOn) {
    const model: Mood = random.chance(0.4) ? "good" : random.pick(MOODS);
    const isStream = random.chance(0.6);
    const leaves = random.chance(0.2);
    const row = `b ${model} ${kindOf(isStream)}`;
    await callLibrary(scene, client, {
      row,
      model,
      isStream,
      ...(leaves && { leaveMs: random.below(1500) }),
    });
    await pause(random.below(100));
  }
}

interface RawCaller {
  readonly socket: Socket;
  received(): string;
  readonly closed: Promise<void>;
}

function openSocket(url: string, text: string): RawCaller {
  const { hostname, port } = new URL(url);
  const chunks: Buffer[] = [];
  const socket = connect(
    { host: hostname, port: Number(port) },
    () => socket.write(text, "latin1"),
  );
  socket.on("data", (data: Buffer) => chunks.push(data));
  socket.on("error", () => {});
  const timer = setTimeout(() => socket.destroy(), PATIENCE_MS);
  const closed = new Promise<void>((resolve) =>
    socket.once("close", () => {
      clearTimeout(timer);
      resolve();
    })
  );
  return { socket, received: () => Buffer.concat(chunks).toString("latin1"), closed };
}

/** Disconnects, normally (FIN) or like a crashed machine (RST). */
function leave(socket: Socket, random: Random): void {
  if (random.chance(0.5) && !socket.connecting) socket.resetAndDestroy();
  else socket.destroy();
}

interface RawCall {
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
}

type Act = (scene: Scene, random: Random, call: RawCall) => Promise<string>;

async function leaveEarly(
  _scene: Scene,
  random: Random,
  { url, ...call }: RawCall,
): Promise<string> {
  const { socket } = openSocket(url, toRawRequest(url, call));
  await pause(random.below(60));
  leave(socket, random);
  return "left";
}

async function leaveInAnswer(
  _scene: Scene,
  random: Random,
  { url, ...call }: RawCall,
): Promise<string> {
  const { socket, closed } = openSocket(url, toRawRequest(url, call));
  socket.once("data", () => setTimeout(() => leave(socket, random), random.below(100)));
  await closed;
  return "left";
}

/** Reads nothing for a while, then everything. Judges the answer as a client library would. */
async function stallReading(
  scene: Scene,
  random: Random,
  { url, ...call }: RawCall,
): Promise<string> {
  const { socket, closed, received } = openSocket(url, toRawRequest(url, call));
  socket.once("data", () => {
    socket.pause();
    setTimeout(() => socket.resume(), 200 + random.below(2800));
  });
  await closed;
  const text = received();
  const id = /^x-request-id: (\S+)\r$/mi.exec(text)?.[1];
  if (id !== undefined) scene.ids.add(id);
  const isStream = /^content-type: text\/event-stream/mi.test(text);
  if (!isStream) return "answered or cut";
  if (text.includes("data: [DONE]")) return "complete";
  if (text.includes('data: {"error":')) return "error event";
  // Only the terminating chunk ends a body cleanly.
  if (text.endsWith("\r\n0\r\n\r\n")) {
    scene.violate("a raw caller saw an incomplete stream end cleanly");
  }
  return "connection broke";
}

/** Announces a longer body than it sends. */
async function sendHalf(
  _scene: Scene,
  random: Random,
  { url, headers, body }: RawCall,
): Promise<string> {
  const half = body.slice(0, random.below(body.length));
  const text = toRawRequest(url, {
    headers: { ...headers, "content-length": String(body.length) },
    body: half,
  });
  const { socket, closed, received } = openSocket(url, text);
  if (random.chance(0.7)) {
    await pause(random.below(400));
    leave(socket, random);
    return "left";
  }
  await closed;
  return received().includes('"body_timeout"') ? "body_timeout" : "closed";
}

/** Stops in the middle of the header. */
async function sendHalfHeader(
  _scene: Scene,
  random: Random,
  { url, ...call }: RawCall,
): Promise<string> {
  const { socket } = openSocket(url, toRawRequest(url, call).slice(0, 20 + random.below(80)));
  await pause(random.below(400));
  leave(socket, random);
  return "left";
}

async function floodBadKeys(
  scene: Scene,
  random: Random,
  { url, headers, body }: RawCall,
): Promise<string> {
  const badKeys = Array.from(
    { length: FLOOD },
    () => `Bearer not-a-key-${random.below(1e9)}-${random.below(1e9)}`,
  );
  const texts = badKeys.map((bad, index) => {
    const connection = index === FLOOD - 1 ? "close" : "keep-alive";
    return toRawRequest(url, { headers: { ...headers, connection, "gateway-auth": bad }, body });
  });
  const { closed, received } = openSocket(url, texts.join(""));
  await closed;
  const statuses = received().match(/HTTP\/1\.1 \d+/g) ?? [];
  if (statuses.some((status) => !status.endsWith(" 401"))) {
    scene.violate(`bad keys were answered ${statuses.join()}`);
  }
  return statuses.length === FLOOD ? "all refused" : "refused";
}

const ACTS: readonly [readonly [string, Act], ...(readonly [string, Act])[]] = [
  ["leaves before headers", leaveEarly],
  ["leaves in the answer", leaveInAnswer],
  ["stalls reading", stallReading],
  ["half a body", sendHalf],
  ["half a header", sendHalfHeader],
  ["bad keys", floodBadKeys],
];

/** A raw socket that misbehaves, on either host. */
export async function misbehave(scene: Scene, random: Random): Promise<void> {
  while (scene.isOn) {
    const isHealthy = random.chance(0.5);
    const url = isHealthy ? scene.a : scene.b;
    const model = random.chance(0.4) ? "huge" : random.pick(MOODS);
    const headers = {
      "authorization": `Bearer ${UPSTREAM_KEY}`,
      "gateway-auth": `Bearer ${scene.key}`,
      "content-type": "application/json",
    };
    const body = JSON.stringify({ ...JSON.parse(GOOD_BODY), model, stream: random.chance(0.7) });
    const [name, act] = random.pick(ACTS);
    scene.note(
      `${isHealthy ? "a" : "b"} raw ${name}`,
      await act(scene, random, { url, headers, body }),
    );
    await pause(random.below(30));
  }
}
