/**
 * Files that several processes share. Large ones are read and written in parts, without blocking
 * the process. A file is always replaced as a whole, so that a reader sees either the old or the
 * new content, also after a crash. Writers wait for each other.
 *
 * @module
 */
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
import {
  codeOf,
  FileUnavailable,
  findLeftovers,
  type HeldLock,
  keepOwner,
  withLock,
} from "./file_lock.ts";

export { codeOf, FileUnavailable };

/**
 * The longest time for which a starting gateway waits for writers, to clean up after killed ones.
 * Milliseconds.
 */
const TIDY_WAIT_MS = 3000;
/** Mode of files: readable and writable for the owner only. */
const FILE_MODE = 0o600;
/** The size of the parts in which a file is read and written. Bytes. */
export const PART_BYTES: number = 1 << 20;
/** The time after which long work yields to the event loop. Milliseconds. */
const TURN_MS = 5;
/** The maximum size of a file: the largest number of 32 bits. Bytes. */
const MAX_FILE_BYTES = 2 ** 32 - 1;
/**
 * The length of a file's end that is part of its fingerprint: a file that ends with a checksum
 * differs there after each change. Bytes.
 */
const TAIL_BYTES = 128;

/** Splits long work into turns, so that a large file does not keep streams waiting. */
export class Turns {
  #ends: number = performance.now() + TURN_MS;

  /** True when this turn is over, and {@link rest} should be called. */
  get isOver(): boolean {
    return performance.now() > this.#ends;
  }

  /** Yields to the event loop, and begins another turn. */
  async rest(): Promise<void> {
    await setImmediate();
    this.#ends = performance.now() + TURN_MS;
  }
}

/** Resolves a path through links to its file, which need not exist yet. */
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

  /** @param path Path of the file, which may be a link */
  constructor(path: string) {
    this.path = path;
  }

  /**
   * Returns a fingerprint of the file, which differs after each change; an empty text where there
   * is no file.
   */
  async look(): Promise<string> {
    let handle: FileHandle | undefined;
    try {
      handle = await open(this.path, "r");
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
   * @throws {FileUnavailable} When it is too large
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
   * Changes the file while no other process does.
   *
   * @param act Receives the function that replaces the file, and reads what it needs itself. It is
   * called again where this process was delayed for so long that another one took the lock; its own
   * replacement then had no effect
   * @throws {FileUnavailable} When it can't be written, or other writers take too long; the old
   * file is then unchanged
   */
  async change<T>(act: (replace: Replace) => Promise<T>): Promise<T> {
    const target = await this.#resolve();
    return await withLock(target, (lock) => act((parts) => replace(target, lock, parts)));
  }

  /**
   * Cleans up after killed writers, and reports when others than the owner can access the file.
   * Called when a gateway starts. Deletes nothing where the folder can't be written.
   *
   * @param report Receives one-line messages for the operator
   */
  async tidy(report: (text: string) => void): Promise<void> {
    const target = await this.#resolve().catch(() => this.path);
    const { mode } = await stat(target).catch(() => ({ mode: FILE_MODE }));
    if ((mode & 0o077) !== 0) {
      const octal = (mode & 0o777).toString(8).padStart(4, "0");
      report(`${this.path} is open to other users (mode ${octal}): chmod 600 ${target}`);
    }
    const find = async () => findLeftovers(target, await readdir(dirname(target)).catch(() => []));
    if ((await find()).length === 0) return;
    // Drafts are written by the holder of the lock alone: with the lock in hand, all of them are
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
