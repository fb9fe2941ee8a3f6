/**
 * `npm run docs [-- tables|faults|behaviours|pictures|api|map|measurements|site|task NAME]`: writes the generated
 * parts of the README and of `docs/`.
 * - `tables`: from the sources and from the results of `npm run bench`
 * - `faults` by runtime, and `behaviours` by runtime and framework: from the reports of the last
 *   `npm test`
 * - `pictures` of the console: with the one file of the last `npm run build`
 * - `api`: the reference of the library, from its docstrings, in `docs/api/`, which is not
 *   committed
 * - `site`: a static site of the pages, in `dist/site/`. `--serve` then serves it,
 *   `--screenshots FOLDER` then takes pictures of it
 * - `map`: prints each source file with its subject
 * - `measurements`: prints the tables of the last `npm run bench` that are not on a page
 * - `task NAME`: performs the page `docs/tasks/NAME.md`. It writes files, types commands and checks
 *   output exactly as the page says
 */
import { mkdirSync } from "node:fs";
import process from "node:process";
import { writeApi } from "./docs/api.ts";
import { BEHAVIOURS } from "./docs/behaviours.ts";
import { FAULTS } from "./docs/faults.ts";
import { makeMap } from "./docs/map.ts";
import { makeMeasurements } from "./docs/measurements.ts";
import { writePart } from "./docs/parts.ts";
import { TABLES } from "./docs/tables.ts";
import { takeScreenshots } from "./screenshots.ts";

const wanted = process.argv[2];
const isWanted = (what: string) => wanted === undefined || wanted === what;
if (isWanted("tables")) TABLES.forEach(writePart);
if (isWanted("faults")) writePart(FAULTS);
if (isWanted("behaviours")) writePart(BEHAVIOURS);
if (isWanted("pictures")) {
  mkdirSync("docs", { recursive: true });
  await takeScreenshots("docs");
}
if (wanted === "api") writeApi("docs/api");
if (wanted === "map") console.log(makeMap());
if (wanted === "measurements") console.log(makeMeasurements());
if (wanted === "site") {
  const { runSite } = await import("./site/build.ts");
  await runSite(process.argv.slice(3));
}
if (wanted === "task") {
  const { performTask } = await import("../tests/docs/task_run.ts");
  await performTask(`docs/tasks/${process.argv[3]}.md`, (text) => process.stdout.write(text));
}
