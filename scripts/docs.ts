/**
 * `npm run docs [-- faults|behaviours|pictures]`: the README's table of faults by runtime and that of behaviours in
 * `docs/embedding.md`, both from the reports that the last `npm test` left, and the pictures of the console in `docs/`,
 * of the one file that the last `npm run build` made.
 */
import { globSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { basename } from "node:path";
import process from "node:process";
import { BEHAVIOURS } from "./docs/behaviours.ts";
import { writePart } from "./docs/parts.ts";
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
};
const START = "<!-- faults: written by `npm run docs` -->";
const END = "<!-- end of faults -->";

type Mark = "yes" | "no" | "–";

/** The rows that a JUnit report proves: `no` as soon as one of a row's tests failed. */
function marksOf(file: string): Map<number, Mark> {
  const marks = new Map<number, Mark>();
  for (
    const [, attributes = "", content = ""] of readFileSync(file, "utf8").matchAll(
      /<testcase\b([^>]*?)(?:\/>|>([\s\S]*?)<\/testcase>)/g,
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

/** Writes the table into the README. */
function writeFaults(): void {
  const reports = globSync(".cache/*.xml").sort();
  if (reports.length === 0) {
    console.error("docs: no reports; run npm test first");
    process.exit(2);
  }
  const runtimes = reports.map((file) => ({ name: basename(file, ".xml").replace("-", " "), marks: marksOf(file) }));
  const lines = Object.entries(ROWS).map(([row, what]) =>
    `| ${row} | ${what} | ${runtimes.map(({ marks }) => marks.get(Number(row)) ?? "–").join(" | ")} |`
  );
  const table = [
    `|  | fault | ${runtimes.map(({ name }) => name).join(" | ")} |`,
    `| --- | --- | ${runtimes.map(() => "---").join(" | ")} |`,
    ...lines,
  ].join("\n");
  console.log(table);

  const readme = readFileSync("README.md", "utf8");
  const [before, after] = [readme.split(START)[0], readme.split(END)[1]];
  if (before === undefined || after === undefined) {
    console.error(`docs: README.md lacks the lines ${START} and ${END}`);
    process.exit(1);
  }
  writeFileSync("README.md", `${before}${START}\n\n${table}\n\n${END}${after}`);
}

const wanted = process.argv[2];
const isWanted = (what: string) => wanted === undefined || wanted === what;
if (isWanted("faults")) writeFaults();
if (isWanted("behaviours")) writePart(BEHAVIOURS);
if (isWanted("pictures")) {
  mkdirSync("docs", { recursive: true });
  await takeScreenshots("docs");
}
