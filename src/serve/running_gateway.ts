/**
 * A gateway whose configuration can change while it serves. New requests use the new configuration.
 * Open exchanges end under the configuration that they began with.
 *
 * @module
 */
import { addCount } from "../exchange/count_map.ts";
import { systemClock } from "../exchange/clock.ts";
import type { ExchangeObserver, Tracer } from "../exchange/observer.ts";
import type { Gateway, GatewayParts, SharedLoad } from "../gateway.ts";
import { ExchangeSlots } from "../exchange/open_exchanges.ts";
import { BodyMemory } from "../inbound/body.ts";
import { ObserverBatch } from "../observe/observer_batch.ts";
import type { Change } from "./change.ts";
import { composeGateway } from "./compose.ts";
import { createSwitch, type HandlerSwitch } from "./handler_switch.ts";
import type { Prepared } from "./prepare.ts";

/**
 * The longest duration of a timer. No exchange reaches this limit, because each ends by its own
 * deadlines. Milliseconds.
 */
const NO_LIMIT_MS = 2 ** 31 - 1;

/** A configuration and its gateway. */
interface Generation {
  readonly prepared: Prepared;
  readonly gateway: Gateway;
  readonly observers: ObserverBatch;
}

/** Options of a {@link RunningGateway}. */
export interface RunningGatewayOptions {
  /** Returns the observers of settled exchanges under a configuration. */
  readonly observe: (prepared: Prepared) => readonly ExchangeObserver[];
  readonly tracer: Tracer | undefined;
  /** Watch of budgets, and the receiver of reports about lost messages. */
  readonly budgets: GatewayParts["budgets"];
}

/** The gateway of a process. */
export class RunningGateway {
  /** Answers callers with the active configuration. */
  readonly handler: HandlerSwitch;
  readonly #options: RunningGatewayOptions;
  readonly #shared: SharedLoad = { exchanges: new ExchangeSlots(0), bodies: new BodyMemory(0) };
  #current: Generation | undefined;
  readonly #earlier = new Set<Generation>();
  /** Ejections of replicas that earlier gateways counted, by provider and replica. */
  readonly #ejections = new Map<string, number>();

  constructor(options: RunningGatewayOptions) {
    this.#options = options;
    this.handler = createSwitch();
  }

  /** True while it is ready for new requests. */
  get isReady(): boolean {
    return this.#current?.gateway.isReady ?? false;
  }

  /** Number of open exchanges, under all configurations. */
  get openExchanges(): number {
    return this.#generations.reduce((sum, { gateway }) => sum + gateway.openExchanges, 0);
  }

  /** Number of open exchanges that are streams. */
  get openStreams(): number {
    return this.#generations.reduce((sum, { gateway }) => sum + gateway.openStreams, 0);
  }

  /** State of the replicas of all providers. Counters include earlier configurations. */
  get replicas(): Gateway["replicas"] {
    return (this.#current?.gateway.replicas ?? []).map((each) => ({
      ...each,
      ejections: each.ejections + (this.#ejections.get(`${each.provider} ${each.replica}`) ?? 0),
    }));
  }

  /**
   * Prepares the gateway of another configuration. The engines of that configuration are closed
   * when its last exchange has ended.
   */
  prepare(prepared: Prepared): Promise<Change> {
    const { config, assembly } = prepared;
    const { observe, tracer, budgets } = this.#options;
    const observers = new ObserverBatch(
      [...assembly.parts.observers, ...observe(prepared)],
      systemClock,
    );
    const gateway = composeGateway(config, {
      ...assembly.parts,
      observers: [observers],
      tracer,
      budgets,
      shared: this.#shared,
    });
    const apply = () => {
      const before = this.#current;
      this.#current = { prepared, gateway, observers };
      this.#shared.bodies.resize(config.limits.maxBodiesBytes);
      this.#shared.exchanges.resize(config.limits.maxExchanges);
      this.handler.turnTo(gateway);
      const begun = assembly.begin();
      if (before !== undefined) void this.#retire(before, begun);
    };
    return Promise.resolve({ apply, abandon: () => assembly.close() });
  }

  /** Passes all exchanges that have settled so far to the observers, which receive batches. */
  flushObservers(): void {
    for (const { observers } of this.#generations) observers.flush();
  }

  /** Reports not ready from now on. */
  drain(): void {
    this.#current?.gateway.drain();
  }

  /** Waits for open exchanges, and aborts those that remain after the limit. Milliseconds. */
  async close(limitMs?: number): Promise<void> {
    await Promise.all(this.#generations.map(({ gateway }) => gateway.close(limitMs)));
    this.flushObservers();
  }

  /** Releases the engines of all configurations. */
  async release(): Promise<void> {
    const all = this.#generations;
    this.flushObservers();
    this.#earlier.clear();
    for (const { prepared } of all) await prepared.assembly.close();
  }

  get #generations(): readonly Generation[] {
    return [...this.#earlier, ...(this.#current === undefined ? [] : [this.#current])];
  }

  /** Closes a gateway without new requests when its last exchange has ended. */
  async #retire(generation: Generation, begun: Promise<void>): Promise<void> {
    const { gateway, prepared, observers } = generation;
    this.#earlier.add(generation);
    for (const { provider, replica, ejections } of gateway.replicas) {
      addCount(this.#ejections, `${provider} ${replica}`, ejections);
    }
    await Promise.all([gateway.close(NO_LIMIT_MS), begun]);
    observers.flush();
    // The process can have ended first.
    if (this.#earlier.delete(generation)) await prepared.assembly.close();
  }
}
