/**
 * Billing classes of usage: how the counts of a row are made from them, and computed back.
 *
 * @module
 */
import {
  BILLING_CLASSES,
  type BillingClass,
  type ClassAmounts,
  INPUT_CLASSES,
  OUTPUT_CLASSES,
  sumOf,
  UNIT_CLASSES,
} from "../exchange/billing.ts";
import {
  CLASS_COUNTS,
  type ClassCount,
  type UsageCount,
  type UsageCounts,
  type UsageRow,
} from "./counts.ts";
import type { OpenCounts } from "./usage_table.ts";

/** Counts that are the amount of one class of tokens. */
const COUNT_OF: Readonly<Partial<Record<BillingClass, ClassCount>>> = {
  inputImage: "inputImage",
  inputAudio: "inputAudio",
  inputVideo: "inputVideo",
  cacheReadAudio: "cachedAudio",
  cacheReadImage: "cachedImage",
  cacheWriteLong: "writtenLong",
  outputImage: "outputImage",
  outputAudio: "outputAudio",
  outputVideo: "outputVideo",
  citation: "citation",
};
/** Counts that have the amounts of several classes. */
const SUMS: Readonly<Partial<Record<BillingClass, readonly UsageCount[]>>> = {
  cacheRead: ["cached"],
  cacheReadAudio: ["cached"],
  cacheReadImage: ["cached"],
  reasoning: ["reasoning"],
};
const READ: readonly BillingClass[] = ["cacheRead", "cacheReadAudio", "cacheReadImage"];

const INDEX = Object.fromEntries(
  CLASS_COUNTS.map((name, index) => [name, index]),
) as Record<ClassCount, number>;
const indexOf = (name: ClassCount): number => INDEX[name];

/** The counts that the amount of a class is added to. */
interface CountsOfClass {
  readonly counts: readonly UsageCount[];
  readonly isInput: boolean;
  readonly isOutput: boolean;
  /** Indexes of further counts. */
  readonly more: readonly number[];
}

function countsOfClass(name: BillingClass): CountsOfClass {
  const isInput = INPUT_CLASSES.some((each) => each === name);
  const isOutput = OUTPUT_CLASSES.some((each) => each === name);
  const isUnit = !isInput && !isOutput && name !== "requests"; // calls have a count of their own
  const own = COUNT_OF[name] ?? (isUnit ? name as ClassCount : undefined);
  const isWritten = name === "cacheWrite" || name === "cacheWriteLong";
  const more: ClassCount[] = [...(isWritten ? ["written" as const] : []), ...(own ? [own] : [])];
  const counts = [...(isInput ? ["input" as const] : []), ...(isOutput ? ["output" as const] : [])];
  return { counts: [...counts, ...SUMS[name] ?? []], isInput, isOutput, more: more.map(indexOf) };
}

const COUNTS_OF_CLASSES = Object.fromEntries(
  BILLING_CLASSES.map((name) => [name, countsOfClass(name)]),
) as Record<BillingClass, CountsOfClass>;
/** Classes with a count of their own. */
const COUNTED: readonly (readonly [BillingClass, ClassCount])[] = BILLING_CLASSES.flatMap(
  (name) => {
    const index = COUNTS_OF_CLASSES[name].more.at(-1);
    const count = index === undefined || name === "cacheWrite" ? undefined : CLASS_COUNTS[index];
    return count === undefined ? [] : [[name, count] as const];
  },
);

/** Returns one of the further counts. */
export function moreOf(more: readonly number[] | undefined, name: ClassCount): number {
  return more?.[indexOf(name)] ?? 0;
}

/** Adds an amount to a further count. The list ends with a count above zero. */
function addAt(open: OpenCounts, index: number, amount: number): void {
  const before = open.more ?? [];
  const sums = index < before.length
    ? before.slice()
    : Array.from({ length: index + 1 }, (_, at) => before[at] ?? 0); // no memory to spare
  sums[index] = Math.min((sums[index] ?? 0) + amount, Number.MAX_SAFE_INTEGER);
  open.more = sums;
}

/** Adds classes to the counts of a row. */
export function addClasses(open: OpenCounts, classes: ClassAmounts, isEstimated: boolean): void {
  const { counts } = open;
  for (const key in classes) {
    const name = key as BillingClass;
    const amount = classes[name] ?? 0;
    if (amount === 0) continue;
    const added = COUNTS_OF_CLASSES[name];
    for (const count of added.counts) counts[count] += amount;
    for (const index of added.more) addAt(open, index, amount);
    if (!isEstimated) continue;
    if (added.isInput) counts.estimatedInput += amount;
    if (added.isOutput) counts.estimatedOutput += amount;
  }
}

/** Adds a cost that a provider stated to the counts of a row, in 10^-10 of the currency. */
export function addStatedCost(open: OpenCounts, cost: number): void {
  if (cost > 0) addAt(open, indexOf("statedCost"), cost);
}

/** Returns the number of calls of a row whose usage is known: these have the fee of a call. */
const billedCalls = ({ requests, failed, unmetered }: Readonly<UsageCounts>): number =>
  requests - failed - unmetered;

/**
 * Computes the classes of a row. Rows of earlier versions have text only. Tokens that are neither
 * input nor output are output, as in `partsOf`.
 */
export function toClasses({ counts, more }: Pick<UsageRow, "counts" | "more">): ClassAmounts {
  const classes: Partial<Record<BillingClass, number>> = {};
  const put = (name: BillingClass, amount: number) => {
    if (amount > 0) classes[name] = amount;
  };
  if (more !== undefined) {
    for (const [name, count] of COUNTED) put(name, moreOf(more, count));
    put("cacheWrite", moreOf(more, "written") - (classes.cacheWriteLong ?? 0));
  }
  const { input, cached, output, reasoning, other } = counts;
  put("cacheRead", cached - sumOf(classes, READ));
  put("reasoning", reasoning);
  put("input", input - sumOf(classes, INPUT_CLASSES));
  put("output", output + other - sumOf(classes, OUTPUT_CLASSES));
  put("requests", billedCalls(counts));
  return classes;
}

/** True if a class counts tokens. */
export function isTokenClass(name: BillingClass): boolean {
  return !UNIT_CLASSES.some((each) => each === name);
}
