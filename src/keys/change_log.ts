/**
 * The log of changes of keys, teams, identity tokens and runs, stored with the keys: author, time,
 * settings before and after, and the reason. It contains no secrets. Its size is bounded: the oldest
 * changes are deleted.
 *
 * @module
 */

/** Maximum number of stored changes. */
export const MAX_CHANGES = 5000;

/** One setting before and after a change, as texts. */
export interface SettingChange {
  /** Name, such as `limits.budget`. */
  readonly setting: string;
  /** Left out if it was not set. */
  readonly from?: string | undefined;
  /** Left out if it is no longer set. */
  readonly to?: string | undefined;
}

/** The kinds of things that are changed. */
export const CHANGED_KINDS = ["key", "team", "token", "run"] as const;
/** One of these kinds. */
export type ChangedKind = typeof CHANGED_KINDS[number];

/** A change of a key, a team, the identity tokens of a caller, or a run of agents. */
export interface LoggedChange {
  /** Identifies the change. */
  readonly change: string;
  /** Milliseconds since 1970. */
  readonly at: number;
  /** The operator: `admin token`, the id of an identity token, or `cli:USER`. */
  readonly who: string;
  /** The act, such as `rotate`. A later version can write others. */
  readonly action: string;
  readonly of: ChangedKind;
  /**
   * Id of the key or the run, name of the team, or the tokens: the caller's id such as
   * `jwt:corp:ann`, or a claim and its value.
   */
  readonly id: string;
  /** Name of the key, if it has one. */
  readonly name?: string | undefined;
  /** Team of the key, if it has one. */
  readonly team?: string | undefined;
  readonly settings: readonly SettingChange[];
  readonly reason?: string | undefined;
}

/**
 * Port: storage of changes.
 *
 * @example Keep changes in an array
 * ```ts
 * import type { ChangeLog, LoggedChange } from "./src/keys/change_log.ts";
 *
 * class ArrayChangeLog implements ChangeLog {
 *   readonly changes: LoggedChange[] = [];
 *
 *   async add(change: LoggedChange) {
 *     this.changes.unshift(change);
 *   }
 *   async read() {
 *     return this.changes;
 *   }
 * }
 * ```
 */
export interface ChangeLog {
  /**
   * Adds a change, and deletes the oldest one if there are more than {@link MAX_CHANGES}.
   *
   * @throws {KeyStoreUnavailable} If it cannot be written
   */
  add(change: LoggedChange): Promise<void>;
  /**
   * @returns All stored changes, the newest first
   * @throws {KeyStoreUnavailable} If they cannot be read
   */
  read(): Promise<readonly LoggedChange[]>;
}

/** Writes a change as a line that {@link readChange} reads as the same change. */
export function writeChange(change: LoggedChange): string {
  return JSON.stringify(change);
}

const isText = (value: unknown): value is string => typeof value === "string";
const isTextOrNone = (value: unknown): boolean => value === undefined || isText(value);

/** Reads a line; `undefined` for a line in a form that this version does not know. */
export function readChange(line: string): LoggedChange | undefined {
  let content: unknown;
  try {
    content = JSON.parse(line);
  } catch {
    return undefined;
  }
  const { change, at, who, action, of, id, name, team, settings, reason } = Object(
    content,
  ) as Partial<Record<keyof LoggedChange, unknown>>;
  const isNamed = isText(change) && isText(who) && isText(action) && isText(id);
  const isKnown = Number.isFinite(at) && CHANGED_KINDS.some((kind) => kind === of);
  const areOptional = [name, team, reason].every(isTextOrNone);
  if (!isNamed || !isKnown || !areOptional || !Array.isArray(settings)) return undefined;
  return content as LoggedChange;
}

/** Changes that are lost when the process ends: of keys in the configuration, such as credits. */
export class MemoryChangeLog implements ChangeLog {
  readonly #changes: LoggedChange[] = [];

  add(change: LoggedChange): Promise<void> {
    this.#changes.unshift(change);
    this.#changes.splice(MAX_CHANGES);
    return Promise.resolve();
  }

  read(): Promise<readonly LoggedChange[]> {
    return Promise.resolve(this.#changes);
  }
}
