/**
 * Checks of a whole configuration: names that one part mentions must exist in another, and every
 * limit must be countable.
 *
 * @module
 */
import type { ClaimRule, IdentityConfig } from "./identity.ts";
import type { KeyConfig, KeyPolicy } from "./key.ts";
import { hasAmountLimit } from "./limit_kinds.ts";
import type { LimitSet } from "./limit_set.ts";
import { type AdminConfig, areInConflict, type ListenConfig } from "./listeners.ts";
import { GROUP_NAMES } from "./operation_groups.ts";
import { listPriceTables } from "./price_book.ts";
import { findForeignPrices } from "./price_table.ts";
import type { Prices } from "./prices.ts";
import type { ProviderConfig } from "./provider.ts";
import type { RunsConfig } from "./runs.ts";
import type { TeamConfig, TeamPolicy } from "./team.ts";

/** The parts of a configuration that keys, teams and limits refer to. */
export interface Surroundings {
  readonly providers: Readonly<Record<string, ProviderConfig>>;
  readonly teams: Readonly<Record<string, TeamConfig>>;
  readonly prices: Prices;
  readonly currency: string;
}

/** A setting that does not fit the others. */
export interface Misfit {
  /** Path of the setting, relative to the checked value. */
  readonly path: readonly (string | number)[];
  /** The expected value. */
  readonly message: string;
}

const under = (path: readonly (string | number)[], misfits: readonly Misfit[]): Misfit[] =>
  misfits.map((misfit) => ({ ...misfit, path: [...path, ...misfit.path] }));

const isEmpty = (prices: Prices | undefined): boolean =>
  prices === undefined || Object.keys(prices).length === 0;

/** Finds limits that cannot be counted for calls to the given providers. */
function findLimitMisfits(
  limits: LimitSet | undefined,
  reached: readonly string[],
  { providers, prices, currency }: Surroundings,
): Misfit[] {
  if (limits === undefined) return [];
  const { spend, mode } = limits;
  const misfits: Misfit[] = [];
  const hasPrices = !isEmpty(prices) || reached.some((name) => !isEmpty(providers[name]?.prices));
  if (spend !== undefined && spend.currency !== currency) {
    misfits.push({
      path: ["budget"],
      message: `expected a budget in ${currency}, the currency of all prices`,
    });
  } else if (spend !== undefined && !hasPrices) {
    const message = "expected prices, for all providers or for a provider that this budget " +
      "applies to: they are needed to count money";
    misfits.push({ path: ["budget"], message });
  }
  const isStrict = mode === "strict" && hasAmountLimit(limits);
  const unbounded = reached.filter((name) => providers[name]?.maxOutput === undefined);
  if (isStrict && unbounded.length > 0) {
    const missing = unbounded.map((name) => `providers.${name}.maxOutput`).join(", ");
    const message =
      `expected ${missing} to be set: a strict limit has to know how much a call could use at most`;
    misfits.push({ path: ["mode"], message });
  }
  return misfits;
}

/** Lists the configured providers that a key is allowed to use. */
function providersOf({ providers: named }: KeyPolicy, { providers }: Surroundings): string[] {
  return Object.keys(providers).filter((name) => named === undefined || named.includes(name));
}

/** Finds misfits in the settings of a key. The paths are relative to the key. */
export function findKeyMisfits(key: KeyPolicy, whole: Surroundings): Misfit[] {
  const { providers, teams } = whole;
  const misfits: Misfit[] = [];
  const known = Object.keys(providers).join(", ");
  key.providers?.forEach((name, place) => {
    if (Object.hasOwn(providers, name)) return;
    const message = `expected one of the configured providers: ${known}`;
    misfits.push({ path: ["providers", place], message });
  });
  if (key.team !== undefined && !Object.hasOwn(teams, key.team)) {
    const names = Object.keys(teams).join(", ");
    const message = names === ""
      ? "no team is configured: create one with `sallyport teams create`, or add it to teams"
      : `expected one of the teams: ${names}`;
    misfits.push({ path: ["team"], message });
  }
  return [
    ...misfits,
    ...under(["limits"], findLimitMisfits(key.limits, providersOf(key, whole), whole)),
  ];
}

/** Finds misfits in the limits of a team whose keys can use all providers. */
export function findTeamMisfits({ limits }: TeamPolicy, whole: Surroundings): Misfit[] {
  return under(["limits"], findLimitMisfits(limits, Object.keys(whole.providers), whole));
}

/** The parts of a whole configuration that refer to each other. */
type WholeConfig = Surroundings & {
  readonly listen: readonly ListenConfig[];
  readonly admin?: AdminConfig | undefined;
  readonly keys: unknown;
  readonly identity?: readonly IdentityConfig[] | undefined;
  readonly runs: RunsConfig;
};

/** Lists the values that a rule can yield independently of a token. */
const constantsOf = ({ map = [], value, default: fallback }: ClaimRule): string[] =>
  [map.map(([, to]) => to), value ?? [], fallback ?? []].flat();

/** Kinds of names that claims can yield, as messages call them. */
const KINDS = {
  team: "teams",
  providers: "configured providers",
  limits: "plans",
  operations: "groups",
} as const;
const ROLES: readonly string[] = ["viewer", "admin"];

/** Finds constants of an issuer with unknown names, and plans that cannot be counted. */
function findIdentityMisfits(issuer: IdentityConfig, whole: Surroundings): Misfit[] {
  const { claims, plans, admin } = issuer;
  const { providers, teams } = whole;
  const known: Readonly<Record<keyof typeof KINDS, readonly string[]>> = {
    team: Object.keys(teams),
    providers: Object.keys(providers),
    limits: Object.keys(plans),
    operations: GROUP_NAMES,
  };
  const misfits = Object.entries(plans).flatMap(([name, limits]) =>
    under(["plans", name], findLimitMisfits(limits, Object.keys(providers), whole))
  );
  for (const name of ["team", "providers", "limits", "operations"] as const) {
    if (constantsOf(claims[name] ?? {}).every((each) => known[name].includes(each))) continue;
    const names = known[name].join(", ") || "none is configured";
    misfits.push({
      path: ["claims", name],
      message: `expected one of the ${KINDS[name]}: ${names}`,
    });
  }
  if (!constantsOf(admin?.role ?? {}).every((each) => ROLES.includes(each))) {
    misfits.push({
      path: ["admin", "role"],
      message: `expected one of the roles: ${ROLES.join(", ")}`,
    });
  }
  return misfits;
}

/** Finds held keys of teams for providers that do not exist. */
function findHeldKeyMisfits({ providers, teams }: Surroundings): Misfit[] {
  const known = Object.keys(providers).join(", ");
  const message = `expected one of the configured providers: ${known}`;
  return Object.entries(teams).flatMap(([team, settings]) => {
    const unknown = Object.keys(settings.upstreamKeys ?? {}).filter((name) =>
      !Object.hasOwn(providers, name)
    );
    return unknown.map((name) => ({ path: ["teams", team, "upstreamKeys", name], message }));
  });
}

/** Finds addresses that an earlier listener has too. */
function findAddressMisfits({ listen, admin }: WholeConfig): Misfit[] {
  const misfits: Misfit[] = [];
  for (const [index, address] of listen.entries()) {
    const earlier = listen.slice(0, index).findIndex((other) => areInConflict(other, address));
    if (earlier < 0) continue;
    const message = `expected another port than listen[${earlier}]: both cannot listen at once`;
    misfits.push({ path: ["listen", index, "port"], message });
  }
  const taken = admin === undefined ? -1 : listen.findIndex((each) => areInConflict(each, admin));
  if (taken >= 0) {
    const message = `expected another port than listen[${taken}]: ` +
      "callers and operators need separate ones";
    misfits.push({ path: ["admin", "port"], message });
  }
  return misfits;
}

/** Returns the budget of runs as a limit. Its period does not matter for the checks. */
const toPeriod = (budget: RunsConfig["budget"]): LimitSet | undefined =>
  budget && { spend: { limit: budget.amount, currency: budget.currency, period: "day" } };

/**
 * Finds misfits in a whole configuration. Keys that are stored elsewhere are not known here. They
 * can belong to any team, and use any provider.
 */
export function findMisfits(whole: WholeConfig): Misfit[] {
  const { providers, teams, keys, identity = [], runs } = whole;
  const inline: readonly KeyConfig[] | undefined = Array.isArray(keys) ? keys : undefined;
  const misfits = [
    ...findAddressMisfits(whole),
    ...findHeldKeyMisfits(whole),
    ...listPriceTables(whole).flatMap(([path, table]) =>
      under(path, findForeignPrices(table, whole.currency))
    ),
  ];
  inline?.forEach((key, index) => {
    misfits.push(...under(["keys", index], findKeyMisfits(key, whole)));
  });
  const ofRuns = findLimitMisfits(toPeriod(runs.budget), Object.keys(providers), whole);
  misfits.push(...under(["runs"], ofRuns));
  for (const [team, { limits }] of Object.entries(teams)) {
    const members = inline?.filter((key) => key.team === team) ?? [{}];
    const reached = [...new Set(members.flatMap((key) => providersOf(key, whole)))];
    const found = findLimitMisfits(
      limits,
      reached.length > 0 ? reached : Object.keys(providers),
      whole,
    );
    misfits.push(...under(["teams", team, "limits"], found));
  }
  for (const [index, issuer] of identity.entries()) {
    misfits.push(...under(["identity", index], findIdentityMisfits(issuer, whole)));
  }
  for (const [name, { limits, transport, egress }] of Object.entries(providers)) {
    if (egress !== undefined && transport === "fetch") {
      const message = 'expected "off": with transport "fetch" the runtime\'s own client calls, ' +
        "which knows none of it";
      misfits.push({ path: ["providers", name, "egress"], message });
    }
    misfits.push(...under(["providers", name, "limits"], findLimitMisfits(limits, [name], whole)));
  }
  return misfits;
}
