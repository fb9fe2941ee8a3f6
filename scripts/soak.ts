/**
 * `npm run soak -- --runtime bun --exchanges 100000`: so many exchanges, half of them streamed, 64 at once, and what
 * the gateway's process holds on the way. Fails when memory or file descriptors grow.
 */
import { Agent, request as requestHttp } from "node:http";
import { GOOD_BODY, STREAM_BODY } from "../tests/support/gateway.ts";
import { countFiles, endLongRun, LONG_RUN_HEADERS, readLongRun, startLongRun, toMB } from "./chaos/gateway_process.ts";
import { startHealthy } from "./chaos/upstreams.ts";

const AT_ONCE = 64;
/** Parts of the run after which the process is looked at. */
const MARKS = [0.1, 0.25, 0.5, 0.75, 1];
/** Growth from the second quarter of the run to the last one that is still none: the larger of the two. */
const MAX_GROWTH = 0.2;
const MAX_GROWTH_BYTES = 20e6;
/** File descriptors that a runtime opens late and keeps: pipes and epoll of its threads. */
const SPARE_FILES = 8;
/** Idle connections of both sides are closed within this. */
const QUIET_MS = 20_000;

const { runtime, count: exchanges } = readLongRun("exchanges", { fallback: 100_000, max: 10_000_000 });
const upstream = await startHealthy();
const gateway = await startLongRun(runtime, upstream.url);
const agent = new Agent({ keepAlive: true, maxSockets: AT_ONCE });
const target = new URL("/v1/chat/completions", gateway.urls.a);
const options = { method: "POST", agent, headers: LONG_RUN_HEADERS, timeout: 30_000 };

/** One exchange; resolves whether it was complete. */
function exchange(isStream: boolean): Promise<boolean> {
  return new Promise((resolve) => {
    const request = requestHttp(target, options, (response) => {
      let text = "";
      response.setEncoding("utf8");
      response.on("data", (part: string) => text += part);
      response.on("close", () => {
        const isWhole = isStream ? text.includes("data: [DONE]") : text.endsWith("}");
        resolve(response.statusCode === 200 && response.complete && isWhole);
      });
    });
    request.on("timeout", () => request.destroy());
    request.on("error", () => resolve(false));
    request.end(isStream ? STREAM_BODY : GOOD_BODY);
  });
}

let begun = 0;
let failed = 0;
async function work(until: number): Promise<void> {
  while (begun < until) {
    if (!await exchange(begun++ % 2 === 0)) failed++;
  }
}

const problems: string[] = [];
const files = () => countFiles(gateway.pid) ?? NaN;
try {
  const filesAtStart = files();
  console.log(`soak on ${runtime.label}: ${exchanges} exchanges, ${AT_ONCE} at once`);
  console.log("    exchanges        rss       heap    fds   a second");
  const rss: number[] = [];
  for (const mark of MARKS) {
    const [before, started] = [begun, performance.now()];
    await Promise.all(Array.from({ length: AT_ONCE }, () => work(Math.round(exchanges * mark))));
    const rate = (begun - before) / (performance.now() - started) * 1000;
    const stats = await gateway.stats();
    rss.push(stats.rss);
    const cells = [toMB(stats.rss).padStart(11), toMB(stats.heap).padStart(11), String(files()).padStart(7)];
    console.log(`${String(begun).padStart(13)}${cells.join("")}${rate.toFixed(0).padStart(11)}`);
  }
  // The lower of two levels on each side: an allocator's peak passes, a leak does not.
  const [, quarter = 0, half = 0, threeQuarters = 0, end = 0] = rss;
  const early = Math.min(quarter, half);
  const growth = Math.min(threeQuarters, end) - early;
  console.log(`rss from 25 % to 100 %: ${toMB(end - quarter)}; from 25-50 % to 75-100 %: ${toMB(growth)}`);
  if (growth > Math.max(MAX_GROWTH * early, MAX_GROWTH_BYTES)) problems.push(`memory grew by ${toMB(growth)}`);

  agent.destroy();
  upstream.closeIdle();
  const deadline = performance.now() + QUIET_MS;
  while (files() > filesAtStart + SPARE_FILES && performance.now() < deadline) {
    await new Promise((resolve) => setTimeout(resolve, 250));
  }
  const stats = await gateway.stats();
  console.log(`fds: ${filesAtStart} at the start, ${files()} at the end; open exchanges: ${stats.open}`);
  if (files() > filesAtStart + SPARE_FILES) problems.push("file descriptors stay open");
  if (stats.open !== 0 || stats.begun !== stats.settled) problems.push("exchanges stay open");
  if (stats.begun !== begun) problems.push(`${begun} requests were sent, ${stats.begun} arrived`);
  if (failed > 0) problems.push(`${failed} exchanges failed`);
  if (gateway.complaints.length > 0) problems.push(`it complained: ${gateway.complaints.slice(0, 5).join("\n")}`);
} finally {
  await gateway.close();
  await upstream.close();
}
endLongRun(problems);
