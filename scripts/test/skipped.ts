/**
 * The tests that did not run, and the reasons: read from the reports of a run, and printed at its
 * end.
 */

/** The reason at the end of a title. */
const REASON = /\(skipped: ([^()]+)\)$/;
/** The form that `tests/support/requires.ts` writes. */
const MISSING = /^needs the Debian packages (.+)$/;
const ENTITIES: Readonly<Record<string, string>> = {
  amp: "&",
  apos: "'",
  gt: ">",
  lt: "<",
  quot: '"',
};

/**
 * Reads the title of a case in a JUnit report.
 *
 * @param attributes The attributes of its element
 * @returns The title
 */
export function readTitle(attributes: string): string {
  const [, name = ""] = /\bname="([^"]*)"/.exec(attributes) ?? [];
  return name.replace(/&(amp|apos|gt|lt|quot);/g, (_, entity) => ENTITIES[entity] ?? "");
}

/**
 * Checks if a title says that its test is skipped.
 *
 * @param title The title
 * @returns True if it ends in a reason
 */
export function hasReason(title: string): boolean {
  return REASON.test(title);
}

/**
 * Describes skipped tests: the number of tests for each reason, the missing packages, and how to
 * install them.
 *
 * @param skipped Titles of skipped tests, by the runtime that skipped them
 * @returns Lines; empty if no test was skipped
 */
export function describeSkipped(skipped: ReadonlyMap<string, readonly string[]>): string {
  const counts = new Map<string, number>();
  const packages = new Set<string>();
  const missed = new Map<string, string[]>();
  for (const [label, titles] of skipped) {
    for (const title of titles) {
      const reason = REASON.exec(title)?.[1] ?? `no reason given: ${title}`;
      const [, names] = MISSING.exec(reason) ?? [];
      for (const name of names?.split(" ") ?? []) packages.add(name);
      const text = names === undefined
        ? reason
        : `${reason}: ${title.replace(REASON, "").replace(/^.* > /, "").trimEnd()}`;
      counts.set(text, (counts.get(text) ?? 0) + 1);
      missed.set(text, [...new Set([...missed.get(text) ?? [], label])]);
    }
  }
  if (counts.size === 0) return "";
  const lines = Array.from(counts).toSorted(([a], [b]) => a < b ? -1 : 1)
    .map(([text, count]) =>
      `${String(count).padStart(7)}  ${text} (${missed.get(text)?.join(", ")})`
    );
  const names = Array.from(packages).sort().join(" ");
  const install = names === ""
    ? ""
    : `\nTo run what misses a package: sudo apt-get install ${names}\n`;
  return `\nskipped  reason\n${lines.join("\n")}\n${install}`;
}
