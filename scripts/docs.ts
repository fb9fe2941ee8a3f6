/**
 * `npm run docs [-- tables|faults|behaviours|pictures|api|map|task NAME]`: the generated parts of the
 * README and of `docs/`. `tables` are made from the sources and from what `npm run bench` wrote;
 * `faults` by runtime, and `behaviours` by runtime and framework, from the reports that the last
 * `npm test` left; `pictures` of the console with the one file that the last `npm run build` made.
 * `api` writes the reference of the library, from its docstrings, into `docs/api/`, which is not
 * committed. `map` prints each source file with its subject. `task NAME` performs the page `docs/tasks/NAME.md`: it writes, types and checks what
 * that page says, and nothing else.
 */
import { globSync, mkdirSync, readFileSync } from "node:fs";
import { basename, join } from "node:path";
import process from "node:process";
import { writeApi } from "./docs/api.ts";
import { BEHAVIOURS } from "./docs/behaviours.ts";
import { makeMap } from "./docs/map.ts";
import { type Part, toTable, writePart } from "./docs/parts.ts";
import { TABLES } from "./docs/tables.ts";
import { takeScreenshots } from "./screenshots.ts";

/** What each row is about. A test that proves one is named by its number, such as `row 6: …`. */
const ROWS: Readonly<Record<number, string>> = {
  1: "upstream refuses the connection",
  2: "name or certificate of the upstream is wrong",
  3: "upstream is a black hole",
  4: "upstream never answers",
  5: "kept connection breaks before an answer",
  6: "upstream breaks off in a stream",
  7: "stream stalls",
  8: "endless comments, endless stream",
  9: "stream ends without its end",
  10: "upstream's own 429",
  11: "upstream's own 500 in HTML",
  12: "upstream's odd 200",
  13: "redirect",
  14: "one line of 20 MB",
  15: "gzip though not asked for, chains of codings",
  16: "unreadable HTTP",
  17: "caller leaves before the header",
  18: "caller leaves in an answer",
  19: "caller reads slowly, or not at all",
  20: "many idle streams",
  21: "flood of wrong keys",
  22: "malformed credentials",
  23: "key in the query",
  24: "only one credential",
  25: "unknown, expired and malformed keys alike",
  26: "body over the limit, announced",
  27: "body over the limit, in chunks",
  28: "body stops coming",
  29: "packed body",
  30: "other media types",
  31: "byte order mark, invalid UTF-8, lone surrogates",
  32: "huge and deep bodies, huge numbers",
  33: "`__proto__`, keys given twice",
  34: "hostile headers",
  35: "request smuggling",
  36: "tricks with host, method and target",
  37: "slow headers and bodies",
  38: "restart under load",
  39: "a worker is killed",
  40: "Redis is down, silent, slow, empty or in error",
  41: "closed output, output that nobody reads",
  42: "wall clock jumps",
  43: "no file descriptors left",
  44: "no memory left for bodies",
  45: "failing provider beside a healthy one",
  46: "retry storm",
  47: "gateway in a loop",
  48: "operators' paths asked by callers",
  49: "secrets in what is told",
  50: "throws in every part",
  51: "large bodies under many open streams",
  52: "silent and half TLS handshakes",
  53: "one model fails, or one caller's calls do",
  54: "bodies that are announced and do not come",
  55: "a writer of keys, budgets or usage is killed",
  56: "packed answers: bombs, several members, cut ones",
  57: "millions of items in an array",
  58: "pipelined requests",
  59: "answer without content (205), early 413 in an upload, half-closed callers",
  60: "comments for minutes before the first event",
  61: "plain answer after nine minutes",
  62: "caller's clock, cut to whole seconds",
  63: "upstream's own error event, cut after the finish",
  64: "stream that ends in an odd form",
  65: "header long before the first event",
  66: "reload by SIGHUP",
  67: "Redis is far away, fails over, moves slots, loses its keys, or is away at the start",
  68: "records of keys that a later version wrote",
  69: "a hundred gateways and a quarter of a million keys in use on one Redis",
  70: "usage that nobody states, and callers at once at the edge of a limit",
};
type Mark = "yes" | "no" | "–";

/** The rows that a runtime's JUnit reports prove: `no` as soon as one of a row's tests failed. */
function marksOf(folder: string): Map<number, Mark> {
  const marks = new Map<number, Mark>();
  const reports = globSync(join(folder, "*.xml")).map((file) => readFileSync(file, "utf8")).join(
    "\n",
  );
  for (
    const [, attributes = "", content = ""] of reports.matchAll(
      /<testcase\b((?:[^">]|"[^"]*")*?)(?:\/>|>([\s\S]*?)<\/testcase>)/g,
    )
  ) {
    const numbers = /\brows? (\d+)(?: and (\d+))?:/.exec(attributes)?.slice(1) ?? [];
    for (const number of numbers.filter((text) => text !== undefined).map(Number)) {
      if (/<skipped\b/.test(content)) continue;
      const hasFailed = /<(?:failure|error)\b/.test(content) || marks.get(number) === "no";
      marks.set(number, hasFailed ? "no" : "yes");
    }
  }
  return marks;
}

/** The table, from the reports. */
function makeFaults(): string {
  const folders = globSync(".cache/tests/*").sort();
  if (folders.length === 0) {
    console.error("docs: no reports; run npm test first");
    process.exit(2);
  }
  const runtimes = folders.map((folder) => ({ name: basename(folder), marks: marksOf(folder) }));
  return toTable(
    ["", "fault", ...runtimes.map(({ name }) => name)],
    Object.entries(ROWS).map(([row, what]) => [
      row,
      what,
      ...runtimes.map(({ marks }) => marks.get(Number(row)) ?? "–"),
    ]),
  );
}

const FAULTS: Part = { name: "faults", files: ["docs/reliability.md"], make: makeFaults };

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
