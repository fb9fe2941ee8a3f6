/**
 * Keys that other workers know. While Redis is unavailable, a worker asks the others through its
 * supervisor for a key that it does not know.
 *
 * @module
 */
import { type Clock, systemClock } from "../../../exchange/clock.ts";
import { readKeyRecord, writeKeyRecord } from "../../../keys/key_record.ts";
import type { KeySiblings, KnownKey } from "../../../keys/key_siblings.ts";
import { type FoundKey, type KeyMessage, REPLY_MS } from "../key_messages.ts";
import { RecentMap } from "../../../exchange/recent_map.ts";

/**
 * Time to collect digests for one question, so that guesses do not cost one message each.
 * Milliseconds.
 */
const GATHER_MS = 10;
/**
 * Limit of a worker's digests that wait for replies. Further digests are answered at once as
 * unknown.
 */
const MAX_OPEN = 10_000;
/**
 * Time during which a worker does not ask again for a digest that no other worker knew.
 * Milliseconds.
 */
const MISS_MS = 1000;
/** Maximum number of such digests. */
const MAX_MISSED = 10_000;

/** A digest that a caller waits for. */
interface AskedKey {
  readonly digest: string;
  readonly reply: (found: FoundKey | null) => void;
}

/** A worker's question. */
interface AskedKeys {
  readonly asked: readonly AskedKey[];
  readonly cancelTimer: () => void;
}

/** The other workers, from the view of one of them. */
export class KeysClient implements KeySiblings {
  readonly #send: (message: KeyMessage) => void;
  readonly #clock: Clock;
  readonly #pending = new Map<number, AskedKeys>();
  /** Digests that no other worker knew, with the times of these answers. */
  readonly #missed = new RecentMap<number>(MAX_MISSED / 2);
  #find = (_digest: string): KnownKey | undefined => undefined;
  #gathered: AskedKey[] = [];
  #waiting = 0;
  #lastQuestion = 0;

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
    if (isMissed || this.#waiting >= MAX_OPEN) return undefined;
    const found = await new Promise<FoundKey | null>((reply) => this.#gather({ digest, reply }));
    // Otherwise callers that repeat a guess would ask all workers each time.
    if (found === null) this.#missed.set(digest, this.#clock.monotonic());
    return found === null
      ? undefined
      : { key: readKeyRecord(JSON.parse(found.record)), ageMs: found.ageMs };
  }

  /** Handles a message of the supervisor: another worker's question, or a reply. */
  handle(message: KeyMessage): void {
    if (message.type === "foundKeys") return this.#receive(message);
    const found = message.digests.map((digest): FoundKey | null => {
      const known = this.#find(digest);
      return known === undefined ? null : { record: writeKeyRecord(known.key), ageMs: known.ageMs };
    });
    this.#send({ type: "foundKeys", question: message.question, found, isLast: true });
  }

  #gather(asked: AskedKey): void {
    this.#waiting++;
    this.#gathered.push(asked);
    if (this.#gathered.length === 1) this.#clock.timer(GATHER_MS, () => this.#ask());
  }

  #ask(): void {
    const asked = this.#gathered;
    this.#gathered = [];
    const question = ++this.#lastQuestion;
    const cancelTimer = this.#clock.timer(
      REPLY_MS,
      () => this.#receive({ question, found: [], isLast: true }),
    );
    this.#pending.set(question, { asked, cancelTimer });
    this.#send({ type: "findKeys", question, digests: asked.map(({ digest }) => digest) });
  }

  #receive({ question, found, isLast }: Omit<KeyMessage & { type: "foundKeys" }, "type">): void {
    const pending = this.#pending.get(question);
    if (pending === undefined) return;
    const { asked, cancelTimer } = pending;
    for (const [index, { reply }] of asked.entries()) {
      const key = found[index] ?? null;
      if (key !== null || isLast) reply(key);
    }
    if (!isLast) return;
    cancelTimer();
    this.#pending.delete(question);
    this.#waiting -= asked.length;
  }
}
