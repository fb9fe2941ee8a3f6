/**
 * `npm run memory -- --runtime bun --streams 5000`: opens streams that receive one event and then
 * nothing more, and prints the memory of one stream in the gateway's process. Then all callers
 * leave, and the upstream calls must end too.
 */
import { connect, type Socket } from "node:net";
import { STREAM_BODY } from "../tests/support/gateway.ts";
import { toRawRequest } from "../tests/support/tcp_peer.ts";
import { HEADERS, LongRun, pause, toMB, waitFor } from "./chaos/long_run.ts";
import { startQuiet } from "./chaos/upstreams.ts";

/**
 * Streams that are opened and closed before the idle level is measured, so that code is compiled
 * and pools exist.
 */
const WARM_UP_STREAMS = 200;
/** Connections that are opened concurrently: fewer than a listener's backlog. */
const AT_ONCE = 100;
/**
 * Milliseconds for a stream to get its first event, for all streams to end, and for the process to
 * become idle.
 */
const FIRST_EVENT_MS = 20_000;
const GONE_MS = 15_000;
const REST_MS = 2_000;

const run = new LongRun({ streams: { fallback: 5000, max: 9_000 } });
const { streams } = run.counts;
const upstream = run.own(await startQuiet());
const gateway = await run.startGateway({ providers: { a: { upstream: upstream.url } } });
const url = gateway.urlOf("a");
const { hostname, port } = new URL(url);
const request = toRawRequest(url, {
  headers: { "connection": "keep-alive", ...HEADERS },
  body: STREAM_BODY,
});

/** Resolves when the first event has arrived. */
function openStream(): Promise<Socket> {
  return new Promise((resolve, reject) => {
    let received = "";
    const socket = connect({ host: hostname, port: Number(port) }, () => socket.write(request));
    const fail = () => reject(new Error(`A stream did not begin: ${received.slice(0, 200)}`));
    const timer = setTimeout(fail, FIRST_EVENT_MS);
    socket.on("data", (data) => {
      if (received.length < 2000) received += data.toString("latin1");
      if (!received.includes("data: ")) return;
      clearTimeout(timer);
      resolve(socket);
    });
    socket.on("error", fail);
    socket.on("close", fail);
  });
}

async function openStreams(count: number): Promise<Socket[]> {
  const sockets: Socket[] = [];
  for (let left = count; left > 0; left -= AT_ONCE) {
    sockets.push(...await Promise.all(Array.from({ length: Math.min(left, AT_ONCE) }, openStream)));
  }
  return sockets;
}

/**
 * Closes all callers. Resolves with the time until the upstream calls ended, or `undefined` if some
 * did not.
 */
async function closeStreams(sockets: readonly Socket[]): Promise<number | undefined> {
  const started = performance.now();
  for (const socket of sockets) socket.destroy();
  return await waitFor(() => upstream.open() === 0, GONE_MS)
    ? performance.now() - started
    : undefined;
}

await run.finish(async () => {
  await closeStreams(await openStreams(WARM_UP_STREAMS));
  await pause(REST_MS);
  const idle = await gateway.stats();
  const started = performance.now();
  const sockets = await openStreams(streams);
  const openedMs = performance.now() - started;
  await pause(REST_MS);
  const full = await gateway.stats();
  if (full.open !== streams) run.fail(`${full.open} exchanges are open, not ${streams}`);
  if (upstream.open() !== streams) {
    run.fail(`${upstream.open()} upstream calls are open, not ${streams}`);
  }
  const goneMs = await closeStreams(sockets);
  if (goneMs === undefined) run.fail(`${upstream.open()} upstream calls stay open`);
  await pause(REST_MS);
  const after = await gateway.stats();
  if (after.open !== 0 || after.begun !== after.settled) {
    run.fail(`${after.open} exchanges stay open`);
  }

  const each = (bytes: number) => `${(bytes / streams / 1000).toFixed(1)} kB`;
  console.log(
    `memory on ${run.runtime.label}: ${streams} quiet streams, opened in ${
      (openedMs / 1000).toFixed(1)
    } s`,
  );
  console.log(`  idle          rss ${toMB(idle.rss)}, heap ${toMB(idle.heap)}`);
  console.log(`  with streams  rss ${toMB(full.rss)}, heap ${toMB(full.heap)}`);
  console.log(
    `  a stream      rss ${each(full.rss - idle.rss)}, heap ${each(full.heap - idle.heap)}`,
  );
  console.log(
    `  all closed    rss ${toMB(after.rss)}, heap ${toMB(after.heap)}, upstream calls ended after ${
      goneMs?.toFixed(0)
    } ms`,
  );
});
