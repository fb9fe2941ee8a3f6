/**
 * A lock next to a file. It becomes free when its holder dies. It needs a file system with POSIX
 * renames of folders.
 *
 * The lock is the folder `FILE.lock`. It is free while that is missing or empty. A writer prepares
 * its own folder that contains its holder's folder, and renames it to `FILE.lock`. This succeeds
 * for only one writer, and only while the lock is free. The holder regularly touches its folder as
 * a sign of life. The name of the folder states a lease: a waiting writer that sees no sign of life
 * for that time moves the folder of that holder away, once.
 *
 * No process id, host name or clock is compared, so that it works across containers and hosts. A
 * holder that was only slow, or suspended, loses the lock too. This is safe: its draft is in its
 * own folder, so its commit then fails, and it starts again with a longer lease.
 *
 * @module
 */
import { randomBytes } from "node:crypto";
import { chown, mkdir, readdir, rename, rm, rmdir, stat, utimes } from "node:fs/promises";
import { basename, join } from "node:path";
import process from "node:process";
import { codeOf } from "../errors/system_error.ts";
import { setTimeout as pause } from "node:timers/promises";

/** The longest time for which a writer waits for other writers that are alive. Milliseconds. */
const WAIT_MS = 5000;
const RETRY_MS = 20;
/** Interval between two signs of life of a holder. Milliseconds. */
const SIGN_MS = 100;
/**
 * The time without a sign of life after which a holder counts as dead. Doubled after each lock that
 * a writer loses, up to {@link MAX_LEASE_MS}. Milliseconds.
 */
const LEASE_MS = 600;
const MAX_LEASE_MS = 4 * LEASE_MS;
/** The maximum number of attempts of a writer that loses its lock each time. */
const MAX_TRIES = 6;
/**
 * The step that each sign of life adds to the modification time of the holder's folder: large
 * enough to be visible on every file system. Milliseconds.
 */
const STEP_MS = 10_000;
/** Mode of folders: accessible to the owner only. */
const FOLDER_MODE = 0o700;
/**
 * Error codes of a rename to the lock while it has a holder, or while it is a file, see
 * {@link findHolder}.
 */
const HELD: ReadonlySet<string> = new Set(["ENOTEMPTY", "EEXIST", "ENOTDIR"]);

/** Error for a file that cannot be read or written. Its message is for the operator. */
export class FileUnavailable extends Error {
  override readonly name = "FileUnavailable";
}

/** Waits for an operation that can fail with one of these error codes: `false` if it did. */
async function unless(codes: readonly string[], doing: Promise<unknown>): Promise<boolean> {
  try {
    await doing;
    return true;
  } catch (error) {
    if (!codes.includes(codeOf(error))) throw error;
    return false;
  }
}

/**
 * Sets the owner of a new file or folder to the owner of an existing file. Files of a service then
 * still belong to the service if root writes them.
 */
export async function keepOwner(file: string, made: string): Promise<void> {
  const [old, { uid, gid }] = await Promise.all([stat(file).catch(() => undefined), stat(made)]);
  if (old === undefined) return;
  const isSame = old.uid === uid && old.gid === gid;
  if (!isSame) await chown(made, old.uid, old.gid).catch(() => {});
}

/** An acquired lock. */
export interface HeldLock {
  /** Path of the draft, to which the new content is written. */
  readonly draft: string;
  /** Replaces the file by the draft. Fails if the lock was lost. */
  commit(): Promise<void>;
}

/** The holder of a lock, as other writers see it. */
interface Holder {
  readonly path: string;
  /** Text that changes with each sign of life. */
  readonly sign: string;
  readonly leaseMs: number;
}

async function findHolder(lock: string): Promise<Holder | undefined> {
  try {
    const [name] = await readdir(lock);
    if (name === undefined) return undefined;
    const path = join(lock, name);
    const { mtimeMs } = await stat(path);
    const leaseMs = Number(/-(\d+)$/.exec(name)?.[1] ?? LEASE_MS);
    return { path, sign: `${name} ${mtimeMs}`, leaseMs: Math.min(leaseMs, MAX_LEASE_MS) };
  } catch (error) {
    if (codeOf(error) === "ENOENT") return undefined;
    // The lock of an earlier version is a file. It was left behind, or its holder is done in a
    // moment.
    if (codeOf(error) === "ENOTDIR") return { path: lock, sign: "a file", leaseMs: LEASE_MS };
    throw error;
  }
}

/**
 * Moves a holder's folder away. If several writers try at once, only one succeeds. A later holder
 * is not affected.
 */
async function evict(holder: Holder, grave: string): Promise<void> {
  if (await unless(["ENOENT"], rename(holder.path, grave))) {
    await rm(grave, { recursive: true, force: true });
  }
}

const isThere = (path: string): Promise<boolean> => stat(path).then(() => true, () => false);

/**
 * Creates the folder that becomes the lock. A starting gateway can delete it in the meantime, which
 * is noticed later.
 */
async function prepare(file: string, folder: string, name: string): Promise<void> {
  await unless(["EEXIST"], mkdir(folder, { mode: FOLDER_MODE }));
  await unless(["EEXIST", "ENOENT"], mkdir(join(folder, name), { mode: FOLDER_MODE }));
  for (const made of [folder, join(folder, name)]) await unless(["ENOENT"], keepOwner(file, made));
}

/** Renames a prepared folder to the lock: `true` if the lock was acquired. */
async function tryLock(file: string, folder: string, name: string): Promise<boolean> {
  const lock = `${file}.lock`;
  try {
    await rename(folder, lock);
  } catch (error) {
    if (HELD.has(codeOf(error))) return false;
    if (codeOf(error) !== "ENOENT") throw error;
    await prepare(file, folder, name);
    if (!(await unless([...HELD, "ENOENT"], rename(folder, lock)))) return false;
  }
  return await isThere(join(lock, name));
}

/**
 * Acquires the lock, and returns the path of the own holder's folder; `undefined` if others have
 * the lock for too long.
 */
async function acquire(file: string, leaseMs: number, waitMs: number): Promise<string | undefined> {
  const lock = `${file}.lock`;
  const name = `${process.pid}-${randomBytes(8).toString("hex")}-${leaseMs}`;
  const folder = `${lock}.${name}`;
  let sign = "";
  let looks = 0;
  try {
    for (const deadline = performance.now() + waitMs; performance.now() < deadline;) {
      if (await tryLock(file, folder, name)) return join(lock, name);
      const holder = await findHolder(lock);
      if (holder === undefined) continue;
      looks = holder.sign === sign ? looks + 1 : 0;
      sign = holder.sign;
      // Checks are counted, not milliseconds, because a suspended process cannot know that another
      // one was silent.
      if (looks * RETRY_MS >= holder.leaseMs) await evict(holder, `${folder}.old`);
      else await pause(RETRY_MS);
    }
    await rm(folder, { recursive: true, force: true });
    return undefined;
  } catch (cause) {
    await rm(folder, { recursive: true, force: true }).catch(() => {});
    throw new FileUnavailable(`Cannot write ${lock}: ${codeOf(cause)}`, { cause });
  }
}

/** Writes signs of life until it is aborted, or the folder was moved away. */
async function giveSigns(own: string, signal: AbortSignal): Promise<never> {
  for (let at = Date.now();; at += STEP_MS) {
    await pause(SIGN_MS, undefined, { signal });
    await utimes(own, at / 1000, at / 1000);
  }
}

/**
 * Frees the lock in one step: the removal of the holder's folder. The empty folder of the lock is
 * then cleaned up. If it fails, the lock becomes free when its lease ends.
 */
async function release(lock: string, own: string): Promise<void> {
  try {
    await rm(join(own, "draft"), { force: true });
    await rmdir(own);
    await rmdir(lock);
  } catch {
    // Another writer has acquired it in the meantime.
  }
}

/**
 * Runs a function with the lock of a file.
 *
 * @param file Path of the file, with every link resolved
 * @param act The function. It is run again if the lock was lost before the commit
 * @param waitMs The longest time to wait for other writers, milliseconds
 * @throws {FileUnavailable} If other writers have the lock for too long, or it cannot be written
 */
export async function withLock<T>(
  file: string,
  act: (lock: HeldLock) => Promise<T>,
  waitMs: number = WAIT_MS,
): Promise<T> {
  const lock = `${file}.lock`;
  for (let tries = 1;; tries++) {
    const own = await acquire(file, Math.min(LEASE_MS * 2 ** (tries - 1), MAX_LEASE_MS), waitMs);
    if (own === undefined) {
      const seconds = Math.ceil(waitMs / 1000);
      throw new FileUnavailable(
        `Cannot change ${file}: others have held ${lock} for ${seconds} s. Try again`,
      );
    }
    const draft = join(own, "draft");
    const stop = new AbortController();
    let isCommitted = false;
    giveSigns(own, stop.signal).catch(() => {});
    try {
      return await act({
        draft,
        async commit() {
          await rename(draft, file);
          isCommitted = true;
        },
      });
    } catch (error) {
      if (isCommitted || tries === MAX_TRIES || await isThere(own)) throw error;
    } finally {
      stop.abort();
      await release(lock, own);
    }
  }
}

/**
 * Finds the files and folders that killed writers of a file can have left next to it.
 *
 * @returns The names of locks and drafts, including drafts of live writers
 */
export function findLeftovers(file: string, names: readonly string[]): string[] {
  const lock = `${basename(file)}.lock`;
  // Drafts of an earlier version are files next to it, named after the id of their process.
  const isOldDraft = (name: string) =>
    name.startsWith(`${basename(file)}.`) && /\.\d+\.draft$/.test(name);
  return names.filter((name) => name === lock || name.startsWith(`${lock}.`) || isOldDraft(name));
}
