/**
 * The history in Redis, shared by many gateways: a hash for the minutes of each hour, and a hash
 * for the hours of each day, with an expiry. A field is the number of the minute or hour in it, and
 * the names of the row as JSON. The value is the sums, separated by spaces.
 *
 * All hashes have one hash tag: they are written once in ten seconds, and each has a bounded number
 * of fields. A batch that Redis added, but whose reply was lost, is not counted again.
 *
 * @module
 */
import { UsageUnavailable } from "../counts.ts";
import {
  HISTORY_STEP_MS,
  type HistoryBatch,
  type HistoryRange,
  type HistoryRow,
  type HistoryStep,
  type HistoryStore,
  KEPT_MS,
  OTHER_KEYS,
  readNames,
  writeNames,
} from "../history/rows.ts";
import { inParts } from "../usage_memory.ts";
import { scanHash, type UsageRedis } from "./scan.ts";

/** Length of a hash: of the minutes of an hour, and of the hours of a day. Milliseconds. */
const HASH_MS: Readonly<Record<HistoryStep, number>> = {
  minute: 3_600_000,
  hour: 86_400_000,
};
/** Number of fields of a hash after which further keys are counted together. */
const MAX_FIELDS = 50_000;
/** Deadline of one script. Milliseconds. */
const ADD_MS = 1000;
/** Time for which Redis stores the number of a gateway's last batch. Milliseconds. */
const MARK_MS = 86_400_000;

// KEYS: the number of this gateway's last batch, then the hashes. ARGV: the number of this batch,
// how long the gateway is remembered, the number of hashes and the expiry of each; then for each
// row and step: its hash, its field, its field under the other keys, the sums.
const ADD = `if tonumber(redis.call('GET', KEYS[1]) or 0) >= tonumber(ARGV[1]) then return 0 end
local hashes = tonumber(ARGV[3])
for i = 4 + hashes, #ARGV, 4 do
  local hash, field = KEYS[1 + ARGV[i]], ARGV[i + 1]
  local before = redis.call('HGET', hash, field)
  if not before and redis.call('HLEN', hash) >= ${MAX_FIELDS} then
    field = ARGV[i + 2]
    before = redis.call('HGET', hash, field)
  end
  local sums, length, index = {}, 0, 0
  for sum in string.gmatch(before or '', '-?%d+') do
    length = length + 1
    sums[length] = tonumber(sum)
  end
  for sum in string.gmatch(ARGV[i + 3], '-?%d+') do
    index = index + 1
    sums[index] = (sums[index] or 0) + tonumber(sum)
  end
  for n = 1, math.max(length, index) do sums[n] = string.format('%.0f', sums[n]) end
  redis.call('HSET', hash, field, table.concat(sums, ' '))
end
for n = 1, hashes do redis.call('PEXPIREAT', KEYS[1 + n], ARGV[3 + n]) end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1`;

/** Returns the name of the hash that has a minute or hour. */
function hashName(step: HistoryStep, at: number): string {
  return `sallyport:{history}:${step}:${at - at % HASH_MS[step]}`;
}

function toField(step: HistoryStep, row: HistoryRow): string {
  return `${row.at % HASH_MS[step] / HISTORY_STEP_MS[step]} ${writeNames(row)}`;
}

/** Reads a field. Returns `undefined` for a field in another version's form. */
function readRow(start: number, step: HistoryStep, field: string, value: string) {
  const [, offset, text = ""] = /^(\d{1,2}) (\[.*\])$/.exec(field) ?? [];
  if (offset === undefined || !/^-?\d+(?: -?\d+)*$/.test(value)) return undefined;
  let written: unknown;
  try {
    written = JSON.parse(text);
  } catch {
    return undefined;
  }
  const names = readNames(written);
  if (names === undefined) return undefined;
  const at = start + Number(offset) * HISTORY_STEP_MS[step];
  return { at, ...names, sums: value.split(" ").map(Number) };
}

/** The history in Redis. */
export class RedisHistory implements HistoryStore {
  readonly #client: UsageRedis;
  readonly #add: ReturnType<UsageRedis["script"]>;
  readonly #mark = `sallyport:{history}:from:${crypto.randomUUID()}`;

  constructor(client: UsageRedis) {
    this.#client = client;
    this.#add = client.script("sallyportHistory", ADD);
  }

  async add({ number, rows }: HistoryBatch): Promise<void> {
    const hashes = new Map<string, { readonly index: number; readonly expiresAt: number }>();
    const texts = rows.flatMap((row) =>
      (["minute", "hour"] as const).flatMap((step) => {
        const at = row.at - row.at % HISTORY_STEP_MS[step];
        const name = hashName(step, at);
        let hash = hashes.get(name);
        if (hash === undefined) {
          const expiresAt = at - at % HASH_MS[step] + 2 * HASH_MS[step] + KEPT_MS[step];
          hashes.set(name, hash = { index: hashes.size + 1, expiresAt });
        }
        const other = { ...row, at, key: OTHER_KEYS };
        const fields = [toField(step, { ...row, at }), toField(step, other)];
        return [hash.index, ...fields, row.sums.join(" ")];
      })
    );
    const expiries = Array.from(hashes.values(), ({ expiresAt }) => expiresAt);
    const args = [number, MARK_MS, hashes.size, ...expiries, ...texts];
    const keys = [this.#mark, ...hashes.keys()];
    await this.#client.run((redis) => this.#add(redis, keys, args), (reply) => {
      if (reply !== 0 && reply !== 1) throw new Error("no count");
    }, ADD_MS);
  }

  async *read({ step, from, to }: HistoryRange): AsyncIterable<readonly HistoryRow[]> {
    try {
      for (let start = from - from % HASH_MS[step]; start < to; start += HASH_MS[step]) {
        const rows = new Map<string, HistoryRow>();
        await scanHash(this.#client, hashName(step, start), (field, value) => {
          const row = readRow(start, step, field, value);
          if (row !== undefined && row.at >= from && row.at < to) rows.set(field, row);
        });
        yield* inParts(rows.values());
      }
    } catch (cause) {
      const message = "Cannot read the history: Redis does not answer as it should";
      throw new UsageUnavailable(message, { cause });
    }
  }

  close(): Promise<void> {
    return Promise.resolve();
  }
}
