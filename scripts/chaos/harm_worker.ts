/**
 * Worker thread that does harm to a gateway, one kind at a time, while `scripts/bystanders.ts`
 * measures the other callers.
 *
 * It first reports the addresses of its providers and receives the gateway's addresses. After that
 * it starts and ends a kind of harm on each order.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { connect, type Socket } from "node:net";
import { fileURLToPath } from "node:url";
import { parentPort } from "node:worker_threads";
import { GOOD_BODY, STREAM_BODY, UPSTREAM_KEY } from "../../tests/support/gateway.ts";
import { toRawRequest } from "../../tests/support/tcp_peer.ts";
import {
  BODY_MEMORY_BYTES,
  FAILING_MODELS,
  type Harm,
  type HarmOrder,
  type HarmReport,
  type Refusals,
  type Target,
} from "./harms.ts";
import { createRandom } from "./random.ts";
import { type Mood, startChaotic, startQuiet } from "./upstreams.ts";

const IDLE_STREAMS = 1000;
const SLOW_CALLERS = 500;
const SILENT_CALLS = 200;
const FAILING_A_SECOND = 200;
const FAILING_MODEL_A_SECOND = 200;
const HELD_BODIES = 150;
const HELD_BODY_BYTES = 4_000_000;
const HALF_HANDSHAKES = 500;
const ANNOUNCED_BODIES = 16;
/**
 * The first bytes of an incomplete TLS record (RFC 8446 §5.1: handshake, version, a length of 512).
 */
const TLS_START = "\x16\x03\x01\x02\x00";
const WRONG_KEYS_A_SECOND = 10_000;
const WRONG_KEY_SOCKETS = 64;
const TICK_MS = 1;
const AT_ONCE = 100;
/** Milliseconds within which refused connections are opened again, spread over this time. */
const AGAIN_MS = 500;
/** Milliseconds until the cost of starting is over: the buffers of the kernel are full. */
const SETTLE_MS = 2000;
const FAILURES: readonly [Mood, ...Mood[]] = [
  "reset_early",
  "reset_mid",
  "truncate",
  "garbled",
  "html_500",
  "rate_limit",
];

const port = parentPort;
if (port === null) throw new Error("Cannot run by itself: scripts/bystanders.ts starts this");
const tell = (report: HarmReport) => port.postMessage(report);
const random = createRandom(7);
let target: Target = { key: "", otherKey: "", a: "", b: "", c: "", tls: "" };
let isOn = false;
const sockets = new Set<Socket>();
let complaints = new Set<string>();

function open(url: string, text: string): Socket {
  const { hostname, port } = new URL(url);
  const socket = connect(
    { host: hostname, port: Number(port) },
    () => socket.write(text, "latin1"),
  );
  sockets.add(socket);
  socket.on("error", () => {});
  socket.on("close", () => sockets.delete(socket));
  return socket;
}

function headersOf(gatewayKey: string): Record<string, string> {
  return {
    "authorization": `Bearer ${UPSTREAM_KEY}`,
    "gateway-auth": `Bearer ${gatewayKey}`,
    "content-type": "application/json",
  };
}

const request = (url: string, body: string, more: Record<string, string> = {}) =>
  toRawRequest(url, { headers: { ...headersOf(target.key), ...more }, body });
const withMood = (body: string, model: string) => JSON.stringify({ ...JSON.parse(body), model });

/**
 * Keeps a number of connections open and replaces each closed one. Resolves when all are open and
 * idle.
 */
async function keepOpen(count: number, make: (place: number) => Socket): Promise<void> {
  const renew = (place: number): Promise<void> =>
    new Promise((resolve) => {
      const socket = make(place);
      socket.once("connect", () => resolve());
      socket.once("close", () => {
        resolve();
        if (isOn) setTimeout(() => isOn && void renew(place), random.below(AGAIN_MS));
      });
    });
  for (let at = 0; at < count; at += AT_ONCE) {
    await Promise.all(
      Array.from({ length: Math.min(AT_ONCE, count - at) }, (_, index) => renew(at + index)),
    );
  }
  await new Promise((resolve) => setTimeout(resolve, SETTLE_MS));
}

function slowCaller(place: number): Socket {
  const whole = request(target.b, withMood(STREAM_BODY, "huge"), { connection: "keep-alive" });
  if (place % 10 < 5) return open(target.b, whole.slice(0, 60));
  if (place % 10 < 9) return open(target.b, whole.slice(0, -40));
  const socket = open(target.b, whole);
  socket.pause();
  return socket;
}

/** A stream with a large body; it stays open. */
function holdBody(): Socket {
  const { messages, ...rest } = JSON.parse(STREAM_BODY);
  const large = [{ ...messages[0], content: "x".repeat(HELD_BODY_BYTES) }];
  const body = JSON.stringify({ ...rest, messages: large });
  return open(target.c, request(target.c, body, { connection: "keep-alive" }));
}

/** A large announced body, of which only a few bytes are sent. */
function announceBody(): Socket {
  const bytes = BODY_MEMORY_BYTES / ANNOUNCED_BODIES;
  const more = { "gateway-auth": `Bearer ${target.otherKey}`, "content-length": String(bytes) };
  return open(target.a, request(target.a, "{", more));
}

/** Calls `act` a number of times a second, as evenly as the timer allows. */
function pace(aSecond: number, act: () => void): void {
  const started = performance.now();
  let done = 0;
  const timer = setInterval(() => {
    if (!isOn) return clearInterval(timer);
    const due = (performance.now() - started) / 1000 * aSecond;
    for (; done < due; done++) act();
  }, TICK_MS);
}

let flood: { child: ChildProcess; told: Promise<string> } | undefined;

/** Uses wrk: a generator in this process would measure its own pauses. */
function floodWrongKeys(): void {
  const delayMs = Math.floor(WRONG_KEY_SOCKETS / WRONG_KEYS_A_SECOND * 1000);
  const script = fileURLToPath(new URL("wrong_keys.lua", import.meta.url));
  const options = [
    "-t1",
    `-c${WRONG_KEY_SOCKETS}`,
    "-d60s",
    "-H",
    `Authorization: Bearer ${UPSTREAM_KEY}`,
  ];
  const child = spawn("wrk", [
    ...options,
    "-s",
    script,
    `${target.b}/v1/chat/completions`,
    "--",
    String(delayMs),
  ], {
    stdio: ["ignore", "pipe", "ignore"],
  });
  let output = "";
  child.stdout.on("data", (data) => output += data);
  const told = new Promise<string>((resolve) => {
    child.once("error", () => resolve(""));
    child.once("close", () => resolve(output));
  });
  flood = { child, told };
}

/** Ends the flood, if there is one, and returns its result. */
async function endFlood(): Promise<Refusals | undefined> {
  if (flood === undefined) return undefined;
  const { child, told } = flood;
  flood = undefined;
  child.kill("SIGINT"); // it then prints its counts
  const line = (await told).split("\n").find((text) => text.startsWith("{"));
  if (line === undefined) {
    throw new Error("Cannot flood with wrong keys: install wrk (Debian: apt-get install wrk)");
  }
  const { requests, microseconds, wrong, p50, p99 } = JSON.parse(line);
  if (wrong > 0) complaints.add(`${wrong} wrong keys were not answered with 401`);
  return { perSecond: requests / microseconds * 1e6, p50Ms: p50 / 1000, p99Ms: p99 / 1000 };
}

const BEGIN: Readonly<Record<Harm, () => unknown>> = {
  "idle streams": () =>
    keepOpen(
      IDLE_STREAMS,
      () => open(target.c, request(target.c, STREAM_BODY, { connection: "keep-alive" })),
    ),
  "wrong keys": floodWrongKeys,
  "slow callers": () => keepOpen(SLOW_CALLERS, slowCaller),
  "failing provider": () =>
    pace(FAILING_A_SECOND, () => {
      const body = withMood(random.chance(0.5) ? STREAM_BODY : GOOD_BODY, random.pick(FAILURES));
      open(target.b, request(target.b, body)).resume();
    }),
  "silent provider": () =>
    keepOpen(
      SILENT_CALLS,
      () => open(target.b, request(target.b, withMood(GOOD_BODY, "hang"))).resume(),
    ),
  "held bodies": () => keepOpen(HELD_BODIES, holdBody),
  "half handshakes": () =>
    keepOpen(HALF_HANDSHAKES, (place) => open(target.tls, place % 2 === 0 ? "" : TLS_START)),
  "failing model": () =>
    pace(FAILING_MODEL_A_SECOND, () => {
      open(target.a, request(target.a, withMood(GOOD_BODY, random.pick(FAILING_MODELS)))).resume();
    }),
  "announced bodies": () => keepOpen(ANNOUNCED_BODIES, announceBody),
};

const [chaotic, quiet] = [await startChaotic(11), await startQuiet()];
port.on("message", async (order: HarmOrder) => {
  if (order.type === "target") {
    target = order;
  } else if (order.type === "begin") {
    isOn = true;
    complaints = new Set();
    await BEGIN[order.harm]();
    tell({ type: "begun" });
  } else {
    isOn = false;
    for (const socket of sockets) socket.destroy();
    const refusals = await endFlood();
    tell({ type: "ended", refusals, complaints: [...complaints] });
  }
});
tell({ type: "providers", chaotic: chaotic.url, quiet: quiet.url });
