/**
 * Large files without a stall: read and written in parts, replaced as a whole, so that a reader sees the old one or the
 * new one, also after a crash, and of two writers one waits.
 *
 * @module
 */
import { Buffer } from "node:buffer";
import { chown, type FileHandle, open, rename, rm, stat } from "node:fs/promises";
import process from "node:process";
import { setImmediate, setTimeout as pause } from "node:timers/promises";
import { KeyStoreUnavailable } from "./key_store.ts";

/** How long a writer waits for another one. Milliseconds. */
const LOCK_WAIT_MS = 5000;
const LOCK_RETRY_MS = 20;
/** Readable by its owner only. */
const FILE_MODE = 0o600;
/** Read and written at once. Bytes. */
export const PART_BYTES: number = 1 << 20;
/** After so long a piece of work lets others work. Milliseconds. */
const TURN_MS = 5;
/** What 32 bits can count. Bytes. */
const MAX_FILE_BYTES = 2 ** 32 - 1;
/** A file's end tells one content from the next, where it holds a checksum. Bytes. */
const TAIL_BYTES = 128;

/** What the system says that went wrong, such as `EACCES`. */
export function codeOf(error: unknown): string {
  if (!(error instanceof Error)) return "unknown";
  return "code" in error ? String(error.code) : error.name;
}

/** Work in turns: a large file must not keep streams waiting. */
export class Turns {
  #ends: number = performance.now() + TURN_MS;

  /** Whether it is somebody else's turn. */
  get isOver(): boolean {
    return performance.now() > this.#ends;
  }

  /** Lets others work. */
  async rest(): Promise<void> {
    await setImmediate();
    this.#ends = performance.now() + TURN_MS;
  }
}

/**
 * Tells one content of a file from the next.
 *
 * @param file Its path
 * @returns A text that is another one after each change; empty where there is no file
 */
export async function lookAtFile(file: string): Promise<string> {
  let handle: FileHandle | undefined;
  try {
    handle = await open(file, "r");
    const { mtimeMs, size, ino } = await handle.stat();
    // Two files of the same size in the same tick of the clock can be told by their end only.
    const tail = Buffer.alloc(TAIL_BYTES);
    const { bytesRead } = await handle.read(tail, 0, TAIL_BYTES, Math.max(0, size - TAIL_BYTES));
    return `${mtimeMs} ${size} ${ino} ${tail.toString("latin1", 0, bytesRead)}`;
  } catch (error) {
    if (codeOf(error) === "ENOENT") return "";
    return `unreadable: ${codeOf(error)}`;
  } finally {
    await handle?.close();
  }
}

/**
 * Reads a file.
 *
 * @param file Its path
 * @returns All its bytes
 * @throws {KeyStoreUnavailable} When it is too large
 */
export async function readParts(file: string): Promise<Buffer> {
  const handle = await open(file, "r");
  try {
    const { size } = await handle.stat();
    if (size > MAX_FILE_BYTES) throw new KeyStoreUnavailable(`Cannot read ${file}: it is larger than 4 GB`);
    const bytes = Buffer.allocUnsafe(size);
    let length = 0;
    while (length < size) {
      const { bytesRead } = await handle.read(bytes, length, Math.min(PART_BYTES, size - length), length);
      if (bytesRead === 0) break;
      length += bytesRead;
    }
    return bytes.subarray(0, length);
  } finally {
    await handle.close();
  }
}

async function write(handle: FileHandle, part: Uint8Array): Promise<void> {
  for (let start = 0; start < part.length;) {
    const { bytesWritten } = await handle.write(part, start, Math.min(PART_BYTES, part.length - start));
    start += bytesWritten;
  }
}

/** Root may write the file of a service: it stays the service's. */
async function keepOwner(file: string, draft: string): Promise<void> {
  const [old, { uid, gid }] = await Promise.all([stat(file).catch(() => undefined), stat(draft)]);
  if (old !== undefined && (old.uid !== uid || old.gid !== gid)) await chown(draft, old.uid, old.gid).catch(() => {});
}

/**
 * Puts new content into the place of a file.
 *
 * @param file Its path
 * @param parts The whole new content
 * @throws {KeyStoreUnavailable} When it can't be written; the old file is then untouched
 */
export async function replaceFile(file: string, parts: AsyncIterable<Uint8Array>): Promise<void> {
  const draft = `${file}.${process.pid}.draft`;
  try {
    const handle = await open(draft, "w", FILE_MODE);
    try {
      for await (const part of parts) await write(handle, part);
      await handle.sync();
    } finally {
      await handle.close();
    }
    await keepOwner(file, draft);
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

/** A file and all that is done with it. */
export interface SharedFile {
  /** Its path. */
  readonly path: string;
  /** Does something that nobody else does to it meanwhile. */
  withLock<T>(act: () => Promise<T>): Promise<T>;
  /** A text that is another one after each change; empty where there is no file. */
  look(): Promise<string>;
  /** All its bytes. */
  read(): Promise<Uint8Array>;
  /** Puts new content into its place. */
  replace(parts: AsyncIterable<Uint8Array>): Promise<void>;
}

/**
 * @param path Its path
 * @returns The file, for who must not know how it is read and written
 */
export function sharedFile(path: string): SharedFile {
  return {
    path,
    withLock: (act) => withLock(path, act),
    look: () => lookAtFile(path),
    read: () => readParts(path),
    replace: (parts) => replaceFile(path, parts),
  };
}
