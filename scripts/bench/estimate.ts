/** The duration of a run, estimated before it starts. */
import { CHECK_SECONDS } from "./correctness/section.ts";
import type { Provider } from "./load.ts";
import {
  createKeyMeasurement,
  createMeasurements,
  createObserverMeasurement,
  KEY_CURVE,
  type Measurement,
} from "./measurements.ts";
import type { Options } from "./options.ts";
import { toQuietSeconds } from "./quiet.ts";
import { OBSERVER_STARTS, quietSubjects, START_UPS, subjectsFor } from "./sections.ts";
import { estimateTurns } from "./session.ts";
import type { Subject } from "./subjects.ts";
import { createWorkerMeasurement, WORKER_CURVE } from "./workers.ts";

/** Seconds for a process to start and to stop. */
const START_SECONDS = 0.6;

const nothingHot = (count: number): Set<string>[] => Array.from({ length: count }, () => new Set());

/**
 * Adds up the time of each section.
 *
 * @param subjects Everything that is measured
 * @param provider The stand-in provider
 * @param options The options of the command line
 * @returns Seconds by section, in the order of the run
 */
export async function estimate(
  subjects: readonly Subject[],
  provider: Provider,
  options: Options,
): Promise<Map<string, number>> {
  const { names, effort, curve, runtimes } = options;
  const sections = new Map<string, number>();
  const add = (name: string, seconds: number) =>
    sections.set(name, (sections.get(name) ?? 0) + seconds);
  const kinds = runtimes.filter(({ runsTypeScript }) => runsTypeScript).length || runtimes.length;
  if (names.has("correct")) {
    add(
      "correct",
      CHECK_SECONDS * subjects.filter(({ isFloor, isTls }) => !isFloor && !isTls).length,
    );
  }
  const own = subjects.filter(({ name, isTls }) => !isTls && /^(?:gateway|bare|floor) /.test(name));
  if (names.has("startup")) add("startup", START_SECONDS * START_UPS * own.length);
  const hot = new Map(subjects.map((subject) => [subject, new Set<string>()]));
  for (const measurement of await createMeasurements(provider, names, curve)) {
    const wanted = subjectsFor(measurement, subjects, options).map((subject) =>
      hot.get(subject) ?? new Set<string>()
    );
    add(
      measurement.name,
      estimateTurns(measurement, [...wanted, ...reference(measurement)], effort),
    );
  }
  if (names.has("quiet")) {
    const { subjects: quiet, streams } = quietSubjects(options);
    add("quiet", quiet.length * options.quietStarts * (START_SECONDS + toQuietSeconds(streams)));
  }
  if (names.has("keys")) {
    const keys = await createKeyMeasurement(provider, 1);
    add(
      "keys",
      kinds * estimateTurns(keys, [...nothingHot(KEY_CURVE.length), ...reference(keys)], effort),
    );
  }
  if (names.has("observers")) {
    const observers = await createObserverMeasurement(provider);
    const once = estimateTurns(observers, [...nothingHot(2), ...reference(observers)], effort);
    add("observers", kinds * OBSERVER_STARTS * (once + 2 * START_SECONDS));
  }
  if (names.has("workers")) {
    const pair = nothingHot(2);
    for (const connections of WORKER_CURVE) {
      const workers = await createWorkerMeasurement(provider, connections);
      add("workers", kinds * estimateTurns(workers, pair, effort));
    }
  }
  return sections;
}

/** The provider alone is measured only for throughput, and needs no warm-up. */
function reference({ isThroughput, heats }: Measurement): Set<string>[] {
  return isThroughput ? [new Set([heats])] : [];
}

/** The sections and their sum, as text for people. */
export function toPlan(sections: ReadonlyMap<string, number>): string {
  const total = Array.from(sections.values()).reduce((sum, seconds) => sum + seconds, 0);
  const parts = Array.from(sections, ([name, seconds]) => `${name} ${Math.round(seconds)} s`);
  return `About ${Math.ceil(total / 60)} minutes: ${parts.join(", ")}`;
}
