/**
 * Measures the memory of durable streams, in the gateway's process and in Redis: while they run
 * with and without their callers, while their answers are stored, and afterwards.
 *
 * Usage: `node scripts/bench/durable_memory.ts --runtime bun --streams 1000 --bytes 20000 --store
 * redis`; with `--store memory`, or without it, recordings are in the gateway's memory.
 */
import { createServer, type ServerResponse } from "node:http";
import { type AddressInfo, connect, type Socket } from "node:net";
import { Redis } from "ioredis";
import { STREAM_BODY } from "../../tests/support/gateway.ts";
import { chunk } from "../../tests/support/provider.ts";
import { startRedis } from "../../tests/support/redis.ts";
import { toRawRequest } from "../../tests/support/tcp_peer.ts";
import { HEADERS, LongRun, pause, toMB, waitFor } from "../chaos/long_run.ts";

/** Streams that end and expire before the idle level is measured. */
const WARM_UP_STREAMS = 200;
const AT_ONCE = 100;
const KEEP_MS = 5000;
const REST_MS = 2000;
const PATIENCE_MS = 60_000;
const EVENT = chunk("x".repeat(150));

const run = new LongRun({
  streams: { fallback: 1000, max: 9000 },
  bytes: { fallback: 20_000, max: 1_000_000 },
}, [
  "store",
]);
const { streams, bytes } = run.counts;
const half = EVENT.repeat(Math.ceil(bytes / 2 / EVENT.length));

const held = new Set<ServerResponse>();
const provider = createServer((request, response) => {
  request.resume();
  // Does not keep connections alive: their memory does not belong to the recordings.
  response.writeHead(200, { "content-type": "text/event-stream", "connection": "close" }).write(
    half,
  );
  held.add(response);
});
await new Promise<void>((resolve) => provider.listen(0, "127.0.0.1", 4096, resolve));
run.closeLater(() => {
  provider.close();
  provider.closeAllConnections();
});
const server = run.texts.store === "redis" ? await startRedis() : undefined;
const redis = server && new Redis(server.url);
run.closeLater(async () => {
  redis?.disconnect();
  await server?.stop();
});
const upstream = `http://127.0.0.1:${(provider.address() as AddressInfo).port}/v1`;
const gateway = await run.startGateway({
  providers: { a: { upstream, durable: { keep: `${KEEP_MS}ms`, linger: "1h" } } },
  ...(server && { redis: server.url }),
});
const url = gateway.urlOf("a");
const request = toRawRequest(url, {
  headers: { "connection": "keep-alive", "sallyport-durable": "?1", ...HEADERS },
  body: STREAM_BODY,
});

/** Resolves once half of the answer has arrived. */
function openStream(): Promise<Socket> {
  return new Promise((resolve, reject) => {
    let received = 0;
    const { hostname, port } = new URL(url);
    const socket = connect({ host: hostname, port: Number(port) }, () => socket.write(request));
    socket.on("data", (data) => (received += data.length) > half.length && resolve(socket));
    socket.on("error", reject);
    socket.on("close", () => reject(new Error("A stream did not begin")));
  });
}

async function openStreams(count: number): Promise<Socket[]> {
  const sockets: Socket[] = [];
  for (let left = count; left > 0; left -= AT_ONCE) {
    sockets.push(...await Promise.all(Array.from({ length: Math.min(left, AT_ONCE) }, openStream)));
  }
  return sockets;
}

function endAll(): void {
  for (const response of held) response.end(`${half}${chunk(null, "stop")}data: [DONE]\n\n`);
  held.clear();
}

async function measure(name: string, count: number) {
  await pause(REST_MS);
  const stats = await gateway.stats();
  const used = Number(/used_memory:(\d+)/.exec(await redis?.info("memory") ?? "")?.[1] ?? 0);
  const keys = await redis?.dbsize() ?? 0;
  const { rss, heap, external, open, recordings } = stats;
  console.log(
    `  ${name.padEnd(22)} rss ${toMB(rss)}, heap ${toMB(heap)}, external ${toMB(external)}, ` +
      (redis === undefined
        ? `recordings ${toMB(recordings.bytes)}`
        : `redis ${toMB(used)}, keys ${keys}`),
  );
  if (recordings.running !== count) {
    run.fail(`${name}: ${recordings.running} recordings run, not ${count}`);
  }
  return { rss, heap: heap + external, used, keys, open, bytes: recordings.bytes };
}

/** Waits until `stats` reports no recordings. */
async function untilOver(): Promise<void> {
  for (
    let left = PATIENCE_MS / 200;
    left > 0 && (await gateway.stats()).recordings.running > 0;
    left--
  ) {
    await pause(100);
  }
}

await run.finish(async () => {
  console.log(
    `${streams} durable streams of ${2 * half.length} bytes on ${run.runtime.label}, ${
      server ? "Redis" : "memory"
    }`,
  );
  const warm = await openStreams(WARM_UP_STREAMS);
  endAll();
  await untilOver();
  for (const socket of warm) socket.destroy();
  await pause(KEEP_MS);
  const idle = await measure("idle", 0);
  const sockets = await openStreams(streams);
  const full = await measure("half, with callers", streams);
  for (const socket of sockets) socket.destroy();
  const alone = await measure("half, without callers", streams);
  if (!await waitFor(() => held.size === streams, PATIENCE_MS)) {
    run.fail("calls have ended without their callers");
  }
  endAll();
  await untilOver();
  const kept = await measure("whole, kept", 0);
  await pause(KEEP_MS);
  const after = await measure("after keep", 0);
  if (after.open > 0) run.fail(`${after.open} exchanges stay open`);
  const each = (more: number) => `${(more / streams / 1000).toFixed(1)} kB`;
  const here = ({ rss, heap, used, bytes }: typeof idle) =>
    `rss ${each(rss - idle.rss)}, heap and external ${each(heap - idle.heap)}, ` +
    (redis ? `redis ${each(used - idle.used)}` : `recordings ${each(bytes - idle.bytes)}`);
  for (const [name, level] of Object.entries({ full, alone, kept, after })) {
    console.log(`  each, ${name}: ${here(level)}`);
  }
  if (redis !== undefined) {
    const lives = await Promise.all(
      (await redis.keys("*")).map(async (key) => [key, await redis.pttl(key)] as const),
    );
    const forever = lives.filter(([key, ms]) => ms < 0 && key !== "sallyport:recordings");
    console.log(
      `  keys left: ${lives.length}, longest life ${
        Math.max(
          0,
          ...lives.map(([, ms]) => ms),
        ) / 1000
      } s`,
    );
    if (forever.length > 0) {
      run.fail(`${forever.length} keys never expire, such as ${forever[0]?.[0]}`);
    }
  }
});
