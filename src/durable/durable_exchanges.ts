/**
 * Durable exchanges of a gateway: begins recordings, finds them again by idempotency key, by body
 * or by id, and attaches callers to them, at any gateway.
 *
 * @module
 */
import type { DurableConfig } from "../config/durable.ts";
import { GatewayError } from "../errors/gateway_error.ts";
import type { Clock } from "../exchange/clock.ts";
import { type AnswerHead, readContent } from "./answer_log.ts";
import { type Attachment, type AttachOptions, readEnd, type RecordedAnswer } from "./attachment.ts";
import { closeLost, findClosed, type ToScanner } from "./lost_recording.ts";
import { type GiveUpCause, Recording } from "./recording.ts";
import { isSameTag, type OwnerKeys } from "./recording_keys.ts";
import { AnswerReader, type AnswerSource } from "./recording_reader.ts";
import {
  type Claimed,
  isRecordingId,
  type RecordingFacts,
  type RecordingHolder,
  type RecordingName,
  type RecordingStore,
  type StoredRecording,
  toRecordingId,
} from "./recording_store.ts";
import { StoredAnswer, WAIT_MS } from "./stored_answer.ts";

/** Age of a call up to which retries of client libraries attach to it. Milliseconds. */
const RETRIED_MS = 600_000;
/**
 * Time after which a name is claimed again if it still belongs to a recording without an answer.
 * Milliseconds.
 */
const AGAIN_MS = 250;
/** The longest time for the last writes to the store when the gateway closes. Milliseconds. */
const LAST_WRITES_MS = 2000;

/** Counts of durable exchanges at one gateway since its start, for its metrics. */
export class DurableCounts {
  /**
   * Callers that were attached: to a complete answer, to a running call, or by an address. A reader
   * with long-polls counts once.
   */
  readonly attached: Record<"replay" | "retry" | "resume", number> = {
    replay: 0,
    retry: 0,
    resume: 0,
  };
  /** Recordings that were given up while their exchange continued, by cause. */
  readonly givenUp: Record<Exclude<GiveUpCause, "refused">, number> = {
    size: 0,
    store: 0,
    lost: 0,
  };
  /** Calls that were repeated because the gateway of the first call had died. */
  restarted = 0;

  /**
   * Counts the end of a recording. @param cause The cause if it was given up; `undefined` if it was
   * not
   */
  over(cause: GiveUpCause | undefined): void {
    if (cause !== undefined && cause !== "refused") this.givenUp[cause]++;
  }
}

export interface DurableParts {
  readonly store: RecordingStore;
  readonly clock: Clock;
  readonly toScanner: ToScanner;
  /**
   * False if callers attach only through the store, even to recordings of this process. Default:
   * true.
   */
  readonly isLocal?: boolean;
}

/** Request for a recording of a call. */
export interface AskedRecording {
  readonly keys: OwnerKeys;
  /** Name with which a retry finds it; `undefined` if it can only be found by its id. */
  readonly name: RecordingName | undefined;
  /** Tag of the request. */
  readonly digest: string;
  readonly settings: DurableConfig;
  /** The longest time in which a reader reads none of the available bytes. Milliseconds. */
  readonly writeStallMs: number;
  readonly facts: Pick<RecordingFacts, "provider" | "keyId" | "operation" | "startedAt">;
  /** Called when an earlier recording has the name, before the wait for its answer. */
  readonly onFound?: () => void;
}

/** Recording of a new call, or, instead of it, the caller's attachment to an earlier recording. */
export type Begun = NewRecording | { readonly attachment: Attachment };

/** Recording of a new call. */
export interface NewRecording {
  readonly recording: Recording;
  /** True if an earlier call by this name was lost with its gateway. */
  readonly isRestarted: boolean;
}

/** A recorded answer, and the source of its bytes. */
interface OpenedAnswer {
  readonly answer: RecordedAnswer;
  readonly source: AnswerSource;
}

/** The source of a recorded answer that was opened, with its head. */
interface OpenedSource extends Pick<RecordedAnswer, "head" | "length" | "isEnded"> {
  readonly source: AnswerSource;
}

/** Durable exchanges of a gateway. */
export class DurableExchanges {
  readonly #parts: DurableParts;
  /** Recordings that are written here, by id. */
  readonly #running = new Map<string, Recording>();

  readonly counts: DurableCounts = new DurableCounts();

  constructor(parts: DurableParts) {
    this.#parts = parts;
  }

  get store(): RecordingStore {
    return this.#parts.store;
  }

  /** The number of recordings that are written here. */
  get running(): number {
    return this.#running.size;
  }

  /**
   * Begins the recording of a call, unless an earlier recording has its name.
   *
   * @returns The new recording, or the caller's attachment to the earlier one, once that has an
   * answer
   * @throws {GatewayError} `idempotency_key_reused`, `recordings_unavailable`
   */
  async begin(asked: AskedRecording, signal?: AbortSignal): Promise<Begun> {
    const { clock } = this.#parts;
    const { name } = asked;
    let before: string | undefined;
    while (true) {
      const begun = await this.#claim(asked);
      if ("recording" in begun) return begun;
      const { found } = begun;
      asked.onFound?.();
      if (name?.kind === "body" && clock.now() - found.facts.startedAt > RETRIED_MS) {
        return this.begin({ ...asked, name: { ...name, isRetry: false } }, signal);
      }
      if (!isSameTag(found.facts.digest, asked.digest)) {
        throw new GatewayError("idempotency_key_reused");
      }
      const here = this.#running.get(found.id);
      const attachment = here?.endState === "broken"
        ? undefined
        : await this.#attach(found, { ...asked, offset: 0, signal });
      if (attachment !== undefined) {
        this.counts.attached[attachment.isComplete ? "replay" : "retry"]++;
        return { attachment };
      }
      // That call was refused, has failed or was given up, so its name is free, now or soon.
      if (here !== undefined) await unlessAborted(freedNameOf(here), signal);
      if (found.id === before) {
        await unlessAborted(new Promise<void>((resolve) => clock.timer(AGAIN_MS, resolve)), signal);
      }
      before = found.id;
    }
  }

  /** Returns whether a name of kind `key` belongs to a recording. False if the store fails. */
  async isNamed(name: string): Promise<boolean> {
    try {
      return await this.#parts.store.isNamed(name);
    } catch {
      return false;
    }
  }

  /** Returns whether a recording of a gateway key is written here and has no reader. */
  hasRecordingWithoutReader(keyId: string): boolean {
    return Array.from(this.#running.values()).some((recording) =>
      recording.keyId === keyId && !recording.hasReader
    );
  }

  /**
   * Attaches a caller to a recorded answer. It is not counted here, because a caller can attach
   * several times for one read.
   *
   * @throws {GatewayError} `exchange_not_found`, `exchange_expired`, `invalid_offset`,
   * `recordings_unavailable`
   */
  async attach(id: string, options: AttachOptions): Promise<Attachment> {
    const found = await this.find(id, options.keys);
    const attachment = await this.#attach(found, options);
    if (attachment === undefined) throw new GatewayError("exchange_expired");
    return attachment;
  }

  /**
   * Finds a recording of a caller.
   *
   * @throws {GatewayError} `exchange_not_found` also for a recording of another caller,
   * `recordings_unavailable`
   */
  async find(id: string, keys: OwnerKeys): Promise<StoredRecording> {
    const found = isRecordingId(id) ? await fromStore(this.#parts.store.find(id)) : undefined;
    if (found === undefined || !isSameTag(found.facts.owner, keys.ownerTag(id))) {
      throw new GatewayError("exchange_not_found");
    }
    return found;
  }

  /**
   * Describes a recorded answer, without attaching to it.
   *
   * @throws {GatewayError} As {@link attach}
   */
  async describe(id: string, keys: OwnerKeys, signal?: AbortSignal): Promise<RecordedAnswer> {
    const opened = await this.#open(await this.find(id, keys), keys, signal);
    if (opened === undefined) throw new GatewayError("exchange_expired");
    return opened.answer;
  }

  /**
   * Stops a caller's exchange. A recording that has ended, or was lost, is deleted.
   *
   * @throws {GatewayError} As {@link find}, and `exchange_expired`
   */
  async stop(id: string, keys: OwnerKeys): Promise<void> {
    const { store } = this.#parts;
    const { state, isHeld } = await this.find(id, keys);
    const here = this.#here(id);
    // Also if it was given up, because its call continues for its readers.
    if (here !== undefined && here.endState === undefined) return here.stop();
    if (state === "expired") throw new GatewayError("exchange_expired");
    await here?.stored;
    if (!isHeld || !await fromStore(store.stop(id))) await fromStore(store.delete(id));
  }

  /** Closes the store after the last writes, or after their deadline. */
  async close(): Promise<void> {
    const { store, clock } = this.#parts;
    const stored = Promise.all(Array.from(this.#running.values(), ({ stored }) => stored));
    let cancelTimer = () => {};
    await Promise.race([
      stored,
      new Promise<void>((resolve) => cancelTimer = clock.timer(LAST_WRITES_MS, resolve)),
    ]);
    cancelTimer();
    await store.close();
  }

  /** Returns a recording that is written in this process, if other requests can use it. */
  #here(id: string): Recording | undefined {
    return this.#parts.isLocal === false ? undefined : this.#running.get(id);
  }

  async #claim(
    asked: AskedRecording,
  ): Promise<NewRecording | { readonly found: StoredRecording }> {
    const { keys, name, digest, settings, facts, writeStallMs } = asked;
    const { store, clock } = this.#parts;
    const id = toRecordingId(name?.text);
    const all = { ...facts, digest, owner: keys.ownerTag(id), keepMs: settings.keepMs };
    // The store keeps these callbacks, so they must not capture the recording.
    const onOver = (givenUpFor?: GiveUpCause): void => {
      this.#running.delete(id);
      this.counts.over(givenUpFor);
    };
    const holder: RecordingHolder = {
      onStop: () => this.#running.get(id)?.stop(),
      onLost: () => this.#running.get(id)?.giveUp("lost"),
      onRead: () => this.#running.get(id)?.readElsewhere(),
    };
    const cipher = await keys.cipher(id);
    const recording = new Recording({
      id,
      keyId: facts.keyId,
      cipher,
      store,
      settings,
      clock,
      writeStallMs,
      onOver,
    });
    // Set before the store has it, because a request that finds it there must find it here too.
    this.#running.set(id, recording);
    let claimed: Claimed | undefined;
    try {
      claimed = await fromStore(store.claim({ id, name, facts: all }, holder));
    } finally {
      if (claimed === undefined || "found" in claimed) recording.discard();
    }
    if ("found" in claimed) return claimed;
    recording.hold(claimed.held);
    if (claimed.isRestarted) this.counts.restarted++;
    return { recording, isRestarted: claimed.isRestarted };
  }

  /**
   * Attaches a caller, once there is an answer. @returns `undefined` if there is none, and will be
   * none
   */
  async #attach(
    found: StoredRecording,
    options: AttachOptions,
  ): Promise<Attachment | undefined> {
    const { keys, offset: wanted, signal, writeStallMs } = options;
    const here = this.#here(found.id);
    if (found.state === "expired" || here?.isGivenUp) return undefined;
    const length = here?.length ?? found.length;
    const offset = wanted === "now" ? length : wanted;
    if (here !== undefined && offset > length) throw new GatewayError("invalid_offset");
    const reader = here?.attach(offset);
    try {
      const opened = await this.#open(found, keys, signal);
      signal?.throwIfAborted();
      if (opened === undefined) {
        reader?.cancel();
        return undefined;
      }
      const { clock } = this.#parts;
      const { answer, source } = opened;
      if (answer.isEnded && offset > answer.length()) {
        throw new GatewayError(answer.isLost ? "exchange_lost" : "invalid_offset");
      }
      return {
        ...answer,
        reader: reader ?? new AnswerReader({ source, offset, clock, writeStallMs }),
      };
    } catch (error) {
      reader?.cancel();
      throw error;
    }
  }

  /**
   * Opens the head of an answer, once there is one. @returns `undefined` if there is none, and will
   * be none
   */
  #open(
    found: StoredRecording,
    keys: OwnerKeys,
    signal: AbortSignal | undefined,
  ): Promise<OpenedAnswer | undefined> {
    const here = this.#here(found.id);
    return here === undefined
      ? this.#openStored(found, keys, signal)
      : this.#openHere(here, found, signal);
  }

  /** Opens an answer that is written in this process. */
  async #openHere(
    here: Recording,
    found: StoredRecording,
    signal: AbortSignal | undefined,
  ): Promise<OpenedAnswer | undefined> {
    if (here.isGivenUp) return undefined;
    const head = await unlessAborted(here.head, signal);
    if (head === undefined || found.state === "expired") return undefined;
    const isEnded = here.endState !== undefined;
    return await this.#toOpened(found, { source: here, head, length: () => here.length, isEnded });
  }

  /** Opens an answer in the store. */
  async #openStored(
    found: StoredRecording,
    keys: OwnerKeys,
    signal: AbortSignal | undefined,
  ): Promise<OpenedAnswer | undefined> {
    const withHead = await this.#withHead(found, signal);
    if (withHead?.head === undefined) return undefined;
    const cipher = await keys.cipher(found.id);
    const head = readContent<AnswerHead>(await cipher.open(withHead.head));
    const stored = await fromStore(findClosed(withHead, { cipher, head }, this.#parts));
    if (stored === undefined || stored.state === "expired") return undefined;
    const source = new StoredAnswer(stored, { ...this.#parts, cipher, head });
    const isEnded = stored.state !== "running";
    return await this.#toOpened(stored, { source, head, length: () => stored.length, isEnded });
  }

  async #toOpened(
    { id, facts, state, expiresAt }: StoredRecording,
    { source, head, length, isEnded }: OpenedSource,
  ): Promise<OpenedAnswer> {
    const isStored = state === "complete";
    const end = isEnded && !isStored ? await fromStore(readEnd(source, length())) : undefined;
    const isCut = end?.isCut === true;
    const answer: RecordedAnswer = {
      id,
      facts,
      head,
      length,
      isEnded,
      isCut,
      isComplete: isStored || (end?.outcome === "ok" && !isCut),
      isLost: end?.code === "exchange_lost",
      expiresAt: expiresAt ?? this.#parts.clock.now() + facts.keepMs,
    };
    return { answer, source };
  }

  /**
   * Waits for the answer of a recording that runs elsewhere. @returns `undefined` if there will be
   * none
   */
  async #withHead(
    found: StoredRecording,
    signal: AbortSignal | undefined,
  ): Promise<StoredRecording | undefined> {
    let now: StoredRecording | undefined = found;
    while (lacksHead(now) && now.isHeld) {
      if (signal?.aborted) return now;
      now = await fromStore(this.#parts.store.waitForHead(found.id, WAIT_MS, signal));
    }
    if (!lacksHead(now)) return now;
    await closeLost(now, undefined, this.#parts);
    return undefined;
  }
}

/** Resolves when the store has freed the name of a recording without an answer for others. */
function freedNameOf(recording: Recording): Promise<void> {
  return recording.isGivenUp ? recording.discarded : recording.stored;
}

/** Returns whether a recording runs and its answer has not begun. */
function lacksHead(found: StoredRecording | undefined): found is StoredRecording {
  return found?.state === "running" && found.head === undefined;
}

/** Awaits a value while the caller waits for it. @throws The signal's reason when it is aborted */
async function unlessAborted<Value>(
  value: Promise<Value>,
  signal: AbortSignal | undefined,
): Promise<Value> {
  if (signal === undefined) return await value;
  let onAbort = () => {};
  const aborted = new Promise<never>((_, reject) => onAbort = () => reject(signal.reason));
  signal.addEventListener("abort", onAbort);
  try {
    signal.throwIfAborted();
    return await Promise.race([value, aborted]);
  } finally {
    signal.removeEventListener("abort", onAbort);
  }
}

/** Awaits the store. @throws {GatewayError} `recordings_unavailable` for all its errors */
async function fromStore<Answer>(answer: Promise<Answer>): Promise<Answer> {
  try {
    return await answer;
  } catch (cause) {
    throw new GatewayError("recordings_unavailable", { cause });
  }
}
