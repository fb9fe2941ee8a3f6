/**
 * Keys that workers know: while Redis is away, a worker asks the others through its supervisor for a key that it has not
 * met. The messages hold digests and records of keys, never a key.
 *
 * @module
 */
import { type Clock, systemClock } from "../../exchange/clock.ts";
import { readRecord, writeRecord } from "../../keys/key_record.ts";
import type { KeySiblings, KnownKey } from "../../keys/key_siblings.ts";
import { RecentMap } from "../../keys/recent_map.ts";

/** A key in a message. */
export interface FoundKey {
  /** Its record. */
  readonly record: string;
  readonly ageMs: number;
}

/** A question for a key with a digest, by a worker to its supervisor and by that to the other workers; or its answer. */
export type KeyMessage =
  | { readonly type: "findKey"; readonly call: number; readonly digest: string }
  | { readonly type: "foundKey"; readonly call: number; readonly found: FoundKey | null };

/** The longest time for which an answer is awaited. Milliseconds. */
const ANSWER_MS = 500;
/** Questions of one worker that wait for their answers; others are answered at once that no process knows the key. */
const MAX_OPEN = 200;
/** Time for which a worker does not ask again for a digest that no other one knew. Milliseconds. */
const MISS_MS = 1000;
/** Maximum number of such digests. */
const MAX_MISSED = 10_000;

/** The other workers, as one of them asks them. */
export class SupervisedKeys implements KeySiblings {
  readonly #send: (message: KeyMessage) => void;
  readonly #clock: Clock;
  readonly #open = new Map<number, (found: FoundKey | null) => void>();
  /** Digests that no other worker knew, with the times of these answers. */
  readonly #missed = new RecentMap<string, number>(MAX_MISSED);
  #find = (_digest: string): KnownKey | undefined => undefined;
  #calls = 0;

  /**
   * @param send Sends a message to the supervisor
   * @param clock Source of times
   */
  constructor(send: (message: KeyMessage) => void, clock: Clock = systemClock) {
    this.#send = send;
    this.#clock = clock;
  }

  onAsked(find: (digest: string) => KnownKey | undefined): void {
    this.#find = find;
  }

  async find(digest: string): Promise<KnownKey | undefined> {
    const missedAt = this.#missed.get(digest) ?? -Infinity;
    const isMissed = this.#clock.monotonic() - missedAt < MISS_MS;
    if (isMissed || this.#open.size >= MAX_OPEN) return undefined;
    const call = ++this.#calls;
    const found = await new Promise<FoundKey | null>((resolve) => {
      const cancelTimer = this.#clock.timer(ANSWER_MS, () => this.heard({ type: "foundKey", call, found: null }));
      this.#open.set(call, (answer) => {
        cancelTimer();
        resolve(answer);
      });
      this.#send({ type: "findKey", call, digest });
    });
    // The callers of a guess that is repeated would ask all workers each time.
    if (found === null) this.#missed.set(digest, this.#clock.monotonic());
    return found === null ? undefined : { key: readRecord(JSON.parse(found.record)), ageMs: found.ageMs };
  }

  /** Handles a message of the supervisor: another worker's question, or an answer. */
  heard(message: KeyMessage): void {
    if (message.type === "foundKey") {
      this.#open.get(message.call)?.(message.found);
      this.#open.delete(message.call);
      return;
    }
    const known = this.#find(message.digest);
    const found = known === undefined ? null : { record: writeRecord(known.key), ageMs: known.ageMs };
    this.#send({ type: "foundKey", call: message.call, found });
  }
}

/** Parts of {@link WorkerKeys}. */
export interface WorkerKeysOptions<Worker> {
  /** The workers that serve. */
  readonly serving: () => readonly Worker[];
  readonly say: (worker: Worker, message: KeyMessage) => void;
}

/** A question that waits for the answers of workers. */
interface OpenQuestion {
  readonly answer: (found: FoundKey | null) => void;
  /** Workers that have not answered. */
  left: number;
}

/** The supervisor's part: it asks all other workers, and the first that knows the key answers. */
export class WorkerKeys<Worker> {
  readonly #options: WorkerKeysOptions<Worker>;
  readonly #open = new Map<number, OpenQuestion>();
  #calls = 0;

  constructor(options: WorkerKeysOptions<Worker>) {
    this.#options = options;
  }

  /** Handles a message of a worker. */
  heard(worker: Worker, message: KeyMessage): void {
    if (message.type === "findKey") return this.#ask(worker, message);
    const question = this.#open.get(message.call);
    if (question === undefined) return;
    question.left--;
    if (message.found !== null || question.left === 0) question.answer(message.found);
  }

  #ask(asker: Worker, { call, digest }: KeyMessage & { type: "findKey" }): void {
    const { serving, say } = this.#options;
    const others = serving().filter((worker) => worker !== asker);
    const number = ++this.#calls;
    // A worker that ends meanwhile does not answer.
    const cancelTimer = systemClock.timer(ANSWER_MS, () => answer(null));
    const answer = (found: FoundKey | null): void => {
      cancelTimer();
      this.#open.delete(number);
      say(asker, { type: "foundKey", call, found });
    };
    if (others.length === 0) return answer(null);
    this.#open.set(number, { answer, left: others.length });
    for (const worker of others) say(worker, { type: "findKey", call: number, digest });
  }
}
