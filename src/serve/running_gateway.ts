/**
 * A gateway whose configuration can change while it serves: new requests go to the new one, and what is open ends under
 * the one that it began with.
 *
 * @module
 */
import type { ExchangeObserver, Tracer } from "../exchange/observer.ts";
import { createGateway, type Gateway } from "../gateway.ts";
import { BodyMemory } from "../inbound/body_memory.ts";
import type { Change } from "./change.ts";
import { createSwitch, type HandlerSwitch } from "./handler_switch.ts";
import type { Prepared } from "./prepare.ts";

/** Longer than any exchange: one ends by its own deadlines. The longest that a timer takes, milliseconds. */
const NO_LIMIT_MS = 2 ** 31 - 1;

/** One configuration, and the gateway that it has made. */
interface Generation {
  readonly prepared: Prepared;
  readonly gateway: Gateway;
}

/** What a gateway is made with beside its configuration. */
export interface RunningGatewayOptions {
  /** Who is told of settled exchanges under a configuration. */
  readonly observe: (prepared: Prepared) => readonly ExchangeObserver[];
  readonly tracer: Tracer | undefined;
}

/** The gateway of a process. */
export class RunningGateway {
  /** Answers callers by the configuration in force. */
  readonly handler: HandlerSwitch;
  readonly #options: RunningGatewayOptions;
  readonly #bodies: BodyMemory = new BodyMemory(0);
  #current: Generation | undefined;
  readonly #earlier = new Set<Generation>();
  /** Pauses of replicas that earlier gateways have counted, by provider and replica. */
  readonly #ejections = new Map<string, number>();

  /** @param options What it needs */
  constructor(options: RunningGatewayOptions) {
    this.#options = options;
    this.handler = createSwitch();
  }

  /** Whether new requests are welcome. */
  get isReady(): boolean {
    return this.#current?.gateway.isReady ?? false;
  }

  /** How many exchanges are open, under whichever configuration. */
  get openExchanges(): number {
    return this.#gateways.reduce((sum, { openExchanges }) => sum + openExchanges, 0);
  }

  /** How many of them are streams. */
  get openStreams(): number {
    return this.#gateways.reduce((sum, { openStreams }) => sum + openStreams, 0);
  }

  /** How the replicas of all providers do; what is counted of them goes on. */
  get replicas(): Gateway["replicas"] {
    return (this.#current?.gateway.replicas ?? []).map((each) => ({
      ...each,
      ejections: each.ejections + (this.#ejections.get(`${each.provider} ${each.replica}`) ?? 0),
    }));
  }

  /**
   * Makes the gateway of another configuration.
   *
   * @param prepared The configuration, whose engines are closed when its last exchange is over
   * @returns The change
   */
  prepare(prepared: Prepared): Promise<Change> {
    const { config, assembly } = prepared;
    const { observe, tracer } = this.#options;
    const earlier = this.#earlier;
    const gateway = createGateway(config, {
      ...assembly.parts,
      observers: [...assembly.parts.observers, ...observe(prepared)],
      tracer,
      earlier: {
        bodies: this.#bodies,
        get size() {
          let size = 0;
          for (const each of earlier) size += each.gateway.openExchanges;
          return size;
        },
      },
    });
    const apply = () => {
      const before = this.#current;
      this.#current = { prepared, gateway };
      this.#bodies.resize(config.limits.maxBodiesBytes);
      this.handler.turnTo(gateway);
      const begun = assembly.begin();
      if (before !== undefined) void this.#retire(before, begun);
    };
    return Promise.resolve({ apply, abandon: () => assembly.close() });
  }

  /** Says from now on that it is not ready. */
  drain(): void {
    this.#current?.gateway.drain();
  }

  /** Lets open exchanges finish, and ends the rest. @param limitMs How long they may take, milliseconds */
  async close(limitMs?: number): Promise<void> {
    await Promise.all(this.#gateways.map((gateway) => gateway.close(limitMs)));
  }

  /** Lets go of the engines of all configurations. */
  async release(): Promise<void> {
    const last = [...this.#earlier, ...(this.#current === undefined ? [] : [this.#current])];
    this.#earlier.clear();
    for (const { prepared } of last) await prepared.assembly.close();
  }

  get #gateways(): readonly Gateway[] {
    const all = [...this.#earlier, ...(this.#current === undefined ? [] : [this.#current])];
    return all.map(({ gateway }) => gateway);
  }

  /** Ends a gateway that gets no requests any more, when the last of those that it has is over. */
  async #retire(generation: Generation, begun: Promise<void>): Promise<void> {
    const { gateway, prepared } = generation;
    this.#earlier.add(generation);
    for (const { provider, replica, ejections } of gateway.replicas) {
      const name = `${provider} ${replica}`;
      this.#ejections.set(name, (this.#ejections.get(name) ?? 0) + ejections);
    }
    await Promise.all([gateway.close(NO_LIMIT_MS), begun]);
    // The process's end may have come first.
    if (this.#earlier.delete(generation)) await prepared.assembly.close();
  }
}
