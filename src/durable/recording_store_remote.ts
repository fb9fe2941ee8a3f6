/**
 * Recordings that are kept by a {@link RecordingServer} elsewhere, which receives messages.
 *
 * @module
 */
import type { Clock } from "../exchange/clock.ts";
import {
  type Claimed,
  type HeldRecording,
  type RecordingClaim,
  type RecordingHolder,
  RecordingLost,
  type RecordingPart,
  type RecordingRead,
  RecordingsFull,
  type RecordingStore,
  type SealedEntry,
  type StoredRecording,
  toRecordingId,
} from "./recording_store.ts";
import type { HolderMessage, RecordingMessage, RecordingReply } from "./recording_server.ts";

/**
 * Sends a message to the server of its recording, always the same server for ids with the same tag.
 * Rejects if the server cannot be reached in time.
 */
export type SendToRecordings = (message: RecordingMessage) => Promise<RecordingReply>;

export interface RemoteRecordingsOptions {
  readonly send: SendToRecordings;
  readonly clock: Clock;
  /** The longest time for which a writer collects bytes for an entry. Milliseconds. */
  readonly gatherMs: number;
  /** Receives work that must be finished even after its exchange is over. */
  readonly keepAlive?: ((work: Promise<unknown>) => void) | undefined;
}

/**
 * The longest time of one wait. After it, the server knows that a reader left or still waits.
 * Milliseconds.
 */
const WAIT_MS = 1000;
/** Time between two attempts to reach the server. Milliseconds. */
const RETRY_MS = 500;

/** The holder's side of a message. */
type HeldMessage = HolderMessage extends infer Message
  ? Message extends unknown ? Omit<Message, "id" | "epoch"> : never
  : never;

export class RemoteRecordings implements RecordingStore {
  readonly gatherMs: number;
  readonly #options: RemoteRecordingsOptions;

  constructor(options: RemoteRecordingsOptions) {
    this.#options = options;
    this.gatherMs = options.gatherMs;
  }

  async claim(claim: RecordingClaim, holder: RecordingHolder): Promise<Claimed> {
    const { found, epoch, isRestarted = false } = await this.#send({ type: "claim", claim });
    if (epoch !== undefined) return { held: this.#hold(claim.id, epoch, holder), isRestarted };
    if (found === undefined) throw new Error("Cannot record: the store has not understood");
    return { found };
  }

  async isNamed(name: string): Promise<boolean> {
    return (await this.#send({ type: "isNamed", id: toRecordingId(name), name })).isNamed ?? false;
  }

  async find(id: string): Promise<StoredRecording | undefined> {
    return (await this.#send({ type: "find", id })).found;
  }

  async waitForHead(
    id: string,
    waitMs: number,
    signal?: AbortSignal,
  ): Promise<StoredRecording | undefined> {
    const isOver = ({ found }: RecordingReply) =>
      found === undefined || found.state !== "running" || !found.isHeld || found.head !== undefined;
    const answer = await this.#wait((waitMs) => ({ type: "waitForHead", id, waitMs }), {
      waitMs,
      signal,
      isOver,
    });
    return answer === undefined ? await this.find(id) : answer.found;
  }

  async read(
    id: string,
    { offset, waitMs, signal }: RecordingRead,
  ): Promise<RecordingPart | undefined> {
    const isOver = ({ part }: RecordingReply) =>
      part === undefined || part.entries.length > 0 || !part.isHeld;
    const answer = await this.#wait((waitMs) => ({ type: "read", id, offset, waitMs }), {
      waitMs,
      signal,
      isOver,
    });
    return answer === undefined ? { entries: [], isHeld: true } : answer.part;
  }

  async takeOver(id: string, holder: RecordingHolder): Promise<HeldRecording | undefined> {
    const { epoch } = await this.#send({ type: "takeOver", id });
    return epoch === undefined ? undefined : this.#hold(id, epoch, holder);
  }

  async stop(id: string): Promise<boolean> {
    return (await this.#send({ type: "stop", id })).isRunning ?? false;
  }

  async delete(id: string): Promise<void> {
    await this.#send({ type: "delete", id });
  }

  async list(limit: number): Promise<readonly StoredRecording[]> {
    const { recordings } = await this.#send({ type: "list", limit });
    if (recordings === undefined) {
      throw new Error("Cannot list recordings: the store has not understood");
    }
    return recordings;
  }

  close(): Promise<void> {
    return Promise.resolve();
  }

  #hold(id: string, epoch: number, holder: RecordingHolder): HeldRecording {
    const held = new RemotelyHeld({
      id,
      epoch,
      holder,
      clock: this.#options.clock,
      send: (each) => this.#send(each),
    });
    this.#options.keepAlive?.(held.whenOver);
    return held;
  }

  /** Sends a message. @throws {RecordingLost | RecordingsFull} As the server reports */
  async #send(message: RecordingMessage): Promise<RecordingReply> {
    const answer = await this.#options.send(message);
    if (answer.failure === "lost") throw new RecordingLost();
    if (answer.failure === "full") throw new RecordingsFull();
    return answer;
  }

  /**
   * Waits, by one message after another. @returns The last answer; `undefined` if the signal ended
   * the wait
   */
  async #wait(
    toMessage: (waitMs: number) => RecordingMessage,
    { waitMs, signal, isOver }: {
      readonly waitMs: number;
      readonly signal: AbortSignal | undefined;
      readonly isOver: (answer: RecordingReply) => boolean;
    },
  ): Promise<RecordingReply | undefined> {
    const { clock } = this.#options;
    const until = clock.monotonic() + waitMs;
    const left = () => (signal?.aborted ? 0 : Math.min(WAIT_MS, until - clock.monotonic()));
    for (let waitMs = left();; waitMs = left()) {
      const answer = await orAborted(
        this.#send(toMessage(Math.max(0, waitMs))),
        waitMs > 0 ? signal : undefined,
      );
      const isEnd = answer === undefined || isOver(answer);
      if (isEnd || left() <= 0) return answer;
    }
  }
}

interface RemotelyHeldOptions extends Pick<HeldRecording, "id" | "epoch"> {
  readonly holder: RecordingHolder;
  readonly clock: Clock;
  readonly send: SendToRecordings;
}

/** A recording that this gateway writes. */
class RemotelyHeld implements HeldRecording {
  readonly id: string;
  readonly epoch: number;
  readonly #holder: RecordingHolder;
  readonly #clock: Clock;
  readonly #send: SendToRecordings;
  #isOver = false;
  #setOver = (): void => {};
  /** Resolves when it is ended, discarded or lost. */
  readonly whenOver: Promise<void> = new Promise((resolve) => this.#setOver = resolve);

  constructor(options: RemotelyHeldOptions) {
    this.id = options.id;
    this.epoch = options.epoch;
    this.#holder = options.holder;
    this.#clock = options.clock;
    this.#send = options.send;
    void this.#attend();
  }

  async append(entry: SealedEntry): Promise<void> {
    await this.#ask({ type: "append", entry });
  }

  async end(entry: SealedEntry, end: "complete" | "broken"): Promise<void> {
    await this.#ask({ type: "append", entry, end });
    this.#over();
  }

  async discard(): Promise<void> {
    const answer = this.#ask({ type: "discard" });
    this.#isOver = true;
    await answer.catch(() => {}); // without this message, it expires
    this.#setOver();
  }

  setRead(isRead: boolean): void {
    this.#ask({ type: "setRead", isRead }).catch(() => {});
  }

  /** Renews the lease, and receives requests of others, until it is over. */
  async #attend(): Promise<void> {
    while (!this.#isOver) {
      try {
        const { wanted } = await this.#ask({ type: "attend" });
        if (this.#isOver || wanted === undefined) continue;
        if (wanted.isLost) this.#lose();
        if (wanted.isStopped) this.#holder.onStop();
        if (wanted.isRead) this.#holder.onRead();
      } catch {
        if (!this.#isOver) {
          await new Promise<void>((resolve) => this.#clock.timer(RETRY_MS, resolve));
        }
      }
    }
  }

  async #ask(message: HeldMessage): Promise<RecordingReply> {
    const { id, epoch } = this;
    try {
      return await this.#send({ ...message, id, epoch });
    } catch (error) {
      if (error instanceof RecordingLost) this.#lose();
      throw error;
    }
  }

  #lose(): void {
    if (this.#isOver) return;
    this.#over();
    this.#holder.onLost();
  }

  #over(): void {
    this.#isOver = true;
    this.#setOver();
  }
}

/** Waits for an answer, or for a signal. */
async function orAborted<Answer>(
  answer: Promise<Answer>,
  signal?: AbortSignal,
): Promise<Answer | undefined> {
  if (signal === undefined) return await answer;
  return await new Promise((resolve, reject) => {
    const leave = () => resolve(undefined);
    signal.addEventListener("abort", leave, { once: true });
    answer.then(resolve, reject).finally(() => signal.removeEventListener("abort", leave));
  });
}
