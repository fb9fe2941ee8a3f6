/**
 * The log of events, such as a reload or a broken file: JSON lines in the access log for programs,
 * or lines on standard error for a person at a terminal.
 *
 * @module
 */
import type { Config } from "../config/config.ts";
import type { ReportEvent } from "../exchange/reported_event.ts";
import type { AccessLogs } from "./access_logs.ts";
import type { Change } from "./change.ts";
import type { Instance } from "./instance.ts";
import type { Source } from "./prepare.ts";

/** Parts of an {@link EventLog}. */
export interface EventLogParts {
  readonly logs: AccessLogs;
  readonly instance: Instance;
  /** Format of the log from the command line; `undefined` if not set. */
  readonly log: Config["log"] | undefined;
  /** Id of this process if it is a worker; its events have it. */
  readonly worker: number | undefined;
  /** Writes one line for a person to standard error. */
  readonly say: (text: string) => void;
}

/** The log of events. */
export class EventLog {
  readonly #parts: EventLogParts;
  /** Before the configuration is known, the format is that of `"log": "auto"`. */
  #log: Config["log"] = "auto";

  constructor(parts: EventLogParts) {
    this.#parts = parts;
  }

  /** True if events are JSON lines in the log. */
  get isJson(): boolean {
    return this.#parts.logs.ofEvents(this.#wanted) !== undefined;
  }

  /** Writes an event. */
  readonly report: ReportEvent = (text, facts) => {
    const { logs, instance, worker, say } = this.#parts;
    const log = logs.ofEvents(this.#wanted);
    if (log === undefined) return say(text);
    const time = new Date().toISOString();
    const { name } = instance;
    log.write(JSON.stringify({ time, instance: name, worker, ...facts, message: text }));
  };

  /** Uses the settings of a configuration. */
  use(source: Source): void {
    this.#log = source.log;
    this.#parts.instance.use(source);
  }

  /** Prepares the settings of another configuration. */
  prepare(source: Source): Promise<Change> {
    return Promise.resolve({
      apply: () => this.use(source),
      abandon: () => Promise.resolve(),
    });
  }

  get #wanted(): Config["log"] {
    return this.#parts.log ?? this.#log;
  }
}
