/**
 * Comparison of the gateway's usage with the provider's export: counts first, then costs. Each
 * difference gets a name.
 *
 * @module
 */
import {
  addAmounts,
  type BillingClass,
  type ClassAmounts,
  INPUT_CLASSES,
  OUTPUT_CLASSES,
  sumOf,
} from "../../exchange/billing.ts";
import { type GatewayDays, type GatewayUsage, NO_USAGE, TOOLS } from "./gateway_usage.ts";
import type { ProviderExport } from "./provider_export.ts";

/** Name of a difference. */
export type DifferenceName =
  | "elsewhere"
  | "surplus"
  | "missing"
  | "estimated"
  | "writes"
  | "delay"
  | "priority"
  | "unpriced"
  | "prices"
  | "rounding"
  | "tools"
  | "storage"
  | "containers"
  | "tax"
  | "credits"
  | "other";

/** Names of differences, and whether they need no action. */
export const DIFFERENCES: Readonly<
  Record<DifferenceName, readonly [isExplained: boolean, text: string]>
> = {
  elsewhere: [true, "calls with other keys or projects, which did not pass the gateway"],
  surplus: [false, "the provider counts more: calls that probably did not pass the gateway"],
  missing: [false, "the gateway counts more: usage of another account, or an incomplete export"],
  estimated: [false, "tokens that the gateway estimated, because no answer stated them"],
  writes: [false, "cache writes that the gateway counts as other input"],
  delay: [true, "delay: the provider's last day is not complete yet"],
  priority: [true, "the priority tier is a commitment: the provider's costs leave it out"],
  unpriced: [false, "tokens without a price in the configuration"],
  prices: [false, "the counts are equal, and the prices differ"],
  rounding: [true, "rounding of the provider's amounts"],
  tools: [false, "calls of tools, which the export does not state by model"],
  storage: [true, "storage, which no call states"],
  containers: [true, "containers and sessions, which are billed by time"],
  tax: [true, "tax"],
  credits: [true, "credits and discounts: the amount is below the list price"],
  other: [false, "costs of a kind that is not known"],
};

/** A difference. */
export interface Difference {
  readonly name: DifferenceName;
  readonly day: string;
  /** The model, or the line of the bill. */
  readonly model: string;
  /** The provider's counts, less the gateway's. Classes that are equal are left out. */
  readonly counts: ClassAmounts;
  /** The provider's cost by its list, less the gateway's. Units of 10^-24. */
  readonly cost: bigint;
}

/** The result. */
export interface Comparison {
  readonly differences: readonly Difference[];
  /** Number of days and models, and of those with equal counts. */
  readonly compared: number;
  readonly equal: number;
  readonly hasCosts: boolean;
  /** Tokens that the provider counts for the compared calls. */
  readonly tokens: number;
  /** Costs: the gateway's, and the provider's by its list and after discounts. */
  readonly gateway: bigint;
  readonly list: bigint;
  readonly billed: bigint;
}

/** Classes that both sides state. Reasoning is output, and audio and images are input. */
export const COMPARED: readonly BillingClass[] = [
  "input",
  "cacheRead",
  "cacheWrite",
  "cacheWriteLong",
  "output",
  "webSearches",
  "fileSearches",
  "codeSessions",
];
/** Classes that are compared only if the export has them: they are from endpoints of their own. */
const SEPARATE: readonly BillingClass[] = ["webSearches", "fileSearches", "codeSessions"];
const TOKENS: readonly BillingClass[] = [...INPUT_CLASSES, ...OUTPUT_CLASSES];

/** The largest error of rounding in one line of costs: half of a hundredth of a cent. */
const ROUNDING = 5n * 10n ** 19n;

/** The provider's usage and cost of a model in a day. */
interface ProviderDay {
  classes: ClassAmounts;
  free: number;
  list: bigint;
  lines: number;
}

const absolute = (value: bigint): bigint => value < 0n ? -value : value;

/** Returns the differences of classes, without those that are equal. */
function subtract(one: ClassAmounts, other: ClassAmounts): ClassAmounts {
  const pairs = COMPARED.map((name) => [name, (one[name] ?? 0) - (other[name] ?? 0)] as const);
  return Object.fromEntries(pairs.filter(([, count]) => count !== 0));
}

/** True if the sums of input are equal, and the gateway has no class of written tokens. */
function isOfWrites(counts: ClassAmounts, { classes }: GatewayUsage): boolean {
  const { input = 0, cacheWrite = 0, cacheWriteLong = 0, ...others } = counts;
  const hasWrites = sumOf(classes, ["cacheWrite", "cacheWriteLong"]) > 0;
  return !hasWrites && Object.keys(others).length === 0 && cacheWrite + cacheWriteLong > 0 &&
    input === -(cacheWrite + cacheWriteLong);
}

/** Returns the classes of the gateway that the export has. */
function toCompared({ classes }: GatewayUsage, { usage }: ProviderExport): ClassAmounts {
  const isStated = (name: string) =>
    !SEPARATE.some((each) => each === name) || usage.some((each) => name in each.classes);
  return Object.fromEntries(Object.entries(classes).filter(([name]) => isStated(name)));
}

/** Names the difference of a day and model. */
function nameOf(
  [model, counts, cost]: readonly [model: string, counts: ClassAmounts, cost: bigint],
  [gateway, provider]: readonly [GatewayUsage, ProviderDay],
  isLastDay: boolean,
): DifferenceName {
  const values = Object.values(counts);
  const isLess = values.every((count) => count < 0);
  if (isLastDay && isLess && cost <= 0n) return "delay";
  if (values.length === 0) {
    if (gateway.unpriced > 0) return "unpriced";
    if (provider.free > 0 && cost < 0n) return "priority";
    if (absolute(cost) <= ROUNDING * BigInt(provider.lines)) return "rounding";
    return TOOLS.find(({ name }) => name === model)?.kind ?? "prices";
  }
  if (isOfWrites(counts, gateway)) return "writes";
  const off = values.reduce((sum, count) => sum + Math.abs(count), 0);
  if (gateway.estimated > 0 && off <= gateway.estimated) return "estimated";
  return isLess ? "missing" : "surplus";
}

/** Adds up the provider's rows by day and model. */
class ProviderDays {
  readonly days: Map<string, ProviderDay> = new Map();
  readonly differences: Difference[] = [];

  #of(day: string, model: string): ProviderDay {
    const name = `${day} ${model}`;
    const found = this.days.get(name) ?? { classes: {}, free: 0, list: 0n, lines: 0 };
    this.days.set(name, found);
    return found;
  }

  /**
   * @param isOwn True if calls with keys or projects of these ids pass the gateway
   * @param gateway Its usage: costs of tools are compared with its own, if it has any
   */
  add(
    { usage, costs }: ProviderExport,
    isOwn: (owners: readonly string[]) => boolean,
    gateway: GatewayDays,
  ): void {
    for (const { day, model, owners, classes, isFree } of usage) {
      if (!isOwn(owners)) {
        this.#name("elsewhere", day, model, 0n, subtract(classes, {}));
        continue;
      }
      const found = this.#of(day, model);
      found.classes = addAmounts(found.classes, classes);
      if (isFree) found.free += sumOf(classes, TOKENS);
    }
    for (const { day, kind, name, owners, list, amount } of costs) {
      if (amount < list) this.#name("credits", day, name, amount - list);
      const tools = TOOLS.find((each) => each.kind === kind)?.name;
      const hasTools = tools !== undefined && gateway.has(`${day} ${tools}`);
      const isCompared = kind === "model" || hasTools;
      if (isCompared && !isOwn(owners)) this.#name("elsewhere", day, name, list);
      else if (!isCompared) this.#name(kind, day, name, list);
      else {
        const found = this.#of(day, tools ?? name);
        found.list += list;
        found.lines++;
      }
    }
  }

  #name(
    name: DifferenceName,
    day: string,
    model: string,
    cost: bigint,
    counts: ClassAmounts = {},
  ): void {
    if (cost !== 0n || Object.keys(counts).length > 0) {
      this.differences.push({ name, day, model, counts, cost });
    }
  }
}

/**
 * Compares the usage of a period.
 *
 * @param owners Ids of keys, projects or workspaces at the provider whose calls pass the gateway.
 * Default: all
 */
export function compare(
  gateway: GatewayDays,
  exported: ProviderExport,
  owners: readonly string[] | undefined,
): Comparison {
  const provider = new ProviderDays();
  const isOwn = (own: readonly string[]) =>
    owners === undefined || own.some((id) => owners.includes(id));
  provider.add(exported, isOwn, gateway);
  const { days, differences } = provider;
  const hasUsage = exported.usage.length > 0;
  const hasCosts = exported.costs.length > 0;
  const allDays = [...exported.usage, ...exported.costs].map(({ day }) => day).toSorted();
  const lastDay = allDays.at(-1);
  const sums = { compared: 0, equal: 0, tokens: 0, gateway: 0n };
  for (const name of [...new Set([...gateway.keys(), ...days.keys()])].toSorted()) {
    const [day = "", ...rest] = name.split(" ");
    const ours = gateway.get(name) ?? NO_USAGE;
    const theirs = days.get(name) ?? { classes: {}, free: 0, list: 0n, lines: 0 };
    const counts = hasUsage ? subtract(theirs.classes, toCompared(ours, exported)) : {};
    const cost = hasCosts ? theirs.list - ours.cost : 0n;
    const areEqual = Object.keys(counts).length === 0;
    sums.compared++;
    if (areEqual) sums.equal++;
    sums.tokens += sumOf(theirs.classes, TOKENS);
    sums.gateway += ours.cost;
    const isEven = areEqual && cost === 0n && ours.unpriced === 0;
    if (isEven) continue;
    const model = rest.join(" ");
    const difference = nameOf([model, counts, cost], [ours, theirs], day === lastDay);
    differences.push({ name: difference, day, model, counts, cost });
  }
  const add = (read: (cost: ProviderExport["costs"][number]) => bigint) =>
    exported.costs.reduce((sum, each) => sum + read(each), 0n);
  return {
    differences,
    hasCosts,
    ...sums,
    list: add(({ list }) => list),
    billed: add(({ amount }) => amount),
  };
}

/** The differences that need an action: their cost, and their tokens, as absolute amounts. */
export function sumUnexplained(
  differences: readonly Difference[],
): { readonly cost: bigint; readonly tokens: number } {
  let cost = 0n;
  let tokens = 0;
  for (const { name, counts, cost: each } of differences) {
    if (DIFFERENCES[name][0]) continue;
    cost += absolute(each);
    for (const count of Object.values(counts)) tokens += Math.abs(count);
  }
  return { cost, tokens };
}
