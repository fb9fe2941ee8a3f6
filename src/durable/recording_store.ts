/**
 * Port: a store of recordings. A recording is the answer of a durable exchange: a log of sealed
 * entries. One gateway writes it while the exchange runs, and any gateway can read it, then and for
 * some time after.
 *
 * A store sees only ciphertext and the few facts that operators need. The gateway that writes a
 * recording has a lease, which the store renews for it. When that gateway dies, the lease ends, and
 * another gateway can take the recording over. Each holder has an epoch, and a store refuses
 * entries of an earlier epoch.
 *
 * @module
 */

/** Kind of an entry. Of two entries at the same offset, the lower kind is first. */
export const ENTRY_KIND = { head: 1, bytes: 2, end: 3 } as const;

/** Kind of an entry: the answer's status and headers, a part of its body, or its end. */
export type EntryKind = (typeof ENTRY_KIND)[keyof typeof ENTRY_KIND];

/** Length of the tag with which AES-GCM authenticates an entry. Bytes. */
export const TAG_BYTES = 16;
/** Size from which a read returns no more entries. Bytes of ciphertext. */
export const MAX_READ_BYTES = 65_536;
/** Time for which the id of an expired recording stays known. Milliseconds. */
export const TOMBSTONE_MS = 600_000;
/**
 * Time after which the lease of a gateway that died ends, and its recordings can be taken over.
 * Milliseconds.
 */
export const RECORDING_LEASE_MS = 8000;

/** Epoch of the gateway that begins a recording. */
export const FIRST_EPOCH = 1;

/** An entry of a recording. */
export interface SealedEntry {
  readonly kind: EntryKind;
  /** Offset of its first byte in the answer's body. For the end, the length of the body. */
  readonly offset: number;
  /** Epoch of the holder that wrote it. */
  readonly epoch: number;
  /** Ciphertext with its authentication tag. */
  readonly sealed: Uint8Array<ArrayBuffer>;
}

/** Facts of a recording that a store keeps as plaintext. */
export interface RecordingFacts {
  /** Tag of its owner: it cannot be made without both keys. */
  readonly owner: string;
  /**
   * Tag of the request: a retry with another body has another tag. Without both keys it reveals
   * nothing.
   */
  readonly digest: string;
  readonly provider: string;
  readonly keyId: string;
  readonly operation: string;
  /** Wall clock at its begin. Milliseconds since 1970. */
  readonly startedAt: number;
  /** Time for which it is kept after its end. Milliseconds. */
  readonly keepMs: number;
}

/**
 * State of a recording: `running` until its end, `complete` if the provider's answer is complete,
 * `broken` if it ended otherwise, `expired` if its entries are deleted.
 */
export type RecordingState = "running" | "complete" | "broken" | "expired";

/** A recording as a store returns it. */
export interface StoredRecording {
  readonly id: string;
  readonly facts: RecordingFacts;
  readonly state: RecordingState;
  /** False if it runs and the lease of its holder has ended. */
  readonly isHeld: boolean;
  /** Number of bytes that are stored of the answer's body. */
  readonly length: number;
  /** Wall clock at which it expires; `undefined` while it runs. Milliseconds since 1970. */
  readonly expiresAt: number | undefined;
  /** The entry of kind `head`; `undefined` before the answer began. */
  readonly head: SealedEntry | undefined;
}

/** Name with which a later request finds a recording. */
export interface RecordingName {
  /** Tag of both keys, the operation, and the idempotency key or the body. */
  readonly text: string;
  /**
   * `key` for an idempotency key: only one recording has it, until it is broken or expires. `body`
   * for a request's body: several recordings can have it, because callers also send equal requests
   * on purpose.
   */
  readonly kind: "key" | "body";
  /**
   * True for a request that a client library retries. For a name of kind `body`, only such a
   * request finds an earlier recording.
   */
  readonly isRetry: boolean;
}

/** Request for a new recording. */
export interface RecordingClaim {
  /** Id of the new recording, from {@link toRecordingId}. */
  readonly id: string;
  readonly name: RecordingName | undefined;
  readonly facts: RecordingFacts;
}

/** Receiver of requests to the holder of a recording. */
export interface RecordingHolder {
  /** A caller or the operator stops the exchange. */
  onStop(): void;
  /** Another gateway has taken the recording over. */
  onLost(): void;
  /** A reader at another gateway has read recently, or waits for more. */
  onRead(): void;
}

/**
 * A recording that this gateway writes. The store renews its lease until it is ended or discarded.
 */
export interface HeldRecording {
  readonly id: string;
  readonly epoch: number;
  /**
   * Appends an entry. It is no error if the entry already exists because an earlier attempt has
   * arrived after all.
   *
   * @throws {RecordingLost} If another gateway has taken over, or the recording is gone
   * @throws {RecordingsFull} If the store has no room for it
   * @throws The error of the store. The same entry can then be appended again
   */
  append(entry: SealedEntry): Promise<void>;
  /**
   * Appends the entry of kind `end` and releases the recording, which is then kept for its time.
   * The name of a broken recording is free from then on. After a takeover, the next claim is marked
   * as a repeated call.
   *
   * @throws As {@link append}
   */
  end(entry: SealedEntry, state: "complete" | "broken"): Promise<void>;
  /**
   * Deletes the entries and frees the name, as {@link end} does. The id is known as expired for
   * some time. Never rejects.
   */
  discard(): Promise<void>;
  /**
   * Notes if it has readers at this gateway, because a retry by body prefers a recording without
   * readers.
   */
  setRead(isRead: boolean): void;
}

/** Answer to a claim: a new recording to write, or the recording that has the name. */
export type Claimed =
  | {
    readonly held: HeldRecording;
    /**
     * True if the name belonged to a recording whose gateway has died, so that its call is
     * repeated.
     */
    readonly isRestarted: boolean;
  }
  | { readonly found: StoredRecording };

/** Entries of a recording from an offset on. */
export interface RecordingPart {
  /** Entries in order. The first one has the byte at the offset. The last one can be the end. */
  readonly entries: readonly SealedEntry[];
  /** False if the recording runs and the lease of its holder has ended. */
  readonly isHeld: boolean;
}

/** Options of a read. */
export interface RecordingRead {
  /** Offset of the first byte to read. An offset equal to the length reads the end. */
  readonly offset: number;
  /** The longest time to wait for an entry if there is none yet. Milliseconds. */
  readonly waitMs: number;
  /** Ends the wait. */
  readonly signal?: AbortSignal | undefined;
}

/** Port: a store of recordings. */
export interface RecordingStore {
  /** Bytes of all recordings in this process's memory; left out if they are stored elsewhere. */
  readonly bytes?: number;
  /**
   * The longest time for which a writer collects bytes for an entry; `undefined` if no other
   * process reads the recordings, so that only the size matters. Milliseconds.
   */
  readonly gatherMs: number | undefined;
  /**
   * Claims a name for a new recording, unless a running or complete recording has it. A recording
   * that runs without a holder loses its name.
   *
   * @throws {RecordingsFull} If there is no room for another
   * @throws The error of the store
   */
  claim(claim: RecordingClaim, holder: RecordingHolder): Promise<Claimed>;
  /**
   * Returns whether a name of kind `key` belongs to a recording. It can also return true if that
   * recording has just ended without an answer.
   */
  isNamed(name: string): Promise<boolean>;
  /** Finds a recording, also an expired one for some time. */
  find(id: string): Promise<StoredRecording | undefined>;
  /**
   * Waits until a recording has its head or does not run any more, or for `waitMs`, and then
   * returns it.
   */
  waitForHead(
    id: string,
    waitMs: number,
    signal?: AbortSignal,
  ): Promise<StoredRecording | undefined>;
  /**
   * Reads entries: at least one if there is any, and at most about 64 kB.
   *
   * @returns The part, without entries if none arrived in time; `undefined` if the recording is
   * gone
   */
  read(id: string, read: RecordingRead): Promise<RecordingPart | undefined>;
  /**
   * Transfers a recording that runs without a holder to this gateway.
   *
   * @returns The recording, to be ended; `undefined` if it has a holder, has ended or is gone
   */
  takeOver(id: string, holder: RecordingHolder): Promise<HeldRecording | undefined>;
  /**
   * Asks the holder of a recording, at any gateway, to stop the exchange. @returns Whether it runs
   */
  stop(id: string): Promise<boolean>;
  /**
   * Deletes a recording with its name, in any state. Its id is unknown from then on. Its readers
   * and its holder find that it is gone.
   */
  delete(id: string): Promise<void>;
  /**
   * Lists recordings that run or are kept, newest first. @param limit The most recordings to return
   */
  list(limit: number): Promise<readonly StoredRecording[]>;
  /** Closes connections and timers. */
  close(): Promise<void>;
}

/** Another gateway writes the recording now, or it is gone. */
export class RecordingLost extends Error {
  override readonly name = "RecordingLost";
}

/** The store has no room for more. */
export class RecordingsFull extends Error {
  override readonly name = "RecordingsFull";
}

const ID = /^[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{22}$/;

/**
 * Makes the id of a new recording: a tag of six characters, and 128 random bits. All recordings of
 * a name have its tag, so that a sharded store keeps the name and its recordings in one shard.
 *
 * @param name The name's text; a random tag if there is none
 * @returns The id, in base64url with a full stop
 */
export function toRecordingId(name: string | undefined): string {
  const random = toBase64Url(crypto.getRandomValues(new Uint8Array(21)));
  return `${(name ?? random.slice(22)).slice(0, 6)}.${random.slice(0, 22)}`;
}

/** Returns the tag of an id, see {@link toRecordingId}. */
export function tagOf(id: string): string {
  return id.slice(0, 6);
}

/** Returns whether a text has the form of an id. */
export function isRecordingId(text: string): boolean {
  return ID.test(text);
}

/** Returns the length of the answer's body after an entry. */
export function lengthAfter({ kind, offset, sealed }: SealedEntry): number {
  return kind === ENTRY_KIND.bytes ? offset + sealed.byteLength - TAG_BYTES : offset;
}

/** Returns bytes in base64url without padding (RFC 4648 §5). */
export function toBase64Url(bytes: Uint8Array): string {
  return btoa(String.fromCharCode(...bytes)).replaceAll("+", "-").replaceAll("/", "_").replaceAll(
    "=",
    "",
  );
}
