/**
 * Recordings kept by one server for many gateways, and the messages of these gateways.
 *
 * Gateways can disappear without notice, so each running recording has a lease, which every message
 * of its holder renews. A holder always has a pending `attend`, which is answered at once when
 * there is a request for the holder.
 *
 * @module
 */
import type { Clock } from "../exchange/clock.ts";
import {
  RECORDING_LEASE_MS,
  type RecordingClaim,
  type RecordingHolder,
  RecordingLost,
  type RecordingPart,
  type RecordingRead,
  RecordingsFull,
  type SealedEntry,
  type StoredRecording,
} from "./recording_store.ts";
import type { LeasedRecording } from "./memory_recording.ts";
import type { MemoryRecordings } from "./recording_store_memory.ts";

/** A message of a gateway to the {@link RecordingServer}. */
export type RecordingMessage =
  | { readonly type: "claim"; readonly claim: RecordingClaim }
  | { readonly type: "takeOver" | "find" | "stop" | "delete"; readonly id: string }
  /** `id` is any id that the name could have. It selects the store. */
  | { readonly type: "isNamed"; readonly id: string; readonly name: string }
  | { readonly type: "waitForHead"; readonly id: string; readonly waitMs: number }
  | ({ readonly type: "read"; readonly id: string } & Omit<RecordingRead, "signal">)
  | { readonly type: "list"; readonly limit: number }
  | HolderMessage;

/** A message of the holder of a recording. */
export type HolderMessage =
  & { readonly id: string; readonly epoch: number }
  & (
    /** Waits for requests to the holder, for a third of its lease. */
    | { readonly type: "attend" }
    | {
      readonly type: "append";
      readonly entry: SealedEntry;
      readonly end?: "complete" | "broken" | undefined;
    }
    | { readonly type: "setRead"; readonly isRead: boolean }
    | { readonly type: "discard" }
  );

/** Answer to a message. It has only the fields that the message asks for. */
export interface RecordingReply {
  /** The recording, if there is one. */
  readonly found?: StoredRecording | undefined;
  readonly part?: RecordingPart | undefined;
  readonly recordings?: readonly StoredRecording[];
  /** True if the name belongs to a recording. */
  readonly isNamed?: boolean;
  /** True if the recording runs. */
  readonly isRunning?: boolean;
  /** Epoch of the new holder; left out if there is none. */
  readonly epoch?: number;
  readonly isRestarted?: boolean;
  /** Requests of others to the holder. */
  readonly wanted?: WantedOfHolder;
  /** Failure of the message. */
  readonly failure?: "lost" | "full";
}

/** Requests of others to the holder of a recording, since its last answer. */
export interface WantedOfHolder {
  readonly isStopped: boolean;
  readonly isRead: boolean;
  readonly isLost: boolean;
}

const nothing = (): void => {};
/**
 * The longest time for which an `attend` waits, so that a live holder renews its lease in time.
 * Milliseconds.
 */
const ATTEND_MS = RECORDING_LEASE_MS / 3;
/**
 * Interval at which a holder is notified of readers. A message for each read would be too often.
 * Milliseconds.
 */
const READ_MS = 500;

/** The lease of a holder elsewhere, and the requests that it has not received yet. */
class RecordingLease implements RecordingHolder {
  readonly #clock: Clock;
  readonly gateway: string;
  #toldReadAt = -Infinity;
  #isStopped = false;
  #isRead = false;
  #isLost = false;
  #tell = nothing;
  /** Cancels the timer of its end. */
  cancelTimer = (): void => {};

  constructor(gateway: string, clock: Clock) {
    this.gateway = gateway;
    this.#clock = clock;
  }

  onStop(): void {
    this.#isStopped = true;
    this.#tell();
  }

  onRead(): void {
    this.#isRead = true;
    if (this.#clock.monotonic() - this.#toldReadAt >= READ_MS) this.#tell();
  }

  onLost(): void {
    this.#isLost = true;
    this.cancelTimer();
    this.#tell();
  }

  /** Waits for a request to the holder, or for some time. */
  async attend(): Promise<WantedOfHolder> {
    const isReadDue = this.#isRead && this.#clock.monotonic() - this.#toldReadAt >= READ_MS;
    const isWanted = this.#isStopped || this.#isLost || isReadDue;
    if (!isWanted) {
      let cancel = nothing;
      await new Promise<void>((resolve) => {
        cancel = this.#clock.timer(ATTEND_MS, resolve, { isBackground: true });
        this.#tell = resolve;
      });
      cancel();
    }
    const wanted = { isStopped: this.#isStopped, isRead: this.#isRead, isLost: this.#isLost };
    if (wanted.isRead) this.#toldReadAt = this.#clock.monotonic();
    this.#isStopped = this.#isRead = false;
    this.#tell = nothing;
    return wanted;
  }
}

/** A recording that a gateway elsewhere writes. */
interface Held {
  readonly held: LeasedRecording;
  readonly lease: RecordingLease;
}

/** Keeps recordings for many gateways. Each of them uses it through a `RemoteRecordings`. */
export class RecordingServer {
  readonly #store: MemoryRecordings;
  readonly #clock: Clock;
  /** Recordings with a live holder, by their ids. */
  readonly #held = new Map<string, Held>();

  constructor(store: MemoryRecordings, clock: Clock) {
    this.#store = store;
    this.#clock = clock;
    for (const { id, epoch } of store.running) this.#resume(id, epoch, "");
  }

  /** Handles a message. @param gateway Name of its sender, see {@link RecordingServer.leave} */
  async handle(message: RecordingMessage, gateway = ""): Promise<RecordingReply> {
    try {
      return await this.#answer(message, gateway);
    } catch (error) {
      if (error instanceof RecordingLost) return { failure: "lost" };
      if (error instanceof RecordingsFull) return { failure: "full" };
      throw error;
    }
  }

  /** Ends all leases of a gateway that has ended. */
  leave(gateway: string): void {
    for (const held of this.#held.values()) if (held.lease.gateway === gateway) this.#lapse(held);
  }

  async #answer(message: RecordingMessage, gateway: string): Promise<RecordingReply> {
    switch (message.type) {
      case "claim": {
        const lease = new RecordingLease(gateway, this.#clock);
        const claimed = await this.#store.claim(message.claim, lease);
        if ("found" in claimed) return claimed;
        const { held, isRestarted } = claimed;
        this.#renew({ held, lease });
        return { epoch: held.epoch, isRestarted };
      }
      case "takeOver": {
        const lease = new RecordingLease(gateway, this.#clock);
        const held = await this.#store.takeOver(message.id, lease);
        if (held === undefined) return {};
        this.#renew({ held, lease });
        return { epoch: held.epoch };
      }
      case "isNamed":
        return { isNamed: await this.#store.isNamed(message.name) };
      case "find":
        return { found: await this.#store.find(message.id) };
      case "waitForHead":
        return { found: await this.#store.waitForHead(message.id, message.waitMs) };
      case "read":
        return { part: await this.#store.read(message.id, message) };
      case "stop":
        return { isRunning: await this.#store.stop(message.id) };
      case "delete":
        await this.#store.delete(message.id);
        return {};
      case "list":
        return { recordings: await this.#store.list(message.limit) };
      default:
        return await this.#answerHolder(message, gateway);
    }
  }

  async #answerHolder(message: HolderMessage, gateway: string): Promise<RecordingReply> {
    const { id, epoch } = message;
    const known = this.#held.get(id);
    const one = known?.held.epoch === epoch ? known : this.#resume(id, epoch, gateway);
    if (one === undefined) throw new RecordingLost();
    const { held, lease } = one;
    const isMine = this.#renew(one);
    switch (message.type) {
      case "attend":
        if (!isMine) throw new RecordingLost();
        return { wanted: await lease.attend() };
      case "setRead":
        held.setRead(message.isRead);
        return {};
      case "append":
        if (message.end === undefined) {
          await held.append(message.entry);
          return {};
        }
        await held.end(message.entry, message.end);
        break;
      case "discard":
        await held.discard();
    }
    this.#forget(one);
    return {};
  }

  /** Renews a lease. @returns False if its holder has no recording any more */
  #renew(one: Held): boolean {
    const { held, lease } = one;
    lease.cancelTimer();
    if (!held.renew()) return false;
    this.#held.set(held.id, one);
    lease.cancelTimer = this.#clock.timer(RECORDING_LEASE_MS, () => this.#lapse(one), {
      isBackground: true,
    });
    return true;
  }

  /** Returns the recording of a holder that is not known here any more. */
  #resume(id: string, epoch: number, gateway: string): Held | undefined {
    const lease = new RecordingLease(gateway, this.#clock);
    const held = this.#store.resume(id, epoch, lease);
    if (held === undefined) return undefined;
    const one = { held, lease };
    this.#renew(one);
    return one;
  }

  #lapse(one: Held): void {
    this.#forget(one);
    one.held.lapse();
  }

  #forget(one: Held): void {
    one.lease.cancelTimer();
    if (this.#held.get(one.held.id) === one) this.#held.delete(one.held.id);
  }
}
