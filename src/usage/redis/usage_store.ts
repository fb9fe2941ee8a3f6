/**
 * Usage in Redis, shared by many gateways: small hashes for each hour and each day, with an expiry.
 * A field has the names of a row, as JSON: `["key","provider","model","operation"]`. For an
 * identity token, the team and the plan of its claims follow; one of them can be `null`. The
 * seventh name is the tariff, the eighth the attribution, the ninth the payer. Those that are
 * missing before them are `null`. The value is the counts in the order of `USAGE_COUNTS` and
 * `CLASS_COUNTS`, separated by spaces, without zeros at the end. Counts of a later version are kept.
 *
 * A batch of rows is sent as a few short scripts, each with its number. A script that Redis ran,
 * but whose reply was lost, is not counted again.
 *
 * @module
 */
import { DEFAULT_MAX_ROWS } from "../../config/attribution.ts";
import { DEFAULT_RETENTION, type UsageBounds } from "../../config/usage.ts";
import {
  DAY_MS,
  MAX_MODELS,
  OTHER_NAME,
  readCounts,
  STEP_MS,
  USAGE_COUNTS,
  type UsageBatch,
  type UsageNames,
  type UsageRange,
  type UsageRow,
  type UsageStore,
  UsageUnavailable,
} from "../counts.ts";
import { readFurther, writeFurther } from "../further_names.ts";
import { scanHash, type UsageRedis } from "./scan.ts";
import { inParts } from "../usage_memory.ts";
import {
  expiryOf,
  GROUPS,
  hashName,
  indexName,
  markName,
  readIndex,
  type Shard,
  shardOf,
} from "./shards.ts";

/** Rows of one script. Redis needs half a millisecond for them, and decides no limit meanwhile. */
const ROWS_AT_ONCE = 50;
/** Number of groups that are written concurrently. */
const GROUPS_AT_ONCE = 4;
/** Deadline of one script. Milliseconds. */
const ADD_MS = 1000;
/** Time for which Redis stores the number of a gateway's last script. Milliseconds. */
const MARK_MS = DAY_MS;
/**
 * Number of hashes, and of indexes, that are read concurrently. Their rows can arrive in one turn.
 */
const HASHES_AT_ONCE = 2;
const INDEXES_AT_ONCE = 200;
/** Prefix of the field that has the number of a key's models that are counted by name. */
const MODELS_OF = "#";
/** Prefix of the field that has the number of a key's rows with attribution. */
const ATTRIBUTED_OF = "@";

// KEYS: the number of this gateway's last script, the index of the hour, the index of the day; then
// for each hash of rows: its name for the hour, its name for the day. ARGV: the number of this
// script, how long the gateway is remembered, the expiry of the two indexes, the limit of a key's
// rows with attribution; for each hash: its number, its expiry for the hour and for the day; for
// each row: its hash, counting from 0, the counts, the number of its possible fields, and for each
// of these the field and its limit. The first field that exists or is within its limit is used. A
// limit is the name of a field with the number of such rows, or an empty text. A hash with a new
// field can be new itself, so it is added to the index and its expiry is set.
const ADD = `if tonumber(redis.call('GET', KEYS[1]) or 0) >= tonumber(ARGV[1]) then return 0 end
local hashes = (#KEYS - 3) / 2
local function sum(before, more)
  local sums, length, index = {}, 0, 0
  for count in string.gmatch(before or '', '%d+') do
    length = length + 1
    sums[length] = tonumber(count)
  end
  for count in string.gmatch(more, '-?%d+') do
    index = index + 1
    local added = (sums[index] or 0) + tonumber(count)
    sums[index] = math.max(0, math.min(added, ${Number.MAX_SAFE_INTEGER}))
  end
  for n = 1, math.max(length, index) do sums[n] = string.format('%.0f', sums[n]) end
  return table.concat(sums, ' ')
end
local function isFull(hash, limit)
  if limit == '' then return false end
  local most = ${MAX_MODELS}
  if string.sub(limit, 1, 1) == '${ATTRIBUTED_OF}' then most = tonumber(ARGV[5]) end
  if tonumber(redis.call('HGET', hash, limit) or 0) >= most then return true end
  redis.call('HINCRBY', hash, limit, 1)
  return false
end
for step = 1, 2 do
  local grown = {}
  local i = 6 + 3 * hashes
  while i <= #ARGV do
    local hash, field, before = KEYS[3 + 2 * ARGV[i] + step], nil, nil
    local last = i + 1 + 2 * ARGV[i + 2]
    for place = i + 3, last, 2 do
      field = ARGV[place]
      before = redis.call('HGET', hash, field)
      if before or not isFull(hash, ARGV[place + 1]) then break end
    end
    if not before then grown[tonumber(ARGV[i])] = true end
    redis.call('HSET', hash, field, sum(before, ARGV[i + 1]))
    i = last + 2
  end
  for n in pairs(grown) do
    redis.call('SETBIT', KEYS[1 + step], ARGV[6 + 3 * n], 1)
    redis.call('PEXPIREAT', KEYS[3 + 2 * n + step], ARGV[6 + 3 * n + step])
  end
  redis.call('PEXPIREAT', KEYS[1 + step], ARGV[2 + step])
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1`;

/** Rows of one hour and one group: one script. */
interface Part {
  readonly at: number;
  readonly rows: UsageRow[];
}

/** The scripts for one group. */
interface Group {
  /** Number of the last script that Redis ran. */
  sent: number;
  /** Parts of the current batch that are not yet added. */
  parts: Part[];
}

function toCounts({ counts, more = [] }: UsageRow): string {
  const list = [...USAGE_COUNTS.map((name) => counts[name]), ...more];
  return list.join(" ").replace(/(?: 0)+$/, "");
}

function readNames(field: string): readonly unknown[] {
  try {
    const names: unknown = JSON.parse(field);
    return Array.isArray(names) ? names : [];
  } catch {
    return [];
  }
}

/** Returns the field of a row. The field of a stored key is the same in all versions. */
function toField(names: UsageNames): string {
  const { key, provider, model, operation } = names;
  return JSON.stringify([key, provider, model, operation, ...writeFurther(names)]);
}

/** Reads a field. Returns `undefined` for a field in another version's form. */
function readRow(at: number, field: string, value: string): UsageRow | undefined {
  if (!field.startsWith("[") || !/^\d+(?: \d+)*$/.test(value)) return undefined;
  const [key, provider, model, operation, ...furtherNames] = readNames(field);
  const further = readFurther(furtherNames);
  const isRow = typeof key === "string" && typeof provider === "string" &&
    typeof model === "string" && typeof operation === "string" && further !== undefined;
  if (!isRow) return undefined;
  const counts = readCounts(value.split(" ").map(Number));
  return { at, key, provider, model, operation, ...further, ...counts };
}

/** Usage in Redis. */
export class RedisUsage implements UsageStore {
  readonly backend = "redis";
  readonly #client: UsageRedis;
  readonly #listed: ReadonlySet<string>;
  readonly #keep: UsageBounds;
  readonly #add: ReturnType<UsageRedis["script"]>;
  /** Name of this gateway among all that add usage. */
  readonly #name = crypto.randomUUID();
  readonly #groups: readonly Group[] = Array.from(
    { length: GROUPS },
    () => ({ sent: 0, parts: [] }),
  );
  /** Number of the batch that the parts belong to. */
  #batch = 0;

  constructor(
    client: UsageRedis,
    listed: ReadonlySet<string>,
    keep: UsageBounds = DEFAULT_RETENTION,
  ) {
    this.#client = client;
    this.#listed = listed;
    this.#keep = keep;
    this.#add = client.script("sallyportUsage", ADD);
  }

  async add({ number, rows }: UsageBatch): Promise<void> {
    if (number !== this.#batch) this.#split(rows);
    this.#batch = number;
    const left = Array.from(this.#groups.entries()).filter(([, group]) => group.parts.length > 0);
    const work = async () => {
      for (let next = left.shift(); next !== undefined; next = left.shift()) {
        await this.#addGroup(...next);
      }
    };
    const ends = await Promise.allSettled(Array.from({ length: GROUPS_AT_ONCE }, work));
    for (const end of ends) if (end.status === "rejected") throw end.reason;
  }

  async *read(range: UsageRange): AsyncIterable<readonly UsageRow[]> {
    try {
      const shard = range.key === undefined ? undefined : shardOf(range.key);
      for (let group = 0; group < GROUPS; group++) {
        if (shard === undefined || shard.group === group) {
          yield* this.#readGroup(group, range, shard?.hash);
        }
      }
    } catch (cause) {
      throw new UsageUnavailable("Cannot read usage: Redis does not answer as it should", {
        cause,
      });
    }
  }

  close(): Promise<void> {
    return Promise.resolve();
  }

  /** Splits a batch by group and hour. */
  #split(rows: readonly UsageRow[]): void {
    const open = new Map<string, Part>();
    for (const row of rows) {
      const { group } = shardOf(row.key);
      const name = `${group} ${row.at}`;
      let part = open.get(name);
      if (part === undefined || part.rows.length === ROWS_AT_ONCE) {
        open.set(name, part = { at: row.at, rows: [] });
        this.#groups[group]?.parts.push(part);
      }
      part.rows.push(row);
    }
  }

  async #addGroup(number: number, group: Group): Promise<void> {
    for (let part = group.parts[0]; part !== undefined; part = group.parts[0]) {
      const { keys, args } = this.#toScript(number, group.sent + 1, part);
      await this.#client.run((redis) => this.#add(redis, keys, args), (reply) => {
        if (reply !== 0 && reply !== 1) throw new Error("no count");
      }, ADD_MS);
      group.parts.shift();
      group.sent++;
    }
  }

  #toScript(
    group: number,
    script: number,
    { at, rows }: Part,
  ): { keys: string[]; args: (string | number)[] } {
    const day = at - at % DAY_MS;
    const { hoursMs, daysMs, maxAttributed = DEFAULT_MAX_ROWS } = this.#keep;
    const keys = [
      markName(group, this.#name),
      indexName(group, "hour", at),
      indexName(group, "day", day),
    ];
    const args = [
      script,
      MARK_MS,
      expiryOf("hour", at, hoursMs),
      expiryOf("day", day, daysMs),
      maxAttributed,
    ];
    const indexes = new Map<number, number>();
    const texts = rows.flatMap((row) => {
      const shard: Shard = shardOf(row.key);
      let index = indexes.get(shard.hash);
      if (index === undefined) {
        indexes.set(shard.hash, index = indexes.size);
        keys.push(hashName(shard, "hour", at), hashName(shard, "day", day));
        args.push(
          shard.hash,
          expiryOf("hour", at, hoursMs, shard),
          expiryOf("day", day, daysMs, shard),
        );
      }
      const fields = this.#toFields(row);
      return [index, toCounts(row), fields.length, ...fields.flat()];
    });
    return { keys, args: [...args, ...texts] };
  }

  /** Returns the fields that can count a row, each with its limit. */
  #toFields(row: UsageNames): (readonly [field: string, limit: string])[] {
    const { key, model, attribution } = row;
    if (attribution !== undefined && attribution !== OTHER_NAME) {
      const limit = ATTRIBUTED_OF + JSON.stringify(key);
      return [[toField(row), limit], ...this.#toFields({ ...row, attribution: OTHER_NAME })];
    }
    if (this.#listed.has(model) || model === OTHER_NAME) return [[toField(row), ""]];
    const limit = MODELS_OF + JSON.stringify(key);
    return [[toField(row), limit], [toField({ ...row, model: OTHER_NAME }), ""]];
  }

  /** Reads the rows of a group, by the indexes of its hours or days. */
  async *#readGroup(
    group: number,
    { step, from, to }: UsageRange,
    hash?: number,
  ): AsyncIterable<readonly UsageRow[]> {
    const length = Math.max(0, Math.ceil((to - from) / STEP_MS[step]));
    const all = Array.from({ length }, (_, n) => from + n * STEP_MS[step]);
    for (const times of inParts(all, INDEXES_AT_ONCE)) {
      const names = times.map((at) => indexName(group, step, at));
      const indexes = await this.#client.ask(
        (redis) => redis.mgetBuffer(names),
        (reply) => reply as (Uint8Array | null)[],
      );
      const hashes = times.flatMap((at, n) =>
        readIndex(indexes[n] ?? new Uint8Array())
          .filter((each) => hash === undefined || each === hash)
          .map((hash) => ({ at, name: hashName({ group, hash }, step, at) }))
      );
      for (const some of inParts(hashes, HASHES_AT_ONCE)) {
        const found = await Promise.all(some.map(({ at, name }) => this.#readHash(name, at)));
        for (const rows of found) yield* inParts(rows);
      }
    }
  }

  async #readHash(name: string, at: number): Promise<Iterable<UsageRow>> {
    const rows = new Map<string, UsageRow>();
    await scanHash(this.#client, name, (field, value) => {
      const row = readRow(at, field, value);
      if (row !== undefined) rows.set(field, row);
    });
    return rows.values();
  }
}
