/**
 * Usage in Redis, which many gateways share: a hash for each hour and each day, which Redis expires by itself.
 *
 * A batch of rows is sent as a few short scripts, each with its number: one that Redis ran although its answer was lost
 * is not counted again.
 *
 * @module
 */
import type { Redis } from "ioredis";
import {
  DAY_MS,
  DAYS_KEPT_MS,
  HOURS_KEPT_MS,
  MAX_MODELS,
  noCounts,
  OTHER,
  STEP_MS,
  UNNAMED_OPERATION,
  USAGE_COUNTS,
  type UsageBatch,
  type UsageCount,
  type UsageCounts,
  type UsageRange,
  type UsageRow,
  type UsageStore,
  UsageUnavailable,
} from "./counts.ts";
import { inParts } from "./usage_memory.ts";

/** The part of a Redis connection that usage needs; `storage/redis_client.ts` has it. */
export interface UsageRedis {
  script(name: string, lua: string): (redis: Redis, keys: string[], args: (string | number)[]) => Promise<unknown>;
  run<T>(call: (redis: Redis) => Promise<unknown>, read: (answer: unknown) => T, deadlineMs?: number): Promise<T>;
  ask<T>(call: (redis: Redis) => Promise<unknown>, read: (answer: unknown) => T): Promise<T>;
}

/** Rows of one script: it takes Redis a millisecond, in which Redis decides no limit. */
const ROWS_AT_ONCE = 50;
/** Deadline of one script. Milliseconds. */
const ADD_MS = 1000;
/** Number of fields of one hash after which new rows are counted for all keys together. */
const MAX_FIELDS = 1_000_000;
/** Time for which Redis remembers which script of a gateway was the last. Milliseconds. */
const MARK_MS = DAY_MS;
/** Number of fields that are read at once, and of hashes that are read concurrently. */
const FIELDS_AT_ONCE = 1000;
const HASHES_AT_ONCE = 8;

/** A field is the letter of a count and its names, as JSON: `["key","provider","model","operation"]`; in old ones without the last. */
const LETTERS: Readonly<Record<UsageCount, string>> = {
  requests: "r",
  partial: "p",
  unmetered: "u",
  failed: "f",
  input: "i",
  cached: "c",
  output: "o",
  reasoning: "t",
  other: "x",
};
const IN_ORDER = USAGE_COUNTS.map((name) => LETTERS[name]).join("");
const COUNT_OF: ReadonlyMap<string, UsageCount> = new Map(USAGE_COUNTS.map((name) => [LETTERS[name], name]));
/** Prefix of the field that holds the number of models of a key that are counted by name. */
const MODELS_OF = "#";

// KEYS: the hash of the hour, that of the day, the number of this gateway's last one. ARGV: its number, when the hour
// and the day are forgotten, then for each row: key, provider, model, operation (each as JSON), whether the model is
// listed, counts in the order of USAGE_COUNTS.
const ADD = `if tonumber(redis.call('GET', KEYS[3]) or 0) >= tonumber(ARGV[1]) then return 0 end
local other = '${JSON.stringify(OTHER)}'
for t = 1, 2 do
  local hash = KEYS[t]
  for i = 4, #ARGV, ${5 + USAGE_COUNTS.length} do
    local key, provider, model, operation = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3]
    local function name() return '[' .. key .. ',' .. provider .. ',' .. model .. ',' .. operation .. ']' end
    local function isKnown() return redis.call('HEXISTS', hash, '${LETTERS.requests}' .. name()) == 1 end
    if not isKnown() then
      if redis.call('HLEN', hash) >= ${MAX_FIELDS} then key = other end
      if ARGV[i + 4] == '0' and model ~= other and not isKnown() then
        if tonumber(redis.call('HGET', hash, '${MODELS_OF}' .. key) or 0) >= ${MAX_MODELS} then model = other
        else redis.call('HINCRBY', hash, '${MODELS_OF}' .. key, 1) end
      end
    end
    for n = 1, ${USAGE_COUNTS.length} do
      local count = ARGV[i + 4 + n]
      if count ~= '0' then redis.call('HINCRBY', hash, string.sub('${IN_ORDER}', n, n) .. name(), count) end
    end
  end
  redis.call('PEXPIREAT', hash, ARGV[1 + t])
end
redis.call('SET', KEYS[3], ARGV[1], 'PX', ${MARK_MS})
return 1`;

const hashOf = (step: UsageRange["step"], at: number): string => `sallyport:usage:${step}:${at}`;

function readPage(answer: unknown): [cursor: string, fields: readonly string[]] {
  if (!Array.isArray(answer) || typeof answer[0] !== "string" || !Array.isArray(answer[1])) throw new Error("no page");
  return [answer[0], answer[1]];
}

/** Usage in Redis. */
export class RedisUsage implements UsageStore {
  readonly backend = "redis";
  readonly #client: UsageRedis;
  readonly #listed: ReadonlySet<string>;
  readonly #add: ReturnType<UsageRedis["script"]>;
  readonly #mark = `sallyport:usage:from:${crypto.randomUUID()}`;
  #sent = 0;
  /** Parts of the current batch that are not added yet. */
  #left: { readonly number: number; readonly parts: { at: number; rows: UsageRow[] }[] } = { number: 0, parts: [] };

  /**
   * @param client The connection
   * @param listed Models that always have a name of their own
   */
  constructor(client: UsageRedis, listed: ReadonlySet<string>) {
    this.#client = client;
    this.#listed = listed;
    this.#add = client.script("sallyportUsage", ADD);
  }

  async add({ number, rows }: UsageBatch): Promise<void> {
    if (number !== this.#left.number) {
      const byHour = new Map<number, UsageRow[]>();
      for (const row of rows) {
        const sameHour = byHour.get(row.at);
        if (sameHour === undefined) byHour.set(row.at, [row]);
        else sameHour.push(row);
      }
      const parts = Array.from(byHour, ([at, all]) => Array.from(inParts(all, ROWS_AT_ONCE), (rows) => ({ at, rows })));
      this.#left = { number, parts: parts.flat() };
    }
    const { parts } = this.#left;
    for (let part = parts[0]; part !== undefined; part = parts[0]) {
      await this.#addPart(part.at, part.rows);
      parts.shift();
      this.#sent++;
    }
  }

  async *read({ step, from, to }: UsageRange): AsyncIterable<readonly UsageRow[]> {
    const times = Array.from({ length: Math.max(0, (to - from) / STEP_MS[step]) }, (_, n) => from + n * STEP_MS[step]);
    for (const some of inParts(times, HASHES_AT_ONCE)) {
      const found = await Promise.all(some.map((at) => this.#readHash(hashOf(step, at), at)));
      for (const rows of found) if (rows.length > 0) yield rows;
    }
  }

  close(): Promise<void> {
    return Promise.resolve();
  }

  async #addPart(at: number, rows: readonly UsageRow[]): Promise<void> {
    const day = at - at % DAY_MS;
    const args = rows.flatMap(({ key, provider, model, operation, counts }) => [
      ...[key, provider, model, operation].map((name) => JSON.stringify(name)),
      this.#listed.has(model) ? 1 : 0,
      ...USAGE_COUNTS.map((name) => counts[name]),
    ]);
    const keys = [hashOf("hour", at), hashOf("day", day), this.#mark];
    const expiries = [at + HOURS_KEPT_MS + 2 * STEP_MS.hour, day + DAYS_KEPT_MS + 2 * STEP_MS.day];
    await this.#client.run(
      (redis) => this.#add(redis, keys, [this.#sent + 1, ...expiries, ...args]),
      (answer) => {
        if (answer !== 0 && answer !== 1) throw new Error("no count");
      },
      ADD_MS,
    );
  }

  async #readHash(hash: string, at: number): Promise<UsageRow[]> {
    const rows = new Map<string, UsageRow & { counts: UsageCounts }>();
    try {
      let cursor = "0";
      do {
        const [next, fields] = await this.#client.ask(
          (redis) => redis.hscan(hash, cursor, "COUNT", FIELDS_AT_ONCE),
          readPage,
        );
        for (let index = 0; index < fields.length; index += 2) {
          const [field = "", value = ""] = fields.slice(index, index + 2);
          const count = COUNT_OF.get(field.charAt(0));
          if (count === undefined) continue;
          const name = field.slice(1);
          let row = rows.get(name);
          if (row === undefined) {
            const [key = "", provider = "", model = "", operation = UNNAMED_OPERATION] = JSON.parse(name) as string[]; // as ADD wrote it
            rows.set(name, row = { at, key, provider, model, operation, counts: noCounts() });
          }
          row.counts[count] = Number(value);
        }
        cursor = next;
      } while (cursor !== "0");
    } catch (cause) {
      throw new UsageUnavailable("Cannot read usage: Redis does not answer as it should", { cause });
    }
    return Array.from(rows.values());
  }
}
