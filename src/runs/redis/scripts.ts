/**
 * Scripts that count runs in Redis. Each script uses only the keys of one gateway key, which are in
 * one slot of a Cluster: a hash of the runs by id, their ids in the order of their last use, and the
 * open calls by the time when they expire.
 *
 * @module
 */
import { defineScript, NOW, type RedisScript } from "../../storage/redis_script.ts";
import { MAX_ANCESTORS, MIN_UNUSED_MS } from "../run_registry.ts";

/** The names of the data of one gateway key. */
export interface RunKeys {
  /** Hash of id -> run, see {@link RUN}. */
  readonly runsKey: string;
  /** Ids by the time of their last use. */
  readonly usedKey: string;
  /** Open calls by the time when they expire. */
  readonly openKey: string;
}

/** Returns the names of the data of a gateway key. They have the hash tag of its limits. */
export function toRunKeys(keyId: string): RunKeys {
  const prefix = `sallyport:{key:${keyId}}:runs`;
  return { runsKey: prefix, usedKey: `${prefix}:used`, openKey: `${prefix}:open` };
}

/** Stands for a limit that is not set. */
export const NO_LIMIT = -1;

const KEYS = { runsKey: "key", usedKey: "key", openKey: "key" } as const;

/**
 * Reads and writes a run: budget, calls, spent, reserved, called, time of its opening, 1 if it is
 * stopped, its parent or nothing, and, once it has sent a body that is counted, how many times in a
 * row, and its digest. They are separated by spaces, which no id contains. Values that are not
 * numbers count as 0.
 */
const RUN = `local function read(id)
  local text = redis.call('HGET', runsKey, id)
  if not text then return nil end
  local words = {}
  for word in string.gmatch(text .. ' ', '([^ ]*) ') do words[#words + 1] = word end
  local function number(index) return tonumber(words[index]) or 0 end
  return {
    id = id, budget = number(1), calls = number(2), spent = number(3), reserved = number(4),
    called = number(5), openedAt = number(6), isStopped = words[7] == '1',
    parent = words[8] ~= '' and words[8] or nil, repeats = number(9), lastBody = words[10]
  }
end
local function write(run)
  local text = string.format('%.0f %.0f %.0f %.0f %.0f %.0f %s %s', run.budget, run.calls, run.spent,
    run.reserved, run.called, run.openedAt, run.isStopped and '1' or '0', run.parent or '')
  if run.lastBody then text = string.format('%s %.0f %s', text, run.repeats, run.lastBody) end
  redis.call('HSET', runsKey, run.id, text)
end
local function above(run)
  local ancestors, next = {}, run.parent
  while next and #ancestors <= ${MAX_ANCESTORS} do
    local found = read(next)
    if not found then break end
    ancestors[#ancestors + 1] = found
    next = found.parent
  end
  return ancestors
end
local function isRunStopped(run)
  local isStopped = run.isStopped
  for _, each in ipairs(above(run)) do isStopped = isStopped or each.isStopped end
  return isStopped
end
`;

/**
 * Forgets idle runs. Those below a stopped run that is not idle count as used, so that a stop is
 * remembered for them as long as one of them calls.
 */
const FORGET_IDLE = `local function forget(unused)
  redis.call('HDEL', runsKey, unused)
  redis.call('ZREM', usedKey, unused)
end
local function keptWith(idle)
  local chain, found = {idle}, read(idle)
  for _, each in ipairs(found and above(found) or {}) do
    local usedAt = each.isStopped and redis.call('ZSCORE', usedKey, each.id)
    if usedAt and tonumber(usedAt) > now - idleMs then return chain end
    chain[#chain + 1] = each.id
  end
  return {}
end
for _, idle in ipairs(redis.call('ZRANGEBYSCORE', usedKey, '-inf', now - idleMs)) do
  local kept = keptWith(idle)
  if #kept == 0 then forget(idle) end
  for index, used in ipairs(kept) do redis.call('ZADD', usedKey, 'XX', now + index - 1, used) end
end
`;

/** Defines functions of the parts below. */
const LIMITS = `local function narrow(one, other)
  if one < 0 or other < 0 then return math.max(one, other) end
  return math.min(one, other)
end
local function create(name, budget, calls)
  return {
    id = name, budget = budget, calls = calls, spent = 0, reserved = 0, called = 0,
    openedAt = now, repeats = 0, isNew = true
  }
end
`;

/** Finds the run of a call and the runs above it, and refuses a parent that it cannot have. */
const FIND_CHAIN = `local run = read(id) or create(id, ${NO_LIMIT}, ${NO_LIMIT})
local ancestors, isJoining
if parent ~= '' then
  if parent == id then return {'cycle', 0} end
  if run.parent and run.parent ~= parent then return {'parent', 0} end
  local next = read(parent) or create(parent, parentBudget, parentCalls)
  ancestors = above(next)
  for _, each in ipairs(ancestors) do if each.id == id then return {'cycle', 0} end end
  if #ancestors >= ${MAX_ANCESTORS} then return {'depth', 0} end
  table.insert(ancestors, 1, next)
  isJoining = not run.parent
  run.parent = parent
else
  ancestors = above(run)
end
`;

/**
 * Makes room for new runs: those that were not used for the longest time are forgotten, and those
 * below a stopped run last.
 */
const MAKE_ROOM = `local chain, isInChain, missing = {run}, {[id] = true}, run.isNew and 1 or 0
for _, each in ipairs(ancestors) do
  chain[#chain + 1], isInChain[each.id] = each, true
  if each.isNew then missing = missing + 1 end
end
if #chain > ${MAX_ANCESTORS} + 1 then return {'depth', 0} end

local surplus = missing > 0 and redis.call('HLEN', runsKey) + missing - maxPerKey or 0
local last, oldest = {}, now - ${MIN_UNUSED_MS}
for _, unused in ipairs(surplus > 0 and redis.call('ZRANGEBYSCORE', usedKey, '-inf', oldest) or {}) do
  if surplus <= 0 then break end
  local found = not isInChain[unused] and read(unused)
  if found and not found.isStopped then
    if isRunStopped(found) then
      last[#last + 1] = unused
    else
      forget(unused)
      surplus = surplus - 1
    end
  end
end
for _, unused in ipairs(last) do
  if surplus <= 0 then break end
  forget(unused)
  surplus = surplus - 1
end
if surplus > 0 then return {'full', 0} end
`;

/** Counts the body of a call in its own run. A retry changes nothing. */
const COUNT_BODY = `local repeats = 0
if body ~= '' then
  if run.lastBody == body then repeats = run.repeats end
  if not isRetry then
    repeats = repeats + 1
    run.lastBody, run.repeats = body, repeats
  end
end
`;

/**
 * Defines the refusal of a call. A run that joins a parent brings along what it has used. The end of
 * a call that is open now corrects it only in the run itself, so all that the call has reserved
 * counts above it.
 */
const DECIDE = `if isJoining then
  for _, each in ipairs(ancestors) do
    each.spent = each.spent + run.spent + run.reserved
    each.called = each.called + run.called
  end
end
run.budget, run.calls = narrow(run.budget, budget), narrow(run.calls, calls)
local function reservedIn(each)
  if isFree then return 0 end
  if isStrict or each.budget < 0 then return spend end
  return math.min(spend, each.budget)
end
local function refusal()
  for index, each in ipairs(chain) do
    if each.isStopped then return {'stopped', index > 1 and 1 or 0} end
  end
  if isFree then return nil end
  for index, each in ipairs(chain) do
    local isAbove = index > 1 and 1 or 0
    if each.calls >= 0 and each.called >= each.calls then return {'calls', isAbove} end
    if each.budget >= 0 then
      if isUnpriced then return {'unpriced', isAbove} end
      local room = math.max(1, reservedIn(each))
      if each.spent + each.reserved + room > each.budget then return {'budget', isAbove} end
    end
  end
  if mostRepeats >= 0 and repeats > mostRepeats then return {'repeats', 0, repeats} end
end
`;

/** A call of a run. */
export interface AdmitCall extends RunKeys {
  /** Name of the open call; it begins with a unique id. */
  readonly open: string;
  readonly id: string;
  /** Empty for none. */
  readonly parent: string;
  /** {@link NO_LIMIT} for none. */
  readonly budget: number;
  /** {@link NO_LIMIT} for none. */
  readonly calls: number;
  /** Limits of a parent that is opened with the call. */
  readonly parentBudget: number;
  readonly parentCalls: number;
  readonly spend: number;
  readonly isUnpriced: boolean;
  readonly isFree: boolean;
  readonly isStrict: boolean;
  readonly idleMs: number;
  readonly maxPerKey: number;
  /** Time for which an open call is remembered. Milliseconds. */
  readonly openMs: number;
  /** Digest of its body; empty if it is not counted. */
  readonly body: string;
  readonly isRetry: boolean;
  /** {@link NO_LIMIT} for none. */
  readonly mostRepeats: number;
}

/**
 * Reply: the refusal, 1 if a run above refuses, and the repeats of the body if they are the reason;
 * or an empty text and the repeats, followed by the id of each run of the chain and the money that
 * is reserved there.
 */
export const ADMIT: RedisScript<AdmitCall> = defineScript(
  "sallyportRunAdmit",
  {
    ...KEYS,
    open: "text",
    id: "text",
    parent: "text",
    budget: "number",
    calls: "number",
    parentBudget: "number",
    parentCalls: "number",
    spend: "number",
    isUnpriced: "flag",
    isFree: "flag",
    isStrict: "flag",
    idleMs: "number",
    maxPerKey: "number",
    openMs: "number",
    body: "text",
    isRetry: "flag",
    mostRepeats: "number",
  },
  () =>
    `${NOW}${RUN}${FORGET_IDLE}${LIMITS}${FIND_CHAIN}${MAKE_ROOM}${COUNT_BODY}${DECIDE}
local refused = refusal()
local reply = refused or {'', repeats}
for index, each in ipairs(chain) do
  if not refused then
    local reserved = reservedIn(each)
    each.reserved = each.reserved + reserved
    if not isFree then each.called = each.called + 1 end
    reply[#reply + 1], reply[#reply + 2] = each.id, reserved
  end
  write(each)
  -- A run is never forgotten before the runs below it.
  redis.call('ZADD', usedKey, now + index - 1, each.id)
end
redis.call('PEXPIRE', runsKey, idleMs)
redis.call('PEXPIRE', usedKey, idleMs)
if not refused then
  redis.call('ZREMRANGEBYSCORE', openKey, '-inf', now - 1)
  redis.call('ZADD', openKey, now + openMs, open)
  redis.call('PEXPIRE', openKey, openMs)
end
return reply`,
);

/** The end of a call. */
export interface SettleCall extends Omit<RunKeys, "usedKey"> {
  readonly open: string;
  readonly spend: number;
  readonly isUndone: boolean;
  readonly counted: readonly { readonly id: string; readonly reserved: number }[];
}

/** Reply: 1. */
export const SETTLE_RUNS: RedisScript<SettleCall> = defineScript(
  "sallyportRunSettle",
  {
    runsKey: "key",
    openKey: "key",
    open: "text",
    spend: "number",
    isUndone: "flag",
    counted: { id: "text", reserved: "number" },
  },
  (each) =>
    `${RUN}
${each("counted")}
  local run = read(id)
  if run then
    run.reserved = math.max(0, run.reserved - reserved)
    run.spent = math.max(0, run.spent + spend)
    if isUndone then run.called = math.max(0, run.called - 1) end
    write(run)
  end
end
redis.call('ZREM', openKey, open)
return 1`,
);

/** A correction of a charge. */
export interface CorrectCall extends Pick<RunKeys, "runsKey"> {
  readonly id: string;
  readonly change: number;
}

/** Reply: 1. */
export const CORRECT: RedisScript<CorrectCall> = defineScript(
  "sallyportRunCorrect",
  { runsKey: "key", id: "text", change: "number" },
  () =>
    `${RUN}
local run = read(id)
if not run then return 1 end
local chain = above(run)
chain[#chain + 1] = run
for _, each in ipairs(chain) do
  each.spent = math.max(0, each.spent + change)
  write(each)
end
return 1`,
);

/** Stops a run. */
export interface StopCall extends Omit<RunKeys, "openKey"> {
  readonly id: string;
  /** Time after its last use until a run is forgotten. Milliseconds. */
  readonly idleMs: number;
}

/** Reply: 1; 0 if there is no such run. */
export const STOP: RedisScript<StopCall> = defineScript(
  "sallyportRunStop",
  { runsKey: "key", usedKey: "key", id: "text", idleMs: "number" },
  () =>
    `${NOW}${RUN}${FORGET_IDLE}
local run = read(id)
if not run then return 0 end
run.isStopped = true
write(run)
redis.call('ZADD', usedKey, now, id)
for index, each in ipairs(above(run)) do redis.call('ZADD', usedKey, now + index, each.id) end
redis.call('PEXPIRE', runsKey, idleMs)
redis.call('PEXPIRE', usedKey, idleMs)
return 1`,
);

/** Asks whether the runs of open calls are stopped, and can count the calls as used. */
export interface WatchCall extends RunKeys {
  readonly isRenewal: boolean;
  /** Time for which an open call is remembered. Milliseconds. */
  readonly openMs: number;
  /** Time after its last use until a run is forgotten. Milliseconds. */
  readonly idleMs: number;
  /** The open calls; empty if they are not renewed. */
  readonly open: readonly string[];
  /** The runs that they count in, each with the most runs below it in a chain. */
  readonly runs: readonly { readonly id: string; readonly below: number }[];
}

/**
 * Reply: for each run, 1 if it or a run above it was stopped. A run can have got a parent after the
 * call began.
 */
export const WATCH: RedisScript<WatchCall> = defineScript(
  "sallyportRunWatch",
  {
    ...KEYS,
    isRenewal: "flag",
    openMs: "number",
    idleMs: "number",
    open: { call: "text" },
    runs: { id: "text", below: "number" },
  },
  (each) =>
    `${NOW}${RUN}
local reply = {}
${each("open")}
  redis.call('ZADD', openKey, now + openMs, call)
  redis.call('PEXPIRE', openKey, openMs)
end
${each("runs")}
  local run = read(id)
  reply[#reply + 1] = run and isRunStopped(run) and 1 or 0
  if run and isRenewal then redis.call('ZADD', usedKey, 'XX', now + below, id) end
end
if isRenewal then
  redis.call('PEXPIRE', runsKey, idleMs)
  redis.call('PEXPIRE', usedKey, idleMs)
end
return reply`,
);

/** Lists runs. */
export interface ListCall extends RunKeys {
  /** Time after its last use until a run is forgotten. Milliseconds. */
  readonly idleMs: number;
}

/** Reply: id, run and last use of each run; then an empty text, and the names of the open calls. */
export const LIST: RedisScript<ListCall> = defineScript(
  "sallyportRunList",
  { ...KEYS, idleMs: "number" },
  () =>
    `${NOW}${RUN}${FORGET_IDLE}
local reply = {}
local used = redis.call('ZREVRANGE', usedKey, 0, -1, 'WITHSCORES')
for index = 1, #used, 2 do
  local text = redis.call('HGET', runsKey, used[index])
  if text then
    reply[#reply + 1], reply[#reply + 2], reply[#reply + 3] = used[index], text, used[index + 1]
  end
end
reply[#reply + 1] = ''
for _, open in ipairs(redis.call('ZRANGEBYSCORE', openKey, now, '+inf')) do
  reply[#reply + 1] = open
end
return reply`,
);
