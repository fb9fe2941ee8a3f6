/**
 * `npm run soak -- --runtime bun --exchanges 100000`: runs a number of exchanges, half of them
 * streamed, 64 at once, and measures the gateway's process meanwhile. Fails when memory or file
 * descriptors grow.
 */
import { countFiles } from "./chaos/gateway_process.ts";
import { LongRun, SteadyCaller, toMB, waitFor } from "./chaos/long_run.ts";
import { startHealthy } from "./chaos/upstreams.ts";

const AT_ONCE = 64;
/** Fractions of the run after which the process is measured. */
const MARKS = [0.1, 0.25, 0.5, 0.75, 1];
/** Allowed growth from the second quarter of the run to the last one: the larger of the two. */
const MAX_GROWTH = 0.2;
const MAX_GROWTH_BYTES = 20e6;
/** File descriptors that a runtime opens late and keeps open: pipes and epoll of its threads. */
const SPARE_FILES = 8;
/** Milliseconds within which idle connections of both sides are closed. */
const QUIET_MS = 20_000;

const run = new LongRun({ exchanges: { fallback: 100_000, max: 10_000_000 } });
const { exchanges } = run.counts;
const upstream = run.own(await startHealthy());
const gateway = await run.startGateway({ providers: { a: { upstream: upstream.url } } });
const caller = new SteadyCaller(gateway.urlOf("a"), AT_ONCE);

let begun = 0;
let failed = 0;
async function work(until: number): Promise<void> {
  while (begun < until) {
    if (!await caller.call(begun++ % 2 === 0)) failed++;
  }
}

const files = () => countFiles(gateway.pid) ?? NaN;
await run.finish(async () => {
  const filesAtStart = files();
  console.log(`soak on ${run.runtime.label}: ${exchanges} exchanges, ${AT_ONCE} at once`);
  console.log("    exchanges        rss       heap    fds   a second");
  const rss: number[] = [];
  for (const mark of MARKS) {
    const [before, started] = [begun, performance.now()];
    await Promise.all(Array.from({ length: AT_ONCE }, () => work(Math.round(exchanges * mark))));
    const rate = (begun - before) / (performance.now() - started) * 1000;
    const stats = await gateway.stats();
    rss.push(stats.rss);
    const cells = [
      toMB(stats.rss).padStart(11),
      toMB(stats.heap).padStart(11),
      String(files()).padStart(7),
    ];
    console.log(`${String(begun).padStart(13)}${cells.join("")}${rate.toFixed(0).padStart(11)}`);
  }
  // The lower of two levels on each side: an allocator's peak is temporary, a leak is not.
  const [, quarter = 0, half = 0, threeQuarters = 0, end = 0] = rss;
  const early = Math.min(quarter, half);
  const growth = Math.min(threeQuarters, end) - early;
  console.log(
    `rss from 25 % to 100 %: ${toMB(end - quarter)}; from 25-50 % to 75-100 %: ${toMB(growth)}`,
  );
  if (growth > Math.max(MAX_GROWTH * early, MAX_GROWTH_BYTES)) {
    run.fail(`memory grew by ${toMB(growth)}`);
  }

  caller.close();
  upstream.closeIdle();
  const isQuiet = await waitFor(() => files() <= filesAtStart + SPARE_FILES, QUIET_MS);
  const stats = await gateway.stats();
  console.log(
    `fds: ${filesAtStart} at the start, ${files()} at the end; open exchanges: ${stats.open}`,
  );
  if (!isQuiet) run.fail("file descriptors stay open");
  if (stats.open !== 0 || stats.begun !== stats.settled) run.fail("exchanges stay open");
  if (stats.begun !== begun) run.fail(`${begun} requests were sent, ${stats.begun} arrived`);
  if (failed > 0) run.fail(`${failed} exchanges failed`);
});
