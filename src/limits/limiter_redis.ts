/**
 * Limits that many gateways share through Redis: each decision is one script, one round trip, by the server's clock.
 *
 * What an exchange holds expires by itself when its gateway dies. While Redis fails, each gateway counts alone against
 * its share of every limit; what was used meanwhile is charged when Redis is back.
 *
 * @module
 */
import type { Clock } from "../exchange/clock.ts";
import { type RedisClient, RedisFailed } from "../storage/redis_client.ts";
import { judge } from "./verdict.ts";
import {
  ASK_AGAIN_MS,
  type Lease,
  type Limiter,
  limitsOf,
  type LimitSubject,
  SKEW_MS,
  type Standing,
} from "./limiter.ts";
import { toRateLimitHeaders } from "./rate_limit_headers.ts";
import { MemoryLimiter } from "./memory_limiter.ts";

/** Time after which an exchange no longer counts as open unless its gateway renews it. Milliseconds. */
export const LEASE_MS = 10_000;
/** Interval at which a gateway renews its open exchanges. Milliseconds. */
const RENEW_MS = 3000;
const LEASES_AT_ONCE = 1000;
/** Maximum number of subjects whose charges are kept while Redis is away. */
const MAX_OWED = 100_000;
/** Maximum number of a subject's exchanges that are kept to be released when Redis is back; the others expire. */
const MAX_IDS_OWED = 1000;
const GATEWAYS = "sallyport:gateways";

/** Lua: the end of a budget's period that is under way at `now`; says the same as `periodEnd`. */
export const PERIOD_END: string = `local function period_end(period)
  local day = math.floor(now / 86400000)
  if period == 'day' then return (day + 1) * 86400000 end
  local z = day + 719468
  local era = math.floor(z / 146097)
  local doe = z - era * 146097
  local yoe = math.floor((doe - math.floor(doe / 1460) + math.floor(doe / 36524) - math.floor(doe / 146096)) / 365)
  local doy = doe - (365 * yoe + math.floor(yoe / 4) - math.floor(yoe / 100))
  local mp = math.floor((5 * doy + 2) / 153)
  local year = yoe + era * 400 + (mp >= 10 and 1 or 0)
  local isLeap = year % 4 == 0 and (year % 100 ~= 0 or year % 400 == 0)
  local days = ({31, 30, 31, 30, 31, 31, 30, 31, 30, 31, 31, isLeap and 29 or 28})[mp + 1]
  return (day - (doy - math.floor((153 * mp + 2) / 5)) + days) * 86400000
end
`;

// What all scripts share. Integers go out by %.0f: Lua would write large ones as 1e+14.
const COMMON = `local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local function int(x) return string.format('%.0f', x) end
${PERIOD_END}local function ends(window)
  if window == '' then return now end
  if window == 'day' or window == 'month' then return period_end(window) end
  return now + window
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

// KEYS: for each subject its counts and its open exchanges. ARGV: id, life of a lease (0: only look), then for each
// subject 8: requests, window, tokens, window, budget, period, concurrency, observe; -1 for no limit.
const TAKE = `${COMMON}
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
  for _, value in ipairs({h[1], h[2] - now, h[3], h[4] - now, h[5], h[6] - now, open}) do reply[#reply + 1] = value end
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

// ARGV: ids, tokens, exchanges without usage, then as above.
const CHARGE = `${COMMON}
for s = 1, #KEYS / 2 do
  for id in string.gmatch(ARGV[1], '%S+') do redis.call('ZREM', KEYS[2 * s], id) end
  if ARGV[2] ~= '0' then
    local h = load(KEYS[2 * s - 1])
    for n = 3, 5, 2 do
      if h[n + 1] == 0 then h[n + 1] = ends(ARGV[4 + (s - 1) * 8 + n]) end
      h[n] = math.min(h[n] + ARGV[2], ${Number.MAX_SAFE_INTEGER})
    end
    save(KEYS[2 * s - 1], h)
  end
  if ARGV[3] ~= '0' and redis.call('EXISTS', KEYS[2 * s - 1]) == 1 then redis.call('HINCRBY', KEYS[2 * s - 1], 'u', ARGV[3]) end
end
return 1`;

// KEYS: the gateways, then sets of open exchanges. ARGV: id of this gateway, life, then the exchange in each set.
const RENEW = `${COMMON}
redis.call('ZADD', KEYS[1], int(now + ARGV[2]), ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', int(now))
for n = 2, #KEYS do
  redis.call('ZADD', KEYS[n], int(now + ARGV[2]), ARGV[n + 1])
  redis.call('PEXPIRE', KEYS[n], ARGV[2])
end
return redis.call('ZCARD', KEYS[1])`;

const toKeys = (subjects: readonly LimitSubject[]): string[] =>
  subjects.flatMap(({ name }) => [`sallyport:counts:${name}`, `sallyport:open:${name}`]);

const toArguments = (subjects: readonly LimitSubject[]): (string | number)[] =>
  subjects.flatMap(({ limits: { requests, tokens, budget, concurrency, mode } }) => [
    ...[requests?.limit ?? -1, requests?.windowMs ?? 0, tokens?.limit ?? -1, tokens?.windowMs ?? 0],
    ...[budget?.limit ?? -1, budget?.period ?? "", concurrency ?? -1, mode === "observe" ? 1 : 0],
  ]);

const VALUES = 7;

/** Converts the values of {@link TAKE} to standings. `added` is what the exchange itself has just taken. */
function toStandings(subjects: readonly LimitSubject[], values: readonly number[], added: number): Standing[] {
  return subjects.flatMap((subject, index) => {
    const [requests = 0, requestsMs = 0, tokens = 0, tokensMs = 0, budget = 0, budgetMs = 0, open = 0] = values.slice(
      index * VALUES,
      (index + 1) * VALUES,
    );
    const found = {
      requests: { used: requests + added, resetMs: requestsMs },
      tokens: { used: tokens, resetMs: tokensMs },
      budget: { used: budget, resetMs: budgetMs },
      concurrency: { used: open + added, resetMs: ASK_AGAIN_MS },
    };
    return limitsOf(subject).map(([name, limit]) => ({ subject, name, limit, ...found[name] }));
  });
}

/** Reads the answer of {@link TAKE}: 1 if the exchange is admitted, else 0, then the values of each subject. */
function readCounts(answer: unknown, subjects: readonly LimitSubject[]): number[] {
  const isSound = Array.isArray(answer) && answer.length === 1 + subjects.length * VALUES &&
    answer.every((value) => typeof value === "number");
  if (!isSound) throw new Error("no counts");
  return answer;
}

/** Reads the answer of the other scripts. */
function readCount(answer: unknown): number {
  if (Number.isInteger(answer) && Number(answer) >= 1) return Number(answer);
  throw new Error("no count");
}

/** State of an open exchange. */
interface Held {
  readonly subjects: readonly LimitSubject[];
  /** True if Redis counts the exchange as open. */
  isShared: boolean;
}

/** Exchanges to release, and the usage to charge for them. */
interface Charge {
  /** Ids of exchanges that are over. */
  readonly ids: readonly string[];
  readonly tokens: number;
  readonly unmetered: number;
}

/** Charges of one subject that could not be made yet. */
interface Owed extends Charge {
  readonly subject: LimitSubject;
  readonly ids: string[];
  tokens: number;
  unmetered: number;
}

/** Limiter that counts in Redis. */
export class RedisLimiter implements Limiter {
  readonly #client: RedisClient;
  readonly #clock: Clock;
  readonly #take: ReturnType<RedisClient["script"]>;
  readonly #charge: ReturnType<RedisClient["script"]>;
  readonly #renew: ReturnType<RedisClient["script"]>;
  readonly #local: MemoryLimiter;
  readonly #id = crypto.randomUUID().slice(0, 13);
  readonly #open = new Map<string, Held>();
  /** Charges that could not be made yet, by subject. */
  readonly #owed = new Map<string, Owed>();
  #taken = 0;
  #gateways = 1;
  #fallbacks = 0;
  #isClosed = false;
  #cancelRenewal = (): void => {};

  /**
   * @param client The connection
   * @param clock Source of its times
   */
  constructor(client: RedisClient, clock: Clock) {
    this.#client = client;
    this.#clock = clock;
    this.#take = client.script("sallyportTake", TAKE);
    this.#charge = client.script("sallyportCharge", CHARGE);
    this.#renew = client.script("sallyportRenew", RENEW);
    this.#local = new MemoryLimiter(clock, () => this.#gateways);
  }

  /** Decisions that were made without Redis. */
  get fallbacks(): number {
    return this.#fallbacks;
  }

  /** Joins the gateways that share the limits. */
  async start(): Promise<void> {
    await this.#sayOpen();
    if (!this.#isClosed) this.#cancelRenewal = this.#clock.timer(RENEW_MS, () => void this.start());
  }

  async take(subjects: readonly LimitSubject[]): Promise<Lease> {
    const id = `${this.#id}-${++this.#taken}`;
    let values: number[];
    try {
      values = await this.#client.run(
        (redis) => this.#take(redis, toKeys(subjects), [id, LEASE_MS, ...toArguments(subjects)]),
        (answer) => readCounts(answer, subjects),
      );
    } catch (error) {
      this.#awaitLate(id, subjects, error);
      return this.#takeLocally(id, subjects);
    }
    const [isTaken, ...counts] = values;
    const before = toStandings(subjects, counts, 0);
    const observed = judge(before.filter(({ limit, used }) => used >= limit), before);
    if (isTaken !== 1) return this.#takeLocally(id, subjects); // refused, and no limit is reached: nonsense
    const headers = toRateLimitHeaders(toStandings(subjects, counts, 1));
    return this.#hold(id, { subjects, isShared: true }, { headers, observed, release: () => {} });
  }

  async standing(subject: LimitSubject): Promise<Standing[]> {
    try {
      const [, ...counts] = await this.#client.run(
        (redis) => this.#take(redis, toKeys([subject]), ["", 0, ...toArguments([subject])]),
        (answer) => readCounts(answer, [subject]),
      );
      return toStandings([subject], counts, 0);
    } catch {
      return this.#local.standing(subject);
    }
  }

  /** Leaves the gateways that share the limits, and charges what is owed. */
  async close(): Promise<void> {
    this.#isClosed = true;
    this.#cancelRenewal();
    await this.#payOwed();
    await this.#client.run((redis) => redis.zrem(GATEWAYS, this.#id), Number, 1000).catch(() => {});
  }

  #takeLocally(id: string, subjects: readonly LimitSubject[]): Lease {
    this.#fallbacks++;
    return this.#hold(id, { subjects, isShared: false }, this.#local.take(subjects));
  }

  /**
   * Waits for a late answer of Redis about an exchange that was decided locally meanwhile. If Redis has taken it after
   * all, it is released like any other exchange.
   */
  #awaitLate(id: string, subjects: readonly LimitSubject[], error: unknown): void {
    if (!(error instanceof RedisFailed)) return;
    error.late?.then(() => {
      const held = this.#open.get(id);
      if (held === undefined) void this.#pay(subjects, { ids: [id], tokens: 0, unmetered: 0 });
      else held.isShared = true;
    }, () => {});
  }

  #hold(id: string, held: Held, { headers, observed, release }: Lease): Lease {
    this.#open.set(id, held);
    return {
      headers,
      observed,
      release: (tokens) => {
        if (!this.#open.delete(id)) return;
        release(tokens);
        const ids = held.isShared || this.#client.health.isUp ? [id] : [];
        void this.#pay(held.subjects, { ids, tokens: tokens ?? 0, unmetered: tokens === undefined ? 1 : 0 });
      },
    };
  }

  /** Charges now, or keeps the charge for later if Redis fails. */
  async #pay(subjects: readonly LimitSubject[], charge: Charge, deadlineMs?: number): Promise<void> {
    const { ids, tokens, unmetered } = charge;
    if (ids.length === 0 && tokens === 0 && unmetered === 0) return;
    const args = [ids.join(" "), tokens, unmetered, ...toArguments(subjects)];
    try {
      await this.#client.run((redis) => this.#charge(redis, toKeys(subjects), args), readCount, deadlineMs);
    } catch (error) {
      const owe = () => this.#owe(subjects, charge);
      const late = error instanceof RedisFailed ? error.late : undefined;
      // Late is not never: what Redis still does must not be charged again.
      if (late === undefined) owe();
      else late.then(readCount).catch(owe);
    }
  }

  #owe(subjects: readonly LimitSubject[], { ids, tokens, unmetered }: Charge): void {
    for (const subject of subjects) {
      const owed = this.#owed.get(subject.name) ?? { subject, ids: [], tokens: 0, unmetered: 0 };
      owed.ids.push(...ids.slice(0, MAX_IDS_OWED - owed.ids.length));
      owed.tokens += tokens;
      owed.unmetered += unmetered;
      if (this.#owed.has(subject.name) || this.#owed.size < MAX_OWED) this.#owed.set(subject.name, owed);
    }
  }

  async #payOwed(): Promise<void> {
    for (const [name, { subject, ...charge }] of Array.from(this.#owed)) {
      this.#owed.delete(name);
      await this.#pay([subject], charge, 1000);
      if (!this.#client.health.isUp) return;
    }
  }

  /** Renews the open exchanges, and reads the number of gateways. */
  async #sayOpen(): Promise<void> {
    const sets = Array.from(
      this.#open,
      ([id, { subjects }]) => subjects.map(({ name }): [string, string] => [`sallyport:open:${name}`, id]),
    ).flat();
    try {
      for (let start = 0; !this.#isClosed && (start === 0 || start < sets.length); start += LEASES_AT_ONCE) {
        // Those that were settled meanwhile must not come back.
        const chunk = sets.slice(start, start + LEASES_AT_ONCE).filter(([, id]) => this.#open.has(id));
        const keys = [GATEWAYS, ...chunk.map(([set]) => set)];
        const args = [this.#id, LEASE_MS, ...chunk.map(([, id]) => id)];
        this.#gateways = await this.#client.run(
          (redis) => {
            for (const [, id] of chunk) Object.assign(this.#open.get(id) ?? {}, { isShared: true });
            return this.#renew(redis, keys, args);
          },
          readCount,
          1000,
        );
      }
      await this.#payOwed();
    } catch {
      // The next turn tries again.
    }
  }
}
