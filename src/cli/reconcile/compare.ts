/**
 * Comparison of the gateway's usage with the provider's export: counts first, then costs. Each
 * difference gets a name.
 *
 * @module
 */
import { addAmounts, type ClassAmounts, sumOf } from "../../exchange/billing.ts";
import { DAY_MS } from "../../usage/counts.ts";
import { isOfClasses, isOfWrites, StatedClasses, TOKENS } from "./compared_classes.ts";
import {
  addCosts,
  addMeasures,
  type Costs,
  type Difference,
  type DifferenceName,
  type Measures,
  sizeOf,
  totalOf,
} from "./difference.ts";
import { type GatewayDays, type GatewayUsage, NO_USAGE, TOOLS } from "./gateway_usage.ts";
import type { ProviderExport } from "./provider_export.ts";

/** The result. */
export interface Comparison {
  readonly differences: readonly Difference[];
  /** Number of days and models, and of those with equal counts. */
  readonly compared: number;
  readonly equal: number;
  readonly hasCosts: boolean;
  /** The provider's counts of the compared calls. */
  readonly counted: Measures;
  /** Costs: the gateway's, and the provider's by its list and after discounts. */
  readonly gateway: bigint;
  readonly list: bigint;
  readonly billed: bigint;
}

/** Time from the start of a day until its usage and costs are complete: a day after its end. */
const COMPLETE_MS = 2 * DAY_MS;

/** The largest error of rounding in one line of costs: half of a hundredth of a cent. */
const ROUNDING = 5n * 10n ** 19n;

/** The provider's usage and cost of a model in a day. */
interface ProviderDay {
  classes: ClassAmounts;
  free: number;
  list: bigint;
  /** The same by class. */
  costs: Costs;
  lines: number;
}
const NO_DAY: Readonly<ProviderDay> = { classes: {}, free: 0, list: 0n, costs: {}, lines: 0 };

const isNotAbove = (costs: Costs): boolean => Object.values(costs).every((cost) => cost <= 0n);

/**
 * Names the difference of a day and model.
 *
 * @param isIncomplete True if the provider can still add to this day
 */
function nameOf(
  [model, counts, costs]: readonly [model: string, counts: ClassAmounts, costs: Costs],
  [gateway, provider]: readonly [GatewayUsage, ProviderDay],
  [isIncomplete, hasUsage]: readonly [boolean, boolean],
): DifferenceName {
  const values = Object.values(counts);
  const isLess = values.length > 0 && values.every((count) => count < 0);
  if (isIncomplete && (isLess || !hasUsage) && isNotAbove(costs)) return "delay";
  if (values.length === 0) {
    if (gateway.unpriced > 0) return "unpriced";
    if (provider.free > 0 && totalOf(costs) < 0n) return "priority";
    if (sizeOf(costs) <= ROUNDING * BigInt(provider.lines)) return "rounding";
    return TOOLS.find(({ name }) => name === model)?.kind ?? "prices";
  }
  if (isOfWrites(counts, gateway)) return "writes";
  const off = values.reduce((sum, count) => sum + Math.abs(count), 0);
  if (gateway.estimated > 0 && off <= gateway.estimated) return "estimated";
  if (isOfClasses(counts)) return "classes";
  return isLess ? "missing" : "surplus";
}

/** Adds up the provider's rows by day and model. */
class ProviderDays {
  readonly days: Map<string, ProviderDay> = new Map();
  readonly differences: Difference[] = [];
  readonly #stated: StatedClasses;

  constructor(stated: StatedClasses) {
    this.#stated = stated;
  }

  #of(day: string, model: string): ProviderDay {
    const name = `${day} ${model}`;
    const found = this.days.get(name) ?? { ...NO_DAY };
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
        this.#name("elsewhere", day, model, 0n, this.#stated.subtract(classes, NO_USAGE));
        continue;
      }
      const found = this.#of(day, model);
      found.classes = addAmounts(found.classes, classes);
      if (isFree) found.free += sumOf(classes, TOKENS);
    }
    for (const { day, kind, name, ofClass = "all", owners, list, amount } of costs) {
      if (amount < list) this.#name("credits", day, name, amount - list);
      const tools = TOOLS.find((each) => each.kind === kind)?.name;
      const hasTools = tools !== undefined && gateway.has(`${day} ${tools}`);
      const isCompared = kind === "model" || hasTools;
      if (isCompared && !isOwn(owners)) this.#name("elsewhere", day, name, list);
      else if (!isCompared) this.#name(kind, day, name, list);
      else {
        const found = this.#of(day, tools ?? name);
        found.list += list;
        found.costs = addCosts(found.costs, { [ofClass]: list });
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
      this.differences.push({ name, day, model, counts, costs: cost === 0n ? {} : { all: cost } });
    }
  }
}

/**
 * Compares the usage of a period.
 *
 * @param owners Ids of keys, projects or workspaces at the provider whose calls pass the gateway.
 * Default: all
 * @param now Milliseconds since 1970: only a day that has just ended can be incomplete
 */
export function compare(
  gateway: GatewayDays,
  exported: ProviderExport,
  owners: readonly string[] | undefined,
  now: number,
): Comparison {
  const stated = new StatedClasses(exported);
  const provider = new ProviderDays(stated);
  const isOwn = (own: readonly string[]) =>
    owners === undefined || own.some((id) => owners.includes(id));
  provider.add(exported, isOwn, gateway);
  const { days, differences } = provider;
  const hasUsage = exported.usage.length > 0;
  const hasCosts = exported.costs.length > 0;
  const allDays = [...exported.usage, ...exported.costs].map(({ day }) => day).toSorted();
  const lastDay = allDays.at(-1);
  const sums = { compared: 0, equal: 0, counted: {} as Measures, gateway: 0n };
  for (const name of [...new Set([...gateway.keys(), ...days.keys()])].toSorted()) {
    const [day = "", ...rest] = name.split(" ");
    const ours = gateway.get(name) ?? NO_USAGE;
    const theirs = days.get(name) ?? NO_DAY;
    const counts = hasUsage ? stated.subtract(theirs.classes, ours) : {};
    const costs = hasCosts ? stated.subtractCosts(theirs, ours) : {};
    const areEqual = Object.keys(counts).length === 0;
    sums.compared++;
    if (areEqual) sums.equal++;
    sums.counted = addMeasures(sums.counted, theirs.classes);
    sums.gateway += ours.cost;
    const isEven = areEqual && sizeOf(costs) === 0n && ours.unpriced === 0;
    if (isEven) continue;
    const model = rest.join(" ");
    const isIncomplete = day === lastDay && now < Date.parse(day) + COMPLETE_MS;
    const difference = nameOf([model, counts, costs], [ours, theirs], [isIncomplete, hasUsage]);
    differences.push({ name: difference, day, model, counts, costs });
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
