/**
 * Serving of callers in this process: the gateway with its listeners and observers. They are kept
 * when the configuration changes.
 *
 * @module
 */
import type { ReportEvent } from "../exchange/reported_event.ts";
import process from "node:process";
import { PriceBook } from "../config/price_book.ts";
import type { Config } from "../config/config.ts";
import { systemClock } from "../exchange/clock.ts";
import type { ExchangeObserver } from "../exchange/observer.ts";
import type { GatewayRequest, GatewayResponse } from "../http/message.ts";
import { BudgetWatch } from "../limits/budget_watch.ts";
import { CallCosts } from "../observe/call_costs.ts";
import { LiveFeed } from "../observe/live/live_feed.ts";
import type { ExchangePage, ExchangeQuery } from "../observe/live/exchange_page.ts";
import { type LivePart, mergeParts } from "../observe/live/live_report.ts";
import { CostMetrics } from "../observe/metrics/cost_metrics.ts";
import { AttributionMetrics } from "../observe/metrics/attribution_metrics.ts";
import { KeyMetrics } from "../observe/metrics/key_metrics.ts";
import { addIdentityMetrics } from "../observe/metrics/identity_metrics.ts";
import { MetricRegistry, type MetricSnapshot } from "../observe/metrics/metric_registry.ts";
import { addFileMetrics, addSources } from "../observe/metrics/metric_sources.ts";
import { Metrics } from "../observe/metrics/metrics.ts";
import { createTraces, type Traces } from "../observe/traces/traces.ts";
import { ROUTES } from "../operations/shapes.ts";
import { runtime, runtimeVersion } from "../runtime.ts";
import type { AccessLogs } from "./access_logs.ts";
import type { Served } from "./admin_listener.ts";
import { type Change, prepareAll } from "./change.ts";
import { closeListeners } from "./lifecycle.ts";
import type { Serve } from "./listener.ts";
import { ListenerSet, type ListeningChange } from "./listener_set.ts";
import type { Prepared } from "./prepare.ts";
import { addDurableMetrics } from "../observe/metrics/durable_metrics.ts";
import { addProcessMetrics } from "./process_metrics.ts";
import { RunningGateway } from "./running_gateway.ts";

/** The longest wait at the end of the process for a reader of the log. Milliseconds. */
const LAST_LINES_MS = 500;
/** The longest wait at the end of the process for the collector of traces. Milliseconds. */
const LAST_SPANS_MS = 2000;

/** Serves callers with the active configuration: in this process, or through workers. */
export interface Serving extends Served {
  /** Prepares another configuration. */
  prepare(prepared: Prepared): Promise<Change>;
  /** Starts to serve. Called when the first configuration is active. */
  start(): Promise<void>;
  /**
   * Reports not ready, waits for open exchanges, and closes the listeners.
   *
   * @param delayMs Time during which it still accepts requests, milliseconds. Default: the
   * configured one
   */
  close(delayMs?: number): Promise<void>;
  /** Closes the engines of the configuration, and ends the output. */
  release(): Promise<void>;
}

/** Options of {@link ServingHere}. */
export interface ServingOptions {
  /** The runtime's listener. */
  readonly serve: Serve;
  /** Version of the gateway. */
  readonly version: string;
  /** Format of the log from the command line; `undefined` if not set. */
  readonly log: Config["log"] | undefined;
  readonly logs: AccessLogs;
  /** Numbers of failed writes of files, by the kind of their content. */
  readonly failedWrites: ReadonlyMap<string, number>;
  /** True when other processes listen on the same addresses. */
  readonly isShared: boolean;
  /** Receives one-line messages for the operator. */
  readonly report: ReportEvent;
}

/** Serves callers in this process. */
export class ServingHere implements Serving {
  readonly #options: ServingOptions;
  readonly #gateway: RunningGateway;
  readonly #listeners: ListenerSet;
  readonly #registry: MetricRegistry = new MetricRegistry();
  readonly #metrics: Metrics;
  #keyMetrics: KeyMetrics | undefined;
  #attributionMetrics: AttributionMetrics | undefined;
  readonly #costMetrics: CostMetrics = new CostMetrics(this.#registry);
  readonly #logs: AccessLogs;
  readonly #traces: Traces | undefined;
  #feed: LiveFeed | undefined;
  #current: Prepared | undefined;

  constructor(options: ServingOptions) {
    const { serve, version, report } = options;
    this.#options = options;
    this.#logs = options.logs;
    this.#traces = createTraces({ version, routes: ROUTES, report });
    const observe = (prepared: Prepared) => this.#observersOf(prepared);
    const watch = new BudgetWatch(systemClock);
    const budgets = { watch, report };
    const gateway = this.#gateway = new RunningGateway({ observe, tracer: this.#traces, budgets });
    const toPath = (index: number) => `listen[${index}]`;
    this.#listeners = new ListenerSet({ handler: gateway.handler, serve, toPath, report });
    addSources(this.#registry, {
      gateway: () => gateway,
      droppedLogLines: () => this.#logs.dropped,
      redis: () => this.#current?.assembly.redis?.(),
      budgets: () => watch.ratios(),
      version,
      runtime,
      runtimeVersion,
    });
    addIdentityMetrics(this.#registry, {
      issuers: () => this.#current?.assembly.identity?.verifier.health,
      tokens: () => this.#current?.assembly.identity?.verifier.counts,
    });
    addDurableMetrics(this.#registry, () => {
      const durable = this.#current?.assembly.parts.durable;
      return durable == null
        ? undefined
        : { ...durable.counts, running: durable.running, bytes: durable.store.bytes };
    });
    addFileMetrics(this.#registry, options.failedWrites);
    addProcessMetrics(this.#registry, systemClock);
    this.#metrics = new Metrics(this.#registry);
  }

  get isReady(): boolean {
    return this.#gateway.isReady;
  }

  get isStarting(): boolean {
    return this.#current?.assembly.isReady() !== true;
  }

  get openExchanges(): number {
    return this.#gateway.openExchanges;
  }

  get urls(): readonly string[] {
    return this.#listeners.urls;
  }

  get workers(): Served["workers"] {
    return { serving: 1, wanted: 1 };
  }

  get memoryBytes(): number {
    return process.memoryUsage().rss;
  }

  readMetrics(): Promise<readonly MetricSnapshot[]> {
    return Promise.resolve(this.metrics);
  }

  /** The metrics as plain data, which can be sent to another process. */
  get metrics(): readonly MetricSnapshot[] {
    this.flushObservers();
    return this.#metrics.toJson();
  }

  flushObservers(): void {
    this.#gateway.flushObservers();
  }

  readLive(from: number, to: number, isBrief = false): Promise<LivePart> {
    this.flushObservers();
    return Promise.resolve(
      this.#feed?.readPart(this.#gateway, from, to, isBrief) ?? mergeParts([]),
    );
  }

  findExchanges(query: ExchangeQuery): Promise<ExchangePage> {
    this.flushObservers();
    return Promise.resolve(this.#feed?.find(query) ?? { exchanges: [] });
  }

  handle(request: GatewayRequest): Promise<GatewayResponse> {
    return this.#gateway.handler.handle(request);
  }

  /**
   * Prepares another configuration.
   *
   * @param ports The ports that another process was assigned for its addresses
   * @throws {ConfigError} If an address can't be listened on
   */
  async prepare(prepared: Prepared, ports: readonly number[] = []): Promise<ListeningChange> {
    const { config, source } = prepared;
    const { bodyTimeMs, writeStallMs } = config.limits;
    const { isShared } = this.#options;
    const options = { bodyTimeMs, writeStallMs, isShared };
    const wanted = source.addresses.map((address, index) => ({
      ...address,
      ...options,
      givenPort: ports[index],
    }));
    let urls: readonly string[] = [];
    const { apply, abandon } = await prepareAll(() => this.#gateway.prepare(prepared), async () => {
      const change = await this.#listeners.prepare(wanted);
      ({ urls } = change);
      return change;
    });
    return {
      urls,
      abandon,
      apply: () => {
        apply();
        this.#current = prepared;
        this.#feed?.show(config.providers);
      },
    };
  }

  start(): Promise<void> {
    return Promise.resolve(); // serving began when the first configuration became active
  }

  async close(delayMs: number = this.#drain.delayMs): Promise<void> {
    const { limitMs } = this.#drain;
    await closeListeners(this.#gateway, this.#listeners.close(), { delayMs, limitMs });
  }

  async release(): Promise<void> {
    await this.#gateway.release();
    await this.#traces?.flush(LAST_SPANS_MS);
    await this.#logs.close(LAST_LINES_MS);
  }

  /** The times of the drain. Before the first configuration, nothing is open yet. */
  get #drain(): Config["drain"] {
    return this.#current?.config.drain ?? { delayMs: 0, limitMs: 0 };
  }

  /** Returns the observers of settled exchanges under a configuration. */
  #observersOf({ config, assembly }: Prepared): readonly ExchangeObserver[] {
    const { admin, log, providers, redis, keys } = config;
    const hasIdentities = assembly.identity?.verifier.hasOperators === true;
    const hasOperators = admin !== undefined && (admin.token !== undefined || hasIdentities);
    // Traffic is watched by operators of this gateway or, through Redis, of other gateways.
    const isWatchable = hasOperators || redis !== undefined;
    if (isWatchable) this.#feed ??= new LiveFeed(providers, Date.now);
    const feed = isWatchable ? this.#feed : undefined;
    const prices = new PriceBook(config);
    const costs = new CallCosts(prices, config.currency);
    // The history is read by operators, or from the file next to the keys.
    const isKept = isWatchable || !Array.isArray(keys);
    const history = isKept
      ? assembly.history.under(prices.hasCosts ? costs : { of: () => undefined })
      : undefined;
    const logs = this.#logs.of(this.#options.log ?? log);
    const ofCosts = prices.hasCosts ? [this.#costMetrics.under(costs), logs?.under(costs)] : [logs];
    const counted = [this.#countKeys(config, costs), this.#countValues(config, costs)];
    return [this.#metrics, ...counted, ...ofCosts, feed, history]
      .filter((observer) => observer !== undefined);
  }

  /** Returns the observer that counts by attribution; `undefined` if it is not configured. */
  #countValues({ attribution }: Config, costs: CallCosts): ExchangeObserver | undefined {
    if (attribution.metrics.length === 0) return undefined;
    this.#attributionMetrics ??= new AttributionMetrics(this.#registry);
    return this.#attributionMetrics.under(attribution.metrics, costs);
  }

  /** Returns the observer that counts by key; `undefined` if it is not configured. */
  #countKeys({ metrics }: Config, costs: CallCosts): ExchangeObserver | undefined {
    const { maxKeys } = metrics;
    if (maxKeys === 0) return undefined;
    this.#keyMetrics ??= new KeyMetrics(this.#registry);
    return this.#keyMetrics.under({ maxKeys, costs });
  }
}
