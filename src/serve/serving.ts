/**
 * Serving of callers in this process: the gateway with its listeners and observers. They are kept
 * when the configuration changes.
 *
 * @module
 */
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
import { KeyMetrics } from "../observe/metrics/key_metrics.ts";
import { addIdentityMetrics } from "../observe/metrics/identity_metrics.ts";
import { MetricRegistry, type MetricSnapshot } from "../observe/metrics/metric_registry.ts";
import { addSources } from "../observe/metrics/metric_sources.ts";
import { Metrics } from "../observe/metrics/metrics.ts";
import { createTraces, type Traces } from "../observe/traces/traces.ts";
import { OPERATIONS } from "../operations/table.ts";
import { runtime } from "../runtime.ts";
import { AccessLogs } from "./access_logs.ts";
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
  /** Reports not ready, waits for open exchanges, and closes the listeners. */
  close(): Promise<void>;
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
  /** The logs, if other code writes to them too. */
  readonly logs?: AccessLogs | undefined;
  /** True when other processes listen on the same addresses. */
  readonly isShared: boolean;
  /** Receives one-line messages for the operator. */
  readonly report: (text: string) => void;
}

/** Serves callers in this process. */
export class ServingHere implements Serving {
  readonly #options: ServingOptions;
  readonly #gateway: RunningGateway;
  readonly #listeners: ListenerSet;
  readonly #registry: MetricRegistry = new MetricRegistry();
  readonly #metrics: Metrics;
  #keyMetrics: KeyMetrics | undefined;
  readonly #costMetrics: CostMetrics = new CostMetrics(this.#registry);
  readonly #logs: AccessLogs;
  readonly #traces: Traces | undefined;
  #feed: LiveFeed | undefined;
  #current: Prepared | undefined;

  constructor(options: ServingOptions) {
    const { serve, version, report } = options;
    this.#options = options;
    this.#logs = options.logs ?? new AccessLogs();
    this.#traces = createTraces({ version, operations: OPERATIONS, report });
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
      runtimeVersion: process.versions[runtime] ?? "",
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

  snapshot(): Promise<readonly MetricSnapshot[]> {
    return Promise.resolve(this.counts);
  }

  /** The metrics as plain data, which can be sent to another process. */
  get counts(): readonly MetricSnapshot[] {
    this.flushObservers();
    return this.#metrics.toJson();
  }

  flushObservers(): void {
    this.#gateway.flushObservers();
  }

  look(from: number, to: number, isBrief = false): Promise<LivePart> {
    this.flushObservers();
    return Promise.resolve(this.#feed?.look(this.#gateway, from, to, isBrief) ?? mergeParts([]));
  }

  find(query: ExchangeQuery): Promise<ExchangePage> {
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

  /** Ends serving. @param delayMs Time during which it still accepts, milliseconds */
  async close(delayMs: number = this.#current?.config.drain.delayMs ?? 0): Promise<void> {
    const { limitMs } = this.#current?.config.drain ?? { limitMs: 0 };
    await closeListeners(this.#gateway, this.#listeners.close(), { delayMs, limitMs });
  }

  async release(): Promise<void> {
    await this.#gateway.release();
    await this.#traces?.flush(LAST_SPANS_MS);
    await this.#logs.close(LAST_LINES_MS);
  }

  /** Returns the observers of settled exchanges under a configuration. */
  #observersOf({ config, assembly }: Prepared): readonly ExchangeObserver[] {
    const { admin, log, providers, redis } = config;
    const hasIdentities = assembly.identity?.verifier.hasOperators === true;
    const hasOperators = admin !== undefined && (admin.token !== undefined || hasIdentities);
    // Traffic is watched by operators of this gateway or, through Redis, of other gateways.
    const isWatchable = hasOperators || redis !== undefined;
    if (isWatchable) this.#feed ??= new LiveFeed(providers, Date.now);
    const feed = isWatchable ? this.#feed : undefined;
    const prices = new PriceBook(config);
    const costs = new CallCosts(prices, config.currency);
    const logs = this.#logs.of(this.#options.log ?? log);
    const ofCosts = prices.hasCosts ? [this.#costMetrics.under(costs), logs?.under(costs)] : [logs];
    return [this.#metrics, this.#countKeys(config, costs), ...ofCosts, feed]
      .filter((observer) => observer !== undefined);
  }

  /** Returns the observer that counts by key; `undefined` if it is not configured. */
  #countKeys({ metrics }: Config, costs: CallCosts): ExchangeObserver | undefined {
    const { maxKeys } = metrics;
    if (maxKeys === 0) return undefined;
    this.#keyMetrics ??= new KeyMetrics(this.#registry);
    return this.#keyMetrics.under({ maxKeys, costs });
  }
}
