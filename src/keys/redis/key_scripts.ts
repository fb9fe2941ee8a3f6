/**
 * The names of gateway keys in Redis, and the scripts that read and change them.
 *
 * A generation marks the data: a hash of the ids of generations, each `here` or `lost`. The first
 * key creates one, and every gateway remembers the generation that it saw. If Redis does not have
 * it any more, Redis has lost keys, even if new ones were made since. Then no caller is refused as
 * unknown until an operator confirms the existing keys. The same applies if there is neither a key
 * nor a generation, because there can have been keys before.
 *
 * @module
 */

import { defineScript, type RedisScript } from "../../storage/redis_script.ts";

/** The names of what is kept. */
export interface KeyNames {
  /** Hash of id -> record. */
  readonly keys: string;
  /** Hash of digest -> id. */
  readonly digests: string;
  /** Hash of id -> last use. */
  readonly used: string;
  /** Ids by the time they were made. */
  readonly created: string;
  /** Hash of generation -> `here` or `lost`. */
  readonly generations: string;
  /** Hash of name -> record of a team. */
  readonly teams: string;
  /** List of changes, the newest first. */
  readonly changes: string;
}

/** The channel for the digests of changed keys. */
export const CHANNEL = "sallyport:changed";

/**
 * Returns the names. On a Cluster all names are in one slot, because a script uses several of them.
 * On a single server the names of earlier versions are kept, so that gateways of several versions
 * can share them.
 */
export function toKeyNames(isCluster: boolean): KeyNames {
  const prefix = isCluster ? "sallyport:{keys}:" : "sallyport:";
  const toName = (name: string) => prefix + name;
  return {
    keys: toName("keys"),
    digests: toName("digests"),
    used: toName("used"),
    created: toName("created"),
    generations: toName("generations"),
    teams: toName("teams"),
    changes: toName("changes"),
  };
}

/** Finds a key. */
export interface FindCall {
  readonly keysKey: string;
  readonly digestsKey: string;
  readonly generationsKey: string;
  readonly digest: string;
  /** The generation that the gateway remembers; empty for none. */
  readonly own: string;
  /** A generation for keys that an earlier version made; needed where none is remembered. */
  readonly made: string;
}

/**
 * Answers id and record, and a generation where none was remembered. Or without a key: a text,
 * which is a generation: no key has this digest; 0: there are no keys and no generations;
 * -1: keys were lost.
 */
export const FIND: RedisScript<FindCall> = defineScript(
  "sallyportFind",
  {
    keysKey: "key",
    digestsKey: "key",
    generationsKey: "key",
    digest: "text",
    own: "text",
    made: "text",
  },
  () =>
    `local id = redis.call('HGET', digestsKey, digest)
local key = id and redis.call('HGET', keysKey, id)
if key and own ~= '' then return {id, key} end
local here = ''
local lost = false
local isMet = false
local all = redis.call('HGETALL', generationsKey)
for i = 1, #all, 2 do
  if all[i] == own then isMet = true end
  if all[i + 1] == 'lost' then lost = true else here = all[i] end
end
local hashes = redis.call('EXISTS', keysKey, digestsKey)
if own ~= '' and not isMet then
  redis.call('HSET', generationsKey, own, 'lost')
  lost = true
end
if own == '' and here == '' and not lost then
  if hashes == 0 then return 0 end
  if hashes == 2 then
    here = made
    redis.call('HSET', generationsKey, here, 'here')
  end
end
if key then return {id, key, here} end
if lost or hashes ~= 2 then return -1 end
return here`,
);

/**
 * Changes a key. KEYS: keys, digests, created, generations. ARGV: id, current record ('' for none),
 * new record, time of creation, old digests, new digests, the channel, a new generation.
 *
 * Answers 1: done. 0: the current record is a different one. Text: the id of another key with such
 * a digest.
 */
export const CHANGE = `if (redis.call('HGET', KEYS[1], ARGV[1]) or '') ~= ARGV[2] then return 0 end
for digest in string.gmatch(ARGV[6], '%x+') do
  local owner = redis.call('HGET', KEYS[2], digest)
  if owner and owner ~= ARGV[1] and redis.call('HEXISTS', KEYS[1], owner) == 1 then return owner end
end
for digest in string.gmatch(ARGV[5], '%x+') do redis.call('HDEL', KEYS[2], digest) end
for digest in string.gmatch(ARGV[6], '%x+') do redis.call('HSET', KEYS[2], digest, ARGV[1]) end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
redis.call('ZADD', KEYS[3], 'NX', ARGV[4], ARGV[1])
local here = false
for _, state in ipairs(redis.call('HVALS', KEYS[4])) do here = here or state == 'here' end
if not here then redis.call('HSET', KEYS[4], ARGV[8], 'here') end
redis.call('PUBLISH', ARGV[7], ARGV[5] .. ' ' .. ARGV[6])
return 1`;

/** Notes last uses. */
export interface NoteUsedCall {
  readonly usedKey: string;
  readonly uses: readonly { readonly id: string; readonly at: number }[];
}

/** An exchange can end after a later one has ended: the latest time stays. */
export const NOTE_USED: RedisScript<NoteUsedCall> = defineScript(
  "sallyportNoteUsed",
  { usedKey: "key", uses: { id: "text", at: "number" } },
  (each) =>
    `${each("uses")}
  if at > tonumber(redis.call('HGET', usedKey, id) or 0) then redis.call('HSET', usedKey, id, at) end
end
return 1`,
);

/** Confirms that no more keys are missing. */
export interface ConfirmCall {
  readonly generationsKey: string;
  /** A generation for keys without any. */
  readonly made: string;
}

/** Answers the number of lost generations. */
export const CONFIRM: RedisScript<ConfirmCall> = defineScript(
  "sallyportConfirm",
  { generationsKey: "key", made: "text" },
  () =>
    `local all = redis.call('HGETALL', generationsKey)
local lost = 0
for i = 1, #all, 2 do
  if all[i + 1] == 'lost' then
    lost = lost + 1
    redis.call('HSET', generationsKey, all[i], 'here')
  end
end
if #all == 0 then redis.call('HSET', generationsKey, made, 'here') end
return lost`,
);

/** Reads all teams. */
export interface ReadTeamsCall {
  readonly teamsKey: string;
  readonly generationsKey: string;
  /** The generation that the gateway remembers; empty for none. */
  readonly own: string;
}

/** Answers 1 if keys were lost, else 0; then names and records in turn. */
export const READ_TEAMS: RedisScript<ReadTeamsCall> = defineScript(
  "sallyportReadTeams",
  { teamsKey: "key", generationsKey: "key", own: "text" },
  () =>
    `local reply = redis.call('HGETALL', teamsKey)
local isLost = own ~= '' and redis.call('HEXISTS', generationsKey, own) == 0
for _, state in ipairs(redis.call('HVALS', generationsKey)) do isLost = isLost or state == 'lost' end
table.insert(reply, 1, isLost and 1 or 0)
return reply`,
);

/** Replaces the record of a team. */
export interface ReplaceTeamCall {
  readonly teamsKey: string;
  readonly name: string;
  /** The current record; empty for none. */
  readonly current: string;
  /** The new record; empty to remove the team. */
  readonly next: string;
}

/** Answers 1: done. 0: the current record is a different one. */
export const REPLACE_TEAM: RedisScript<ReplaceTeamCall> = defineScript(
  "sallyportReplaceTeam",
  { teamsKey: "key", name: "text", current: "text", next: "text" },
  () =>
    `if (redis.call('HGET', teamsKey, name) or '') ~= current then return 0 end
if next == '' then redis.call('HDEL', teamsKey, name)
else redis.call('HSET', teamsKey, name, next) end
return 1`,
);

/** Adds a change to the list. */
export interface NoteChangeCall {
  readonly changesKey: string;
  readonly change: string;
  /** Index of the last change that is kept. */
  readonly last: number;
}

/** Answers 1. */
export const NOTE_CHANGE: RedisScript<NoteChangeCall> = defineScript(
  "sallyportNoteChange",
  { changesKey: "key", change: "text", last: "number" },
  () =>
    `redis.call('LPUSH', changesKey, change)
redis.call('LTRIM', changesKey, 0, last)
return 1`,
);
