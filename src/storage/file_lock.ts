/**
 * A lock beside a file that ends with its holder, on any file system that renames folders as POSIX says.
 *
 * The lock is the folder `FILE.lock`, and it is free where it is missing or empty. A writer prepares a folder of its own
 * with its holder's folder inside, and renames it to `FILE.lock`: that succeeds for one writer only, and only while the
 * lock is free. While it holds the lock it touches its folder again and again. A writer that waits and sees no sign of
 * life during the lease that stands in the holder's name moves the holder's folder away: once, and that holder only.
 *
 * No process id, host name or clock is compared, so that it works across containers and hosts. A holder that was merely
 * slow, or stopped, loses the lock too. That is safe: its draft lies in its own folder, so what it commits then fails,
 * and it begins anew with a longer lease.
 *
 * @module
 */
import { randomBytes } from "node:crypto";
import { chown, mkdir, readdir, rename, rm, rmdir, stat, utimes } from "node:fs/promises";
import { basename, join } from "node:path";
import process from "node:process";
import { setTimeout as pause } from "node:timers/promises";

/** How long a writer waits for writers that live. Milliseconds. */
const WAIT_MS = 5000;
const RETRY_MS = 20;
/** A holder gives a sign of life so often. Milliseconds. */
const SIGN_MS = 100;
/** Without a sign for so long, a holder is taken for dead; doubled whenever it was not. Milliseconds. */
const LEASE_MS = 600;
const MAX_LEASE_MS = 4 * LEASE_MS;
/** So often a writer begins anew whose lock was taken away. */
const MAX_TRIES = 6;
/** Signs are times that grow in steps which every file system can tell apart. Milliseconds. */
const STEP_MS = 10_000;
/** For the owner only. */
const FOLDER_MODE = 0o700;
/** What systems say of a folder that can't be renamed to the lock, since that is held; or is a file, see below. */
const HELD: ReadonlySet<string> = new Set(["ENOTEMPTY", "EEXIST", "ENOTDIR"]);

/** A file can't be read or written. Its message is for the operator. */
export class FileUnavailable extends Error {
  override readonly name = "FileUnavailable";
}

/** What the system says that went wrong, such as `EACCES`. */
export function codeOf(error: unknown): string {
  if (!(error instanceof Error)) return "unknown";
  return "code" in error ? String(error.code) : error.name;
}

/** Does something whose failure with one of these codes is as good. */
async function unless(codes: readonly string[], doing: Promise<unknown>): Promise<boolean> {
  try {
    await doing;
    return true;
  } catch (error) {
    if (!codes.includes(codeOf(error))) throw error;
    return false;
  }
}

/** Gives a new file or folder to the owner of another: root may write the files of a service, which stay the service's. */
export async function keepOwner(file: string, made: string): Promise<void> {
  const [old, { uid, gid }] = await Promise.all([stat(file).catch(() => undefined), stat(made)]);
  if (old !== undefined && (old.uid !== uid || old.gid !== gid)) await chown(made, old.uid, old.gid).catch(() => {});
}

/** A lock that is held. */
export interface HeldLock {
  /** Where the new content is written. */
  readonly draft: string;
  /** Puts the draft into the place of the file. Fails when the lock was taken away. */
  commit(): Promise<void>;
}

/** A holder, as others see it. */
interface Holder {
  readonly path: string;
  /** Another text after each sign of life. */
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
    // The lock of an earlier version is a file: one that was left behind, or one whose holder is done in a moment.
    if (codeOf(error) === "ENOTDIR") return { path: lock, sign: "a file", leaseMs: LEASE_MS };
    throw error;
  }
}

/** Moves a holder away. Of several that do so at once one succeeds, and a holder that came later stays. */
async function evict(holder: Holder, grave: string): Promise<void> {
  if (await unless(["ENOENT"], rename(holder.path, grave))) await rm(grave, { recursive: true, force: true });
}

const isThere = (path: string): Promise<boolean> => stat(path).then(() => true, () => false);

/** Makes the folder that becomes the lock. A gateway that starts may sweep it away meanwhile, which shows later. */
async function prepare(file: string, folder: string, name: string): Promise<void> {
  await unless(["EEXIST"], mkdir(folder, { mode: FOLDER_MODE }));
  await unless(["EEXIST", "ENOENT"], mkdir(join(folder, name), { mode: FOLDER_MODE }));
  for (const made of [folder, join(folder, name)]) await unless(["ENOENT"], keepOwner(file, made));
}

/** Puts a prepared folder into the place of the lock. @returns Whether the lock is held by its holder now */
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

/** @returns The holder's folder, which is one's own now; `undefined` when others hold the lock for too long */
async function acquire(file: string, leaseMs: number, waitMs: number): Promise<string | undefined> {
  const lock = `${file}.lock`;
  const name = `${process.pid}-${randomBytes(8).toString("hex")}-${leaseMs}`;
  const folder = `${lock}.${name}`;
  let [sign, looks] = ["", 0];
  try {
    for (const deadline = performance.now() + waitMs; performance.now() < deadline;) {
      if (await tryLock(file, folder, name)) return join(lock, name);
      const holder = await findHolder(lock);
      if (holder === undefined) continue;
      looks = holder.sign === sign ? looks + 1 : 0;
      sign = holder.sign;
      // Looks are counted, not milliseconds: whoever was stopped has not seen that another one was silent.
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

/** Gives signs of life until it is stopped, or the folder was moved away. */
async function giveSigns(own: string, signal: AbortSignal): Promise<never> {
  for (let at = Date.now();; at += STEP_MS) {
    await pause(SIGN_MS, undefined, { signal });
    await utimes(own, at / 1000, at / 1000);
  }
}

/** Frees the lock in one step; its empty folder is no more than tidied away. What failed here ends with its lease. */
async function release(lock: string, own: string): Promise<void> {
  try {
    await rm(join(own, "draft"), { force: true });
    await rmdir(own);
    await rmdir(lock);
  } catch {
    // Somebody else has taken it meanwhile.
  }
}

/**
 * Does something that nobody else does to the same file meanwhile.
 *
 * @param file Its path, with every link resolved; the lock stands beside it
 * @param act What to do. It is done anew when the lock was taken away before it was committed
 * @param waitMs For how long to wait for writers that live, milliseconds
 * @returns What it returns
 * @throws {FileUnavailable} When another writer does not end, or the lock can't be written
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
      throw new FileUnavailable(`Cannot change ${file}: others have held ${lock} for ${seconds} s. Try again`);
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
 * Finds what writers of a file that were killed may have left in its folder.
 *
 * @param file Its path
 * @param names Everything in its folder
 * @returns Which of it has to do with locks and drafts; what a writer has prepared that lives is part of it
 */
export function findLeftovers(file: string, names: readonly string[]): string[] {
  const lock = `${basename(file)}.lock`;
  // Drafts of an earlier version are files beside, called by the id of their process.
  const isOldDraft = (name: string) => name.startsWith(`${basename(file)}.`) && /\.\d+\.draft$/.test(name);
  return names.filter((name) => name === lock || name.startsWith(`${lock}.`) || isOldDraft(name));
}
