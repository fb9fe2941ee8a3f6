/**
 * Changes in a file next to the file of keys: a line of JSON for each, the oldest first.
 *
 * @module
 */
import { Buffer } from "node:buffer";
import { codeOf } from "../errors/system_error.ts";
import { FileUnavailable, type SharedFile } from "../storage/shared_file.ts";
import {
  type ChangeLog,
  type LoggedChange,
  MAX_CHANGES,
  readChange,
  writeChange,
} from "./change_log.ts";
import { KeyStoreUnavailable } from "./key_store.ts";

async function* toParts(lines: readonly string[]): AsyncGenerator<Buffer> {
  yield Buffer.from(lines.map((line) => `${line}\n`).join(""));
}

/** Changes in a file. A file that does not exist has no changes. */
export class FileChangeLog implements ChangeLog {
  readonly #file: SharedFile;

  constructor(file: SharedFile) {
    this.#file = file;
  }

  add(change: LoggedChange): Promise<void> {
    return this.#explain(() =>
      this.#file.change(async (replace) => {
        // Lines in a form that this version does not know are kept.
        const lines = [...await this.#lines(), writeChange(change)];
        await replace(toParts(lines.slice(-MAX_CHANGES)));
      })
    );
  }

  read(): Promise<readonly LoggedChange[]> {
    return this.#explain(async () => {
      const changes = (await this.#lines()).map(readChange);
      return changes.filter((change) => change !== undefined).reverse();
    });
  }

  async #lines(): Promise<string[]> {
    if (await this.#file.look() === "") return [];
    const text = (await this.#file.read()).toString("utf8");
    return text.split("\n").filter((line) => line !== "");
  }

  async #explain<T>(act: () => Promise<T>): Promise<T> {
    try {
      return await act();
    } catch (cause) {
      const message = cause instanceof FileUnavailable
        ? cause.message
        : `Cannot use ${this.#file.path}: it can't be read: ${codeOf(cause)}`;
      throw new KeyStoreUnavailable(message, { cause });
    }
  }
}
