/**
 * Preloaded into a gateway on Node (`--import`). At each message of its parent it reports the
 * functions of `src/` that were entered since the last message (V8's precise coverage).
 */
import { Session } from "node:inspector";
import process from "node:process";

/**
 * The entered functions of one file, and nested functions that were not entered: offsets of
 * characters.
 */
export interface EnteredFile {
  /** A `file:` URL. */
  readonly url: string;
  /** Outer functions before inner ones. */
  readonly functions: readonly {
    readonly from: number;
    readonly to: number;
    readonly isEntered: boolean;
  }[];
}

const session = new Session();
session.connect();
session.post("Profiler.enable");
session.post("Profiler.startPreciseCoverage", { callCount: true, detailed: false });

process.on("message", (message) => {
  if (message !== "entered") return;
  session.post("Profiler.takePreciseCoverage", (error, { result }) => {
    if (error !== null) throw error;
    const files = result.filter(({ url }) => url.includes("/src/")).map((
      { url, functions },
    ): EnteredFile => ({
      url,
      functions: functions.flatMap(({ ranges }) =>
        ranges.slice(0, 1).map(({ startOffset, endOffset, count }) => ({
          from: startOffset,
          to: endOffset,
          isEntered: count > 0,
        }))
      ),
    }));
    process.send?.(files);
  });
});
