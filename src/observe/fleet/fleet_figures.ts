/**
 * Statistics of a gateway's last minute, computed from its seconds.
 *
 * @module
 */
import { addBins, type Durations, type LiveSecond, percentile } from "../live/live_report.ts";
import type { FleetFigures } from "./fleet_report.ts";

/** Seconds that errors and durations cover. */
const MINUTE = 60;
/** Seconds that the rate covers. A drain is visible within this time. */
const RATE_SECONDS = 10;

const sum = (counts: Iterable<number>): number =>
  Array.from(counts).reduce((total, count) => total + count, 0);
const rounded = (ms: number | undefined): number | null =>
  ms === undefined ? null : Number(ms.toPrecision(3));

/** The seconds of the last minute. */
export class LastMinute {
  #seconds: readonly LiveSecond[] = [];

  /**
   * Adds seconds.
   *
   * @param to The second after the last, since 1970
   */
  add(seconds: readonly LiveSecond[], to: number): void {
    this.#seconds = [...this.#seconds, ...seconds].filter(({ at }) => at >= to - MINUTE);
  }

  /**
   * Returns the statistics.
   *
   * @param to The second after the last, since 1970
   * @param age Time since the gateway started, seconds
   */
  figures(
    to: number,
    age: number,
  ): Pick<FleetFigures, "rate" | "errorShare" | "p50" | "p95" | "overhead"> {
    const seconds = this.#seconds;
    const exchanges = sum(seconds.map((second) => second.exchanges));
    const errors = sum(seconds.flatMap((second) => Object.values(second.errors)));
    const late = seconds.filter(({ at }) => at >= to - RATE_SECONDS);
    const durations = compact(seconds.map(({ duration }) => duration));
    return {
      rate: sum(late.map((second) => second.exchanges)) / Math.min(RATE_SECONDS, Math.max(1, age)),
      errorShare: exchanges === 0 ? null : errors / exchanges,
      p50: rounded(percentile([durations], 0.5)),
      p95: rounded(percentile([durations], 0.95)),
      overhead: rounded(percentile(seconds.map(({ overhead }) => overhead), 0.5)),
    };
  }
}

/** Adds histograms, so that each bin occurs once in the result. */
export function compact(all: readonly Durations[]): Durations {
  return addBins(all).flat();
}
