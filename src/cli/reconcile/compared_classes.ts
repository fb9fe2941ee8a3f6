/**
 * The classes in which the gateway's usage and the provider's export are compared. An export does
 * not state all classes.
 *
 * @module
 */
import {
  type BillingClass,
  type ClassAmounts,
  INPUT_CLASSES,
  OUTPUT_CLASSES,
  sumOf,
} from "../../exchange/billing.ts";
import type { Costs } from "./difference.ts";
import type { GatewayUsage } from "./gateway_usage.ts";
import type { ProviderExport } from "./provider_export.ts";

/** Classes whose counts are compared, in the order of the report. */
export const COMPARED: readonly BillingClass[] = [
  "input",
  "inputAudio",
  "cacheRead",
  "cacheReadAudio",
  "cacheWrite",
  "cacheWriteLong",
  "output",
  "outputAudio",
  "webSearches",
  "fileSearches",
  "codeSessions",
  "images",
  "characters",
  "audioMs",
];
/**
 * Other measures of calls with tokens. For some models the provider states both, and answers state
 * one of them.
 */
const MEASURES: ReadonlySet<BillingClass> = new Set(["images", "characters", "audioMs"]);
/** Classes that are compared only if the export has them: they are from endpoints of their own. */
const SEPARATE: ReadonlySet<BillingClass> = new Set([
  "webSearches",
  "fileSearches",
  "codeSessions",
  ...MEASURES,
]);
/** All classes of tokens. */
export const TOKENS: readonly BillingClass[] = [...INPUT_CLASSES, ...OUTPUT_CLASSES];

/** The class that includes another one in an export that does not state the other one. */
const PART_OF: Readonly<Partial<Record<BillingClass, BillingClass>>> = {
  inputAudio: "input",
  inputImage: "input",
  inputVideo: "input",
  cacheRead: "input",
  cacheReadAudio: "cacheRead",
  cacheReadImage: "cacheRead",
  cacheWrite: "input",
  cacheWriteLong: "cacheWrite",
  reasoning: "output",
  outputAudio: "output",
  outputImage: "output",
  outputVideo: "output",
  citation: "output",
};

type Stated = ReadonlySet<string>;

/** Returns the class of the export that includes a class. */
function classIn(stated: Stated, name: BillingClass): BillingClass {
  let found = name;
  while (!stated.has(found)) {
    const whole = PART_OF[found];
    if (whole === undefined) break;
    found = whole;
  }
  return found;
}

/** The classes that an export states. */
export class StatedClasses {
  readonly #counted: Stated;
  readonly #billed: Stated;

  constructor({ usage, costs }: ProviderExport) {
    this.#counted = new Set(usage.flatMap(({ classes }) => Object.keys(classes)));
    this.#billed = new Set(costs.flatMap(({ ofClass }) => ofClass ?? []));
  }

  /** Returns the provider's counts, less the gateway's, without those that are equal. */
  subtract(provider: ClassAmounts, { classes }: GatewayUsage): ClassAmounts {
    const ours: Partial<Record<BillingClass, number>> = {};
    for (const [name, count] of Object.entries(classes) as [BillingClass, number][]) {
      const stated = classIn(this.#counted, name);
      if (SEPARATE.has(stated) && !this.#counted.has(stated)) continue;
      ours[stated] = (ours[stated] ?? 0) + count;
    }
    const haveTokens = sumOf(provider, TOKENS) > 0 && sumOf(classes, TOKENS) > 0;
    const names = COMPARED.filter((name) => !haveTokens || !MEASURES.has(name) || name in ours);
    const pairs = names.map((name) => [name, (provider[name] ?? 0) - (ours[name] ?? 0)] as const);
    return Object.fromEntries(pairs.filter(([, count]) => count !== 0));
  }

  /**
   * Returns the provider's costs, less the gateway's, without those that are equal: by class if
   * both sides divide all of them.
   */
  subtractCosts(
    provider: { readonly list: bigint; readonly costs: Costs },
    gateway: GatewayUsage,
  ): Costs {
    const isDivided = ({ all, ...costs }: Costs) =>
      all === undefined && Object.keys(costs).every((name) => TOKENS.some((each) => each === name));
    const isWhole = provider.list === 0n || !isDivided(provider.costs) || !isDivided(gateway.costs);
    const found: Partial<Record<BillingClass | "all", bigint>> = {};
    if (isWhole) found.all = provider.list - gateway.cost;
    else {
      Object.assign(found, provider.costs);
      for (const [name, cost] of Object.entries(gateway.costs) as [BillingClass, bigint][]) {
        const stated = classIn(this.#billed, name);
        found[stated] = (found[stated] ?? 0n) - cost;
      }
    }
    return Object.fromEntries(Object.entries(found).filter(([, cost]) => cost !== 0n));
  }
}

/** True if the sums of input are equal, and the gateway has no class of written tokens. */
export function isOfWrites(counts: ClassAmounts, { classes }: GatewayUsage): boolean {
  const { input = 0, cacheWrite = 0, cacheWriteLong = 0, ...others } = counts;
  const hasWrites = sumOf(classes, ["cacheWrite", "cacheWriteLong"]) > 0;
  return !hasWrites && Object.keys(others).length === 0 && cacheWrite + cacheWriteLong > 0 &&
    input === -(cacheWrite + cacheWriteLong);
}

/** True if the sums of input and of output are equal, and nothing but tokens differs. */
export function isOfClasses(counts: ClassAmounts): boolean {
  return Object.keys(counts).every((name) => TOKENS.some((each) => each === name)) &&
    sumOf(counts, INPUT_CLASSES) === 0 && sumOf(counts, OUTPUT_CLASSES) === 0;
}
