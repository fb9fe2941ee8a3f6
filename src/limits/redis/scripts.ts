/**
 * Scripts that count limits in Redis. Each script uses only the keys of one subject, or the keys of
 * the gateways, so only one slot of a Cluster.
 *
 * @module
 */
import type { Budget } from "../../config/units.ts";
import { defineScript, NOW, type RedisScript } from "../../storage/redis_script.ts";
import { SKEW_MS } from "../limiter.ts";

/**
 * The largest count. It is below 2^53, so that sums are exact, and far enough below for the client
 * library to read it exactly.
 */
export const MOST_COUNTED = 9e15;

// A hash with several counts lives as long as the last of its windows.
const KEEP = `local function keep(key, ends)
  if redis.call('PTTL', key) < ends - now then redis.call('PEXPIREAT', key, ends) end
end
`;

/**
 * The end of a window of a given length that begins now, or of the current day, week or month, by
 * the clock of Redis. A week begins on Monday; the first day of 1970 was a Thursday. For months, days
 * are counted from a first of March, which makes a leap day the last day of its year (Howard Hinnant,
 * "chrono-Compatible Low-Level Date Algorithms", civil_from_days).
 */
export const END_OF: string = `local floor = math.floor
local function monthEnd(day)
  local dayOfEra = (day + 719468) % 146097
  local year = floor((dayOfEra - floor(dayOfEra / 1460) + floor(dayOfEra / 36524) - floor(dayOfEra / 146096)) / 365)
  local dayOfYear = dayOfEra - (365 * year + floor(year / 4) - floor(year / 100))
  local month = floor((5 * dayOfYear + 2) / 153) + 1
  local nextMonth = floor((153 * month + 2) / 5)
  if month == 12 then
    local isLeap = (year + 1) % 4 == 0 and ((year + 1) % 100 ~= 0 or year + 1 == 400)
    nextMonth = isLeap and 366 or 365
  end
  return day + nextMonth - dayOfYear
end
local function endOf(window)
  if window == 'day' then return (floor(now / 86400000) + 1) * 86400000 end
  if window == 'week' then
    local day = floor(now / 86400000)
    return (day - (day + 3) % 7 + 7) * 86400000
  end
  if window == 'month' then return monthEnd(floor(now / 86400000)) * 86400000 end
  return now + window
end
`;

// A count can end later than a window that begins now. It was then begun under a limit with a
// longer window, or before the clock was set back. Gateways with that limit still use it, so it
// stays and continues to count (`longer`), and the shorter window is counted in separate fields,
// with the suffix `n`. Values that are not numbers count as 0, and sums are capped, so that no write
// can fail after an earlier write of the script.
const CURRENT = `local function read(field)
  local count = redis.call('HMGET', countsKey, field, field .. 'u')
  return tonumber(count[1] or 0) or 0, tonumber(count[2] or 0) or 0
end
local function current(field, window)
  local endOfNew = endOf(window)
  local longer, longerUsed
  local used, ends = read(field)
  if ends > endOfNew + ${SKEW_MS} then
    longer, longerUsed = field, used
    field = field .. 'n'
    used, ends = read(field)
    if ends > endOfNew + ${SKEW_MS} then ends = 0 end
  end
  local isNew = ends <= now
  if isNew then used, ends = 0, endOfNew end
  return {
    field = field, used = used, ends = ends, isNew = isNew,
    longer = longer, longerUsed = longerUsed, amount = 0
  }
end
local function sum(used, change) return math.max(0, math.min(used + change, ${MOST_COUNTED})) end
local function add(count, change)
  count.used = sum(count.used, change)
  if count.isNew then
    redis.call('HSET', countsKey, count.field, count.used, count.field .. 'u', count.ends)
    keep(countsKey, count.ends)
    count.isNew = false
  elseif change ~= 0 then
    redis.call('HSET', countsKey, count.field, count.used)
  end
  if count.longer and change ~= 0 then
    count.longerUsed = sum(count.longerUsed, change)
    redis.call('HSET', countsKey, count.longer, count.longerUsed)
  end
end
`;

/** Length of a window in milliseconds, or a period of the calendar. */
export type WindowLength = number | Budget["period"];

/** Counts requests of subjects that limit nothing else, as many as the limit has room for. */
export interface CountCall {
  readonly countsKey: string;
  readonly limit: number;
  readonly window: number;
  readonly wanted: number;
}

/**
 * Reply: number granted, now, 0, then the used part of the limit before and the end of its window,
 * which is negative if the window has just begun.
 */
export const COUNT: RedisScript<CountCall> = defineScript(
  "sallyportCount",
  { countsKey: "key", limit: "number", window: "number", wanted: "number" },
  () =>
    `${NOW}
local count = redis.call('HMGET', countsKey, 'r', 'ru')
local used, ends = tonumber(count[1] or 0) or 0, tonumber(count[2] or 0) or 0
if ends > now and ends <= now + window + ${SKEW_MS} then
  local granted = math.max(0, math.min(wanted, limit - used))
  if granted > 0 then redis.call('HSET', countsKey, 'r', used + granted) end
  return {granted, now, 0, used, ends}
end
local function endOf(window) return now + window end
${KEEP}${CURRENT}
count = current('r', window)
used, ends = count.used, count.isNew and -count.ends or count.ends
local granted = math.max(0, math.min(wanted, limit - used))
if granted > 0 then add(count, granted) end
return {granted, now, 0, used, ends}`,
);

/** Id of a call that only reads the status. */
export const READ_ONLY = "";
/** Id of a call that needs no concurrency slot. */
export const NO_SLOT = "-";

/** Acquires all limits of a subject, or none of them. It can also only read their status. */
export interface AcquireCall {
  readonly countsKey: string;
  readonly openKey: string;
  /** Id of the exchange, {@link READ_ONLY} or {@link NO_SLOT}. */
  readonly id: string;
  /** Lifetime of a lease. Milliseconds. */
  readonly lifeMs: number;
  /** Limit of concurrency; -1 for none. */
  readonly concurrency: number;
  readonly isObserved: boolean;
  readonly limits: readonly AskedLimit[];
}

interface AskedLimit {
  readonly field: string;
  readonly limit: number;
  /** Room that the limit must have; 0 for any. */
  readonly room: number;
  /** Amount to add. If there is less room, only as much as fits is added. */
  readonly amount: number;
  readonly window: WindowLength;
}

/**
 * Reply: 1 if acquired, now, exchanges open before, then for each limit the used part before and
 * the end of its window, which is negative if the window has just begun.
 */
export const ACQUIRE: RedisScript<AcquireCall> = defineScript(
  "sallyportAcquire",
  {
    countsKey: "key",
    openKey: "key",
    id: "text",
    lifeMs: "number",
    concurrency: "number",
    isObserved: "flag",
    limits: { field: "text", limit: "number", room: "number", amount: "number", window: "text" },
  },
  (each) =>
    `${NOW}${KEEP}${END_OF}${CURRENT}
local isReached, reply, counts = false, {1, now, 0}, {}
${each("limits")}
  local count = current(field, window)
  if room ~= 0 and count.used + room > limit then isReached = true end
  count.amount = isObserved and amount or math.min(amount, math.max(0, limit - count.used))
  counts[#counts + 1] = count
  reply[#reply + 1], reply[#reply + 2] = count.used, count.isNew and -count.ends or count.ends
end
if concurrency >= 0 then
  redis.call('ZREMRANGEBYSCORE', openKey, '-inf', now)
  reply[3] = redis.call('ZCARD', openKey)
  if id ~= '${NO_SLOT}' and reply[3] >= concurrency then isReached = true end
end
if id == '${READ_ONLY}' or (isReached and not isObserved) then
  reply[1] = 0
  return reply
end
for _, count in ipairs(counts) do add(count, count.amount) end
if concurrency >= 0 and id ~= '${NO_SLOT}' then
  redis.call('ZADD', openKey, now + lifeMs, id)
  redis.call('PEXPIRE', openKey, lifeMs)
end
return reply`,
);

/** Settles exchanges of a subject. */
export interface SettleCall {
  readonly countsKey: string;
  readonly openKey: string;
  /** Exchanges that are over. */
  readonly ids: readonly string[];
  readonly changes: readonly CountChange[];
}

interface CountChange {
  readonly field: string;
  readonly window: WindowLength;
  /**
   * End of the window in which the amount was reserved; 0 for the current window. If that window is
   * over, only the excess counts, in the current one.
   */
  readonly ends: number;
  /** Sum of used - reserved. */
  readonly change: number;
  /** The part of it that exceeds the reservations. */
  readonly excess: number;
  /**
   * True if the exchange that returns its amount had begun the window. It ends with it, unless other
   * exchanges have used it.
   */
  readonly endsWindow: boolean;
}

/**
 * Reply: now, then the used part of each count and the end of its current window; 0 without a
 * window.
 */
export const SETTLE_LIMITS: RedisScript<SettleCall> = defineScript(
  "sallyportSettle",
  {
    countsKey: "key",
    openKey: "key",
    ids: { id: "text" },
    changes: {
      field: "text",
      window: "text",
      ends: "number",
      change: "number",
      excess: "number",
      endsWindow: "flag",
    },
  },
  (each) =>
    `${NOW}${KEEP}${END_OF}${CURRENT}
local reply, counts, all = {now}, {}, {}
${each("changes")}
  counts[field] = counts[field] or current(field, window)
  all[#all + 1] = {counts[field], ends, change, excess, endsWindow}
end
${each("ids")} redis.call('ZREM', openKey, id) end
for _, entry in ipairs(all) do
  local count, ends, change, excess, endsWindow = unpack(entry)
  -- In another window than the current one, only the use beyond the reservation counts.
  local isSame = ends == 0 or ends == count.ends
  if not isSame then change = math.max(0, excess) end
  endsWindow = endsWindow and isSame and count.used + change <= 0
  if change > 0 or not count.isNew then add(count, change) end
  if endsWindow then
    redis.call('HSET', countsKey, count.field, 0, count.field .. 'u', 0)
    count.isNew, count.used = true, 0
  end
  reply[#reply + 1], reply[#reply + 2] = count.used, count.isNew and 0 or count.ends
end
return reply`,
);

/** Renews the leases of a subject's open exchanges. */
export interface RenewCall {
  readonly openKey: string;
  /** Lifetime of a lease. Milliseconds. */
  readonly lifeMs: number;
  readonly ids: readonly string[];
}

/** Reply: 1. */
export const RENEW: RedisScript<RenewCall> = defineScript(
  "sallyportRenew",
  { openKey: "key", lifeMs: "number", ids: { id: "text" } },
  (each) =>
    `${NOW}
${each("ids")} redis.call('ZADD', openKey, now + lifeMs, id) end
redis.call('PEXPIRE', openKey, lifeMs)
return 1`,
);

/** Joins the gateways that share limits, or renews the membership. */
export interface JoinCall {
  readonly gatewaysKey: string;
  readonly ratesKey: string;
  /** Id of this gateway. */
  readonly id: string;
  /** Lifetime of a membership. Milliseconds. */
  readonly lifeMs: number;
  readonly rate: number;
  /** Count gateways that have joined or renewed within this time; -1 for none. Milliseconds. */
  readonly sinceMs: number;
}

/**
 * Reply: the number of gateways, the sum of their rates, and the number of gateways that have
 * joined within that time, this one included.
 */
export const JOIN: RedisScript<JoinCall> = defineScript(
  "sallyportJoin",
  {
    gatewaysKey: "key",
    ratesKey: "key",
    id: "text",
    lifeMs: "number",
    rate: "number",
    sinceMs: "number",
  },
  () =>
    `${NOW}
for _, gone in ipairs(redis.call('ZRANGEBYSCORE', gatewaysKey, '-inf', now)) do
  redis.call('HDEL', ratesKey, gone)
end
redis.call('ZREMRANGEBYSCORE', gatewaysKey, '-inf', now)
redis.call('ZADD', gatewaysKey, now + lifeMs, id)
redis.call('HSET', ratesKey, id, rate)
local ids, sum = redis.call('ZRANGE', gatewaysKey, 0, -1), 0
for _, other in ipairs(redis.call('HMGET', ratesKey, unpack(ids))) do sum = sum + tonumber(other or 0) end
return {#ids, sum, redis.call('ZCOUNT', gatewaysKey, now + lifeMs - sinceMs, '+inf')}`,
);
