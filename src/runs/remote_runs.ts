/**
 * Runs that a {@link RunServer} elsewhere counts. While it cannot be reached, calls of runs are
 * refused, because only it knows what is left of a run.
 *
 * @module
 */
import { GatewayError } from "../errors/gateway_error.ts";
import type { Clock } from "../exchange/clock.ts";
import type { CountedRun } from "./memory_runs.ts";
import {
  type RunCall,
  type RunCorrection,
  type RunLease,
  type RunRegistry,
  type RunStatus,
  STOP_MS,
  toRunError,
} from "./run_registry.ts";
import type { RunMessage, RunReply } from "./run_server.ts";

/** Sends a message. Rejects if the reply does not arrive in time. */
export type SendToRuns = (message: RunMessage) => Promise<RunReply>;

/**
 * Age at which a call begins to watch whether its run is stopped. Most calls end before, and then
 * need no message for it. Milliseconds.
 */
const WATCH_AFTER_MS = STOP_MS / 2;
/** Longest wait of one message that watches. Milliseconds. */
const WATCH_MS = 20_000;
/** Pause after a watch that failed. Milliseconds. */
const PAUSE_MS = STOP_MS / 2;
/** Pauses before the end of a call is sent again. Milliseconds. */
const END_AGAIN_MS: readonly number[] = [1000, 5000, 15_000];

/** Runs in a {@link RunServer}. */
export class RemoteRuns implements RunRegistry {
  readonly #send: SendToRuns;
  readonly #clock: Clock;
  readonly #keepAlive: (ended: Promise<void>) => void;
  readonly #id = crypto.randomUUID();
  #admitted = 0;

  /** @param keepAlive Receives the ends of calls while they are sent, which never reject */
  constructor(
    send: SendToRuns,
    clock: Clock,
    keepAlive: (ended: Promise<void>) => void = () => {},
  ) {
    this.#send = send;
    this.#clock = clock;
    this.#keepAlive = keepAlive;
  }

  async admit(call: RunCall, onStopped: () => void): Promise<RunLease> {
    const lease = `${this.#id}-${++this.#admitted}`;
    const { keyId } = call;
    const undone = {
      type: "release",
      lease,
      keyId,
      counted: [],
      spend: 0,
      isUndone: true,
    } as const;
    const { counted, refused, repeats } = await this.#ask({ type: "admit", lease, call }, () => {
      this.#keepAlive(this.#end(undone)); // it can have been admitted nevertheless
    });
    if (refused !== undefined) throw toRunError(refused, call);
    if (counted === undefined) throw new GatewayError("runs_unavailable");
    return { ...this.#open(lease, call, counted, onStopped), repeats };
  }

  async correct(correction: RunCorrection): Promise<void> {
    await this.#ask({ type: "correct", correction });
  }

  async list(keyId: string | undefined, limit: number): Promise<readonly RunStatus[]> {
    return (await this.#ask({ type: "list", keyId, limit })).runs ?? [];
  }

  async stop(keyId: string, id: string): Promise<boolean> {
    return (await this.#ask({ type: "stop", keyId, id })).isStopped === true;
  }

  /** Sends a message. @throws {GatewayError} `runs_unavailable`, or the sender's own error */
  async #ask(message: RunMessage, onFailed?: () => void): Promise<RunReply> {
    try {
      return await this.#send(message);
    } catch (cause) {
      onFailed?.();
      throw GatewayError.is(cause) ? cause : new GatewayError("runs_unavailable", { cause });
    }
  }

  /** Sends the end of a call, and sends it again if there is no reply. Never rejects. */
  async #end(ended: RunMessage): Promise<void> {
    for (const pauseMs of END_AGAIN_MS) {
      const isReceived = await this.#send(ended).then(() => true, () => false);
      if (isReceived) return;
      await new Promise<void>((resume) => {
        this.#clock.timer(pauseMs, resume, { isBackground: true });
      });
    }
    await this.#send(ended).catch(() => {});
  }

  /** Watches a lease until it ends. */
  #open(
    lease: string,
    { keyId, reservation }: RunCall,
    counted: readonly CountedRun[],
    onStopped: () => void,
  ): RunLease {
    const { isFree } = reservation;
    const ids = counted.map(({ id }) => id);
    let isOpen = true;
    let cancel = (): void => {};
    const watchAfter = (ms: number): void => {
      cancel = this.#clock.timer(ms, () => void watch());
    };
    const watch = async (): Promise<void> => {
      const message = { type: "watch", lease, keyId, ids, waitMs: WATCH_MS } as const;
      const reply = await this.#send(message).catch(() => undefined);
      if (!isOpen) return;
      if (reply?.isStopped === true) onStopped();
      else watchAfter(reply === undefined ? PAUSE_MS : 0);
    };
    watchAfter(WATCH_AFTER_MS);
    return {
      release: (spend, wasUndone) => {
        if (!isOpen) return;
        isOpen = false;
        cancel();
        const isUndone = wasUndone && !isFree;
        const ended = { type: "release", lease, keyId, counted, spend, isUndone } as const;
        this.#keepAlive(this.#end(ended));
      },
    };
  }
}
