/**
 * Script of the budget of recordings in Redis: the rules of `recording_budget.ts`, for all gateways
 * that share it.
 *
 * The recordings are in many slots of a Cluster, and the budget is in one. So a gateway reports its
 * writes to the budget, and removes the recordings that the budget names. Reports contain sizes,
 * not differences, so that a lost or repeated report does no harm. Reports of a gateway that died
 * expire.
 *
 * Keys, all of one slot: the list of recordings; `sizes`, a hash of `<bytes> <time of the end>
 * <gateway key>` by id, with the sums `total` and `running`; `expiry`, the end of the recordings;
 * `expired`, the end of ids that are still known; `shares`, bytes by gateway key; `running`, bytes
 * of running recordings by gateway key; `room`, the shares of keys with ended recordings; `ended`,
 * these recordings in order of gateway key and end.
 *
 * @module
 */
import { defineScript, NOW, type RedisScript } from "../../storage/redis_script.ts";
import { TOMBSTONE_BYTES } from "../memory_recording.ts";
import { CLASSES_A_DOUBLING, RUNNING_FACTOR } from "../recording_budget.ts";
import { INDEX } from "./scripts.ts";

interface BudgetKeys {
  readonly LIST: string;
  readonly SIZES: string;
  readonly EXPIRY: string;
  readonly EXPIRED: string;
  readonly SHARES: string;
  readonly RUNNING: string;
  readonly ROOM: string;
  readonly ENDED: string;
}

const toKey = (part: string): string => `sallyport:{${INDEX}}:${part}`;

/**
 * The keys. The text in braces gives all of them the slot of the list, and users of the ACL may use
 * them.
 */
export const BUDGET_KEYS: BudgetKeys = {
  LIST: INDEX,
  SIZES: toKey("sizes"),
  EXPIRY: toKey("expiry"),
  EXPIRED: toKey("expired"),
  SHARES: toKey("shares"),
  RUNNING: toKey("running"),
  ROOM: toKey("room"),
  ENDED: toKey("ended"),
};

/**
 * The most recordings that one report evicts, and the most that it finds expired. Bounded, because
 * the script blocks Redis.
 */
const MAX_REMOVED = 100;
const ID_LENGTH = 29;

const SIZES = `if redis.call('EXISTS', SIZES) == 0 then redis.call('DEL', unpack(KEYS, 3)) end
local removed, reply = 0, {0}
local total = tonumber(redis.call('HGET', SIZES, 'total') or 0)
local running = tonumber(redis.call('HGET', SIZES, 'running') or 0)
local function sizeOf(id)
  local bytes, at, owner = string.match(redis.call('HGET', SIZES, id) or '', '^(%d+) (%d*) (.*)$')
  return bytes and {bytes = tonumber(bytes), at = at, owner = owner}
end
local function memberOf(id, size)
  return size.owner .. '\\0' .. size.at .. id
end
local function oldestOf(owner)
  local range = {'[' .. owner .. '\\0', '(' .. owner .. '\\0:'}
  return redis.call('ZRANGEBYLEX', ENDED, range[1], range[2], 'LIMIT', 0, 1)[1]
end
local function run(owner, bytes)
  running = running + bytes
  if redis.call('HINCRBY', RUNNING, owner, bytes) <= 0 then redis.call('HDEL', RUNNING, owner) end
end
local function grow(owner, bytes)
  total = total + bytes
  if owner == '' then return end
  local held = redis.call('HINCRBY', SHARES, owner, bytes)
  if held <= 0 then redis.call('HDEL', SHARES, owner) end
  redis.call('ZADD', ROOM, 'XX', held, owner)
end
`;

const REMOVALS = `local function forget(id, size)
  redis.call('HDEL', SIZES, id)
  redis.call('ZREM', size.owner == '' and EXPIRED or EXPIRY, id)
  grow(size.owner, -size.bytes)
  if size.at ~= '' then
    redis.call('ZREM', ENDED, memberOf(id, size))
    if not oldestOf(size.owner) then redis.call('ZREM', ROOM, size.owner) end
  elseif size.owner ~= '' then
    run(size.owner, -size.bytes)
  end
end
local function expire(id, size)
  forget(id, size)
  redis.call('HSET', SIZES, id, '${TOMBSTONE_BYTES}  ')
  redis.call('ZADD', EXPIRED, now + tombstoneMs, id)
  grow('', ${TOMBSTONE_BYTES})
end
local function sweep(key, remove)
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', key, '-inf', now, 'LIMIT', 0, ${MAX_REMOVED})) do
    remove(id, sizeOf(id))
  end
end
`;

const MAKE_ROOM = `local function classOf(bytes)
  return math.floor(${CLASSES_A_DOUBLING} * math.log(math.max(1, bytes)) / math.log(2))
end
local function nextOf(owner)
  local largest = redis.call('ZREVRANGE', ROOM, 0, 0, 'WITHSCORES')
  local ownClass = classOf(tonumber(redis.call('HGET', SHARES, owner) or 0))
  if not largest[1] or classOf(tonumber(largest[2])) < ownClass then return nil end
  local isOwn = classOf(tonumber(largest[2])) == ownClass and redis.call('ZSCORE', ROOM, owner)
  return string.sub(oldestOf(isOwn and owner or largest[1]), -${ID_LENGTH})
end
local function remove(owner)
  local id = redis.call('ZRANGE', EXPIRED, 0, 0)[1]
  local word, how = 'forget', forget
  if not id then id, word, how = nextOf(owner), 'expire', expire end
  if not id then return false end
  how(id, sizeOf(id))
  reply[#reply + 1], reply[#reply + 2], removed = id, word, removed + 1
  return true
end
local function mayRun(bytes, owner)
  local held = tonumber(redis.call('HGET', RUNNING, owner) or 0)
  return held + bytes <= ${RUNNING_FACTOR} * (maxBytes - running - bytes)
end
local function makeRoom(bytes, owner)
  while total + bytes > maxBytes and removed < ${MAX_REMOVED} do
    if not remove(owner) then return false end
  end
  return true
end
`;

const COUNT = `local function count(id, size, change, bytes)
  local isEnd = change == 'ended' and size.at == ''
  if isEnd then
    run(size.owner, -size.bytes)
    size.at = now
    redis.call('ZADD', ENDED, 0, memberOf(id, size))
    redis.call('ZADD', ROOM, 0, size.owner)
  elseif size.at == '' and bytes ~= size.bytes then
    run(size.owner, bytes - size.bytes)
  end
  redis.call('HSET', SIZES, id, bytes .. ' ' .. size.at .. ' ' .. size.owner)
  if isEnd or bytes ~= size.bytes then grow(size.owner, bytes - size.bytes) end
end
local function report(id, change, bytes, startedAt, keepMs, owner)
  local size = sizeOf(id)
  if change == 'deleted' then return size and forget(id, size) end
  local isExpired = size and size.owner == ''
  if change == 'discarded' then return size and not isExpired and expire(id, size) end
  if not size and owner == '' then return end
  if isExpired then forget(id, size) end
  if not size or isExpired then size = {bytes = 0, at = '', owner = owner} end
  local isNew, isOver = size.bytes == 0, size.at ~= ''
  if isOver then change = 'ended' end
  bytes = math.max(bytes, size.bytes)
  local more = bytes - size.bytes
  local mayGrow = change == 'ended' or more == 0
  if not mayGrow then mayGrow = mayRun(more, size.owner) and makeRoom(more, size.owner) end
  if not mayGrow then reply[#reply + 1], reply[#reply + 2] = id, 'full' end
  if not mayGrow and isNew then return end
  count(id, size, change, mayGrow and bytes or size.bytes)
  local lastsMs = change == 'asked' and leaseMs or change == 'ended' and keepMs or leaseMs + keepMs
  if not isOver then redis.call('ZADD', EXPIRY, now + lastsMs, id) end
  if change == 'running' then redis.call('ZADD', LIST, startedAt, id) end
  if change == 'ended' then makeRoom(0, size.owner) end
end
`;

/** Reports recordings to the budget. */
export interface ReportCall extends BudgetKeys {
  /** Maximum size of all recordings together. */
  readonly maxBytes: number;
  readonly leaseMs: number;
  /** Time for which an expired id is known. Milliseconds. */
  readonly tombstoneMs: number;
  /** Bound of the list. */
  readonly maxListed: number;
  /** Life of all that is written here. Milliseconds. */
  readonly lifeMs: number;
  readonly reports: readonly ReportedRecording[];
}

interface ReportedRecording {
  readonly id: string;
  /** `asked` if it is about to begin. */
  readonly change: "asked" | "running" | "ended" | "discarded" | "deleted";
  /** Its size; -1 if that is unknown. */
  readonly bytes: number;
  readonly startedAt: number;
  readonly keepMs: number;
  /** Its gateway key; empty if that is unknown. */
  readonly owner: string;
}

/**
 * Answer: the bytes that are free; and pairs of an id and a word: `full` if there is no room for
 * that recording, `expire` or `forget` if it has to be removed.
 */
export const REPORT: RedisScript<ReportCall> = defineScript(
  "sallyportRecordingReport",
  {
    LIST: "key",
    SIZES: "key",
    EXPIRY: "key",
    EXPIRED: "key",
    SHARES: "key",
    RUNNING: "key",
    ROOM: "key",
    ENDED: "key",
    maxBytes: "number",
    leaseMs: "number",
    tombstoneMs: "number",
    maxListed: "number",
    lifeMs: "number",
    reports: {
      id: "text",
      change: "text",
      bytes: "number",
      startedAt: "number",
      keepMs: "number",
      owner: "text",
    },
  },
  (each) =>
    `${NOW}${SIZES}${REMOVALS}${MAKE_ROOM}${COUNT}
sweep(EXPIRED, forget)
sweep(EXPIRY, expire)
${each("reports")}
  report(id, change, bytes, startedAt, keepMs, owner)
end
redis.call('HSET', SIZES, 'total', total, 'running', running)
redis.call('ZREMRANGEBYRANK', LIST, 0, -1 - maxListed)
if redis.call('PTTL', LIST) < lifeMs then redis.call('PEXPIRE', LIST, lifeMs) end
-- All end together: a name that one of them lacks could not be found through the others.
lifeMs = math.max(redis.call('PTTL', SIZES), lifeMs)
for i = 2, #KEYS do redis.call('PEXPIRE', KEYS[i], lifeMs) end
reply[1] = maxBytes - total
return reply`,
);
