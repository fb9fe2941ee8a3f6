/**
 * SIGHUP: the configuration is read again, and takes the place of the one before as a whole or not at all.
 *
 * @module
 */
import { closeSync, openSync } from "node:fs";
import process from "node:process";
import { ConfigError } from "../config/config.ts";
import type { Change } from "./change.ts";
import type { Source } from "./prepare.ts";

/** A configuration that is in force, as operators are told of it. */
export interface InForce {
  /** Its digest, equal for gateways with equal configurations. */
  readonly digest: string;
  /** Since when, ISO 8601. */
  readonly loadedAt: string;
}

/** What a process that reloads needs. */
export interface ReloaderOptions {
  /** Reads the configuration. @param file The one that is in force */
  readonly read: (file: string | undefined) => Source;
  /** Prepares everything of it. */
  readonly prepare: (source: Source) => Promise<Change>;
  /** Is told in one line what became of it. */
  readonly report: (text: string) => void;
}

/** The configuration of a process, and its way to the next one. */
export class Reloader {
  readonly #options: ReloaderOptions;
  #source: Source | undefined;
  #loadedAt = 0;
  #isReloading = false;
  #isWanted = false;
  #isOver = false;

  /** @param options What it needs */
  constructor(options: ReloaderOptions) {
    this.#options = options;
  }

  /** What is in force. */
  get inForce(): InForce {
    return { digest: this.#source?.digest ?? "", loadedAt: new Date(this.#loadedAt).toISOString() };
  }

  /**
   * Puts the first configuration into force.
   *
   * @param source The configuration
   * @throws {ConfigError} When it can't be served
   */
  async start(source: Source): Promise<void> {
    const change = await this.#options.prepare(source);
    this.#apply(source, change);
  }

  /** Reads the configuration again. One that is asked for meanwhile comes after it, and several at once are one. */
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

  /** The process is about to end: nothing changes any more. */
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
      report(`the configuration was reloaded (${source.file ?? "environment"}), digest ${source.digest}`);
    } catch (error) {
      const why = error instanceof ConfigError ? error.message.replaceAll("\n", "; ") : String(error);
      report(`the configuration was not reloaded, the one before holds on: ${why}`);
    }
  }

  #apply(source: Source, change: Change): void {
    change.apply();
    this.#source = source;
    this.#loadedAt = Date.now();
  }
}

/** Exit status of a program that SIGHUP has ended: 128 and the signal's number. */
const HUNG_UP = 129;

/** Whether the process had a terminal and has none any more: SIGHUP is then the word that it has gone. */
function hasLostTerminal(): boolean {
  try {
    closeSync(openSync("/dev/tty", "r"));
    return false;
  } catch (error) {
    return error instanceof Error && "code" in error && (error.code === "ENXIO" || error.code === "EIO");
  }
}

/**
 * Catches SIGHUP from now on, which ends a process that does not.
 *
 * @returns Takes who is called, also for one that came before
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
