/**
 * Scripts by which limits are counted in Redis, with their keys, arguments and answers.
 *
 * @module
 */
import { type Budget, periodEnd } from "../config/units.ts";
import { ASK_AGAIN_MS, LIMIT_NAMES, limitsOf, type LimitSubject, SKEW_MS, type Standing } from "./limiter.ts";

/** Difference between the clocks of a gateway and of Redis within which both find the same periods. Milliseconds. */
const MAX_DRIFT_MS = 86_400_000;

// What all scripts share. Integers go out by %.0f: Lua would write large ones as 1e+14.
// A window is given by its length; a period by the time of the gateway and the ends of the periods around it, of which
// the next one by the clock of Redis is meant.
const COMMON = `local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local function int(x) return string.format('%.0f', x) end
local function ends(window)
  local gateway, periods = string.match(window, '(%d+) (.+)')
  if not gateway then return now + window end
  if math.abs(now - gateway) > ${MAX_DRIFT_MS} then error('the clocks of this gateway and of Redis differ by more than a day') end
  for last in string.gmatch(periods, '%d+') do
    if tonumber(last) > now then return tonumber(last) end
  end
end
local function load(key)
  local h = redis.call('HMGET', key, 'r', 'ru', 't', 'tu', 'b', 'bu')
  for n = 1, 6 do h[n] = tonumber(h[n] or 0) end
  for n = 1, 5, 2 do if h[n + 1] <= now then h[n] = 0; h[n + 1] = 0 end end
  return h
end
local function save(key, h)
  redis.call('HSET', key, 'r', int(h[1]), 'ru', int(h[2]), 't', int(h[3]), 'tu', int(h[4]), 'b', int(h[5]), 'bu', int(h[6]))
  redis.call('PEXPIREAT', key, int(math.max(h[2], h[4], h[6], now + 1000)))
end
`;

/**
 * Acquires a lease, or only looks. KEYS: see {@link toKeys}. ARGV: id, life of a lease (0: only look), then
 * {@link toArguments}. Answer: see {@link readAcquired}.
 */
export const ACQUIRE: string = `${COMMON}
local isRefused = false
local counts, reply = {}, {0}
for s = 1, #KEYS / 2 do
  local i = 3 + (s - 1) * 8
  local h = load(KEYS[2 * s - 1])
  for n = 1, 5, 2 do
    local last = ends(ARGV[i + n])
    if h[n + 1] == 0 or h[n + 1] > last + ${SKEW_MS} then h[n] = 0; h[n + 1] = last end
  end
  redis.call('ZREMRANGEBYSCORE', KEYS[2 * s], '-inf', int(now))
  local open = redis.call('ZCARD', KEYS[2 * s])
  local function reached(used, limit) return tonumber(limit) >= 0 and used >= tonumber(limit) end
  local isReached = reached(h[1], ARGV[i]) or reached(h[3], ARGV[i + 2]) or reached(h[5], ARGV[i + 4]) or reached(open, ARGV[i + 6])
  if isReached and ARGV[i + 7] == '0' then isRefused = true end
  counts[s] = h
  for _, value in ipairs({h[1], h[2] - now, h[3], h[4] - now, h[5], h[6] - now, open, ${ASK_AGAIN_MS}}) do reply[#reply + 1] = value end
end
if isRefused or ARGV[2] == '0' then return reply end
reply[1] = 1
for s = 1, #KEYS / 2 do
  counts[s][1] = counts[s][1] + 1
  save(KEYS[2 * s - 1], counts[s])
  redis.call('ZADD', KEYS[2 * s], int(now + ARGV[2]), ARGV[1])
  redis.call('PEXPIRE', KEYS[2 * s], ARGV[2])
end
return reply`;

/**
 * Releases exchanges and charges their tokens. KEYS: see {@link toKeys}. ARGV: ids, tokens, then
 * {@link toArguments}. Answer: 1.
 */
export const CHARGE: string = `${COMMON}
local counts = {}
if ARGV[2] ~= '0' then
  for s = 1, #KEYS / 2 do
    local h = load(KEYS[2 * s - 1])
    for n = 3, 5, 2 do
      if h[n + 1] == 0 then h[n + 1] = ends(ARGV[3 + (s - 1) * 8 + n]) end
      h[n] = math.min(h[n] + ARGV[2], ${Number.MAX_SAFE_INTEGER})
    end
    counts[s] = h
  end
end
for s = 1, #KEYS / 2 do
  for id in string.gmatch(ARGV[1], '%S+') do redis.call('ZREM', KEYS[2 * s], id) end
  if counts[s] then save(KEYS[2 * s - 1], counts[s]) end
end
return 1`;

/**
 * Renews leases and a gateway's membership. KEYS: the set of gateways, then sets of open exchanges. ARGV: id of this
 * gateway, life of a lease, then the exchange in each set. Answer: the number of gateways.
 */
export const RENEW: string = `${COMMON}
redis.call('ZADD', KEYS[1], int(now + ARGV[2]), ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', int(now))
for n = 2, #KEYS do
  redis.call('ZADD', KEYS[n], int(now + ARGV[2]), ARGV[n + 1])
  redis.call('PEXPIRE', KEYS[n], ARGV[2])
end
return redis.call('ZCARD', KEYS[1])`;

/** Returns the key of a subject's open exchanges. */
export const toOpenKey = (subject: string): string => `sallyport:open:${subject}`;

/** Returns the keys of a script: for each subject its counts and its open exchanges. */
export function toKeys(subjects: readonly LimitSubject[]): string[] {
  return subjects.flatMap(({ name }) => [`sallyport:counts:${name}`, toOpenKey(name)]);
}

/**
 * Returns the arguments of a script: for each subject 8, which are requests, window, tokens, window, budget, period,
 * concurrency, observe; -1 for no limit.
 *
 * @param subjects The subjects
 * @param now Wall clock of this gateway, milliseconds since 1970
 */
export function toArguments(subjects: readonly LimitSubject[], now: number): (string | number)[] {
  return subjects.flatMap(({ limits: { requests, tokens, budget, concurrency, mode } }) => [
    ...[requests?.limit ?? -1, requests?.windowMs ?? 0, tokens?.limit ?? -1, tokens?.windowMs ?? 0],
    ...[budget?.limit ?? -1, budget === undefined ? 0 : toPeriods(budget.period, now)],
    ...[concurrency ?? -1, mode === "observe" ? 1 : 0],
  ]);
}

/** Lists this gateway's time, and the ends of all periods that may be under way by the clock of Redis. */
function toPeriods(period: Budget["period"], now: number): string {
  const ends = [now - MAX_DRIFT_MS, now, now + MAX_DRIFT_MS].map((time) => periodEnd(period, time));
  return [now, ...ends].join(" ");
}

/** Values of each subject in the answer of {@link ACQUIRE}: of each limit the amount used and the time to its reset. */
const VALUES = 2 * LIMIT_NAMES.length;

/**
 * Reads the answer of {@link ACQUIRE}: 1 if the exchange is admitted, else 0, then the state of each subject's limits
 * before.
 *
 * @param answer The answer
 * @param subjects The subjects that were asked for
 */
export function readAcquired(
  answer: unknown,
  subjects: readonly LimitSubject[],
): { isAdmitted: boolean; standings: Standing[] } {
  const isSound = Array.isArray(answer) && answer.length === 1 + subjects.length * VALUES &&
    answer.every((value) => typeof value === "number");
  if (!isSound) throw new Error("no counts");
  const [isAdmitted, ...values]: number[] = answer;
  const standings = subjects.flatMap((subject, index) =>
    limitsOf(subject).map(([name, limit]) => {
      const first = index * VALUES + 2 * LIMIT_NAMES.indexOf(name);
      const [used = 0, resetMs = 0] = values.slice(first, first + 2);
      return { subject, name, limit, used, resetMs };
    })
  );
  return { isAdmitted: isAdmitted === 1, standings };
}

/** Reads the answer of the other scripts, a count of at least 1. */
export function readCount(answer: unknown): number {
  if (Number.isInteger(answer) && Number(answer) >= 1) return Number(answer);
  throw new Error("no count");
}
