/**
 * Scripts of the recordings in Redis. Each uses only keys of one tag, so only one slot of a
 * Cluster.
 *
 * A recording is a hash of its facts and a stream of its entries. The id of an entry in the stream
 * is made of its offset and its kind, so that Redis keeps the order; its only field has the epoch
 * as its name. All times are by the clock of the server.
 *
 * Fields of the hash: `s` state (`r` running, `c` complete, `b` broken, `x` expired), `e` epoch,
 * `g` gateway that writes it, `u` end of the lease, `l` length, `x` expiry, `i` 1 if the holder has
 * readers, `a` last read at another gateway, `p` 1 if a stop was requested, `w` gateways that wait
 * for more, `n` name; and of the facts `o` owner, `d` digest, `v` provider, `k` key, `t` operation,
 * `b` begin, `m` time for which it is kept. The names are short and no value is in JSON: a small
 * hash of short values needs a third of the memory in Redis.
 *
 * @module
 */
import { NOW } from "../../storage/redis_script.ts";
import { FIRST_EPOCH, MAX_READ_BYTES } from "../recording_store.ts";

/** Prefix of the names of channels. Each gateway subscribes to its own channel. */
export const CHANNEL = "sallyport:recordings:";
/** Name of the set of all recordings, for lists. */
export const INDEX = "sallyport:recordings";

/** Minimum interval between two messages to a holder about readers. Milliseconds. */
const TELL_EVERY_MS = 1000;
/** Time for which a recording counts as read after a read at another gateway. Milliseconds. */
const READ_LATELY_MS = 3000;
/**
 * Maximum number of entries of one recording. The limit of XADD is not used, because it would drop
 * the first entries. Half an hour with an entry every 20 ms is below it.
 */
const MAX_ENTRIES = 131_072;
/** The most recordings of one name that a retry by body can find. */
const MAX_NAMED = 64;
/** The most entries that one read returns, about. */
const MAX_READ_ENTRIES = 512;
/** Number of entries that a read fetches from the stream at once. */
const PAGE = 16;

// ARGV[1] is the id of the recording in all scripts of one recording.
const TELL = `local function tell(gateway, word, id)
  redis.call('PUBLISH', '${CHANNEL}' .. gateway, word .. ' ' .. id)
end
`;

const BEGIN = `${TELL}${NOW}`;

// The state at this time; 'd' (dead) if the recording runs without a holder.
const STATE = `local function stateOf(s, u, x, m)
  if not s or s == 'x' then return s end
  if s ~= 'r' then return tonumber(x) > now and s or 'x' end
  if tonumber(u) > now then return 'r' end
  return u + m > now and 'd' or 'x'
end
`;

const NOTE_READ = `local function noteRead(key, id, holder, reader, last)
  if now - (last or 0) < ${TELL_EVERY_MS} then return end
  redis.call('HSET', key, 'a', now)
  if holder ~= reader then tell(holder, 'read', id) end
end
`;

const WAIT = `local function wait(waiting, gateway)
  waiting = waiting or ''
  if string.find(waiting, gateway, 1, true) then return end
  redis.call('HSET', KEYS[1], 'w', waiting .. gateway .. ' ')
end
`;

const WAKE = `local function wake(waiting)
  if not waiting then return end
  redis.call('HDEL', KEYS[1], 'w')
  for gateway in string.gmatch(waiting, '%S+') do tell(gateway, 'more', ARGV[1]) end
end
`;

const NAME = `local function nameOf(name)
  return 'sallyport:{' .. string.sub(ARGV[1], 1, 6) .. '}:name:' .. name
end
`;

const PROLONG = `local function prolong(key, ms)
  if redis.call('PTTL', key) < tonumber(ms) then redis.call('PEXPIRE', key, ms) end
end
`;

// The keys of the recordings of a name are not known in advance. They have the same slot as the
// name.
const KEY_OF = `local function keyOf(part, id)
  return 'sallyport:{' .. string.sub(id, 1, 6) .. '}:' .. part .. ':' .. string.sub(id, 8)
end
`;

const DESCRIBE = `${KEY_OF}local function describe(id)
  local key = keyOf('recording', id)
  local r = redis.call('HMGET', key, 's', 'u', 'x', 'm', 'l', 'o', 'd', 'v', 'k', 't', 'b')
  local state = stateOf(r[1], r[2], r[3], r[4])
  if not state then return false end
  local reply = {state, id, r[2] - now, r[3] or '', unpack(r, 4, 11)}
  if state == 'x' then return reply end
  local head = redis.call('XRANGE', keyOf('log', id), '1-1', '1-1')[1]
  if head then reply[13], reply[14] = head[2][1], head[2][2] end
  return reply
end
`;

/**
 * Claims a name. KEYS: recording, its name if it has one. ARGV: id, gateway, kind of the name (`-`
 * for none), 1 for a retry, lease, lifetime of the hash, lifetime of the name, facts: owner,
 * digest, provider, key, operation, begin, time to keep; name, if it has one; 0 if there is no room
 * for a new one. Reply: the recording that the name belongs to; or `+` for a new one (`-` without
 * room), and 1 if its call is repeated. Of broken and discarded recordings, only lost ones still
 * have their name.
 */
export const CLAIM: string = `${BEGIN}${STATE}${NOTE_READ}${PROLONG}${DESCRIBE}
local isRestarted, newest, running, unread = 0, nil, {}, nil
local ids = {}
if ARGV[3] == 'key' or ARGV[4] == '1' then ids = redis.call('LRANGE', KEYS[2], 0, -1) end
for _, id in ipairs(ids) do
  local r = redis.call('HMGET', keyOf('recording', id), 's', 'u', 'x', 'm', 'i', 'a')
  local state = stateOf(r[1], r[2], r[3], r[4])
  if state == 'r' then
    running[#running + 1] = id
    if r[5] ~= '1' and now - (r[6] or 0) >= ${READ_LATELY_MS} then unread = id end
  elseif state ~= 'c' and ARGV[16] == '1' then
    redis.call('LREM', KEYS[2], 1, id)
  end
  local isLost = state == 'd' or state == 'b' or r[1] == 'x'
  if isLost then isRestarted = 1 end
  if not newest and (state == 'r' or state == 'c' or isLost) then newest = isLost and '' or id end
end
local found = #running == 1 and running[1] or unread
if #running == 0 and newest ~= '' then found = newest end
if found then
  local key = keyOf('recording', found)
  local r = redis.call('HMGET', key, 's', 'g', 'a')
  if r[1] == 'r' then noteRead(key, found, r[2], ARGV[2], r[3]) end
  return describe(found)
end
if ARGV[16] ~= '1' then return {'-', 0} end
redis.call('HSET', KEYS[1], 's', 'r', 'e', 1, 'g', ARGV[2], 'u', now + ARGV[5], 'l', 0, 'i', 1)
redis.call('HSET', KEYS[1], 'o', ARGV[8], 'd', ARGV[9], 'v', ARGV[10], 'k', ARGV[11],
  't', ARGV[12], 'b', ARGV[13], 'm', ARGV[14])
redis.call('PEXPIRE', KEYS[1], ARGV[6])
if KEYS[2] then
  redis.call('HSET', KEYS[1], 'n', ARGV[15])
  redis.call('LPUSH', KEYS[2], ARGV[1])
  redis.call('LTRIM', KEYS[2], 0, ${MAX_NAMED - 1})
  prolong(KEYS[2], ARGV[7])
end
return {'+', isRestarted}`;

/**
 * Finds a recording. KEYS: recording. ARGV: id, gateway that waits for its head (`-` for none).
 * Reply: the recording, or none.
 */
export const FIND: string = `${NOW}${STATE}${WAIT}${DESCRIBE}
local reply = describe(ARGV[1])
if reply and reply[1] == 'r' and not reply[13] and ARGV[2] ~= '-' then
  wait(redis.call('HGET', KEYS[1], 'w'), ARGV[2])
end
return reply`;

/**
 * Reads entries. KEYS: recording, log. ARGV: id, gateway, 1 to wait if there are none, offset + 1.
 * Reply: the state, the remaining time of the lease, and for each entry its id, its epoch and its
 * ciphertext; nothing if the recording is gone.
 */
export const READ: string = `${BEGIN}${STATE}${NOTE_READ}${WAIT}
local r = redis.call('HMGET', KEYS[1], 's', 'u', 'x', 'm', 'l', 'g', 'a', 'w')
local state = stateOf(r[1], r[2], r[3], r[4])
if not state or state == 'x' then return false end
if state == 'r' then noteRead(KEYS[1], ARGV[1], r[6], ARGV[2], r[7]) end
local reply, size, from = {state, r[2] - now}, 0, ARGV[4] .. '-2'
local function add(entries)
  for _, entry in ipairs(entries) do
    local epoch, sealed = entry[2][1], entry[2][2]
    if #reply > 2 and size + #sealed > ${MAX_READ_BYTES} then return false end
    size, from = size + #sealed, '(' .. entry[1]
    reply[#reply + 1], reply[#reply + 2], reply[#reply + 3] = entry[1], epoch, sealed
  end
  return #entries > 0
end
local isStored = tonumber(ARGV[4]) <= tonumber(r[5])
if isStored and not add(redis.call('XREVRANGE', KEYS[2], from, '1-2', 'COUNT', 1)) then
  return false
end
repeat
  local entries = redis.call('XRANGE', KEYS[2], from, '+', 'COUNT', ${PAGE})
until not add(entries) or #entries < ${PAGE} or #reply > ${3 * MAX_READ_ENTRIES}
local isAtEnd = #reply == 2 and (state == 'c' or state == 'b')
if isAtEnd and not add(redis.call('XREVRANGE', KEYS[2], '+', '-', 'COUNT', 1)) then
  return false
end
if #reply == 2 and state == 'r' and ARGV[3] == '1' then wait(r[8], ARGV[2]) end
return reply`;

// A lost log never starts again in the middle, and no entry follows a gap, because both would look
// complete.
const ADD = `local id, epoch, offset = ARGV[3], ARGV[2], tonumber(ARGV[4])
local function isThere()
  local entry = redis.call('XRANGE', KEYS[2], id, id)[1]
  return entry and entry[2][1] == epoch
end
local r = redis.call('HMGET', KEYS[1], 's', 'e', 'l', 'w', 'p', 'm', 'n')
local function add(mayBegin)
  if redis.call('XLEN', KEYS[2]) >= ${MAX_ENTRIES} then return 2 end
  local mode = mayBegin and offset == 0 and {id} or {'NOMKSTREAM', id}
  mode[#mode + 1], mode[#mode + 2] = epoch, ARGV[5]
  return redis.call('XADD', KEYS[2], unpack(mode)) and 1 or 0
end
`;

/**
 * Appends an entry. KEYS: recording, log. ARGV: id, epoch, id of the entry, offset, ciphertext,
 * kind, length after it, lifetime of the log. Reply: 1, or 0 if the recording is lost, or 2 if it
 * is full; and 1 if a stop was requested.
 */
export const APPEND: string = `${TELL}${WAKE}${ADD}
if r[1] ~= 'r' or r[2] ~= epoch then return {0} end
local isHead = ARGV[6] == '1'
if offset < tonumber(r[3]) or isHead then
  if isThere() then return {1, r[5] or 0} end
  if not isHead then return {0} end
end
if offset ~= tonumber(r[3]) then return {0} end
local added = add(isHead)
if added ~= 1 then return {added} end
if isHead then redis.call('PEXPIRE', KEYS[2], ARGV[8]) end
redis.call('HSET', KEYS[1], 'l', ARGV[7])
wake(r[4])
return {1, r[5] or 0}`;

/**
 * Ends a recording. KEYS: recording, log. ARGV: id, epoch, id of the entry, offset, ciphertext,
 * state, time for which the id is known after it expired. Reply: as {@link APPEND}.
 */
export const END: string = `${BEGIN}${NAME}${WAKE}${ADD}
if r[2] ~= epoch then return {0} end
if r[1] == ARGV[6] and isThere() then return {1} end
if r[1] ~= 'r' or offset ~= tonumber(r[3]) then return {0} end
local added = add(ARGV[6] == 'b')
if added ~= 1 then return {added} end
redis.call('HSET', KEYS[1], 's', ARGV[6], 'x', now + r[6])
redis.call('PEXPIRE', KEYS[1], r[6] + ARGV[7])
redis.call('PEXPIRE', KEYS[2], r[6])
local freed = ARGV[6] == 'b' and epoch == '${FIRST_EPOCH}' and r[7]
if freed then redis.call('LREM', nameOf(freed), 1, ARGV[1]) end
wake(r[4])
return {1}`;

/**
 * Discards a recording. KEYS: recording, log. ARGV: id, epoch, time for which the id is known.
 * Reply: 1.
 */
export const DISCARD: string = `${BEGIN}${NAME}${WAKE}
local r = redis.call('HMGET', KEYS[1], 's', 'e', 'w', 'n')
if not r[1] or r[1] == 'x' or r[2] ~= ARGV[2] then return 1 end
redis.call('HSET', KEYS[1], 's', 'x', 'x', now)
redis.call('PEXPIRE', KEYS[1], ARGV[3])
redis.call('DEL', KEYS[2])
if r[4] and r[2] == '${FIRST_EPOCH}' then redis.call('LREM', nameOf(r[4]), 1, ARGV[1]) end
wake(r[3])
return 1`;

/**
 * Deletes a recording in any state. KEYS: recording, log, mark. ARGV: id, lifetime of the mark,
 * which prevents its holder from writing it again. Reply: 1.
 */
export const DELETE: string = `${BEGIN}${NAME}${WAKE}
local r = redis.call('HMGET', KEYS[1], 'w', 'n')
redis.call('DEL', KEYS[1], KEYS[2])
redis.call('SET', KEYS[3], 1, 'PX', ARGV[2])
if r[2] then redis.call('LREM', nameOf(r[2]), 1, ARGV[1]) end
wake(r[1])
return 1`;

/**
 * Renews a lease. KEYS: recording, log. ARGV: id, epoch, lease, lifetime of the hash, lifetime of
 * log and name, 1 if the holder has readers. Reply: 1, or 0 if the recording is lost; and 1 if a
 * stop was requested.
 */
export const RENEW: string = `${NOW}${NAME}${PROLONG}
local r = redis.call('HMGET', KEYS[1], 's', 'e', 'p', 'n')
if r[1] ~= 'r' or r[2] ~= ARGV[2] then return {0} end
redis.call('HSET', KEYS[1], 'u', now + ARGV[3], 'i', ARGV[6])
redis.call('PEXPIRE', KEYS[1], ARGV[4])
redis.call('PEXPIRE', KEYS[2], ARGV[5])
if r[4] then prolong(nameOf(r[4]), ARGV[5]) end
return {1, r[3] or 0}`;

/** Number of arguments of {@link RESTORE} before the arguments of its entries. */
const RESTORE_ARGUMENTS = 19;

/**
 * Writes the missing parts of a recording to a server that has become the primary. KEYS: recording,
 * log, mark of a deleted one, its name if it has one. ARGV: id, epoch, gateway, lease, lifetime of
 * the hash, lifetime of log and name, 1 if all entries are included, state, time for which the id
 * is known, 1 if the holder has readers, facts: owner, digest, provider, key, operation, begin,
 * time to keep; kind of the name (`-` for none), its text; and for each entry its id, offset,
 * length after it and ciphertext. Reply: 1, or 0 if the recording is lost; and 1 if a stop was
 * requested.
 */
export const RESTORE: string = `${BEGIN}${NAME}${WAKE}${PROLONG}${KEY_OF}
local function place(id)
  local offset, kind = string.match(id, '(%d+)-(%d+)')
  return offset * 4 + kind
end
local state, isWhole = ARGV[8], ARGV[7] == '1'
local r = redis.call('HMGET', KEYS[1], 's', 'e', 'l', 'w', 'p')
local isNew = not r[1]
if isNew and (not isWhole or redis.call('EXISTS', KEYS[3]) == 1) then return {0} end
if not isNew and (r[2] ~= ARGV[2] or r[1] == 'x') then return {0} end
if not isNew and r[1] ~= 'r' then return {1} end
local last = redis.call('XREVRANGE', KEYS[2], '+', '-', 'COUNT', 1)[1]
if not last and not isWhole then return {0} end
local from, first = last and place(last[1]) or 0, ${RESTORE_ARGUMENTS + 1}
while ARGV[first] and place(ARGV[first]) <= from do first = first + 4 end
if ARGV[first] and tonumber(ARGV[first + 1]) ~= tonumber(r[3] or 0) then return {0} end
if isNew then
  redis.call('HSET', KEYS[1], 's', 'r', 'e', ARGV[2], 'l', 0)
  redis.call('HSET', KEYS[1], 'o', ARGV[11], 'd', ARGV[12], 'v', ARGV[13], 'k', ARGV[14],
    't', ARGV[15], 'b', ARGV[16], 'm', ARGV[17])
end
if isNew and KEYS[4] and state ~= 'b' then
  local isFree = true
  for _, id in ipairs(redis.call('LRANGE', KEYS[4], 0, -1)) do
    local other = redis.call('HGET', keyOf('recording', id), 's')
    if other == 'r' or other == 'c' then isFree = false end
  end
  if isFree or ARGV[18] == 'body' then
    redis.call('RPUSH', KEYS[4], ARGV[1])
    redis.call('HSET', KEYS[1], 'n', ARGV[19])
    prolong(KEYS[4], ARGV[6])
  end
end
redis.call('HSET', KEYS[1], 'g', ARGV[3], 'u', now + ARGV[4], 'i', ARGV[10])
redis.call('PEXPIRE', KEYS[1], ARGV[5])
for i = first, #ARGV, 4 do
  redis.call('XADD', KEYS[2], ARGV[i], ARGV[2], ARGV[i + 3])
  redis.call('HSET', KEYS[1], 'l', ARGV[i + 2])
end
redis.call('PEXPIRE', KEYS[2], ARGV[6])
if state ~= 'r' then
  redis.call('HSET', KEYS[1], 's', state, 'x', now + ARGV[17])
  redis.call('PEXPIRE', KEYS[1], ARGV[17] + ARGV[9])
  redis.call('PEXPIRE', KEYS[2], ARGV[17])
  local name = state == 'b' and redis.call('HGET', KEYS[1], 'n')
  if name then redis.call('LREM', nameOf(name), 1, ARGV[1]) end
end
wake(r[4])
return {1, r[5] or 0}`;

/**
 * Takes over a recording without a holder. KEYS: recording. ARGV: id, gateway, lease. Reply: the
 * new epoch, begin, and time to keep; or 0.
 */
export const TAKE_OVER: string = `${BEGIN}${STATE}
local r = redis.call('HMGET', KEYS[1], 's', 'u', 'x', 'm', 'e', 'g', 'b')
if stateOf(r[1], r[2], r[3], r[4]) ~= 'd' then return {0} end
local epoch = r[5] + 1
redis.call('HSET', KEYS[1], 'e', epoch, 'g', ARGV[2], 'u', now + ARGV[3], 'i', 1)
redis.call('HDEL', KEYS[1], 'p')
tell(r[6], 'lost', ARGV[1] .. ' ' .. epoch)
return {epoch, r[7], r[4]}`;

/** Asks the holder to stop. KEYS: recording. ARGV: id. Reply: 1 if it runs, else 0. */
export const STOP: string = `${BEGIN}${STATE}
local r = redis.call('HMGET', KEYS[1], 's', 'u', 'x', 'm', 'g')
local state = stateOf(r[1], r[2], r[3], r[4])
if state ~= 'r' and state ~= 'd' then return 0 end
redis.call('HSET', KEYS[1], 'p', 1)
tell(r[5], 'stop', ARGV[1])
return 1`;

/**
 * Removes a recording that has ended, to make room. KEYS: recording, log. ARGV: id, `expire` or
 * `forget`, time for which an expired id is known. Reply: 1.
 */
export const EVICT: string = `${BEGIN}${NAME}${WAKE}
local r = redis.call('HMGET', KEYS[1], 's', 'w', 'n')
if not r[1] or r[1] == 'r' then return 1 end
if r[1] == 'x' and ARGV[2] == 'expire' then return 1 end
redis.call('DEL', KEYS[2])
if r[3] then redis.call('LREM', nameOf(r[3]), 1, ARGV[1]) end
wake(r[2])
if ARGV[2] == 'forget' then return redis.call('DEL', KEYS[1]) end
redis.call('HSET', KEYS[1], 's', 'x', 'x', now)
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return 1`;
