/**
 * The admin listener of `serve`. It follows changes of the configuration. Its drain state and its
 * watchers are kept.
 *
 * @module
 */
import type { ReportEvent } from "../exchange/reported_event.ts";
import { setImmediate } from "node:timers/promises";
import { KeyAdministration } from "../admin/key_administration.ts";
import { BudgetReports } from "../admin/budget_reports.ts";
import { createWithCosts } from "../admin/exchange_costs.ts";
import { ProviderReports } from "../admin/provider_reports.ts";
import { Changes } from "../admin/changes.ts";
import { Credits } from "../admin/credits.ts";
import { TeamAdministration } from "../admin/team_administration.ts";
import { RecordingLists } from "../admin/recording_lists.ts";
import { RunLists } from "../admin/run_lists.ts";
import { TokenAdministration } from "../admin/token_administration.ts";
import { CodeSignIn, signInIssuersOf } from "../keys/identity/code_sign_in.ts";
import type { TokenOperator } from "../keys/identity/verifier.ts";
import { createIssuerCaller } from "../steps/token_verifier_setup.ts";
import type { Config } from "../config/config.ts";
import { PriceBook } from "../config/price_book.ts";
import type { AccessLogs } from "./access_logs.ts";
import { createAdminHandler } from "../admin/api/handler.ts";
import { CallCosts } from "../observe/call_costs.ts";
import type { ExchangePage, ExchangeQuery } from "../observe/live/exchange_page.ts";
import type { LivePart } from "../observe/live/live_report.ts";
import type { OperatorState } from "../admin/api/operator_actions.ts";
import { HistoryReports } from "../usage/history/report.ts";
import { UsageReports } from "../usage/report.ts";
import { systemClock } from "../exchange/clock.ts";
import { type Handler, toHandler } from "../http/web.ts";
import type { Fleet } from "../observe/fleet/fleet.ts";
import type { AuditEntry } from "../observe/audit_line.ts";
import type { MetricSnapshot } from "../observe/metrics/metric_registry.ts";
import { toMetricsText } from "../observe/metrics/metrics_text.ts";
import type { Change } from "./change.ts";
import { createSignInAudit } from "./sign_in_audit.ts";
import { createSecretReader } from "./held_key_sources.ts";
import { createSwitch, type HandlerSwitch } from "./handler_switch.ts";
import type { Serve } from "./listener.ts";
import { ListenerSet } from "./listener_set.ts";
import type { Prepared } from "./prepare.ts";
import type { InForce } from "./reload.ts";

/** The running gateway from the admin listener's view: served by this process or by its workers. */
export interface Served {
  readonly isReady: boolean;
  /** True until keys can be looked up. The gateway is not ready until then. */
  readonly isStarting: boolean;
  readonly openExchanges: number;
  readonly urls: readonly string[];
  /** The health of each worker, for `/readyz`. */
  readonly health?: readonly unknown[];
  /** Number of serving processes, and the configured number. */
  readonly workers: { readonly serving: number; readonly wanted: number };
  /**
   * Number of limit decisions that its workers made without Redis. Not set if this process serves.
   */
  readonly localDecisions?: number;
  /** Memory of the serving processes. Bytes. */
  readonly memoryBytes: number;
  /** Passes all exchanges that have settled so far to the observers, if this process serves. */
  flushObservers?(): void;
  /** Reads the metrics. */
  readMetrics(): Promise<readonly MetricSnapshot[]>;
  /**
   * Reports the exchanges that settled from the second `from` up to, but not including, `to`.
   * Seconds since 1970.
   *
   * @param isBrief True to omit the exchanges themselves
   */
  readLive(from: number, to: number, isBrief?: boolean): Promise<LivePart>;
  /** Finds stored exchanges. */
  findExchanges(query: ExchangeQuery): Promise<ExchangePage>;
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
  /** Returns the active configuration, for `/readyz`. */
  readonly inForce: () => InForce;
  /** The logs, which receive a line about each change. */
  readonly logs: AccessLogs;
  /** Format of the log from the command line; `undefined` if not set. */
  readonly log: Config["log"] | undefined;
  /** Receives one-line messages for the operator. */
  readonly report: ReportEvent;
}

/** The admin listener. */
export class AdminListener {
  readonly #listeners: ListenerSet;
  readonly #handler: HandlerSwitch;
  readonly #options: AdminListenerOptions;
  readonly #callIssuer = createIssuerCaller(systemClock);
  #current: Prepared | undefined;

  constructor(options: AdminListenerOptions) {
    const { serve, report } = options;
    const handler = this.#handler = createSwitch();
    this.#listeners = new ListenerSet({ handler, serve, toPath: () => "admin", report });
    this.#options = options;
  }

  /** The open addresses. Empty if there are none. */
  get urls(): readonly string[] {
    return this.#listeners.urls;
  }

  /**
   * Prepares the listener for a configuration.
   *
   * @throws {ConfigError} If its address can't be listened on
   */
  async prepare(prepared: Prepared): Promise<Change> {
    const { admin, limits } = prepared.config;
    const addresses = admin === undefined ? [] : [{ ...admin, bodyTimeMs: limits.bodyTimeMs }];
    const change = await this.#listeners.prepare(addresses);
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
    const { served, fleet, state, version, inForce } = this.#options;
    const { hostname } = prepared.config.admin ?? {};
    const credentials = () => this.#credentials(prepared);
    const { handle } = createAdminHandler({
      ...this.#reports(prepared),
      gateway: served,
      fleet,
      get token() {
        return credentials().token;
      },
      get signIn() {
        const { verifier } = credentials();
        return verifier?.hasOperators ? (token: string) => verifier.signIn(token) : undefined;
      },
      hostname,
      digest: prepared.assembly.parts.digest,
      version,
      metrics: async (format) => toMetricsText(await served.readMetrics(), format),
      readLive: (from, to) => served.readLive(from, to),
      handle: (request) => served.handle(request),
      providers: prepared.config.providers,
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

  /**
   * Returns the credentials that authenticate operators. Always from the active configuration, even
   * for a handler that was created before the configuration changed.
   */
  #credentials(prepared: Prepared) {
    const { config, assembly } = this.#current ?? prepared;
    return { token: config.admin?.token, verifier: assembly.identity?.verifier };
  }

  /** Finds the operator of an identity token. */
  async #findOperator(prepared: Prepared, token: string): Promise<TokenOperator | undefined> {
    return await this.#credentials(prepared).verifier?.findOperator(token);
  }

  /** Creates the reports, lists and changes for operators. */
  #reports(prepared: Prepared) {
    const { config, assembly } = prepared;
    const { served, fleet, logs, log = config.log, report } = this.#options;
    const { keys, teams, limiter, usage, history, parts } = assembly;
    const { identity, providers } = config;
    const now = Date.now;
    const reported = { usage, config, keys, now, rest: setImmediate };
    const prices = new PriceBook(config);
    const costs = prices.hasCosts ? new CallCosts(prices, config.currency) : undefined;
    const withCosts = createWithCosts(costs);
    const changes = new Changes({ log: assembly.changes, now, report });
    const administered = { keys, teams, limiter, changes, now, config };
    return {
      keys: new KeyAdministration({ ...administered, digest: parts.digest }),
      teams: new TeamAdministration(administered),
      credits: new Credits(administered),
      changes,
      providerReports: new ProviderReports(providers, limiter, () => served.urls),
      budgets: new BudgetReports({ ...reported, limiter, teams, identity }),
      usage: new UsageReports(reported),
      history: new HistoryReports({ history, currency: config.currency, now, rest: setImmediate }),
      tokens: new TokenAdministration({
        identity,
        revocations: assembly.identity?.revocations,
        changes,
        now,
      }),
      signIns: {
        issuers: signInIssuersOf(identity).map((each) =>
          new CodeSignIn(each, {
            fetchIssuer: this.#callIssuer,
            readSecret: createSecretReader(prepared.source.directory, report),
            clock: systemClock,
          })
        ),
        findOperator: (token: string) => this.#findOperator(prepared, token),
        audit: createSignInAudit(systemClock, (entry) => logs.audit(log, entry)),
      },
      audit: (entry: AuditEntry) => logs.audit(log, entry),
      exchanges: async (query: ExchangeQuery, gateway?: string) => {
        const page = gateway === undefined
          ? await served.findExchanges(query)
          : await fleet.exchanges(gateway, query);
        return { ...page, exchanges: withCosts(page.exchanges) };
      },
      withCosts,
      recordings: new RecordingLists({ store: parts.durable?.store, keys }),
      runs: new RunLists({ registry: parts.runs, config, changes }),
    };
  }
}
