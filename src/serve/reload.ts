/**
 * Reload at SIGHUP: the configuration is read again, and replaces the previous one completely or
 * not at all.
 *
 * @module
 */
import type { ReportEvent } from "../exchange/reported_event.ts";
import { closeSync, openSync } from "node:fs";
import process from "node:process";
import { ConfigError } from "../config/config.ts";
import type { Change } from "./change.ts";
import type { Source } from "./prepare.ts";
import { codeOf } from "../errors/system_error.ts";

/** The active configuration, as shown to operators. */
export interface InForce {
  /** Its digest. Gateways with equal configurations have equal digests. */
  readonly digest: string;
  /** Time when it became active, ISO 8601. */
  readonly loadedAt: string;
}

/** Options of a {@link Reloader}. */
export interface ReloaderOptions {
  /** Reads the configuration. `file` is the active one. */
  readonly read: (file: string | undefined) => Source;
  /** Prepares the change to the configuration. */
  readonly prepare: (source: Source) => Promise<Change>;
  /** Receives the result of a reload as one line. */
  readonly report: ReportEvent;
}

/** Stores the active configuration of a process, and replaces it. */
export class Reloader {
  readonly #options: ReloaderOptions;
  #source: Source | undefined;
  #loadedAt = 0;
  #isReloading = false;
  #isWanted = false;
  #isOver = false;

  constructor(options: ReloaderOptions) {
    this.#options = options;
  }

  /** The active configuration. */
  get inForce(): InForce {
    return { digest: this.#source?.digest ?? "", loadedAt: new Date(this.#loadedAt).toISOString() };
  }

  /**
   * Activates the first configuration.
   * @throws {ConfigError} If it can't be served
   */
  async start(source: Source): Promise<void> {
    const change = await this.#options.prepare(source);
    if (this.#isOver) return await change.abandon();
    this.#apply(source, change);
  }

  /** Reads the configuration again. All calls during a reload cause one more reload after it. */
  async reload(): Promise<void> {
    this.#isWanted = true;
    if (this.#isReloading) return;
    this.#isReloading = true;
    while (this.#isWanted && !this.#isOver) {
      this.#isWanted = false;
      await this.#reloadOnce();
    }
    this.#isReloading = false;
  }

  /** Ends reloading, because the process is about to end. */
  end(): void {
    this.#isOver = true;
  }

  async #reloadOnce(): Promise<void> {
    const { read, prepare, report } = this.#options;
    try {
      const source = read(this.#source?.file);
      const change = await prepare(source);
      if (this.#isOver) return await change.abandon();
      this.#apply(source, change);
      const { file, digest } = source;
      const from = file ?? "environment";
      const text = `the configuration was reloaded (${from}), digest ${digest}`;
      report(text, { event: "reloaded", from, digest });
    } catch (error) {
      const why = error instanceof ConfigError
        ? error.message.replaceAll("\n", "; ")
        : String(error);
      const text = `the configuration was not reloaded, the previous one stays in effect: ${why}`;
      report(text, { event: "reload_failed", reason: why });
    }
  }

  #apply(source: Source, change: Change): void {
    change.apply();
    this.#source = source;
    this.#loadedAt = Date.now();
  }
}

/** Exit status of a program that was ended by SIGHUP: 128 plus the number of the signal. */
const HUNG_UP = 129;

/** True if the terminal of this process was closed, which caused the SIGHUP. */
function hasLostTerminal(): boolean {
  try {
    closeSync(openSync("/dev/tty", "r"));
    return false;
  } catch (error) {
    return ["ENXIO", "EIO"].includes(codeOf(error));
  }
}

/**
 * Catches SIGHUP from now on. An uncaught one would end the process.
 *
 * @returns A function that sets the callback. It is called at once if a SIGHUP has already arrived
 */
export function catchHangups(): (onHangup: () => void) => void {
  const hadTerminal = process.stdout.isTTY === true;
  let isWanted = false;
  let act = (): void => void (isWanted = true);
  process.on("SIGHUP", () => {
    // Closing a terminal ends the programs started in it, including this one.
    if (hadTerminal && hasLostTerminal()) process.exit(HUNG_UP);
    act();
  });
  return (onHangup) => {
    act = onHangup;
    if (isWanted) onHangup();
  };
}
