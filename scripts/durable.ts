/**
 * `npm run durable -- --seconds 300 --runtime node [--seed N]`: runs durable exchanges of three
 * gateways on one Redis, with readers, retries and stops. Meanwhile gateways are killed and
 * stopped, and Redis freezes and fails over, at random from the printed seed. The bytes that
 * callers received and the provider sent are compared with the guarantees.
 */
import { LongRun, pause } from "./chaos/long_run.ts";
import { createRandom } from "./chaos/random.ts";
import { Exchange } from "./durable/callers.ts";
import { schedule } from "./durable/faults.ts";
import { Scene } from "./durable/scene.ts";
import { checkExchange } from "./durable/verdict.ts";

/** Time in which the exchanges and the faults of a scene start. Milliseconds. */
const ACT_MS = 9000;
/** Time from one exchange to the next. Milliseconds. */
const EVERY_MS = 250;
/**
 * Time after which a caller must have reached an endin any case: longer than a freeze, a lease and
 * a late retry. Milliseconds.
 */
const END_MS = 55_000;
/** Approximate duration of a scene. Milliseconds. */
const SCENE_MS = 25_000;
/** Number of violations that are printed, and of the last connections of each caller. */
const MAX_PRINTED = 20;
const MAX_CONNECTIONS = 4;

const run = new LongRun({
  seconds: { fallback: 300, max: 86_400 },
  seed: { fallback: Math.floor(Math.random() * 2 ** 31) + 1, max: 2 ** 32 },
});
const { seconds, seed } = run.counts;
console.log(`durable on ${run.runtime.label}: ${seconds} s, seed ${seed}`);

/** Counts by two names. */
class Counts {
  readonly #rows = new Map<string, Map<string, number>>();

  add(row: string, name: string): void {
    const counts = this.#rows.get(row) ?? new Map<string, number>();
    this.#rows.set(row, counts.set(name, (counts.get(name) ?? 0) + 1));
  }

  print(title: string): void {
    console.log(`\n${title}`);
    for (const [row, counts] of [...this.#rows].sort(([one], [other]) => one < other ? -1 : 1)) {
      const cells = [...counts].sort(([, one], [, other]) => other - one).map(([name, count]) =>
        `${name} ${count}`
      );
      console.log(`  ${row.padEnd(52)}${cells.join(", ")}`);
    }
  }
}

const seen = new Counts();
const called = new Counts();
let printed = 0;

/** Runs a scene. @param number Its number, which makes its random choices reproducible */
async function play(number: number): Promise<void> {
  const random = createRandom(seed + number);
  const scene = await Scene.start({ on: run.runtime, random, hasSentinels: random.chance(0.5) });
  try {
    const faults = schedule(scene, ACT_MS);
    const names = faults.map(({ name, atMs }) => `${name} at ${atMs} ms`);
    console.log(`scene ${number} (--seed ${seed + number}): ${names.join(", ") || "no fault"}`);
    const until = performance.now() + ACT_MS + END_MS;
    const acting = faults.map(async ({ atMs, act }) => {
      await pause(atMs);
      await act(scene);
    });
    const exchanges: Exchange[] = [];
    const running: Promise<void>[] = [];
    for (let index = 0; index < ACT_MS / EVERY_MS; index++) {
      const exchange = new Exchange(scene, `exchange-${number}-${index}`, until);
      exchanges.push(exchange);
      running.push(exchange.run());
      await pause(EVERY_MS);
    }
    await Promise.all([...running, ...acting]);
    for (const { history } of exchanges) judge(scene, history);
  } finally {
    await scene.close();
  }
  for (const complaint of scene.complaints) run.fail(`a gateway complained: ${complaint}`);
}

function judge({ truth, happened }: Scene, history: Exchange["history"]): void {
  const { violations, ends } = checkExchange(history, truth.calls, happened);
  for (const { role, during, end } of ends) seen.add(`${role}: ${during}`, end);
  const calls = truth.calls.filter(({ name }) => name === history.name).length;
  const isRestarted = history.seen.some((each) => each.isRestarted);
  called.add(
    `exchanges with ${calls} calls`,
    isRestarted ? "one said that it was restarted" : "no word of a restart",
  );
  for (const violation of violations) {
    run.fail(violation.replace(/^.*?: /, ""));
    if (printed++ < MAX_PRINTED) {
      console.log(`  ${violation}`);
      for (const { from, ...one } of happened) {
        console.log(`    ${JSON.stringify({ ...one, from: Math.round(from) })}`);
      }
      for (const one of history.seen) {
        const connections = one.connections.slice(-MAX_CONNECTIONS).map((each) =>
          `${each.gateway} ${each.attempt ?? ""} ${Math.round(each.from)}-${
            Math.round(each.to)
          } ${each.answer}${each.isLeft ? " left" : ""}`
        );
        console.log(
          `    ${one.role} ${one.address} from ${one.from}, ${one.text.length} bytes: ${
            connections.join("; ")
          }`,
        );
      }
    }
  }
}

await run.finish(async () => {
  const end = performance.now() + seconds * 1000;
  let scenes = 0;
  do await play(scenes++); while (performance.now() + SCENE_MS < end);
  seen.print("what callers saw");
  called.print("how often the provider was called");
  console.log(`\n${scenes} scenes, seed ${seed}`);
});
