/**
 * Settings that are valid and have no effect or are probably not meant, and incomplete prices. `sallyport
 * check` lists them. A gateway starts with them.
 *
 * @module
 */
import type { Config } from "./config.ts";
import type { Misfit } from "./cross_checks.ts";
import { findMissingWrites } from "./cache_write_prices.ts";
import { noteOnBudget } from "./limit_forms.ts";
import { hasAmountLimit, LIMIT_NAMES } from "./limit_kinds.ts";
import type { LimitSet } from "./limit_set.ts";

/** Limits with the path of their setting. */
type Found = readonly [path: Misfit["path"], limits: LimitSet];

/** Lists all limits in the configuration itself. Keys in a file or in Redis can have others. */
function listLimits(config: Config): Found[] {
  const { keys, teams, providers, identity = [] } = config;
  const found: Found[] = [];
  const add = (limits: LimitSet | undefined, ...path: Misfit["path"]): void => {
    if (limits !== undefined) found.push([path, limits]);
  };
  for (const [name, { limits }] of Object.entries(providers)) {
    add(limits, "providers", name, "limits");
  }
  for (const [name, { limits }] of Object.entries(teams)) add(limits, "teams", name, "limits");
  if (Array.isArray(keys)) {
    for (const [index, { limits }] of keys.entries()) add(limits, "keys", index, "limits");
  }
  for (const [index, { plans }] of identity.entries()) {
    for (const [name, limits] of Object.entries(plans)) {
      add(limits, "identity", index, "plans", name);
    }
  }
  return found;
}

/** Finds a mode without an effect. */
function findIdleMode([path, limits]: Found): Misfit[] {
  const { mode } = limits;
  const isLimited = LIMIT_NAMES.some((name) => limits[name] !== undefined);
  if (mode !== undefined && !isLimited) {
    return [{ path: [...path, "mode"], message: "has no effect without a limit" }];
  }
  if (mode !== "strict" || hasAmountLimit(limits)) return [];
  return [{
    path: [...path, "mode"],
    message:
      "strict has no effect without tokens or a budget: requests and concurrency are always exact",
  }];
}

/** Finds budgets of so few tokens that money was probably meant. */
function findSmallBudget([path, limits]: Found): Misfit[] {
  const message = noteOnBudget(limits.budget?.limit);
  return message === undefined ? [] : [{ path: [...path, "budget"], message }];
}

/** Finds rights to held keys without such a key, and held keys of teams without the right. */
function findIdleHeldKeys({ providers, teams, keys }: Config): Misfit[] {
  const isComplete = Array.isArray(keys); // keys in a file or a store can have the right
  const ofKeys = isComplete ? keys : [];
  const sources = Object.values(providers).map(({ upstreamKey }) => upstreamKey);
  const ofTeams = Object.values(teams).flatMap(({ upstreamKeys = {} }) =>
    Object.values(upstreamKeys)
  );
  const hasSource = [...sources, ...ofTeams].some((source) => source !== undefined);
  const found: Misfit[] = [];
  const addIdleRight = (...path: Misfit["path"]): void => {
    if (hasSource) return;
    const message = "has no effect without upstreamKey of a provider, or upstreamKeys of a team";
    found.push({ path: [...path, "heldKeys"], message });
  };
  for (const [name, { heldKeys, upstreamKeys }] of Object.entries(teams)) {
    if (heldKeys === true) addIdleRight("teams", name);
    const isUsed = heldKeys === true || !isComplete ||
      ofKeys.some((key) => key.team === name && key.heldKeys === true);
    if (upstreamKeys === undefined || isUsed) continue;
    const message = 'is used only for keys with "heldKeys": true: set heldKeys of the team if it ' +
      "is for all of its keys";
    found.push({ path: ["teams", name, "upstreamKeys"], message });
  }
  for (const [index, { heldKeys }] of ofKeys.entries()) {
    if (heldKeys === true) addIdleRight("keys", index);
  }
  return found;
}

/** Finds settings without an effect, budgets that are probably not meant, and incomplete prices, with the reasons. */
export function findWarnings(config: Config): Misfit[] {
  const { admin, alerts, attribution, identity = [], keys, metrics } = config;
  const limits = listLimits(config);
  const warnings = limits.flatMap((each) => [...findIdleMode(each), ...findSmallBudget(each)]);
  for (const [index, issuer] of identity.entries()) {
    if (issuer.admin === undefined || admin !== undefined) continue;
    warnings.push({
      path: ["identity", index, "admin"],
      message: "has no effect without admin, the listener for operators",
    });
  }
  const hasBudget = limits.some(([, set]) => set.budget !== undefined || set.spend !== undefined);
  const mayHaveBudget = hasBudget || !Array.isArray(keys);
  if (alerts !== undefined && !mayHaveBudget) {
    warnings.push({
      path: ["alerts"],
      message: "has no effect without a budget of a key, a team or a provider",
    });
  }
  if (metrics.maxKeys > 0 && admin === undefined) {
    warnings.push({
      path: ["metrics", "byKey"],
      message: "has no effect without admin, the listener that serves metrics",
    });
  }
  if (attribution.metrics.length > 0 && admin === undefined) {
    warnings.push({
      path: ["attribution", "metrics"],
      message: "has no effect without admin, the listener that serves metrics",
    });
  }
  return [...warnings, ...findIdleHeldKeys(config), ...findMissingWrites(config)];
}
