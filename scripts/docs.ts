/**
 * `npm run docs [-- tables|faults|behaviours|pictures|api|map|task NAME]`: the generated parts of the
 * README and of `docs/`. `tables` are made from the sources and from what `npm run bench` wrote;
 * `faults` by runtime, and `behaviours` by runtime and framework, from the reports that the last
 * `npm test` left; `pictures` of the console with the one file that the last `npm run build` made.
 * `api` writes the reference of the library, from its docstrings, into `docs/api/`, which is not
 * committed. `map` prints each source file with its subject. `task NAME` performs the page
 * `docs/tasks/NAME.md`: it writes, types and checks what
 * that page says, and nothing else.
 */
import { mkdirSync } from "node:fs";
import process from "node:process";
import { writeApi } from "./docs/api.ts";
import { BEHAVIOURS } from "./docs/behaviours.ts";
import { FAULTS } from "./docs/faults.ts";
import { makeMap } from "./docs/map.ts";
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
if (wanted === "task") {
  const { performTask } = await import("../tests/docs/task_run.ts");
  await performTask(`docs/tasks/${process.argv[3]}.md`, (text) => process.stdout.write(text));
}
