/**
 * The admin listener of `serve`. It follows changes of the configuration; its drain state and its
 * watchers are kept.
 *
 * @module
 */
import { setImmediate } from "node:timers/promises";
import { KeyAdministration } from "../admin/key_administration.ts";
import { BudgetReports } from "../admin/budget_reports.ts";
import { ProviderReports } from "../admin/provider_reports.ts";
import { TeamReports } from "../admin/team_reports.ts";
import { RecordingLists } from "../admin/recording_lists.ts";
import { ExchangeLists } from "../admin/exchange_lists.ts";
import { TokenAdministration } from "../admin/token_administration.ts";
import type { Config } from "../config/config.ts";
import type { AccessLogs } from "./access_logs.ts";
import { createAdminHandler } from "../admin/api/handler.ts";
import type { ExchangePage, ExchangeQuery } from "../observe/live/exchange_page.ts";
import type { LivePart } from "../observe/live/live_report.ts";
import type { OperatorState } from "../admin/api/operator_actions.ts";
import { UsageReports } from "../usage/report.ts";
import { systemClock } from "../exchange/clock.ts";
import { type Handler, toHandler } from "../http/web.ts";
import type { Fleet } from "../observe/fleet/fleet.ts";
import type { MetricSnapshot } from "../observe/metrics/metric_registry.ts";
import { toMetricsText } from "../observe/metrics/metrics_text.ts";
import type { Change } from "./change.ts";
import { createSwitch, type HandlerSwitch } from "./handler_switch.ts";
import type { Serve } from "./listener.ts";
import { ListenerSet } from "./listener_set.ts";
import type { Prepared } from "./prepare.ts";
import type { InForce } from "./reload.ts";

/** The running gateway as the admin listener sees it: served by this process or by its workers. */
export interface Served {
  readonly isReady: boolean;
  /** True until keys can be looked up: callers are not welcome yet. */
  readonly isStarting: boolean;
  readonly openExchanges: number;
  readonly urls: readonly string[];
  /** The health of each worker, for `/readyz`. */
  readonly health?: readonly unknown[];
  /** Processes that serve, and those that should. */
  readonly workers: { readonly serving: number; readonly wanted: number };
  /** Limits that its workers have decided without Redis; left out where this process serves. */
  readonly localDecisions?: number;
  /** Memory that the processes take which serve. Bytes. */
  readonly memoryBytes: number;
  /**
   * Tells the observers of all exchanges that have settled until now, where this process serves.
   */
  flushObservers?(): void;
  /** Reads the metrics. */
  snapshot(): Promise<readonly MetricSnapshot[]>;
  /**
   * Reports the exchanges that settled from the second `from` up to, but not including, `to`.
   * Seconds since 1970.
   *
   * @param isBrief True without the exchanges themselves
   */
  look(from: number, to: number, isBrief?: boolean): Promise<LivePart>;
  /** Finds exchanges that are kept. */
  find(query: ExchangeQuery): Promise<ExchangePage>;
  /** Answers a call of the playground. */
  readonly handle: Handler["handle"];
}

/** Options of the admin listener. */
export interface AdminListenerOptions {
  readonly served: Served;
  readonly fleet: Fleet;
  /** State to keep when the configuration changes. */
  readonly state: OperatorState;
  /** The runtime's listener. */
  readonly serve: Serve;
  /** Version of the gateway. */
  readonly version: string;
  /** Returns the configuration in force, which `/readyz` reports. */
  readonly inForce: () => InForce;
  /** The logs, which take a line about each change. */
  readonly logs: AccessLogs;
  /** Format of the log that the command line asks for; `undefined` if it does not. */
  readonly log: Config["log"] | undefined;
  /** Receives one-line messages for the operator. */
  readonly report: (text: string) => void;
}

/** The admin listener. */
export class AdminListener {
  readonly #listeners: ListenerSet;
  readonly #handler: HandlerSwitch;
  readonly #options: AdminListenerOptions;
  #current: Prepared | undefined;

  /** @param options Options of the listener */
  constructor(options: AdminListenerOptions) {
    const { serve, report } = options;
    const handler = this.#handler = createSwitch();
    this.#listeners = new ListenerSet({ handler, serve, toPath: () => "admin", report });
    this.#options = options;
  }

  /** The addresses that it listens on; empty without any. */
  get urls(): readonly string[] {
    return this.#listeners.urls;
  }

  /**
   * Prepares the listener for a configuration.
   *
   * @param prepared The configuration
   * @returns The change
   * @throws {ConfigError} When its address can't be listened on
   */
  async prepare(prepared: Prepared): Promise<Change> {
    const { admin, limits: { bodyTimeMs } } = prepared.config;
    const change = await this.#listeners.prepare(
      admin === undefined ? [] : [{ ...admin, bodyTimeMs }],
    );
    const handler = this.#createHandler(prepared);
    const apply = () => {
      this.#current = prepared;
      this.#handler.turnTo(handler);
      change.apply();
    };
    return { apply, abandon: change.abandon };
  }

  /** Closes all of its connections at once. */
  kill(): void {
    for (const listener of this.#listeners.close()) listener.kill();
  }

  #createHandler(prepared: Prepared): Handler {
    const { config, assembly: { parts: { digest, durable }, keys, limiter, usage, identity } } =
      prepared;
    const { admin, providers } = config;
    const reported = { usage, config, keys, now: Date.now, rest: setImmediate };
    const { served, fleet, state, version, inForce, logs, log = config.log } = this.#options;
    // What was opened before the configuration changed is judged by the one in force.
    const credentials = () => {
      const { config: { admin }, assembly: { identity } } = this.#current ?? prepared;
      return { token: admin?.token, verifier: identity?.verifier };
    };
    const exchanges = new ExchangeLists({
      find: (query) => served.find(query),
      findInFleet: (gateway, query) => fleet.exchanges(gateway, query),
      keys,
      now: Date.now,
    });
    const { handle } = createAdminHandler({
      gateway: served,
      fleet,
      keys: new KeyAdministration({ keys, limiter, digest, now: Date.now, config }),
      teams: new TeamReports(config.teams, limiter),
      providerReports: new ProviderReports(providers, limiter),
      budgets: new BudgetReports({
        ...reported,
        limiter,
        teams: config.teams,
        identity: config.identity,
      }),
      usage: new UsageReports(reported),
      tokens: new TokenAdministration({
        identity: config.identity,
        revocations: identity?.revocations,
        now: Date.now,
      }),
      audit: (entry) => logs.audit(log, entry),
      get token() {
        return credentials().token;
      },
      get signIn() {
        const { verifier } = credentials();
        return verifier?.hasOperators ? (token: string) => verifier.signIn(token) : undefined;
      },
      hostname: admin?.hostname,
      digest,
      version,
      metrics: async (format) => toMetricsText(await served.snapshot(), format),
      look: (from, to) => served.look(from, to),
      exchanges,
      recordings: new RecordingLists({
        store: durable?.store,
        withNames: (all) => exchanges.withNames(all),
      }),
      handle: (request) => served.handle(request),
      providers,
      clock: systemClock,
      state,
      health: () => ({
        config: inForce(),
        ...this.#current?.assembly.health(served.localDecisions),
        ...(served.health !== undefined && { workers: served.health }),
      }),
    });
    return toHandler((request) => {
      served.flushObservers?.();
      return handle(request);
    });
  }
}
