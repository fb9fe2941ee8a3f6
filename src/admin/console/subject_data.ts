/**
 * The data of the page of a team, key or provider: its history, budgets, keys and changes.
 *
 * @module
 */
import { useEffect, useState } from "preact/hooks";
import type { HistoryReport } from "../../usage/history/report.ts";
import type { BudgetList } from "../budget_reports.ts";
import type { KeyList } from "../api/keys.ts";
import type { ProviderList, ProviderView } from "../provider_reports.ts";
import type { KeyView } from "../key_administration.ts";
import type { TeamView } from "../team_administration.ts";
import { call, Refused } from "./client.ts";
import { usePolled } from "./parts.tsx";
import type { Subject } from "./address.ts";

/** Ranges of the history, as addresses and the API name them, and their display names. */
export const RANGES: Readonly<Record<string, string>> = {
  "1h": "1 h",
  "24h": "24 h",
  "30d": "30 days",
};
/** Lengths of the points of the charts. */
const STEPS: Readonly<Record<string, string>> = { "1h": "1m", "24h": "5m", "30d": "1h" };
/** Intervals at which the history is read again: hours change slowly. Milliseconds. */
const REFRESH_MS = 15_000;
const SLOW_REFRESH_MS = 60_000;
/** Maximum number of keys of a team that its page lists. */
const MAX_KEYS = 200;

/** Loads the history of a subject, or of all calls, again and again while the page is visible. */
export function useHistory(subject: Subject | undefined, last: string): {
  report: HistoryReport | undefined;
  error: unknown;
} {
  const [state, setState] = useState<{ report: HistoryReport | undefined; error: unknown }>({
    report: undefined,
    error: undefined,
  });
  useEffect(() => {
    let isGone = false;
    const of = subject && { [subject.of]: subject.id };
    const query = new URLSearchParams({ ...of, last, step: STEPS[last] ?? "5m" });
    const load = () => {
      if (document.hidden) return;
      call<HistoryReport>("GET", `v1/history?${query}`).then(
        (report) => isGone || setState({ report, error: undefined }),
        (error: unknown) => isGone || setState((before) => ({ ...before, error })),
      );
    };
    setState({ report: undefined, error: undefined });
    load();
    const timer = setInterval(load, last === "30d" ? SLOW_REFRESH_MS : REFRESH_MS);
    document.addEventListener("visibilitychange", load);
    return () => {
      isGone = true;
      clearInterval(timer);
      document.removeEventListener("visibilitychange", load);
    };
  }, [subject?.of, subject?.id, last]);
  return state;
}

/** A subject as it is now, and its budgets. A deleted one still has a history. */
export interface SubjectState {
  readonly team: TeamView | undefined;
  readonly key: KeyView | undefined;
  readonly provider: ProviderView | undefined;
  /** The keys of the team. */
  readonly keys: readonly KeyView[];
  readonly budgets: BudgetList["budgets"];
}

/** Returns `undefined` if there is no such team or key any more. */
async function callForOne<T>(path: string): Promise<T | undefined> {
  try {
    return await call<T>("GET", path);
  } catch (error) {
    if (error instanceof Refused && error.status === 404) return undefined;
    throw error;
  }
}

async function loadState({ of, id }: Subject): Promise<SubjectState> {
  const name = encodeURIComponent(id);
  const keysOf = new URLSearchParams({ team: id, limit: String(MAX_KEYS), use: "true" });
  if (of === "provider") {
    const { providers } = await call<ProviderList>("GET", "v1/providers");
    const provider = providers.find((each) => each.name === id);
    return { team: undefined, key: undefined, provider, keys: [], budgets: [] };
  }
  const [team, key, keys, budgets] = await Promise.all([
    of === "team" ? callForOne<TeamView>(`v1/teams/${name}`) : undefined,
    of === "key" ? callForOne<KeyView>(`v1/keys/${name}`) : undefined,
    of === "team" ? call<KeyList>("GET", `v1/keys?${keysOf}`) : undefined,
    call<BudgetList>("GET", `v1/budgets?${new URLSearchParams({ [of]: id })}`),
  ]);
  const own = budgets.budgets.filter((budget) => budget.of === of && budget.id === id);
  return {
    team,
    key,
    provider: undefined,
    keys: keys === undefined ? [] : keys.keys,
    budgets: own,
  };
}

/** Loads a subject as it is now. */
export function useSubject(subject: Subject): { value: SubjectState | undefined; error: unknown } {
  return usePolled(() => loadState(subject), [subject.of, subject.id]);
}
