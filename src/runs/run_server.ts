/**
 * Runs that one process counts for others, and the messages that these send: the workers of a
 * supervisor, or Workers to a Durable Object.
 *
 * The others can disappear without notice, so a lease expires unless it is watched. Its reservation
 * then stays charged. Leases are not stored, so each message has all facts that are needed to settle
 * an unknown lease.
 *
 * @module
 */
import type { Clock } from "../exchange/clock.ts";
import { RecentMap } from "../exchange/recent_map.ts";
import type { CountedRun, MemoryRuns } from "./memory_runs.ts";
import type { RefusedRun, RunCall, RunCorrection, RunStatus } from "./run_registry.ts";

/** A message to the {@link RunServer}. */
export type RunMessage =
  /** Admits a call. */
  | { readonly type: "admit"; readonly lease: string; readonly call: RunCall }
  /** Ends a lease, also an unknown one. It is sent again if its reply is lost. */
  | ({ readonly type: "release" } & EndedRunCall)
  /**
   * Continues a lease, also an unknown one. It is answered when the run is stopped, when the lease
   * ends, or after a time.
   */
  | {
    readonly type: "watch";
    readonly lease: string;
    readonly keyId: string;
    readonly ids: readonly string[];
    readonly waitMs: number;
  }
  | { readonly type: "correct"; readonly correction: RunCorrection }
  | { readonly type: "list"; readonly keyId: string | undefined; readonly limit: number }
  | { readonly type: "stop"; readonly keyId: string; readonly id: string };

/** The end of a call. */
export interface EndedRunCall {
  readonly lease: string;
  readonly keyId: string;
  /** The runs that it counts in; empty if they are not known. */
  readonly counted: readonly CountedRun[];
  readonly spend: number;
  readonly isUndone: boolean;
}

/** The reply to a message. It has only the facts that the message asks for. */
export interface RunReply {
  /** The runs that an admitted call counts in. */
  readonly counted?: readonly CountedRun[];
  /** Number of times in a row that the run of an admitted call has sent the body. */
  readonly repeats?: number | undefined;
  readonly refused?: RefusedRun;
  /** True if a watched run was stopped, or if a run to stop was found. */
  readonly isStopped?: boolean;
  readonly runs?: readonly RunStatus[];
}

/** Time after which a lease expires unless it is watched. Milliseconds. */
const LEASE_MS = 90_000;

/** A lease. */
interface ServedLease {
  /** Ends it. `undefined` if it was admitted before this process began. */
  readonly release: ((spend: number, isUndone: boolean) => void) | undefined;
  readonly abandon: () => void;
  expiresAt: number;
  isStopped: boolean;
  /** Answers the message that watches it. */
  reply: () => void;
}

/** Number of ended leases that are certainly remembered. */
const KEPT_ENDED = 10_000;

const nothing = (): void => {};

/** Counts runs for other processes, each of which uses it through `RemoteRuns`. */
export class RunServer {
  readonly #runs: MemoryRuns;
  readonly #clock: Clock;
  /** Leases by id. Each use moves its lease to the end, so that they expire in this order. */
  readonly #leases = new Map<string, ServedLease>();
  /** Ended leases. A message that repeats the end of one, or admits or watches it later, has no effect. */
  readonly #ended = new RecentMap<true>(KEPT_ENDED);

  constructor(runs: MemoryRuns, clock: Clock) {
    this.#runs = runs;
    this.#clock = clock;
  }

  /** Handles a message. All except `watch` are handled at once. */
  async handle(message: RunMessage): Promise<RunReply> {
    this.#expire();
    switch (message.type) {
      case "admit":
        return this.#admit(message.lease, message.call);
      case "release":
        this.#release(message);
        return {};
      case "watch":
        return await this.#watch(message);
      case "correct":
        this.#runs.correct(message.correction);
        return {};
      case "list":
        return { runs: await this.#runs.list(message.keyId, message.limit) };
      case "stop":
        return { isStopped: await this.#runs.stop(message.keyId, message.id) };
      default:
        return message satisfies never;
    }
  }

  #admit(id: string, call: RunCall): RunReply {
    if (this.#ended.get(id) === true) return {};
    const admitted = this.#runs.decide(call, () => this.#stopped(id));
    if (!("counted" in admitted)) {
      const { refusal, isAbove, repeats } = admitted;
      return { refused: { refusal, isAbove, repeats } };
    }
    const { counted, release, abandon, repeats } = admitted;
    this.#keep(id, { release, abandon });
    return { counted, repeats };
  }

  #release({ lease: id, keyId, counted, spend, isUndone }: EndedRunCall): void {
    if (this.#ended.get(id) === true) return;
    this.#ended.set(id, true);
    const lease = this.#leases.get(id);
    this.#leases.delete(id);
    lease?.reply();
    lease?.abandon();
    if (lease?.release !== undefined) lease.release(spend, isUndone);
    else this.#runs.settle(keyId, counted, spend, isUndone);
  }

  async #watch(
    { lease: id, keyId, ids, waitMs }: RunMessage & { readonly type: "watch" },
  ): Promise<RunReply> {
    if (this.#ended.get(id) === true) return {};
    let lease = this.#leases.get(id);
    if (lease === undefined) {
      lease = this.#keep(id, {
        release: undefined,
        abandon: this.#runs.keepOpen(keyId, ids, () => this.#stopped(id)),
      });
      if (this.#runs.isStopped(keyId, ids)) lease.isStopped = true;
    }
    const watched = lease;
    this.#renew(id, watched);
    if (!watched.isStopped) {
      await new Promise<void>((resolve) => {
        const cancel = this.#clock.timer(waitMs, resolve);
        watched.reply = () => {
          cancel();
          resolve();
        };
      });
    }
    return { isStopped: watched.isStopped };
  }

  #stopped(id: string): void {
    const lease = this.#leases.get(id);
    if (lease === undefined) return;
    lease.isStopped = true;
    lease.reply();
  }

  #keep(id: string, ends: Pick<ServedLease, "release" | "abandon">): ServedLease {
    const lease = { ...ends, expiresAt: 0, isStopped: false, reply: nothing };
    this.#renew(id, lease);
    return lease;
  }

  #renew(id: string, lease: ServedLease): void {
    lease.expiresAt = this.#clock.now() + LEASE_MS;
    this.#leases.delete(id);
    this.#leases.set(id, lease);
  }

  #expire(): void {
    for (const [id, lease] of this.#leases) {
      if (lease.expiresAt > this.#clock.now()) return;
      this.#leases.delete(id);
      lease.reply();
      lease.abandon();
    }
  }
}
