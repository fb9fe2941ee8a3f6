/**
 * Messages between gateways, through Redis. Each gateway publishes one small record a second.
 * Traffic and metrics are published only on request. All of it expires.
 *
 * All keys are in one slot:
 *
 * | key after `sallyport:{fleet}:`    | value                                                        |
 * | --------------------------------- | ------------------------------------------------------------ |
 * | `seen`                            | sorted set: ids of gateways by the time of their last record |
 * | `records`                         | hash: the record of each, as JSON                            |
 * | `command:ID`                      | command for a gateway, for five seconds                      |
 * | `watched`, `scraped`              | the time of the last question for traffic, or for metrics    |
 * | `asked:ID`                        | list: questions for exchanges of a gateway, for five seconds |
 * | `exchanges:QUESTION`              | the reply to a question, as packed JSON                     |
 * | `live:ID`, `history:`, `metrics:` | traffic or metrics of a gateway, as packed JSON              |
 *
 * @module
 */
import { Buffer } from "node:buffer";
import type { Redis } from "ioredis";
import { packJson, unpackJson } from "../../storage/packed_json.ts";
import type { RedisClient } from "../../storage/redis_client.ts";
import { NOW } from "../../storage/redis_script.ts";
import type { FleetRecord } from "./fleet_report.ts";

const PREFIX = "sallyport:{fleet}:";
const [SEEN, RECORDS] = [`${PREFIX}seen`, `${PREFIX}records`];

/** Time during which a gone gateway is still shown. Milliseconds. */
const KEPT_MS = 10 * 60_000;
/** Limit of the stored gateways: the most recent ones. */
const MAX_GATEWAYS = 256;
/** Time for which a command waits for its gateway. Milliseconds. */
export const COMMAND_MS = 5000;
/** Time during which a question is valid, and during which its answers are stored. Milliseconds. */
const ASKED_MS = 5000;
const PUBLISHED_MS = 10_000;
/** Limit of the waiting questions for a gateway's exchanges: each takes some milliseconds. */
const MAX_ASKED = 8;
/** Limit of a packed value; a larger one is not published. Bytes. */
const MAX_PACKED_BYTES = 512_000;
/** Limits of reading: of one record, and of all values of a kind after unpacking. Bytes. */
const [MAX_RECORD_BYTES, MAX_UNPACKED_BYTES] = [4000, 64_000_000];
/** Number of packed values in one read. Later commands on the connection wait for the read. */
const READ_AT_ONCE = 4;
/** Deadline of commands that no caller waits for. Milliseconds. */
const DEADLINE_MS = 1000;

// KEYS: seen, records, this gateway's command, the two questions, the questions to this gateway.
// ARGV: id, record, how long it is kept, how many are kept. Reply: the command or an empty text,
// the times of the questions to all, and the questions to this gateway.
const PUBLISH = `${NOW}redis.call('ZADD', KEYS[1], now, ARGV[1])
redis.call('HSET', KEYS[2], ARGV[1], ARGV[2])
local gone = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now - ARGV[3])
for _, id in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1 - ARGV[4])) do gone[#gone + 1] = id end
for _, id in ipairs(gone) do
  redis.call('ZREM', KEYS[1], id)
  redis.call('HDEL', KEYS[2], id)
end
redis.call('PEXPIRE', KEYS[1], ARGV[3])
redis.call('PEXPIRE', KEYS[2], ARGV[3])
local command = redis.call('GET', KEYS[3])
if command then redis.call('DEL', KEYS[3]) end
local asked = redis.call('LRANGE', KEYS[6], 0, -1)
if #asked > 0 then redis.call('DEL', KEYS[6]) end
return {command or '', redis.call('GET', KEYS[4]) or '', redis.call('GET', KEYS[5]) or '', asked}`;

// KEYS: seen, records. ARGV: the number of gateways to read, and the longest record. Reply: for
// each gateway its id, the time since its last record, and its record.
const READ =
  `${NOW}local reply, found = {}, redis.call('ZRANGE', KEYS[1], -ARGV[1], -1, 'WITHSCORES')
for i = 1, #found, 2 do
  local record = redis.call('HGET', KEYS[2], found[i])
  if record and #record <= tonumber(ARGV[2]) then
    reply[#reply + 1] = found[i]
    reply[#reply + 1] = tostring(math.max(0, now - found[i + 1]))
    reply[#reply + 1] = record
  end
end
return reply`;

// KEYS: the question. ARGV: how long it is valid, 1 for a new one. Reply: its time, by the clock
// of Redis.
const ASK = `${NOW}local before = redis.call('GET', KEYS[1])
if before and ARGV[2] == '0' then now = before
elseif before then now = math.max(now, before + 1) end
now = string.format('%.0f', now)
redis.call('SET', KEYS[1], now, 'PX', ARGV[1])
return now`;

/** Kinds of values that gateways publish on request. */
export type Published = "live" | "history" | "metrics" | "exchanges";
/** Questions that every gateway reads each second. */
export type Question = "watched" | "scraped";
/** Commands for a gateway. */
export type Command = "drain" | "resume";

/** Messages for a gateway, which it reads when it publishes. */
export interface Messages {
  readonly command: Command | undefined;
  /** Times of the last questions; 0 without one. */
  readonly watched: number;
  readonly scraped: number;
  /** Questions for its exchanges, as JSON, the newest first. */
  readonly asked: readonly string[];
}

const NOTHING = new Uint8Array();
const texts = (reply: unknown): string[] => Array.isArray(reply) ? reply.map(String) : [];

/**
 * The records of gateways in Redis. Every method fails at once while the pause after a failure of
 * Redis lasts.
 */
export class FleetStore {
  readonly #client: RedisClient;
  readonly #publish: ReturnType<RedisClient["script"]>;
  readonly #read: ReturnType<RedisClient["script"]>;
  readonly #ask: ReturnType<RedisClient["script"]>;

  constructor(client: RedisClient) {
    this.#client = client;
    this.#publish = client.script("sallyportFleetPublish", PUBLISH);
    this.#read = client.script("sallyportFleetRead", READ);
    this.#ask = client.script("sallyportFleetAsk", ASK);
  }

  /** Publishes the record of a gateway, and reads the questions and the command for it. */
  publish(id: string, record: string): Promise<Messages> {
    const keys = [
      SEEN,
      RECORDS,
      `${PREFIX}command:${id}`,
      `${PREFIX}watched`,
      `${PREFIX}scraped`,
      `${PREFIX}asked:${id}`,
    ];
    return this.#run(
      (redis) => this.#publish(redis, keys, [id, record, KEPT_MS, MAX_GATEWAYS]),
      (reply) => {
        const [command, watched, scraped, asked] = reply as unknown[];
        // A command of a later version is ignored.
        const isKnown = command === "drain" || command === "resume";
        return {
          command: isKnown ? command : undefined,
          watched: Number(watched),
          scraped: Number(scraped),
          asked: texts(asked),
        };
      },
    );
  }

  /** Reads the records of all gateways. */
  read(): Promise<FleetRecord[]> {
    return this.#run(
      (redis) => this.#read(redis, [SEEN, RECORDS], [MAX_GATEWAYS, MAX_RECORD_BYTES]),
      (reply) => {
        const all = texts(reply);
        return Array.from({ length: all.length / 3 }, (_, index) => {
          const [id = "", silent, text = ""] = all.slice(index * 3, index * 3 + 3);
          return { id, silentMs: Number(silent), text };
        });
      },
    );
  }

  /**
   * Asks all gateways to publish.
   *
   * @param isNew False to extend the current question
   * @returns The time of the question, by the clock of Redis
   */
  ask(question: Question, isNew: boolean): Promise<number> {
    return this.#run(
      (redis) => this.#ask(redis, [PREFIX + question], [ASKED_MS, isNew ? 1 : 0]),
      Number,
    );
  }

  /** Publishes the reply to a question. A value that is too large is not published. */
  async put(kind: Published, id: string, value: unknown): Promise<void> {
    const packed = await packJson(value);
    if (packed.byteLength > MAX_PACKED_BYTES) return;
    const text = Buffer.from(packed.buffer, packed.byteOffset, packed.byteLength);
    await this.#run(
      (redis) => redis.set(`${PREFIX}${kind}:${id}`, text, "PX", PUBLISHED_MS),
      () => {},
    );
  }

  /** Reads published values, a few at a time. Gateways that have published nothing are omitted. */
  async *take(
    kind: Published,
    ids: readonly string[],
  ): AsyncGenerator<readonly [id: string, value: unknown]> {
    let left = MAX_UNPACKED_BYTES;
    const last = MAX_PACKED_BYTES; // a longer value is cut there, and cannot be unpacked
    for (let index = 0; index < ids.length; index += READ_AT_ONCE) {
      const some = ids.slice(index, index + READ_AT_ONCE);
      const packed = await this.#run(
        (redis) =>
          Promise.all(some.map((id) => redis.getrangeBuffer(`${PREFIX}${kind}:${id}`, 0, last))),
        (reply) => reply as Buffer[],
      );
      for (const [place, id] of some.entries()) {
        const unpacked = await unpackJson(packed[place] ?? NOTHING, left);
        if (unpacked === undefined) continue;
        left -= unpacked.bytes;
        yield [id, unpacked.value];
      }
    }
  }

  /**
   * Sends a command to gateways. A gateway that does not publish in time, or restarts, never
   * receives it.
   */
  async command(ids: readonly string[], command: Command): Promise<void> {
    if (ids.length === 0) return;
    const send = (redis: Redis) =>
      Promise.all(ids.map((id) => redis.set(`${PREFIX}command:${id}`, command, "PX", COMMAND_MS)));
    await this.#run(send, () => {});
  }

  /**
   * Asks a gateway for exchanges, as JSON. If there are too many questions, the oldest are dropped.
   */
  async askExchanges(id: string, question: string): Promise<void> {
    const key = `${PREFIX}asked:${id}`;
    await this.#run(
      (redis) =>
        redis.multi().lpush(key, question).ltrim(key, 0, MAX_ASKED - 1).pexpire(key, ASKED_MS)
          .exec(),
      () => {},
    );
  }

  #run<T>(call: (redis: Redis) => Promise<unknown>, read: (reply: unknown) => T): Promise<T> {
    return this.#client.run(call, read, DEADLINE_MS);
  }
}
