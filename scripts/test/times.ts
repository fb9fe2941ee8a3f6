/** The CPU time of a run, by test file and runtime. */
import type { TaskResult } from "./run_task.ts";

const toCell = (seconds: number | undefined): string =>
  (seconds === undefined ? "" : seconds.toFixed(1)).padStart(9);

/** The name of a file, or of the files that share a process. */
function nameOf({ files: [first = "", ...more] }: TaskResult): string {
  return more.length === 0 ? first : `${first} and ${more.length} more`;
}

const cpuOf = (results: readonly TaskResult[]): number =>
  results.reduce((sum, { cpuSeconds }) => sum + cpuSeconds, 0);

/**
 * @param results The results of a run
 * @param most The number of listed files, by CPU time over all runtimes
 * @returns Lines
 */
export function describeTimes(results: readonly TaskResult[], most: number): string {
  const labels = [...new Set(results.map(({ target }) => target.label))];
  const rows = Array.from(Map.groupBy(results, nameOf))
    .map(([name, of]) => {
      const byLabel = Map.groupBy(of, ({ target }) => target.label);
      const cells = labels.map((label) => byLabel.get(label)).map((each) => each && cpuOf(each));
      return { name, all: cpuOf(of), cells };
    })
    .toSorted((one, other) => other.all - one.all)
    .slice(0, most);
  const head = ["CPU", ...labels].map((label) => label.padStart(9)).join("");
  const lines = rows.map(({ name, all, cells }) =>
    `${[all, ...cells].map(toCell).join("")}  ${name}`
  );
  return `\n${head}  file\n${lines.join("\n")}`;
}
