/**
 * Files that several processes share. Large ones are read and written in parts, without a stall; each is replaced as a
 * whole, so that a reader sees the old one or the new one, also after a crash, and of two writers one waits.
 *
 * @module
 */
import { Buffer } from "node:buffer";
import { chmod, type FileHandle, open, readdir, readlink, realpath, rm, stat } from "node:fs/promises";
import { basename, dirname, join, resolve } from "node:path";
import { setImmediate } from "node:timers/promises";
import { codeOf, FileUnavailable, findLeftovers, type HeldLock, keepOwner, withLock } from "./file_lock.ts";

export { codeOf, FileUnavailable };

/** For how long a gateway that starts waits for writers, to clear up behind those that were killed. Milliseconds. */
const TIDY_WAIT_MS = 1500;
/** Readable and writable for its owner, and for nobody else. */
const FILE_MODE = 0o600;
/** Read and written at once. Bytes. */
export const PART_BYTES: number = 1 << 20;
/** After so long a piece of work lets others work. Milliseconds. */
const TURN_MS = 5;
/** What 32 bits can count. Bytes. */
const MAX_FILE_BYTES = 2 ** 32 - 1;
/** A file's end tells one content from the next, where it holds a checksum. Bytes. */
const TAIL_BYTES = 128;

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

/** The file that a path means, through links, also where there is none yet. */
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
    const { bytesWritten } = await handle.write(part, start, Math.min(PART_BYTES, part.length - start));
    start += bytesWritten;
  }
}

/** Writes new content beside a file and puts it into its place. A link to the file stays a link. */
async function replace(target: string, lock: HeldLock, parts: AsyncIterable<Uint8Array>): Promise<void> {
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

/** Puts new content into the place of a file. */
export type Replace = (parts: AsyncIterable<Uint8Array>) => Promise<void>;

/** A file that several processes read and replace. */
export class SharedFile {
  /** Its path. */
  readonly path: string;

  /** @param path Its path, which may be a link */
  constructor(path: string) {
    this.path = path;
  }

  /** @returns A text that is another one after each change; empty where there is no file */
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

  /** @returns A text that is another one after each {@link change}, for a quarter of the cost of a {@link look} */
  async glance(): Promise<string> {
    try {
      const { mtimeMs, size, ino } = await stat(this.path);
      return `${mtimeMs} ${size} ${ino}`;
    } catch (error) {
      return codeOf(error);
    }
  }

  /**
   * @returns All its bytes
   * @throws {FileUnavailable} When it is too large
   */
  async read(): Promise<Buffer> {
    const handle = await open(this.path, "r");
    try {
      const { size } = await handle.stat();
      if (size > MAX_FILE_BYTES) throw new FileUnavailable(`Cannot read ${this.path}: it is larger than 4 GB`);
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

  /**
   * Changes it while no other process does.
   *
   * @param act Is given the way to replace it, and reads what it needs itself. It is called again where this process was
   * held up for so long that another one went ahead; what it had replaced then did not happen
   * @returns What it returns
   * @throws {FileUnavailable} When it can't be written, or others do not end; the old file is then untouched
   */
  async change<T>(act: (replace: Replace) => Promise<T>): Promise<T> {
    const target = await this.#resolve();
    return await withLock(target, (lock) => act((parts) => replace(target, lock, parts)));
  }

  /**
   * Clears up behind writers that were killed, and says when others than the owner can get at the file. For a gateway
   * that starts: where nothing can be written, nothing is.
   *
   * @param report Is told in one line what an operator should know
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
    // Drafts are written by the holder of the lock alone: with the lock in hand, all of them are left over.
    await withLock(target, async () => {
      const left = (await find()).filter((name) => name !== `${basename(target)}.lock`);
      for (const name of left) await rm(join(dirname(target), name), { recursive: true, force: true });
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
