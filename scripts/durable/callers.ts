/**
 * Callers of durable exchanges: each exchange has a first caller, readers, and possibly a stop, a
 * retry and a late retry.
 */
import { GOOD_BODY, STREAM_BODY } from "../../tests/support/gateway.ts";
import { Reading, type Sent } from "../../tests/support/durable_reading.ts";
import { pause } from "../chaos/long_run.ts";
import type { Random } from "../chaos/random.ts";
import { HEADERS, HOSTS, type Scene } from "./scene.ts";
import { type AnswerPlan, ATTEMPT_HEADER } from "./truth.ts";

/** A connection of a caller. Times in milliseconds of one clock. */
export interface Connection {
  /** Name of the gateway. */
  readonly gateway: string;
  /** Number of the attempt, for a connection that makes a call. */
  readonly attempt: string | undefined;
  readonly from: number;
  to: number;
  /** Status of the answer, with the error's code if there is one; 0 if there was none. */
  answer: string;
  /** True if the caller itself closed it. */
  isLeft: boolean;
}

/** The bytes and results that a caller received. */
export interface Seen {
  readonly role: "first caller" | "reader" | "retry" | "late retry";
  readonly isSlow: boolean;
  /** Offset of the first byte that it requests. */
  readonly from: number;
  /** Address of the exchange, once it is known. */
  address: string | undefined;
  text: string;
  /** True if its last answer ended completely. */
  hasEnd: boolean;
  /** Code of the error that was its last answer. */
  refusal: string | undefined;
  /** True if it gave up waiting for an end. */
  isTimeUp: boolean;
  isReplayed: boolean;
  isRestarted: boolean;
  readonly connections: Connection[];
}

/** An exchange, as its callers saw it. */
export interface ExchangeHistory {
  readonly name: string;
  /** True if its answer is stored for only a second. */
  readonly isShort: boolean;
  readonly seen: Seen[];
  /** A requested stop, and its answer. */
  stop: { readonly at: number; status: number } | undefined;
}

/** Codes after which a caller tries again. */
const PASSING: ReadonlySet<string> = new Set([
  "recordings_unavailable",
  "gateway_draining",
  "key_store_unavailable",
]);
/** Time between two attempts. Milliseconds. */
const AGAIN_MS = 250;
/** A slow reader reads all available bytes, and then nothing for this time. Milliseconds. */
const SLOW_MS = 150;
const EVENT = /data: \{"error":\{.*\}\}\n\n$/;

/** Lets a reader read the available bytes at intervals. @returns A function that ends it */
function trickle(reading: Reading): () => void {
  reading.pause();
  const timer = setInterval(() => {
    reading.goOn();
    setTimeout(() => reading.pause(), 1);
  }, SLOW_MS);
  return () => clearInterval(timer);
}

/** How a caller behaves. */
interface Habits {
  readonly role: Seen["role"];
  readonly isSlow: boolean;
  readonly from?: number;
  readonly address?: string | undefined;
  /** Time after which it leaves once, to return at another gateway. Milliseconds. */
  readonly leavesAfterMs?: number | undefined;
}

/** A caller of one exchange, which reconnects until there is an end. */
class Caller {
  readonly seen: Seen;
  readonly #scene: Scene;
  readonly #exchange: Exchange;
  #reading: Reading | undefined;
  #leavesAfterMs: number | undefined;
  /** True if the last answer broke off before the caller had read a byte of it. */
  #isHasty = false;

  constructor(scene: Scene, exchange: Exchange, { leavesAfterMs, ...habits }: Habits) {
    this.#scene = scene;
    this.#exchange = exchange;
    this.#leavesAfterMs = leavesAfterMs;
    this.seen = {
      ...{
        from: 0,
        address: undefined,
        ...habits,
        text: "",
        hasEnd: false,
        refusal: undefined,
        connections: [],
      },
      ...{ isTimeUp: false, isReplayed: false, isRestarted: false },
    };
    exchange.history.seen.push(this.seen);
  }

  /** Number of bytes that it has received. */
  get length(): number {
    return this.seen.from + this.seen.text.length + (this.#reading?.length ?? 0);
  }

  /** True if the gateway has reported the end with an event. */
  get isTold(): boolean {
    return EVENT.test(this.seen.text + (this.#reading?.text ?? ""));
  }

  async run(): Promise<void> {
    const { seen } = this;
    while (!await this.#connect()) {
      if (performance.now() > this.#exchange.until) return void (seen.isTimeUp = true);
      await pause(AGAIN_MS);
    }
  }

  /**
   * Opens one connection, and reads it to its end. @returns True if that is an end of the exchange
   */
  async #connect(): Promise<boolean> {
    const { seen } = this;
    const member = this.#scene.pick();
    const attempt = seen.address === undefined ? this.#exchange.nextAttempt() : undefined;
    const at = { from: performance.now(), to: Infinity };
    const connection: Connection = {
      gateway: member.name,
      attempt,
      ...at,
      answer: "0",
      isLeft: false,
    };
    seen.connections.push(connection);
    const reading = this.#reading = new Reading(member.url + this.#path, this.#sent(attempt));
    const leave = () => {
      connection.isLeft = true;
      reading.leave();
    };
    const endSlow = seen.isSlow && !this.#isHasty ? trickle(reading) : () => {};
    const timers = [setTimeout(leave, Math.max(0, this.#exchange.until - performance.now()))];
    if (this.#leavesAfterMs !== undefined) timers.push(setTimeout(leave, this.#leavesAfterMs));
    this.#leavesAfterMs = undefined;
    const head = await reading.head;
    const location = head?.headers.location;
    if (head?.statusCode === 200 && location !== undefined) seen.address ??= location;
    const end = await reading.over;
    connection.to = performance.now();
    endSlow();
    for (const timer of timers) clearTimeout(timer);
    this.#reading = undefined;
    if (head === undefined) return false;
    if (head.statusCode !== 200) {
      return this.#refused(connection, head.statusCode ?? 0, reading.text);
    }
    connection.answer = "200";
    // When the connection breaks, node:http drops the bytes that its reader has not read. A slow
    // reader might never progress.
    this.#isHasty = end === "broken" && reading.length === 0;
    seen.isReplayed ||= head.headers["idempotency-replayed"] === "true";
    seen.isRestarted ||= head.headers["idempotency-restarted"] === "true";
    seen.text += reading.text;
    seen.hasEnd = end === "ended";
    return seen.hasEnd || EVENT.test(seen.text);
  }

  #refused(connection: Connection, status: number, text: string): boolean {
    const code = /"code":"(\w+)"/.exec(text)?.[1] ?? "unknown";
    connection.answer = `${status} ${code}`;
    if (PASSING.has(code)) return false;
    this.seen.refusal = code;
    return true;
  }

  get #path(): string {
    const { address, from, text } = this.seen;
    return address === undefined
      ? "/v1/chat/completions"
      : `${address}?offset=${from + text.length}`;
  }

  #sent(attempt: string | undefined): Sent {
    const { history: { name, isShort }, plan } = this.#exchange;
    const headers = { ...HEADERS, host: isShort ? HOSTS.short : HOSTS.long };
    if (attempt === undefined) return { headers };
    const body = plan.isStream ? STREAM_BODY : GOOD_BODY;
    return {
      method: "POST",
      headers: { ...headers, "idempotency-key": name, [ATTEMPT_HEADER]: attempt },
      body,
    };
  }
}

/** Share of exchanges with each trait. */
const CHANCES = {
  plain: 0.1,
  large: 0.12,
  short: 0.12,
  slow: 0.25,
  leave: 0.3,
  stop: 0.12,
  retry: 0.4,
  late: 0.4,
};
const READERS = 2;
/** The longest time from the end of an exchange to its late retry. Milliseconds. */
const LATE_MS = 4000;

function planAnswer(random: Random): AnswerPlan {
  const isStream = !random.chance(CHANCES.plain);
  const lastsMs = 300 + random.below(6000);
  if (random.chance(CHANCES.large)) {
    return { isStream, pieces: 40, pieceBytes: 60_000, lastsMs: lastsMs / 3 };
  }
  return { isStream, pieces: 5 + random.below(60), pieceBytes: 20 + random.below(1500), lastsMs };
}

/** An exchange while it runs. */
export class Exchange {
  readonly history: ExchangeHistory;
  readonly plan: AnswerPlan;
  /** Time at which callers give up. */
  readonly until: number;
  readonly #scene: Scene;
  #attempts = 0;

  constructor(scene: Scene, name: string, until: number) {
    const { random, truth } = this.#scene = scene;
    this.history = { name, isShort: random.chance(CHANCES.short), seen: [], stop: undefined };
    this.until = until;
    truth.plans.set(name, this.plan = planAnswer(random));
  }

  nextAttempt(): string {
    return `${this.history.name}/${this.#attempts++}`;
  }

  /** Runs it until it ends. */
  async run(): Promise<void> {
    const { random } = this.#scene;
    const { lastsMs } = this.plan;
    const habits = () => ({
      isSlow: random.chance(CHANCES.slow),
      leavesAfterMs: random.chance(CHANCES.leave) ? random.below(lastsMs) : undefined,
    });
    const call = (role: Seen["role"]) => new Caller(this.#scene, this, { role, ...habits() });
    const first = call("first caller");
    const running = first.run();
    const readers = Array.from({ length: READERS }, async () => {
      const own = habits();
      const [startMs, share] = [
        random.below(lastsMs * 1.2),
        random.chance(0.6) ? 0 : random.next(),
      ];
      await Promise.race([running, pause(startMs)]);
      while (first.seen.address === undefined && performance.now() < this.until) {
        if (first.seen.refusal !== undefined) return;
        await pause(AGAIN_MS / 5);
      }
      // Bytes of the gateway's own event are not part of the provider's answer.
      const from = first.isTold ? 0 : Math.floor(first.length * share);
      await new Caller(this.#scene, this, {
        role: "reader",
        ...own,
        from,
        address: first.seen.address,
      }).run();
    });
    const retry = random.chance(CHANCES.retry)
      ? pause(random.below(lastsMs)).then(() => call("retry").run())
      : undefined;
    const stop = random.chance(CHANCES.stop) ? this.#stop(first, random.below(lastsMs)) : undefined;
    await Promise.all([running, stop]);
    if (random.chance(CHANCES.late)) {
      await pause(random.below(LATE_MS)).then(() => call("late retry").run());
    }
    await Promise.all([...readers, retry]);
  }

  /** Stops it at any gateway. */
  async #stop({ seen }: Caller, afterMs: number): Promise<void> {
    await pause(afterMs);
    while (performance.now() < this.until) {
      await pause(AGAIN_MS / 5);
      if (seen.address === undefined) continue;
      const headers = { ...HEADERS, host: this.history.isShort ? HOSTS.short : HOSTS.long };
      this.history.stop ??= { at: performance.now(), status: 0 };
      const reading = new Reading(this.#scene.pick().url + seen.address, {
        method: "DELETE",
        headers,
      });
      await reading.over;
      this.history.stop.status = (await reading.head)?.statusCode ?? 0;
      if ([204, 404, 410].includes(this.history.stop.status)) return;
    }
  }
}
