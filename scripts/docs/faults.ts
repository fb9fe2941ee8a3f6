/** The table of faults in `docs/reliability.md`, from the reports of a test run. */
import { globSync, readFileSync } from "node:fs";
import { basename, join } from "node:path";
import { type Part, toTable } from "./parts.ts";

/** Each fault by its name. The title of a test for it ends in the name: `… [redirect]`. */
export const ROWS: Readonly<Record<string, string>> = {
  "connection refused": "the upstream refuses the connection",
  "untrusted upstream": "the name or the certificate of the upstream is wrong",
  "black hole": "the upstream never accepts the connection",
  "silent upstream": "the upstream never answers",
  "broken kept connection": "a kept connection breaks before an answer",
  "cut stream": "the upstream breaks off in a stream",
  "stalled stream": "a stream stalls",
  "endless stream": "a stream sends comments or events without end",
  "unfinished stream": "a stream ends without its last event",
  "upstream 429": "the upstream itself answers 429",
  "upstream 500": "the upstream itself answers 500 in HTML",
  "odd 200": "the upstream answers 200 with something else than a stream",
  redirect: "the upstream redirects",
  "long line": "a stream has one line of 20 MB",
  "unasked coding": "the answer has a content coding that was not asked for, or several",
  "unreadable HTTP": "the upstream sends unreadable HTTP",
  "early leaver": "the caller leaves before the header",
  "caller leaves": "the caller leaves in an answer",
  "slow reader": "the caller reads slowly, or not at all",
  "idle streams": "many streams are idle",
  "key flood": "callers send a flood of wrong keys",
  "malformed credentials": "a credential is malformed",
  "key in query": "the key is in the query",
  "one credential": "only one credential is sent",
  "bad keys alike": "keys are unknown, expired or malformed",
  "announced size": "the announced body is over the limit",
  "chunked size": "a body in chunks grows over the limit",
  "stopped body": "the body stops coming",
  "packed body": "the body is packed, and cut, damaged, a bomb or followed by bytes",
  "media type": "the body has another media type",
  "invalid UTF-8": "the body has a byte order mark, invalid UTF-8 or lone surrogates",
  "huge body": "bodies are huge or deep, numbers are huge",
  "odd keys": "the body has `__proto__`, or a key twice",
  "hostile headers": "headers are hostile",
  "request smuggling": "one request hides another",
  "target tricks": "host, method and target try tricks",
  "slow senders": "headers and bodies come slowly",
  restart: "the gateway restarts under load",
  "killed worker": "a worker is killed",
  "Redis fails": "Redis is down, silent, slow, empty or in error",
  "blocked output": "the output is closed, full or not read",
  "clock jump": "the wall clock jumps",
  "no descriptors": "no file descriptors are left",
  "no body memory": "no memory is left for bodies",
  "failing provider": "one provider fails, another one is healthy",
  "retry storm": "retries multiply",
  loop: "the gateway leads to itself",
  "operator paths": "callers ask the operators' paths",
  secrets: "failures could put secrets into the log",
  "internal throw": "any part throws",
  "large bodies": "many streams are open, with large bodies",
  "TLS handshakes": "TLS handshakes are silent or incomplete",
  "partial failure": "one model fails, or the calls of one caller do",
  "absent bodies": "bodies are announced and do not come",
  "killed writer": "a writer of keys, budgets or usage is killed",
  "packed answers": "packed answers are bombs, have several members, or are cut",
  "many items": "an array has millions of items",
  pipelining: "requests are pipelined",
  "half-closed": "answers without content (205), an early 413 in an upload, half-closed callers",
  "late first event": "comments come for minutes before the first event",
  "late answer": "a plain answer comes after nine minutes",
  "cut clock": "the caller's clock is cut to whole seconds",
  "error event": "the upstream sends its own error event, or is cut after the finish",
  "odd ending": "a stream ends in an odd form",
  "early header": "the header comes long before the first event",
  reload: "the configuration is reloaded by SIGHUP",
  "Redis moves":
    "Redis is far away, fails over, moves slots, loses its keys, or is away at the start",
  "later version": "a later version wrote the records of keys",
  "many keys": "a hundred gateways use a quarter of a million keys on one Redis",
  "unstated usage": "usage is not stated, and callers reach the edge of a limit at once",
};
type Mark = "yes" | "no" | "–";

/** Reads the fault names at the end of a title, with any other words in brackets. */
export function faultsOf(title: string): string[] {
  return Array.from(title.matchAll(/ \[([^\]]+)\]/g), ([, name = ""]) => name);
}

/** The faults that a runtime's JUnit reports prove: `no` if one of the tests failed. */
function marksOf(folder: string): Map<string, Mark> {
  const marks = new Map<string, Mark>();
  const reports = globSync(join(folder, "*.xml")).map((file) => readFileSync(file, "utf8"));
  for (
    const [, attributes = "", content = ""] of reports.join("\n").matchAll(
      /<testcase\b((?:[^">]|"[^"]*")*?)(?:\/>|>([\s\S]*?)<\/testcase>)/g,
    )
  ) {
    if (/<skipped\b/.test(content)) continue;
    for (const name of faultsOf(attributes)) {
      const hasFailed = /<(?:failure|error)\b/.test(content) || marks.get(name) === "no";
      marks.set(name, hasFailed ? "no" : "yes");
    }
  }
  return marks;
}

/** The part of the page. */
export const FAULTS: Part = {
  name: "faults",
  files: ["docs/reliability.md"],
  make() {
    const folders = globSync(".cache/tests/*").sort();
    if (folders.length === 0) {
      throw new Error("Cannot write the table of faults: run npm test first");
    }
    const runtimes = folders.map((folder) => ({ name: basename(folder), marks: marksOf(folder) }));
    return toTable(
      ["name", "fault", ...runtimes.map(({ name }) => name)],
      Object.entries(ROWS).map(([row, what]) => [
        row,
        what,
        ...runtimes.map(({ marks }) => marks.get(row) ?? "–"),
      ]),
    );
  },
};
