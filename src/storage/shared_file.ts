/**
 * Files that several processes share. Large ones are read and written in parts, without blocking
 * the process. A file is always replaced as a whole, so that a reader sees either the old or the
 * new content, even after a crash. Writers wait for each other.
 *
 * @module
 */
import type { ReportEvent } from "../exchange/reported_event.ts";
import { Buffer } from "node:buffer";
import {
  chmod,
  type FileHandle,
  open,
  readdir,
  readlink,
  realpath,
  rm,
  stat,
} from "node:fs/promises";
import { basename, dirname, join, resolve } from "node:path";
import { setImmediate } from "node:timers/promises";
import { codeOf } from "../errors/system_error.ts";
import { FileUnavailable, findLeftovers, type HeldLock, keepOwner, withLock } from "./file_lock.ts";

export { FileUnavailable };

/**
 * The longest time that a starting gateway waits for writers before it cleans up after killed ones.
 * Milliseconds.
 */
const TIDY_WAIT_MS = 3000;
/** Mode of files: only the owner can read and write. */
const FILE_MODE = 0o600;
/** The size of the parts in which a file is read and written. Bytes. */
export const PART_BYTES: number = 1 << 20;
/** Time after which long work yields to the event loop. Milliseconds. */
const TURN_MS = 5;
/** Maximum size of a file: the largest 32-bit number. Bytes. */
const MAX_FILE_BYTES = 2 ** 32 - 1;
/**
 * Length of the end of a file that is part of its fingerprint. A file that ends with a checksum
 * differs there after each change. Bytes.
 */
const TAIL_BYTES = 128;

/** Splits long work into turns, so that a large file does not keep streams waiting. */
export class Turns {
  #ends: number = performance.now() + TURN_MS;

  /** True if this turn is over, and {@link rest} must be called. */
  get isOver(): boolean {
    return performance.now() > this.#ends;
  }

  /** Yields to the event loop, and begins another turn. */
  async rest(): Promise<void> {
    await setImmediate();
    this.#ends = performance.now() + TURN_MS;
  }
}

/** Resolves a path through links to its file, which does not have to exist yet. */
async function resolveTarget(path: string): Promise<string> {
  try {
    return await realpath(path);
  } catch (error) {
    if (codeOf(error) !== "ENOENT") throw error;
    const link = await readlink(path).catch(() => undefined);
    return link === undefined ? path : await resolveTarget(resolve(dirname(path), link));
  }
}

async function write(handle: FileHandle, part: Uint8Array): Promise<void> {
  for (let start = 0; start < part.length;) {
    const { bytesWritten } = await handle.write(
      part,
      start,
      Math.min(PART_BYTES, part.length - start),
    );
    start += bytesWritten;
  }
}

/** Writes new content to a draft, and replaces the file by it. A link to the file stays a link. */
async function replace(
  target: string,
  lock: HeldLock,
  parts: AsyncIterable<Uint8Array>,
): Promise<void> {
  try {
    const handle = await open(lock.draft, "w", FILE_MODE);
    try {
      for await (const part of parts) await write(handle, part);
      await handle.sync();
    } finally {
      await handle.close();
    }
    const { mode } = await stat(target).catch(() => ({ mode: FILE_MODE }));
    if ((mode & FILE_MODE) !== FILE_MODE) await chmod(lock.draft, mode & FILE_MODE);
    await keepOwner(target, lock.draft);
    await lock.commit();
  } catch (cause) {
    await rm(lock.draft, { force: true }).catch(() => {});
    throw new FileUnavailable(`Cannot write ${target}: ${codeOf(cause)}`, { cause });
  }
}

/** Replaces the content of a file. */
export type Replace = (parts: AsyncIterable<Uint8Array>) => Promise<void>;

/** A file that several processes read and replace. */
export class SharedFile {
  /** Path of the file. */
  readonly path: string;

  /** @param path Path of the file, which can be a link */
  constructor(path: string) {
    this.path = path;
  }

  /**
   * Returns a fingerprint of the file, which differs after each change; an empty text if there is
   * no file.
   */
  async look(): Promise<string> {
    let handle: FileHandle | undefined;
    try {
      handle = await open(this.path, "r");
      const { mtimeMs, size, ino } = await handle.stat();
      // Two files of the same size in the same tick of the clock differ only in their end.
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
   * Returns a fingerprint that differs after each {@link change}, at a quarter of the cost of
   * {@link look}.
   */
  async glance(): Promise<string> {
    try {
      const { mtimeMs, size, ino } = await stat(this.path);
      return `${mtimeMs} ${size} ${ino}`;
    } catch (error) {
      return codeOf(error);
    }
  }

  /**
   * Reads the file.
   *
   * @throws {FileUnavailable} If it is too large
   */
  async read(): Promise<Buffer> {
    const handle = await open(this.path, "r");
    try {
      const { size } = await handle.stat();
      if (size > MAX_FILE_BYTES) {
        throw new FileUnavailable(`Cannot read ${this.path}: it is larger than 4 GB`);
      }
      const bytes = Buffer.allocUnsafe(size);
      let length = 0;
      while (length < size) {
        const { bytesRead } = await handle.read(
          bytes,
          length,
          Math.min(PART_BYTES, size - length),
          length,
        );
        if (bytesRead === 0) break;
        length += bytesRead;
      }
      return bytes.subarray(0, length);
    } finally {
      await handle.close();
    }
  }

  /**
   * Changes the file with exclusive access.
   *
   * @param act Receives the function that replaces the file. It must read the file itself. It is
   * called again if this process was delayed for so long that another one acquired the lock. Its
   * own replacement then had no effect
   * @throws {FileUnavailable} If it cannot be written, or other writers are too slow. The old file
   * is then unchanged
   */
  async change<T>(act: (replace: Replace) => Promise<T>): Promise<T> {
    const target = await this.#resolve();
    return await withLock(target, (lock) => act((parts) => replace(target, lock, parts)));
  }

  /**
   * Cleans up after killed writers, and reports if other users than the owner can access the file.
   * Called when a gateway starts. Deletes nothing if the folder is not writable.
   *
   * @param report Receives one-line messages for the operator
   */
  async tidy(report: ReportEvent): Promise<void> {
    const target = await this.#resolve().catch(() => this.path);
    const { mode } = await stat(target).catch(() => ({ mode: FILE_MODE }));
    if ((mode & 0o077) !== 0) {
      const octal = (mode & 0o777).toString(8).padStart(4, "0");
      const text = `${this.path} is open to other users (mode ${octal}): chmod 600 ${target}`;
      report(text, { event: "file_permissions", file: this.path });
    }
    const find = async () => findLeftovers(target, await readdir(dirname(target)).catch(() => []));
    if ((await find()).length === 0) return;
    // Only the holder of the lock writes drafts. With the lock acquired, all existing drafts are
    // left over.
    await withLock(target, async () => {
      const left = (await find()).filter((name) => name !== `${basename(target)}.lock`);
      for (const name of left) {
        await rm(join(dirname(target), name), { recursive: true, force: true });
      }
    }, TIDY_WAIT_MS).catch(() => {});
  }

  async #resolve(): Promise<string> {
    try {
      return await resolveTarget(this.path);
    } catch (cause) {
      throw new FileUnavailable(`Cannot write ${this.path}: ${codeOf(cause)}`, { cause });
    }
  }
}
