/**
 * `sallyport log`: reads the JSON access log, and prints, filters and sums it.
 *
 * @module
 */
import process from "node:process";
import * as v from "valibot";
import { FilterSchema } from "../../admin/api/exchanges.ts";
import { describeIssue } from "../../config/issue.ts";
import { parseDuration } from "../../config/units.ts";
import { createTest } from "../../observe/live/exchange_filter.ts";
import { CommandLineError, printParts, report } from "../command.ts";
import type { CommandOptions } from "../options.ts";
import { toPlain } from "../table.ts";
import { type LogEntry, parseLogLine } from "./log_entry.ts";
import { LogSums, SUM_PARTS, type SumPart } from "./log_sums.ts";
import { EntryPrinter, explainEntry, toEventLine } from "./print_entry.ts";
import { readLines } from "./read_lines.ts";

/** Options of the filter, and their names in its schema. */
const FILTERS = {
  id: "id",
  key: "key",
  team: "team",
  user: "user",
  session: "session",
  agent: "agent",
  client: "client",
  project: "project",
  provider: "provider",
  model: "model",
  operation: "operation",
  run: "run",
  outcome: "outcome",
  status: "status",
  code: "code",
  "min-duration": "minDuration",
  "min-first-token": "minFirstToken",
} as const;

/** Reads a time: a day or time in UTC, or a duration before now. Milliseconds since 1970. */
function readTime(option: "since" | "until", text: string): number {
  const ago = parseDuration(text);
  if (!Number.isNaN(ago)) return Date.now() - ago;
  const isTime = /^\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?Z?)?$/.test(text);
  const time = isTime
    ? Date.parse(text.length === 10 ? text : `${text.replace(" ", "T").replace(/Z$/, "")}Z`)
    : NaN;
  if (Number.isNaN(time)) {
    throw new CommandLineError(
      `--${option}: expected a day or time in UTC such as 2027-01-31T10:00, or 2h for 2 hours ago`,
    );
  }
  return time;
}

/** Creates the test of the filter; `undefined` without a filter. */
function readFilter(options: CommandOptions): ((entry: LogEntry) => boolean) | undefined {
  const given = Object.entries(FILTERS).flatMap(([option, name]) => {
    const text = options[option as keyof typeof FILTERS];
    return text === undefined ? [] : [[name, text]];
  });
  const { since, until } = options;
  const hasPeriod = since !== undefined || until !== undefined;
  if (given.length === 0 && !hasPeriod) return undefined;
  const result = v.safeParse(FilterSchema, Object.fromEntries(given));
  if (!result.success) {
    const { path, message } = describeIssue(result.issues[0]);
    const option = Object.entries(FILTERS).find(([, name]) => name === path)?.[0] ?? path;
    throw new CommandLineError(`--${option}: ${message}`);
  }
  const passes = createTest(result.output);
  const from = since === undefined ? -Infinity : readTime("since", since);
  const to = until === undefined ? Infinity : readTime("until", until);
  return (entry) => entry.startedAt >= from && entry.startedAt < to && passes(entry);
}

function readSum(text: string | undefined): LogSums | undefined {
  if (text === undefined) return undefined;
  const parts = text.split(",");
  const wrong = parts.find((part) => !SUM_PARTS.includes(part as SumPart));
  if (wrong !== undefined || new Set(parts).size < parts.length) {
    throw new CommandLineError(
      `--sum: expected one or several of ${SUM_PARTS.join(", ")}, with commas between them`,
    );
  }
  return new LogSums(parts as SumPart[]); // each is one of them
}

/** Processes the lines of a log, and counts skipped ones. */
class LogReading {
  readonly #options: CommandOptions;
  readonly #filter: ((entry: LogEntry) => boolean) | undefined;
  readonly #sums: LogSums | undefined;
  readonly #printer = new EntryPrinter();
  #isStopped = false;
  #wake = (): void => {};
  #foreign = 0;
  #dropped = 0;

  constructor(options: CommandOptions) {
    this.#options = options;
    this.#filter = readFilter(options);
    this.#sums = readSum(options.sum);
  }

  /**
   * True if the log is filtered, summed or printed as JSON. Lines that are not entries are then
   * skipped and counted.
   */
  get #isSelecting(): boolean {
    return this.#filter !== undefined || this.#sums !== undefined || this.#options.json === true;
  }

  #toOutput(line: string): string {
    const read = parseLogLine(line);
    if (read === undefined) {
      // At a terminal, such a line must not move the cursor: others can have chosen its content.
      if (!this.#isSelecting) {
        return `${process.stdout.isTTY ? toPlain(line.replaceAll("\t", "  ")) : line}\n`;
      }
      if (line.trim() !== "") this.#foreign++;
      return "";
    }
    if ("dropped" in read) {
      this.#dropped += read.dropped;
      return this.#isSelecting
        ? ""
        : `-- ${read.dropped} lines are missing here: the gateway dropped them\n`;
    }
    if ("event" in read) return this.#isSelecting ? "" : `${toEventLine(read.event)}\n`;
    const { entry } = read;
    if (this.#filter?.(entry) === false) return "";
    if (this.#sums !== undefined) {
      this.#sums.add(entry);
      return "";
    }
    if (this.#options.json === true) return `${line.slice(line.indexOf("{"))}\n`;
    const explanation = this.#options.id === undefined ? "" : explainEntry(entry);
    return `${this.#printer.toLine(entry)}\n${explanation}`;
  }

  /**
   * Yields the parts of an input until {@link stop} is called. Destroying standard input instead
   * would not end it on every runtime.
   */
  async *#untilStopped<Part>(input: AsyncIterator<Part>): AsyncGenerator<Part> {
    while (!this.#isStopped) {
      const step = await new Promise<IteratorResult<Part> | undefined>((resolve, reject) => {
        this.#wake = () => resolve(undefined);
        input.next().then(resolve, reject);
      });
      if (step === undefined || step.done) return;
      yield step.value;
    }
  }

  /** Stops reading: the iteration ends. */
  stop(): void {
    this.#isStopped = true;
    this.#wake();
  }

  /** Yields the text to print, as soon as lines arrive. */
  async *toText(files: readonly string[]): AsyncGenerator<string> {
    const hasColumns = this.#sums === undefined && this.#options.json !== true;
    if (process.stdout.isTTY && hasColumns) yield `${this.#printer.head()}\n`;
    for await (const lines of this.#untilStopped(readLines(files))) {
      const text = lines.map((line) => this.#toOutput(line)).join("");
      if (text !== "") yield text;
    }
    if (this.#sums === undefined) return;
    yield this.#options.json === true
      ? `${JSON.stringify(this.#sums.toJson())}\n`
      : this.#sums.toTable();
  }

  /** Reports the lines that are missing in the output. */
  reportRest(): void {
    const lines = (count: number) => count === 1 ? "1 line" : `${count} lines`;
    if (this.#foreign > 0) {
      report(`left out ${lines(this.#foreign)} that the gateway's log does not have`);
    }
    if (this.#dropped > 0 && this.#isSelecting) {
      const missing = lines(this.#dropped);
      report(
        `${missing} are missing in the log: the gateway dropped them because its reader was slow`,
      );
    }
  }
}

/**
 * Prints the log.
 *
 * @throws {CommandLineError} For a mistake in the command, or if a file can't be read
 */
export async function logCommand(options: CommandOptions): Promise<void> {
  const reading = new LogReading(options);
  // Stopping a followed log with Ctrl-C prints the sums so far.
  if (options.sum !== undefined) process.once("SIGINT", () => reading.stop());
  await printParts(reading.toText(options.operands ?? []));
  reading.reportRest();
}
