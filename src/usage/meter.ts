/**
 * Counts the usage of providers and models by key. The counts are passed to a store once a second,
 * so that no exchange waits for the store. A crash loses the last second.
 *
 * @module
 */
import { NEVER_SENT } from "../errors/upstream_errors.ts";
import type { Dimension } from "../config/dimensions.ts";
import { TOKEN_ID_PREFIX } from "../config/key.ts";
import type { Clock } from "../exchange/clock.ts";
import type { PricedModel } from "../config/price_book.ts";
import type { Price } from "../config/prices.ts";
import type { UsageBounds } from "../config/usage.ts";
import {
  isPlausible,
  partsOf,
  requestPartOf,
  type TokenUsage,
  type UsagePart,
} from "../exchange/billing.ts";
import type { ExchangeRecord } from "../exchange/record.ts";
import type { ExchangeObserver, RestatedCall } from "../exchange/observer.ts";
import { isSuccess } from "../http/message.ts";
import { writeAttribution } from "./attributed.ts";
import { addClasses, addStatedCost } from "./classes.ts";
import {
  HOUR_MS,
  OTHER_NAME,
  type Rest,
  ROWS_A_BATCH,
  type UsageBatch,
  type UsageCounts,
  type UsageNames,
  type UsageRange,
  type UsageRow,
  type UsageStore,
} from "./counts.ts";
import { writeTariff } from "./tariff.ts";
import { inParts } from "./usage_memory.ts";
import { MAX_ROWS, type OpenCounts, UsageTable } from "./usage_table.ts";

/** Interval at which counts are passed to the store. Milliseconds. */
const FLUSH_MS = 1000;
/**
 * Attempts at one batch while the gateway closes, and the pause between them: five seconds.
 * Milliseconds.
 */
const CLOSE_TRIES = 20;
const CLOSE_PAUSE_MS = 250;
/** Maximum number of a provider's models that are remembered as existing. */
const MAX_KNOWN = 1000;
/** Maximum number of tariffs that are counted by name. */
const MAX_TARIFFS = 1000;
const NO_DIMENSIONS: ReadonlySet<Dimension> = new Set();
/** The tariff of all further calls whose cost was stated. */
const UNKNOWN_STATED = `${OTHER_NAME},,,stated`;
/** Number of decimals of a stated cost that are counted. */
const STATED_DECIMALS = 10;

/**
 * Returns a stated cost in 10^-10 of the currency, rounded up; `undefined` if it is not a plausible
 * decimal.
 */
function toStated(text: string): number | undefined {
  if (!/^\d{1,5}(?:\.\d+)?$/.test(text)) return undefined;
  const [whole = "0", decimals = ""] = text.split(".");
  const kept = Number(whole + decimals.slice(0, STATED_DECIMALS).padEnd(STATED_DECIMALS, "0"));
  return /[1-9]/.test(decimals.slice(STATED_DECIMALS)) ? kept + 1 : kept;
}

/** The facts of a call that counts depend on. */
type CountedRecord = Pick<
  ExchangeRecord,
  | ("startedAt" | "durationMs" | "outcome" | "status" | "code" | "isEstimated")
  | (
    | "keyId"
    | "team"
    | "plan"
    | "attribution"
    | "usesHeldKey"
    | "provider"
    | "replica"
    | "operation"
    | "model"
  )
>;

/** True for a call that can have cost something. A call that the gateway refused has not. */
const canCost = ({ isMetered, outcome }: ExchangeRecord): boolean =>
  isMetered === true && outcome !== "refused" && outcome !== "shed";

/** Adds usage of which only sums are known. */
function addTokens(counts: UsageCounts, usage: TokenUsage, isEstimated: boolean): void {
  const { total, input = 0, output = 0, cached = 0, reasoning = 0 } = usage;
  counts.input += input;
  counts.cached += Math.min(cached, input);
  counts.output += output;
  counts.reasoning += Math.min(reasoning, output);
  counts.other += Math.max(0, total - input - output);
  counts.estimatedInput += isEstimated ? input : 0;
  counts.estimatedOutput += isEstimated ? output : 0;
}

/** Counts a call whose usage is known. */
function countBilled(counts: UsageCounts, { outcome, isEstimated }: CountedRecord): void {
  counts.requests++;
  if (isEstimated === true) counts.estimated++;
  else if (outcome !== "ok") counts.partial++;
}

/** Counts a call whose usage is unknown. */
function countUnbilled(counts: UsageCounts, { outcome, status, code }: CountedRecord): void {
  counts.requests++;
  const isTurnedDown = outcome === "upstream_error" && !isSuccess(status);
  if (isTurnedDown || NEVER_SENT.has(code)) counts.failed++;
  else counts.unmetered++;
}

/** Options of the usage meter. */
export interface UsageMeterOptions {
  readonly store: UsageStore;
  readonly clock: Clock;
  /** Lets other work of the process run between two batches. */
  readonly rest: Rest;
  /** Models that always have their own row: those with a price. */
  readonly listed: ReadonlySet<string>;
  /** Dimensions of attribution that are counted. Default: none. */
  readonly dimensions?: ReadonlySet<Dimension>;
  /** Bounds of stored usage. Default: the built-in ones. */
  readonly keep?: UsageBounds;
  /** Finds the price of a model, which names the facts to keep. Default: none has a price. */
  readonly findPrice?: (called: PricedModel) => Price | undefined;
}

/** Counts that are being passed to the store. */
interface Leaving {
  /** The number of rows. */
  readonly rows: number;
  readonly parts: Iterator<UsageRow[], undefined>;
}

/** Counts exchanges. */
export class UsageMeter implements ExchangeObserver {
  readonly #options: UsageMeterOptions;
  #store: UsageStore;
  /** Counts that still wait for the store, by hour. */
  #waiting = new Map<number, UsageTable>();
  /** Counts that are being passed to the store, batch by batch. */
  #leaving: Leaving | undefined;
  /** The batch in transit, until the store has accepted it. */
  #batch: UsageBatch | undefined;
  #batches = 0;
  #flushing: Promise<void> = Promise.resolve();
  #isScheduled = false;
  #isClosed = false;
  #cancelFlush = (): void => {};
  /** Models that a provider has answered for. */
  readonly #known = new Map<string, Set<string>>();
  readonly #tariffs = new Map<string, string>();

  constructor(options: UsageMeterOptions) {
    this.#options = options;
    this.#store = options.store;
  }

  /** Backend that stores usage. */
  get backend(): UsageStore["backend"] {
    return this.#store.backend;
  }

  /** Counts a call that was sent to its provider, if a call of its operation can cost something. */
  settled(record: ExchangeRecord): void {
    const names = canCost(record) ? this.#namesOf(record) : undefined;
    if (names === undefined) return;
    const endedAt = record.startedAt + record.durationMs;
    const table = this.#tableOf(endedAt - endedAt % HOUR_MS);
    const { usage } = record;
    if (usage !== undefined && isPlausible(usage)) this.#addUsage(table, names, record, usage);
    else countUnbilled(table.open(names).counts, record);
    this.#flushLater();
  }

  /** Replaces an estimate, or none, by the usage that was stated later, in the same hour. */
  restated({ estimate, stated, ...call }: RestatedCall): void {
    const model = call.model === "" ? OTHER_NAME : call.model;
    const record: CountedRecord = { ...call, model, status: 200, outcome: "ok" };
    const names = this.#namesOf(record);
    if (names === undefined || !isPlausible(stated)) return;
    const endedAt = call.startedAt + call.durationMs;
    const hour = endedAt - endedAt % HOUR_MS;
    const table = this.#tableOf(hour);
    const { listed, keep } = this.#options;
    const estimated = new UsageTable(listed, MAX_ROWS, keep?.maxAttributed);
    if (estimate === undefined) countUnbilled(estimated.open(names).counts, record);
    else this.#addUsage(estimated, names, { ...record, isEstimated: true }, estimate);
    for (const row of estimated.rowsAt(hour)) table.subtract(row);
    this.#addUsage(table, names, record, stated);
    this.#flushLater();
  }

  /** Adds the counts of another process. */
  add(rows: readonly UsageRow[]): void {
    for (const row of rows) this.#tableOf(row.at).add(row);
    if (rows.length > 0) this.#flushLater();
  }

  /** Reads the rows of a range, including counts that are not yet in the store. */
  async *read(range: UsageRange): AsyncIterable<readonly UsageRow[]> {
    await this.#flush();
    yield* this.#store.read(range);
  }

  /**
   * Passes waiting counts to the store, then switches to another store. Counts that the old store
   * does not accept are passed to the new one.
   */
  async moveTo(store: UsageStore): Promise<void> {
    await (this.#flushing = this.#flush().then(() => void (this.#store = store)));
  }

  /**
   * Passes all remaining usage to the store. A batch that is not accepted is retried: a store can
   * be busy, or unavailable for some seconds.
   */
  async close(): Promise<void> {
    this.#isClosed = true;
    this.#cancelFlush();
    await this.#flush();
    let tries = 1;
    for (let last = this.#batch; last !== undefined && tries < CLOSE_TRIES; last = this.#batch) {
      await new Promise<void>((resolve) => void this.#options.clock.timer(CLOSE_PAUSE_MS, resolve));
      await this.#flush();
      tries = this.#batch === last ? tries + 1 : 1;
    }
    await this.#store.close();
  }

  /**
   * Returns the names to count a call under; `undefined` for a call that is not counted. A call
   * without a model counts under {@link OTHER_NAME}.
   */
  #namesOf(record: CountedRecord): UsageNames | undefined {
    const { keyId, provider, replica, operation, plan } = record;
    const model = record.model ?? (replica === undefined ? undefined : OTHER_NAME);
    if (keyId === undefined || provider === undefined) return undefined;
    if (operation === undefined || model === undefined) return undefined;
    const known = this.#nameOf({ provider }, model, isSuccess(record.status));
    const team = keyId.startsWith(TOKEN_ID_PREFIX) ? record.team : undefined; // see UsageNames
    const { dimensions = NO_DIMENSIONS } = this.#options;
    const attribution = writeAttribution(record.attribution, dimensions);
    const payer = record.usesHeldKey === true ? "gateway" : undefined;
    return { key: keyId, provider, model: known, operation, team, plan, attribution, payer };
  }

  /**
   * Returns the name to count a model under: {@link OTHER_NAME} for a model that was never answered for.
   */
  #nameOf(
    { provider }: Pick<UsageNames, "provider">,
    model: string,
    isAnswered: boolean = true,
  ): string {
    let known = this.#known.get(provider);
    if (known?.has(model) || this.#options.listed.has(model)) return model;
    if (!isAnswered) return OTHER_NAME;
    if (known === undefined) this.#known.set(provider, known = new Set());
    if (known.size < MAX_KNOWN) known.add(model);
    return model;
  }

  /** Counts each part of a call in the row of its model and tariff. */
  #addUsage(
    table: UsageTable,
    names: UsageNames,
    record: CountedRecord,
    usage: TokenUsage,
  ): void {
    const { isEstimated = false } = record;
    const stated = usage.statedCost === undefined ? undefined : toStated(usage.statedCost);
    const parts = partsOf(usage);
    const requested = requestPartOf(parts);
    let index = 0;
    for (const part of parts) {
      const open = this.#openFor(part, table, names, { record, isStated: stated !== undefined });
      if (usage.parts === undefined) addTokens(open.counts, usage, isEstimated);
      else addClasses(open, part.classes, isEstimated);
      if (index++ !== requested) continue;
      countBilled(open.counts, record);
      if (stated !== undefined) addStatedCost(open, stated);
    }
  }

  /** Opens the row of a part of a call. */
  #openFor(
    { model, tariff }: UsagePart,
    table: UsageTable,
    names: UsageNames,
    { record, isStated }: { readonly record: CountedRecord; readonly isStated: boolean },
  ): OpenCounts {
    const priced = model === undefined ? names : { ...names, model };
    const price = this.#options.findPrice?.(priced);
    const at = record.startedAt + record.durationMs;
    const text = writeTariff({ tariff, at, isStated, price });
    if (model === undefined && text === undefined) return table.open(names);
    const named = model === undefined ? names.model : this.#nameOf(names, model);
    return table.open({ ...names, model: named, tariff: text && this.#tariffOf(text) });
  }

  /**
   * Returns the one copy of a tariff. A process counts a bounded number of them by name; calls of
   * further ones have no price.
   */
  #tariffOf(text: string): string {
    const found = this.#tariffs.get(text);
    if (found !== undefined) return found;
    if (this.#tariffs.size >= MAX_TARIFFS) {
      return text.endsWith(",stated") ? UNKNOWN_STATED : OTHER_NAME;
    }
    this.#tariffs.set(text, text);
    return text;
  }

  #tableOf(hour: number): UsageTable {
    const found = this.#waiting.get(hour);
    if (found !== undefined) return found;
    // The bound is reached only if a store fails for hours. Beyond it, new rows are counted for all
    // keys together.
    let rows = this.#leaving?.rows ?? 0;
    for (const table of this.#waiting.values()) rows += table.rows;
    const { listed, keep } = this.#options;
    const made = new UsageTable(listed, Math.max(0, MAX_ROWS - rows), keep?.maxAttributed);
    this.#waiting.set(hour, made);
    return made;
  }

  #flushLater(): void {
    if (this.#isScheduled || this.#isClosed) return;
    this.#isScheduled = true;
    this.#cancelFlush = this.#options.clock.timer(FLUSH_MS, () => {
      this.#isScheduled = false;
      void this.#flush();
    });
  }

  /**
   * Passes waiting counts to the store, after the batch in transit. A batch that is not accepted is
   * retried a second later.
   */
  #flush(): Promise<void> {
    return this.#flushing = this.#flushing.then(() => this.#handOn());
  }

  /**
   * Passes waiting counts to the store. Never rejects. The second pass is for counts that arrived
   * during the first.
   */
  async #handOn(): Promise<void> {
    for (let turn = 0; turn < 2; turn++) {
      this.#leaving ??= this.#takeWaiting();
      for (; (this.#batch ??= this.#nextBatch()) !== undefined; this.#batch = undefined) {
        try {
          await this.#store.add(this.#batch);
        } catch {
          return this.#flushLater();
        }
        if (this.#batch.rows.length === ROWS_A_BATCH) await this.#options.rest();
      }
      this.#leaving = undefined;
    }
  }

  #takeWaiting(): Leaving {
    const tables = this.#waiting;
    this.#waiting = new Map();
    const all = function* (): Iterable<UsageRow> {
      for (const [hour, table] of tables) yield* table.rowsAt(hour);
    };
    const rows = Array.from(tables.values()).reduce((sum, table) => sum + table.rows, 0);
    return { rows, parts: inParts(all(), ROWS_A_BATCH)[Symbol.iterator]() };
  }

  #nextBatch(): UsageBatch | undefined {
    const { value, done } = this.#leaving?.parts.next() ?? { value: undefined, done: true };
    return done ? undefined : { number: ++this.#batches, rows: value };
  }
}
