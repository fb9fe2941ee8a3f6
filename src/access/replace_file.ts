/**
 * Files that are replaced as a whole: a reader sees the old one or the new one, also after a crash, and of two writers
 * one waits.
 *
 * @module
 */
import { type FileHandle, open, rename, rm } from "node:fs/promises";
import process from "node:process";
import { setTimeout as pause } from "node:timers/promises";
import { KeyStoreUnavailable } from "./key_store.ts";

/** How long a writer waits for another one. Milliseconds. */
const LOCK_WAIT_MS = 5000;
const LOCK_RETRY_MS = 20;
/** Readable by its owner only. */
const FILE_MODE = 0o600;

function codeOf(error: unknown): string {
  return error instanceof Error && "code" in error
    ? String(error.code)
    : error instanceof Error
    ? error.name
    : "unknown";
}

/**
 * Puts a text into the place of a file.
 *
 * @param file Its path
 * @param text The whole new text
 * @throws {KeyStoreUnavailable} When it can't be written; the old file is then untouched
 */
export async function replaceFile(file: string, text: string): Promise<void> {
  const draft = `${file}.${process.pid}.draft`;
  try {
    const handle = await open(draft, "w", FILE_MODE);
    try {
      await handle.writeFile(text);
      await handle.sync();
    } finally {
      await handle.close();
    }
    await rename(draft, file);
  } catch (cause) {
    await rm(draft, { force: true }).catch(() => {});
    throw new KeyStoreUnavailable(`Cannot write ${file}: ${codeOf(cause)}`, { cause });
  }
}

/**
 * Does something that nobody else does to the same file meanwhile.
 *
 * @param file Its path; the lock stands beside it
 * @param act What to do
 * @returns What it returns
 * @throws {KeyStoreUnavailable} When another writer does not end
 */
export async function withLock<T>(file: string, act: () => Promise<T>): Promise<T> {
  const lock = `${file}.lock`;
  let handle: FileHandle | undefined;
  for (const deadline = performance.now() + LOCK_WAIT_MS; handle === undefined;) {
    try {
      handle = await open(lock, "wx", FILE_MODE);
    } catch (cause) {
      if (codeOf(cause) !== "EEXIST") {
        throw new KeyStoreUnavailable(`Cannot write ${lock}: ${codeOf(cause)}`, { cause });
      }
      if (performance.now() > deadline) {
        throw new KeyStoreUnavailable(
          `Cannot change ${file}: another writer holds ${lock}. If none is running any more, remove that file`,
        );
      }
      await pause(LOCK_RETRY_MS);
    }
  }
  try {
    await handle.close();
    return await act();
  } finally {
    await rm(lock, { force: true });
  }
}
