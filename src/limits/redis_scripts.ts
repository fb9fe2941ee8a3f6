/**
 * Scripts by which limits are counted in Redis. Each of them touches the keys of one subject, or those of the gateways:
 * one slot of a Cluster.
 *
 * @module
 */
import { SKEW_MS } from "./limiter.ts";

const NOW = `local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
`;

// A hash that holds several counts lives as long as the last of its windows.
const KEEP = `local function keep(key, ends)
  if redis.call('PTTL', key) < ends - now then redis.call('PEXPIREAT', key, ends) end
end
`;

/**
 * The end of a window that begins now, given by its length, or of the day or month by the clock of Redis. Days are counted
 * from a first of March, which makes a leap day the last of its year (Howard Hinnant, "chrono-Compatible Low-Level Date
 * Algorithms", civil_from_days).
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

// A window that ends later than one that begins now was begun under another limit: it begins anew.
const CURRENT = `local function current(used, ends, window)
  local last = endOf(window)
  ends = tonumber(ends or 0)
  if ends <= now or ends > last + ${SKEW_MS} then return 0, last, true end
  return tonumber(used or 0), ends, false
end
`;

/**
 * Counts requests, for subjects that limit nothing else: all that are wanted, or as many as the limit has room for.
 * KEYS: counts. ARGV: limit, window, number wanted. Answer: number granted, now, 0, and before that the used part of the
 * limit and the end of its window, which is negative if the window has just begun.
 */
export const COUNT: string = `${NOW}${KEEP}
local limit, window, wanted = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local count = redis.call('HMGET', KEYS[1], 'r', 'ru')
local used, ends = tonumber(count[1] or 0), tonumber(count[2] or 0)
local granted = math.max(0, math.min(wanted, limit - used))
if ends <= now or ends > now + window + ${SKEW_MS} then
  used, ends, granted = 0, now + window, math.min(wanted, limit)
  redis.call('HSET', KEYS[1], 'r', granted, 'ru', ends)
  keep(KEYS[1], ends)
  ends = -ends
elseif granted > 0 then
  redis.call('HINCRBY', KEYS[1], 'r', granted)
end
return {granted, now, 0, used, ends}`;

/**
 * Takes from all limits of a subject or from none; or only looks. KEYS: counts, open exchanges. ARGV: id (empty: only
 * look, `-`: takes no place), life of a lease, limit of concurrency (-1: none), 1 to observe; then of each other limit its field, the limit,
 * the room that it has to have (0: any), the amount to take, of which as much is taken as there is room for, its window.
 * Answer: 1 if taken, now, exchanges open before, then of each other limit the used part before and the end of its
 * window, which is negative if the window has just begun.
 */
export const ACQUIRE: string = `${NOW}${KEEP}${END_OF}${CURRENT}
local concurrency, isReached = tonumber(ARGV[3]), false
local reply = {1, now, 0}
for i = 5, #ARGV, 5 do
  local count = redis.call('HMGET', KEYS[1], ARGV[i], ARGV[i] .. 'u')
  local used, ends, isNew = current(count[1], count[2], ARGV[i + 4])
  if ARGV[i + 2] ~= '0' and used + ARGV[i + 2] > tonumber(ARGV[i + 1]) then isReached = true end
  reply[#reply + 1], reply[#reply + 2] = used, isNew and -ends or ends
end
if concurrency >= 0 then
  redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now)
  reply[3] = redis.call('ZCARD', KEYS[2])
  if ARGV[1] ~= '-' and reply[3] >= concurrency then isReached = true end
end
if ARGV[1] == '' or (isReached and ARGV[4] ~= '1') then
  reply[1] = 0
  return reply
end
local at = 4
for i = 5, #ARGV, 5 do
  local used, ends, amount = reply[at], -reply[at + 1], ARGV[i + 3]
  if ARGV[4] ~= '1' and amount - ARGV[i + 1] + used > 0 then amount = math.max(0, ARGV[i + 1] - used) end
  if ends > 0 then
    redis.call('HSET', KEYS[1], ARGV[i], amount, ARGV[i] .. 'u', ends)
    keep(KEYS[1], ends)
  elseif tonumber(amount) ~= 0 then
    redis.call('HINCRBY', KEYS[1], ARGV[i], amount)
  end
  at = at + 2
end
if concurrency >= 0 and ARGV[1] ~= '-' then
  redis.call('ZADD', KEYS[2], now + ARGV[2], ARGV[1])
  redis.call('PEXPIRE', KEYS[2], ARGV[2])
end
return reply`;

/**
 * Settles exchanges of a subject. KEYS: counts, open exchanges. ARGV: number of exchanges that are over, their ids; then
 * of each count its field, its window, the end of the window in which was reserved (0: that of now), the sum of used -
 * reserved, and of that what exceeds the reservations. If that window is over, only the excess counts, in the current
 * one. The excess is -1 where a refused exchange gives back what it took, and had begun the window: then it is none.
 * Answer: 1, then the end of the current window of each count.
 */
export const SETTLE: string = `${NOW}${KEEP}${END_OF}${CURRENT}
local reply, ids = {1}, tonumber(ARGV[1])
for i = 2 + ids, #ARGV, 5 do
  local field, reserved = ARGV[i], tonumber(ARGV[i + 2])
  local count = redis.call('HMGET', KEYS[1], field, field .. 'u')
  local used, ends, isNew = current(count[1], count[2], ARGV[i + 1])
  local change, excess = tonumber(ARGV[i + 3]), tonumber(ARGV[i + 4])
  local isSame = reserved == 0 or reserved == ends
  if not isSame then change = math.max(0, excess) end
  if isSame and excess == -1 and used + change <= 0 then
    ends = 0
    redis.call('HSET', KEYS[1], field, 0, field .. 'u', 0)
  elseif isNew and change > 0 then
    redis.call('HSET', KEYS[1], field, change, field .. 'u', ends)
    keep(KEYS[1], ends)
  elseif change ~= 0 and not isNew then
    redis.call('HINCRBY', KEYS[1], field, math.max(change, -used))
  end
  reply[#reply + 1] = ends
end
for i = 2, 1 + ids do redis.call('ZREM', KEYS[2], ARGV[i]) end
return reply`;

/** Renews leases. KEYS: a subject's open exchanges. ARGV: life of a lease, ids. Answer: 1. */
export const RENEW: string = `${NOW}
for i = 2, #ARGV do redis.call('ZADD', KEYS[1], now + ARGV[1], ARGV[i]) end
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return 1`;

/**
 * Joins the gateways that share limits, or stays one of them. KEYS: the gateways, their rates. ARGV: id of this gateway,
 * life of a membership, its rate. Answer: the number of gateways, and the sum of their rates.
 */
export const JOIN: string = `${NOW}
for _, id in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now)) do redis.call('HDEL', KEYS[2], id) end
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
redis.call('ZADD', KEYS[1], now + ARGV[2], ARGV[1])
redis.call('HSET', KEYS[2], ARGV[1], ARGV[3])
local ids, sum = redis.call('ZRANGE', KEYS[1], 0, -1), 0
for _, rate in ipairs(redis.call('HMGET', KEYS[2], unpack(ids))) do sum = sum + tonumber(rate or 0) end
return {#ids, sum}`;
