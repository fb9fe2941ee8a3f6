/**
 * Reload at SIGHUP: the configuration is read again, and replaces the previous one as a whole or
 * not at all.
 *
 * @module
 */
import { closeSync, openSync } from "node:fs";
import process from "node:process";
import { ConfigError } from "../config/config.ts";
import type { Change } from "./change.ts";
import type { Source } from "./prepare.ts";
import { codeOf } from "./system_error.ts";

/** The configuration in force, as it is shown to operators. */
export interface InForce {
  /** Its digest, equal for gateways with equal configurations. */
  readonly digest: string;
  /** The time since which it is in force, ISO 8601. */
  readonly loadedAt: string;
}

/** Options of a {@link Reloader}. */
export interface ReloaderOptions {
  /** Reads the configuration. `file` is the one in force. */
  readonly read: (file: string | undefined) => Source;
  /** Prepares the change to the configuration. */
  readonly prepare: (source: Source) => Promise<Change>;
  /** Receives the result of a reload as one line. */
  readonly report: (text: string) => void;
}

/** Holds the configuration in force of a process, and replaces it. */
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

  /** The configuration in force. */
  get inForce(): InForce {
    return { digest: this.#source?.digest ?? "", loadedAt: new Date(this.#loadedAt).toISOString() };
  }

  /**
   * Puts the first configuration into force.
   * @throws {ConfigError} When it can't be served
   */
  async start(source: Source): Promise<void> {
    const change = await this.#options.prepare(source);
    if (this.#isOver) return await change.abandon();
    this.#apply(source, change);
  }

  /** Reads the configuration again. All calls during a reload lead to one more reload after it. */
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
      report(
        `the configuration was reloaded (${source.file ?? "environment"}), digest ${source.digest}`,
      );
    } catch (error) {
      const why = error instanceof ConfigError
        ? error.message.replaceAll("\n", "; ")
        : String(error);
      report(`the configuration was not reloaded, the one before holds on: ${why}`);
    }
  }

  #apply(source: Source, change: Change): void {
    change.apply();
    this.#source = source;
    this.#loadedAt = Date.now();
  }
}

/** Exit status of a program that SIGHUP has ended: 128 plus the number of the signal. */
const HUNG_UP = 129;

/** Returns whether the terminal of this process was closed, which is then the cause of a SIGHUP. */
function hasLostTerminal(): boolean {
  try {
    closeSync(openSync("/dev/tty", "r"));
    return false;
  } catch (error) {
    return ["ENXIO", "EIO"].includes(codeOf(error));
  }
}

/**
 * Catches SIGHUP from now on; an uncaught one would end the process.
 *
 * @returns A function that sets the callback; it is called at once if a SIGHUP came before
 */
export function catchHangups(): (onHangup: () => void) => void {
  const hadTerminal = process.stdout.isTTY === true;
  let isWanted = false;
  let act = (): void => void (isWanted = true);
  process.on("SIGHUP", () => {
    // A terminal that is closed ends what was started in it, as it ends everything else.
    if (hadTerminal && hasLostTerminal()) process.exit(HUNG_UP);
    act();
  });
  return (onHangup) => {
    act = onHangup;
    if (isWanted) onHangup();
  };
}
