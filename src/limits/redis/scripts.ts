/**
 * Scripts that count limits in Redis. Each of them touches the keys of one subject, or
 * those of the gateways: one slot of a Cluster.
 *
 * @module
 */
import { SKEW_MS } from "../limiter.ts";

/**
 * The largest count. Below 2^53, so that sums are exact, and so far below that the client library
 * reads it exactly.
 */
export const MOST_COUNTED = 9e15;

const NOW = `local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
`;

// A hash that holds several counts lives as long as the last of its windows.
const KEEP = `local function keep(key, ends)
  if redis.call('PTTL', key) < ends - now then redis.call('PEXPIREAT', key, ends) end
end
`;

/**
 * The end of a window that begins now, given by its length, or of the day or month by the clock of
 * Redis. Days are counted from a first of March, which makes a leap day the last of its year
 * (Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms", civil_from_days).
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
  if window == 'month' then return monthEnd(floor(now / 86400000)) * 86400000 end
  return now + window
end
`;

// A count that ends later than a window that begins now was begun under a limit with a longer
// window, or before the clock was set back. Gateways with that limit still use it: it stays and
// goes on counting, and the shorter window is counted in separate fields. Values that are no
// numbers count as 0, and sums are capped, so that no write is refused after another one was made.
const CURRENT = `local function read(field)
  local count = redis.call('HMGET', KEYS[1], field, field .. 'u')
  return tonumber(count[1] or 0) or 0, tonumber(count[2] or 0) or 0
end
local function current(field, window)
  local last, long, longUsed = endOf(window)
  local used, ends = read(field)
  if ends > last + ${SKEW_MS} then
    long, longUsed, field = field, used, field .. 'n'
    used, ends = read(field)
    if ends > last + ${SKEW_MS} then ends = 0 end
  end
  local isNew = ends <= now
  if isNew then used, ends = 0, last end
  return {field = field, used = used, ends = ends, isNew = isNew, long = long, longUsed = longUsed, amount = 0}
end
local function sum(used, change) return math.max(0, math.min(used + change, ${MOST_COUNTED})) end
local function add(count, change)
  count.used = sum(count.used, change)
  if count.isNew then
    redis.call('HSET', KEYS[1], count.field, count.used, count.field .. 'u', count.ends)
    keep(KEYS[1], count.ends)
    count.isNew = false
  elseif change ~= 0 then
    redis.call('HSET', KEYS[1], count.field, count.used)
  end
  if count.long and change ~= 0 then
    count.longUsed = sum(count.longUsed, change)
    redis.call('HSET', KEYS[1], count.long, count.longUsed)
  end
end
`;

/**
 * Counts requests, for subjects that limit nothing else: all that are wanted, or as many as the
 * limit has room for. KEYS: counts. ARGV: limit, window, number wanted. Answer: number granted,
 * now, 0, and before that the used part of the limit and the end of its window, which is negative
 * if the window has just begun.
 */
export const COUNT: string = `${NOW}
local limit, window, wanted = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local count = redis.call('HMGET', KEYS[1], 'r', 'ru')
local used, ends = tonumber(count[1] or 0) or 0, tonumber(count[2] or 0) or 0
if ends > now and ends <= now + window + ${SKEW_MS} then
  local granted = math.max(0, math.min(wanted, limit - used))
  if granted > 0 then redis.call('HSET', KEYS[1], 'r', used + granted) end
  return {granted, now, 0, used, ends}
end
local function endOf(window) return now + window end
${KEEP}${CURRENT}
count = current('r', window)
used, ends = count.used, count.isNew and -count.ends or count.ends
local granted = math.max(0, math.min(wanted, limit - used))
if granted > 0 then add(count, granted) end
return {granted, now, 0, used, ends}`;

/**
 * Takes from all limits of a subject or from none; or only looks. KEYS: counts, open exchanges.
 * ARGV: id (empty: only look, `-`: takes no place), life of a lease, limit of concurrency (-1:
 * none), 1 to observe; then of each other limit its field, the limit, the room that it has to have
 * (0: any), the amount to take, of which as much is taken as there is room for, its window. Answer:
 * 1 if taken, now, exchanges open before, then of each other limit the used part before and the end
 * of its window, which is negative if the window has just begun.
 */
export const ACQUIRE: string = `${NOW}${KEEP}${END_OF}${CURRENT}
local life, concurrency, isObserved, isReached = tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4] == '1', false
local reply, counts = {1, now, 0}, {}
for i = 5, #ARGV, 5 do
  local limit, room, amount = tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2]), tonumber(ARGV[i + 3])
  local count = current(ARGV[i], ARGV[i + 4])
  if room ~= 0 and count.used + room > limit then isReached = true end
  count.amount = isObserved and amount or math.min(amount, math.max(0, limit - count.used))
  counts[#counts + 1] = count
  reply[#reply + 1], reply[#reply + 2] = count.used, count.isNew and -count.ends or count.ends
end
if concurrency >= 0 then
  redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now)
  reply[3] = redis.call('ZCARD', KEYS[2])
  if ARGV[1] ~= '-' and reply[3] >= concurrency then isReached = true end
end
if ARGV[1] == '' or (isReached and not isObserved) then
  reply[1] = 0
  return reply
end
for _, count in ipairs(counts) do add(count, count.amount) end
if concurrency >= 0 and ARGV[1] ~= '-' then
  redis.call('ZADD', KEYS[2], now + life, ARGV[1])
  redis.call('PEXPIRE', KEYS[2], life)
end
return reply`;

/**
 * Settles exchanges of a subject. KEYS: counts, open exchanges. ARGV: number of exchanges that are
 * over, their ids; then of each count its field, its window, the end of the window in which was
 * reserved (0: that of now), the sum of used - reserved, and of that what exceeds the reservations.
 * If that window is over, only the excess counts, in the current one. The excess is -1 where a
 * refused exchange gives back what it took, and had begun the window: then it is none. Answer: now,
 * then the used part of each count and the end of its current window, 0 where there is none.
 */
export const SETTLE: string = `${NOW}${KEEP}${END_OF}${CURRENT}
local reply, ids, counts, changes = {now}, tonumber(ARGV[1]), {}, {}
for i = 2 + ids, #ARGV, 5 do
  local field = ARGV[i]
  counts[field] = counts[field] or current(field, ARGV[i + 1])
  local reserved, change, excess = tonumber(ARGV[i + 2]), tonumber(ARGV[i + 3]), tonumber(ARGV[i + 4])
  changes[#changes + 1] = {counts[field], reserved + 0, change + 0, excess + 0}
end
for i = 2, 1 + ids do redis.call('ZREM', KEYS[2], ARGV[i]) end
for _, entry in ipairs(changes) do
  local count, reserved, change, excess = unpack(entry)
  local isSame = reserved == 0 or reserved == count.ends
  if not isSame then change = math.max(0, excess) end
  local isUndone = isSame and excess == -1 and count.used + change <= 0
  if change > 0 or not count.isNew then add(count, change) end
  if isUndone then
    redis.call('HSET', KEYS[1], count.field, 0, count.field .. 'u', 0)
    count.isNew, count.used = true, 0
  end
  reply[#reply + 1], reply[#reply + 2] = count.used, count.isNew and 0 or count.ends
end
return reply`;

/** Renews leases. KEYS: a subject's open exchanges. ARGV: life of a lease, ids. Answer: 1. */
export const RENEW: string = `${NOW}
for i = 2, #ARGV do redis.call('ZADD', KEYS[1], now + ARGV[1], ARGV[i]) end
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return 1`;

/**
 * Joins the gateways that share limits, or stays one of them. KEYS: the gateways, their rates.
 * ARGV: id of this gateway, life of a membership, its rate, a time in milliseconds. Answer: the
 * number of gateways, the sum of their rates, and the number of gateways that have joined within
 * that time, this one included.
 */
export const JOIN: string = `${NOW}
for _, id in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now)) do redis.call('HDEL', KEYS[2], id) end
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
redis.call('ZADD', KEYS[1], now + ARGV[2], ARGV[1])
redis.call('HSET', KEYS[2], ARGV[1], ARGV[3])
local ids, sum = redis.call('ZRANGE', KEYS[1], 0, -1), 0
for _, rate in ipairs(redis.call('HMGET', KEYS[2], unpack(ids))) do sum = sum + tonumber(rate or 0) end
return {#ids, sum, redis.call('ZCOUNT', KEYS[1], now + ARGV[2] - ARGV[4], '+inf')}`;
