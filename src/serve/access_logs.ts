/**
 * Access logs on standard output.
 *
 * @module
 */
import { write } from "node:fs";
import { Buffer } from "node:buffer";
import process from "node:process";
import type { Config } from "../config/config.ts";
import { systemClock } from "../exchange/clock.ts";
import type { AuditEntry } from "../observe/audit_line.ts";
import { AccessLog, type LogFormat, type WriteLog } from "../observe/access_log.ts";
import { runtime } from "../runtime.ts";

/** The used part of Deno's types. */
interface DenoOutput {
  readonly stdout: { write(bytes: Uint8Array): Promise<number> };
}

const STDOUT = 1;
/** Pause before a full pipe is written again. Milliseconds. */
const FULL_MS = 20;

function toDenoOutput({ stdout }: DenoOutput): WriteLog {
  const writeAll = async (text: string) => {
    for (let bytes: Uint8Array = Buffer.from(text); bytes.length > 0;) {
      bytes = bytes.subarray(await stdout.write(bytes));
    }
  };
  return (text, done) => void writeAll(text).then(() => done(null), done);
}

/**
 * Returns a function that writes a whole text to standard output and never blocks the process.
 * `process.stdout` is synchronous for pipes on Linux, and would block if the reader stops reading.
 */
function createStandardOutput(): WriteLog {
  // Deno's node:fs blocks too. Its own output does not.
  if (runtime === "deno") return toDenoOutput((globalThis as unknown as { Deno: DenoOutput }).Deno);
  return (text, done) => {
    const bytes = Buffer.from(text);
    const from = (start: number): void =>
      write(STDOUT, bytes, start, bytes.length - start, null, (error, written) => {
        if (error?.code === "EAGAIN") return void systemClock.timer(FULL_MS, () => from(start));
        if (error !== null) return done(error);
        if (start + written < bytes.length) return from(start + written);
        done(null);
      });
    from(0);
  };
}

function toFormat(wanted: Config["log"]): LogFormat {
  if (wanted === "debug") return "debug";
  const mayBePretty = wanted !== "json";
  return mayBePretty && process.stdout.isTTY ? "pretty" : "json";
}

/**
 * The access logs of a process: JSON lines for programs, pretty lines for a person at a terminal.
 */
export class AccessLogs {
  /** One log per format. Counts are kept if another configuration uses the other format. */
  readonly #logs = new Map<LogFormat, AccessLog>();

  /** Returns the configured log. */
  of(wanted: Config["log"]): AccessLog | undefined {
    return wanted === "off" ? undefined : this.#open(toFormat(wanted));
  }

  /**
   * Returns the log that events are written to, even if exchanges are not logged; `undefined` if a
   * person at a terminal reads them.
   */
  ofEvents(wanted: Config["log"]): AccessLog | undefined {
    const format = toFormat(wanted);
    return format === "pretty" ? undefined : this.#open(format);
  }

  #open(format: LogFormat): AccessLog {
    let log = this.#logs.get(format);
    if (log === undefined) {
      this.#logs.set(format, log = new AccessLog(format, createStandardOutput(), systemClock));
    }
    return log;
  }

  /** Writes a line about an operator's change, even if exchanges are not logged. */
  audit(wanted: Config["log"], entry: AuditEntry): void {
    this.of(wanted === "off" ? "json" : wanted)?.audit(entry);
  }

  /** Number of dropped lines. */
  get dropped(): number {
    return Array.from(this.#logs.values()).reduce((sum, { dropped }) => sum + dropped, 0);
  }

  /** Writes pending lines. @param limitMs The longest wait, milliseconds */
  async close(limitMs: number): Promise<void> {
    await Promise.all(Array.from(this.#logs.values(), (log) => log.close(limitMs)));
  }
}
