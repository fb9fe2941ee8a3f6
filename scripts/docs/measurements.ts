/** The tables of the last run of `npm run bench` that are not on a page. */
import { makeConnections, makeCosts, makeKeys, makeObservers } from "./performance.ts";
import { makeScenarios, makeTls, makeWorkers } from "./production_performance.ts";
import { makeGoals, makePaced } from "./stream_performance.ts";

const SECTIONS: readonly (readonly [title: string, make: () => string])[] = [
  ["Cost compared with ten bare lines", makeCosts],
  ["Paced streams", makePaced],
  ["Calls over TLS", makeTls],
  ["Scenarios", makeScenarios],
  ["Workers", makeWorkers],
  ["Goals", makeGoals],
  ["Plain requests a second, by the number of connections", makeConnections],
  ["Plain requests a second, by the number of keys in a file", makeKeys],
  ["Log and metrics", makeObservers],
];

/** Makes all tables, each under its title. */
export function makeMeasurements(): string {
  return SECTIONS.map(([title, make]) => `## ${title}\n\n${make()}`).join("\n\n");
}
