/**
 * The list of changes of keys, teams, identity tokens and runs: who changed what, when and why.
 * Administrations add to it, and the admin API and the command line read it.
 *
 * @module
 */
import type { ReportEvent } from "../exchange/reported_event.ts";
import type { ChangeLog, LoggedChange, SettingChange } from "../keys/change_log.ts";

/** The operator of a change, and the stated reason. */
export interface Author {
  /** `admin token`, the id of an identity token, or `cli:USER`. */
  readonly who: string;
  readonly reason?: string | undefined;
}

/** The act of a change. */
export type ChangeAction =
  | "create"
  | "update"
  | "rotate"
  | "revoke"
  | "disable"
  | "enable"
  | "delete"
  | "credit"
  | "stop"
  | "import";

/** A change that was made. */
export interface MadeChange
  extends Omit<LoggedChange, "change" | "at" | "who" | "action" | "reason"> {
  readonly action: ChangeAction;
}

/** A change as administrators see it. */
export interface ChangeView extends Omit<LoggedChange, "at"> {
  readonly time: string;
}

/** A query for changes. */
export interface ChangeQuery {
  /** Id of the only key, whose runs are included, or of the only caller with identity tokens. */
  readonly key?: string | undefined;
  /** Name of the only team: its own changes, and those of keys in it. */
  readonly team?: string | undefined;
  /** Maximum number of changes. */
  readonly limit: number;
  /** The last change of the previous page. */
  readonly after?: string | undefined;
}

/** Parts of {@link Changes}. */
export interface ChangesParts {
  readonly log: ChangeLog;
  /** Wall clock, milliseconds since 1970. */
  readonly now: () => number;
  /** Receives an event if a change can't be stored. */
  readonly report: ReportEvent;
}

/** The most characters of a setting. Lists of models or metadata can be long. */
const MAX_TEXT = 300;
/** Settings whose change is the act itself, or that are secret. */
const UNLISTED: ReadonlySet<string> = new Set([
  "id",
  "key",
  "digest",
  "previous",
  "created",
  "revoked",
  "disabled",
]);

/** The list of changes. */
export class Changes {
  readonly #parts: ChangesParts;

  constructor(parts: ChangesParts) {
    this.#parts = parts;
  }

  /**
   * Adds a change that was made, unless it is an update that changed no setting. The change cannot
   * be undone, so a failure to store it is only reported.
   */
  async add(made: MadeChange, { who, reason }: Author): Promise<void> {
    if (made.action === "update" && made.settings.length === 0) return;
    const { log, now, report } = this.#parts;
    const at = now();
    // Two gateways can make changes in the same millisecond.
    const change = `${at}-${crypto.randomUUID().slice(0, 8)}`;
    try {
      await log.add({ change, at, who, ...made, reason });
    } catch (error) {
      const why = error instanceof Error ? error.message : "unknown";
      const text = `The ${made.action} of the ${made.of} ${made.id} is not in the list of changes`;
      report(`${text}: ${why}`, { event: "change_not_listed", of: made.of, id: made.id });
    }
  }

  /** Lists changes, the newest first. */
  async list({ key, team, limit, after }: ChangeQuery): Promise<readonly ChangeView[]> {
    const all = await this.#parts.log.read();
    const wanted = all.filter((change) => isOf(change, key, team));
    const start = after === undefined ? 0 : wanted.findIndex(({ change }) => change === after) + 1;
    // The change of an old cursor can have been deleted, as all older ones have.
    const hasEnded = after !== undefined && start === 0;
    return hasEnded ? [] : wanted.slice(start, start + limit).map(toView);
  }
}

/** Tells if a setting is the key of a run. */
const isKey = ({ setting }: SettingChange): boolean => setting === "key";

function isOf(change: LoggedChange, key: string | undefined, team: string | undefined): boolean {
  const { of, id } = change;
  const ofKey = of === "run" ? change.settings.find(isKey)?.to : id;
  if (key !== undefined && (of === "team" || ofKey !== key)) return false;
  if (team === undefined) return true;
  if (of === "team") return id === team;
  // A key that has left the team is part of the team's history.
  return change.team === team ||
    change.settings.some(({ setting, from }) => setting === "team" && from === team);
}

function toView({ at, ...change }: LoggedChange): ChangeView {
  return { time: new Date(at).toISOString(), ...change };
}

/** Formats the value of a setting. */
function toText(value: unknown): string {
  const isList = Array.isArray(value) && value.every((item) => typeof item === "string");
  const plain = isList ? value.join(", ") : value;
  return typeof plain === "string" ? plain : JSON.stringify(plain);
}

/** Shortens a text for the list. Texts are compared before, because they can differ at their ends. */
function shorten(text: string | undefined): string | undefined {
  return text !== undefined && text.length > MAX_TEXT ? `${text.slice(0, MAX_TEXT)}…` : text;
}

/** Lists the settings of a key or team as texts; those of `limits` one by one. */
function toTexts(
  { limits, ...settings }: Readonly<Record<string, unknown>>,
): ReadonlyMap<string, string> {
  const ofLimits = Object.entries(Object(limits)).map(
    ([name, value]) => [`limits.${name}`, value] as const,
  );
  const all = [...Object.entries(settings), ...ofLimits];
  return new Map(
    all.filter(([name, value]) => value !== undefined && !UNLISTED.has(name))
      .map(([name, value]) => [name, toText(value)]),
  );
}

/**
 * Lists the settings that differ, by name.
 *
 * @param before The settings as JSON; empty for a new key or team
 * @param after The settings as JSON; empty for a deleted team
 */
export function compareSettings(before: object, after: object): readonly SettingChange[] {
  const from = toTexts({ ...before });
  const to = toTexts({ ...after });
  return [...new Set([...from.keys(), ...to.keys()])]
    .filter((setting) => from.get(setting) !== to.get(setting))
    .sort()
    .map((setting) => {
      return { setting, from: shorten(from.get(setting)), to: shorten(to.get(setting)) };
    });
}
