/**
 * Revoked identity tokens in a JSON file next to the keys, replaced as a whole and watched.
 *
 * @module
 */
import type { ReportEvent } from "../../exchange/reported_event.ts";
import { Buffer } from "node:buffer";
import { ConfigError } from "../../config/config.ts";
import type { Clock } from "../../exchange/clock.ts";
import { FileUnavailable, type SharedFile } from "../../storage/shared_file.ts";
import { isOfLaterForm, LaterForms } from "../../storage/stored_forms.ts";
import { KeyStoreUnavailable } from "../key_store.ts";
import {
  MAX_REVOCATIONS,
  readRevocation,
  refuseMore,
  type RevocableToken,
  type Revocation,
  RevocationIndex,
  type RevocationRegistry,
} from "./revocations.ts";

/** Interval at which the file is checked. Milliseconds. */
const WATCH_MS = 300;

function readFileText(text: string): Revocation[] {
  const content: unknown = JSON.parse(text);
  if (isOfLaterForm(content)) throw new LaterForms("this file");
  const { revoked } = Object(content) as { revoked?: unknown };
  if (!Array.isArray(revoked)) throw new Error("expected an object with revoked");
  return revoked.map(readRevocation);
}

async function* toParts(all: readonly Revocation[]): AsyncGenerator<Uint8Array> {
  yield await Promise.resolve(Buffer.from(`${JSON.stringify({ revoked: all }, null, 1)}\n`));
}

/** Revocations in a file. Without the file there are none. The first revocation creates it. */
export class FileRevocations implements RevocationRegistry {
  readonly #file: SharedFile;
  readonly #clock: Clock;
  readonly #report: ReportEvent;
  readonly #index = new RevocationIndex();
  #version: string | undefined;
  #glance: string | undefined;
  #isReady = false;
  #isClosed = false;
  #cancelTimer = (): void => {};

  /** @param options The clock; a function that receives one line about a broken file */
  constructor(
    file: SharedFile,
    { clock, report }: { clock: Clock; report: ReportEvent },
  ) {
    this.#file = file;
    this.#clock = clock;
    this.#report = report;
  }

  get isReady(): boolean {
    return this.#isReady;
  }

  /** Reads the file and watches it from then on. @throws {ConfigError} If it cannot be read */
  async start(): Promise<void> {
    await this.check();
    this.#watch();
  }

  /** Reads the file. @throws {ConfigError} If it cannot be read */
  async check(): Promise<void> {
    try {
      await this.#read();
    } catch (cause) {
      const message = cause instanceof LaterForms
        ? cause.message
        : "cannot read the revoked tokens: mend the file, or remove it to accept these tokens again";
      throw new ConfigError([{ path: "identity", message, source: this.#file.path }]);
    }
  }

  isRevoked(token: RevocableToken): boolean {
    return this.#index.isRevoked(token);
  }

  async list(): Promise<readonly Revocation[]> {
    return await this.#explain(async () => {
      await this.#read();
      return this.#index.list(this.#clock.now());
    });
  }

  async revoke(revocation: Revocation): Promise<void> {
    await this.#explain(() =>
      this.#file.change(async (replace) => {
        await this.#read();
        const before = this.#index.list(this.#clock.now());
        if (before.length >= MAX_REVOCATIONS) refuseMore();
        await replace(toParts([revocation, ...before]));
      })
    );
    this.#index.add(revocation);
  }

  /** Ends the watch. */
  close(): void {
    this.#isClosed = true;
    this.#cancelTimer();
  }

  async #explain<T>(act: () => Promise<T>): Promise<T> {
    try {
      return await act();
    } catch (cause) {
      if (cause instanceof FileUnavailable || cause instanceof LaterForms) {
        throw new KeyStoreUnavailable(cause.message, { cause });
      }
      const isMistyped = cause instanceof Error && cause.name === "ValiError";
      if (cause instanceof SyntaxError || isMistyped) {
        throw new KeyStoreUnavailable(`Cannot use ${this.#file.path}: it is broken`, { cause });
      }
      throw cause;
    }
  }

  async #read(): Promise<void> {
    const version = await this.#file.look();
    if (version === this.#version) return;
    // If the file is deleted, its revocations end.
    this.#index.replace(
      version === "" ? [] : readFileText((await this.#file.read()).toString("utf8")),
    );
    this.#version = version;
    this.#isReady = true;
  }

  #watch(): void {
    if (this.#isClosed) return;
    this.#cancelTimer = this.#clock.timer(
      WATCH_MS,
      () => void this.#follow().finally(() => this.#watch()),
      {
        isBackground: true,
      },
    );
  }

  /** Reads the file if it has changed. While it is broken, the previous revocations apply. */
  async #follow(): Promise<void> {
    const glance = await this.#file.glance();
    if (glance === this.#glance) return;
    try {
      await this.#read();
      this.#glance = glance;
    } catch {
      if (this.#glance !== `broken ${glance}`) {
        const { path } = this.#file;
        const text = `${path}: the revoked tokens can't be read. The previous ones stay revoked`;
        this.#report(text, { event: "file_unreadable", file: path });
      }
      this.#glance = `broken ${glance}`;
    }
  }
}
