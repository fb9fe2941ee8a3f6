/**
 * `npm run chaos -- --seconds 60 --runtime bun [--seed N]`: runs a steady load through client
 * libraries on a healthy provider, while another provider and other callers misbehave at random,
 * from the printed seed. Each guarantee that is tested for one fault must also be true for all of
 * them together.
 */
import { callChaotically, callSteadily, misbehave, type Scene } from "./chaos/callers.ts";
import type { Settled, Stats } from "./chaos/gateway_main.ts";
import { countFiles, type GatewayProcess } from "./chaos/gateway_process.ts";
import { KEY, LongRun, pause, toMB } from "./chaos/long_run.ts";
import { createRandom } from "./chaos/random.ts";
import { startChaotic, startHealthy } from "./chaos/upstreams.ts";

const STEADY_CALLERS = 6;
const CHAOTIC_CALLERS = 24;
const RAW_CALLERS = 16;
/** Replicas of the chaotic provider. One of them sometimes refuses connections. */
const REPLICAS = 3;
/** The longest time between two refusals, and the longest refusal. Milliseconds. */
const AWAY_EVERY_MS = 12_000;
const AWAY_MS = 600;
/** Milliseconds until everything must be idle: longer than all deadlines of the gateway here. */
const QUIET_MS = 20_000;
/** The most growth of memory above the level after the warm-up. Shorter runs only print it. */
const MAX_GROWTH = 0.1;
const MIN_SECONDS_FOR_MEMORY = 60;
const MAX_WARM_UP_SECONDS = 60;
/** Allowed outcomes of the healthy provider's exchanges, for any behaviour of their callers. */
const HEALTHY_OUTCOMES: ReadonlySet<string> = new Set(["ok", "client_closed", "refused"]);

const run = new LongRun({
  seconds: { fallback: 60, max: 3600 },
  seed: { fallback: Math.floor(Math.random() * 2 ** 31) + 1, max: 2 ** 32 },
});
const { seconds, seed } = run.counts;
console.log(`chaos on ${run.runtime.label}: ${seconds} s, seed ${seed}`);

const healthy = run.own(await startHealthy());
const chaotic = await Promise.all(
  Array.from({ length: REPLICAS }, (_, index) => startChaotic(seed + 1000 + index)),
);
for (const upstream of chaotic) run.own(upstream);
const openUpstream = () => [healthy, ...chaotic].reduce((sum, { open }) => sum + open(), 0);

let refusals = 0;
const rows = new Map<string, Map<string, number>>();
const violate = (what: string) => run.fail(what);
function note(row: string, outcome: string): void {
  const counts = rows.get(row) ?? new Map<string, number>();
  rows.set(row, counts.set(outcome, (counts.get(outcome) ?? 0) + 1));
}

/** Runs all callers and the chaotic provider for a while, and waits until each is done. */
async function act(scene: Scene, ms: number, phaseSeed: number): Promise<void> {
  scene.isOn = true;
  const timer = setTimeout(() => scene.isOn = false, ms);
  let made = 0;
  const make = (count: number, caller: typeof misbehave) =>
    Array.from({ length: count }, () => caller(scene, createRandom(phaseSeed + ++made * 7919)));
  const random = createRandom(phaseSeed);
  const refusing = async () => {
    while (scene.isOn) {
      await pause(random.below(Math.min(AWAY_EVERY_MS, ms / 2)));
      if (!scene.isOn) return;
      refusals++;
      await chaotic[random.below(REPLICAS)]?.leave(random.below(AWAY_MS));
    }
  };
  await Promise.all([
    ...make(STEADY_CALLERS, callSteadily),
    ...make(CHAOTIC_CALLERS, callChaotically),
    ...make(RAW_CALLERS, misbehave),
    refusing(),
  ]);
  clearTimeout(timer);
}

/** Waits until nothing is open, or until the time is up. Returns the last statistics. */
async function comeToRest(gateway: GatewayProcess): Promise<Stats> {
  const deadline = performance.now() + QUIET_MS;
  while (true) {
    const stats = await gateway.stats();
    const isQuiet = stats.open + stats.leases === 0 && stats.begun === stats.settled &&
      openUpstream() === 0;
    if (isQuiet || performance.now() > deadline) {
      console.log(
        `  at rest: ${stats.begun} begun, ${stats.settled} settled, ${stats.open} open, ${stats.leases} leases, ` +
          `${openUpstream()} upstream, ` +
          `rss ${toMB(stats.rss)}, heap ${toMB(stats.heap)}, fds ${countFiles(gateway.pid) ?? "?"}`,
      );
      return stats;
    }
    await pause(100);
  }
}

/** Checks the guarantees about settled exchanges. */
function checkSettled(
  settled: readonly Settled[],
  { begun, settled: count, open }: Stats,
  ids: Set<string>,
): void {
  const unique = new Set(settled.map(({ id }) => id));
  if (unique.size !== settled.length) violate("an exchange was settled twice");
  if (begun !== count || count !== settled.length || open !== 0) {
    violate(
      `${begun} exchanges were begun, ${count} settled, ${settled.length} recorded, ${open} are open`,
    );
  }
  for (const id of ids) {
    if (!unique.has(id)) violate("a caller saw an x-request-id that was never settled");
  }
  for (const { provider, outcome, code } of settled) {
    if (outcome === "failed") violate(`a bug in the gateway: ${code}`);
    if (provider === "a" && !HEALTHY_OUTCOMES.has(outcome)) {
      violate(`the healthy provider: ${outcome} (${code})`);
    }
  }
}

function printTable(settled: readonly Settled[]): void {
  const records = new Map<string, Map<string, number>>();
  for (const { provider = "-", outcome, code } of settled) {
    const counts = records.get(provider) ?? new Map<string, number>();
    const name = code === undefined ? outcome : `${outcome} ${code}`;
    records.set(provider, counts.set(name, (counts.get(name) ?? 0) + 1));
  }
  const print = (title: string, table: Map<string, Map<string, number>>) => {
    console.log(`\n${title}`);
    for (const [row, counts] of [...table].sort(([one], [other]) => one < other ? -1 : 1)) {
      const cells = [...counts].sort(([, one], [, other]) => other - one).map(([name, count]) =>
        `${name} ${count}`
      );
      console.log(`  ${row.padEnd(28)}${cells.join(", ")}`);
    }
  };
  print("what callers saw", rows);
  print("what the gateway settled", records);
  const moved = settled.filter(({ retries }) => retries > 0).length;
  console.log(
    `\n${refusals} times a replica refused connections, ${moved} calls were moved to another one`,
  );
}

const gateway = await run.startGateway({
  providers: {
    a: { upstream: healthy.url },
    b: {
      upstream: chaotic.map(({ url }) => url),
      deadlines: { connect: "500ms", firstByte: "1s", idle: "1s", total: "5s" },
      keepAlive: "400ms",
    },
  },
  limits: { bodyTime: "2s", writeStall: "2s" },
  bodyTimeMs: 2000,
  tellsSettled: true,
});
await run.finish(async () => {
  const [a, b] = [gateway.urlOf("a"), gateway.urlOf("b")];
  const scene: Scene = { a, b, key: KEY, isOn: true, note, violate, ids: new Set() };
  await act(scene, Math.min(seconds, MAX_WARM_UP_SECONDS) * 1000, seed);
  const warm = await comeToRest(gateway);
  await act(scene, seconds * 1000, seed + 1);
  const end = await comeToRest(gateway);

  printTable(gateway.settled);
  checkSettled(gateway.settled, end, scene.ids);
  if (end.leases > 0) violate(`${end.leases} leases stay taken`);
  if (openUpstream() > 0) violate(`${openUpstream()} upstream calls stay open`);
  const growth = end.rss / warm.rss - 1;
  const isJudged = seconds >= MIN_SECONDS_FOR_MEMORY;
  console.log(
    `\nrss after warm-up ${toMB(warm.rss)}, at the end ${toMB(end.rss)}: ${
      (growth * 100).toFixed(1)
    } %` +
      (isJudged || growth <= MAX_GROWTH
        ? ""
        : ` (warning: above ${MAX_GROWTH * 100} %, not judged on a short run)`),
  );
  if (isJudged && growth > MAX_GROWTH) {
    violate(`memory is ${(growth * 100).toFixed(1)} % above the level after warm-up`);
  }
  console.log(`seed ${seed}`);
});
