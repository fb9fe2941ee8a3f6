/**
 * The guarantees of durable exchanges, checked against the bytes that callers received and the
 * provider sent.
 */
import { judgeReading, type Verdict } from "../../tests/support/durable_reading.ts";
import type { ExchangeHistory, Seen } from "./callers.ts";
import type { Happening } from "./scene.ts";
import type { MadeCall } from "./truth.ts";

/** The result of an exchange. */
export interface Report {
  /** Guarantees that were broken. */
  readonly violations: readonly string[];
  /** For each caller: its role, the events during its reading, and its end. */
  readonly ends: readonly {
    readonly role: string;
    readonly during: string;
    readonly end: string;
  }[];
}

/**
 * Time after which the provider knows that its caller has left, on a busy machine. Milliseconds.
 */
const CLOSED_MS = 1000;
/** Time after which a stop has reached the provider, if nothing else happens. Milliseconds. */
const STOPPED_MS = 5000;

type Violations = Generator<string, void>;

const isRedis = ({ gateway }: Happening): boolean => gateway === undefined;

function happenedIn(happened: readonly Happening[], from: number, to: number): Happening[] {
  return happened.filter((one) => one.from < to && one.to > from);
}

const begunAt = ({ connections: [first] }: Seen): number => first?.from ?? Infinity;
const endedAt = ({ connections }: Seen): number => connections.at(-1)?.to ?? Infinity;

/** Describes the last result of a caller. */
function endOf({ isTimeUp, refusal }: Seen, verdict: Verdict): string {
  if (verdict.is === "wrong") return "WRONG";
  if (isTimeUp) return "no end";
  if (refusal !== undefined) return `refused ${refusal}`;
  return verdict.is === "told" ? `told ${verdict.code}` : verdict.is;
}

/** Checks the number of the provider's calls, and their reasons. */
function* checkCalls(
  exchange: ExchangeHistory,
  calls: readonly MadeCall[],
  happened: readonly Happening[],
): Violations {
  const { name, isShort, stop, seen } = exchange;
  for (const [index, call] of calls.entries()) {
    const before = calls[index - 1];
    if (before === undefined) continue;
    if (before.attempt === call.attempt) yield `${name}: one attempt was two calls`;
    const causes = happenedIn(happened, before.begunAt, call.begunAt);
    const isStopped = stop !== undefined && stop.at < call.begunAt;
    const isExpired = isShort && before.endedAt < call.begunAt;
    if (causes.length === 0 && !isStopped && !isExpired) {
      yield `${name}: the call was made again without a cause`;
    }
    const isBoth = before.endedAt > call.begunAt + CLOSED_MS;
    if (isBoth && !causes.some(isRedis)) yield `${name}: two calls of one name ran at once`;
  }
  yield* checkRestarts(exchange, calls, happened);
  const made = new Set(calls.map(({ attempt }) => attempt));
  for (const { attempt, answer } of seen.flatMap(({ connections }) => connections)) {
    const isRefused = /^503 (?:recordings_unavailable|gateway_draining)$/.test(answer);
    if (isRefused && attempt !== undefined && made.has(attempt)) {
      yield `${name}: a call was made and refused: ${answer}`;
    }
  }
  const [last] = calls.slice(-1);
  const isAlone = stop !== undefined &&
    happenedIn(happened, stop.at - STOPPED_MS, stop.at + STOPPED_MS).length === 0;
  if (isAlone && stop.status === 204 && last !== undefined && last.begunAt < stop.at) {
    if (last.endedAt > stop.at + STOPPED_MS) yield `${name}: a call went on after it was stopped`;
  }
}

/** Checks that a caller is informed if its answer was restarted because its gateway was killed. */
function* checkRestarts(
  { name, isShort, stop, seen }: ExchangeHistory,
  calls: readonly MadeCall[],
  happened: readonly Happening[],
): Violations {
  for (const [index, { attempt, begunAt }] of calls.entries()) {
    const before = calls[index - 1];
    const caller = seen.find(({ connections }) =>
      connections.some((one) => one.attempt === attempt)
    );
    const connections = seen.flatMap((each) => each.connections);
    if (
      connections.find((one) => one.attempt === attempt)?.answer !== "200" || caller === undefined
    ) continue;
    if (before === undefined) {
      // A killed gateway can have claimed the name just before. It is unknown if it made the call.
      const isUnclear = happened.some(({ what, gateway, to }) =>
        what === "killed" &&
        connections.some((one) =>
          one.attempt !== undefined && one.gateway === gateway && one.answer === "0" &&
          one.from < to
        )
      );
      if (caller.isRestarted && !isUnclear) {
        yield `${name}: a first call says that it was made again`;
      }
      continue;
    }
    const gateway = connections.find((one) => one.attempt === before.attempt)?.gateway;
    const causes = happenedIn(happened, before.begunAt, begunAt);
    const isKilled = causes.some((one) =>
      one.what === "killed" && one.gateway === gateway && one.to > before.begunAt
    );
    const isAlone = causes.every(({ what }) => what === "killed") && stop === undefined && !isShort;
    if (isKilled && isAlone && before.isCut && !caller.isRestarted) {
      yield `${name}: a call was made again without a word`;
    }
  }
}

/** Returns the call whose answer an address returns. The answer must match all of its readers. */
function callOf(readers: readonly Seen[], calls: readonly MadeCall[]): MadeCall | undefined {
  const attempts = new Set(
    readers.flatMap(({ connections }) => connections.map(({ attempt }) => attempt)),
  );
  const isRight = (call: MadeCall) =>
    readers.every((seen) => judgeReading(seen, call.whole).is !== "wrong");
  return calls.find(isRight) ?? calls.find(({ attempt }) => attempts.has(attempt)) ?? calls[0];
}

/**
 * Returns true if only the provider can end this caller's reading: it is the first caller, quick,
 * and stays.
 */
function isUntouched(
  seen: Seen,
  { stop }: ExchangeHistory,
  call: MadeCall,
  happened: readonly Happening[],
): boolean {
  const [only, ...others] = seen.connections.filter(({ answer }) => answer === "200");
  if (only === undefined || others.length > 0 || only.isLeft || seen.isSlow || stop !== undefined) {
    return false;
  }
  if (only.attempt !== call.attempt) return false;
  return happenedIn(happened, only.from, only.to).every(({ gateway }) => gateway !== only.gateway);
}

/** Checks how a caller's reading ended, for an answer whose bytes are right. */
function* checkEnd(
  seen: Seen,
  end: string,
  { exchange, call, all }: {
    exchange: ExchangeHistory;
    call: MadeCall | undefined;
    all: readonly Happening[];
  },
): Violations {
  const { name, isShort, stop } = exchange;
  const first = Math.min(...exchange.seen.map(begunAt));
  const happened = happenedIn(all, first, endedAt(seen));
  const say = (what: string) =>
    `${name}: ${seen.role} (${seen.connections.length} connections): ${end}: ${what}`;
  if (end === "no end") return yield say("a reader has no end");
  if (end === "cut") return yield say("an end that is none");
  if (end === "whole") return;
  if (call !== undefined && isUntouched(seen, exchange, call, all)) {
    yield say("the first caller's stream is affected");
  }
  const gone = ["refused exchange_expired", "refused exchange_not_found"];
  const excused = [
    ...(isShort ? ["refused exchange_expired"] : []),
    ...(stop !== undefined ? ["told exchange_stopped", "refused exchange_broken", ...gone] : []),
    ...(happened.some(({ what }) => what !== "stopped")
      ? ["told exchange_lost", "refused exchange_lost"]
      : []),
    ...(happened.some(({ what }) => what === "stopped") ? ["told gateway_draining"] : []),
    ...(happened.length > 0 ? ["refused exchange_broken", ...gone] : []),
  ];
  if (!excused.includes(end)) {
    yield say(`no reason for it (${happened.map(({ what }) => what).join(", ") || "no fault"})`);
  }
}

/** Describes the events while a caller read. */
function describe(
  seen: Seen,
  { isShort, stop }: ExchangeHistory,
  all: readonly Happening[],
): string {
  const happened = happenedIn(all, begunAt(seen), endedAt(seen));
  const words = [
    ...new Set(
      happened.map(({ what, gateway }) => `${gateway === undefined ? "Redis" : "gateway"} ${what}`),
    ),
  ].sort();
  if (stop !== undefined) words.push("DELETE");
  if (isShort) words.push("expiry");
  return words.length > 2 ? "three or more faults" : words.join(", ") || "no fault";
}

/**
 * Checks an exchange.
 *
 * @param exchange The exchange, as its callers saw it
 * @param made All calls that the provider received
 * @param happened The events of gateways and Redis
 */
export function checkExchange(
  exchange: ExchangeHistory,
  made: readonly MadeCall[],
  happened: readonly Happening[],
): Report {
  const calls = made.filter(({ name }) => name === exchange.name).sort((one, other) =>
    one.begunAt - other.begunAt
  );
  const violations = [...checkCalls(exchange, calls, happened)];
  const ends = exchange.seen.map((seen) => {
    const readers = exchange.seen.filter(({ address }) =>
      address !== undefined && address === seen.address
    );
    const call = callOf(readers, calls);
    const verdict = judgeReading(seen, call?.whole ?? "");
    const end = endOf(seen, verdict);
    if (verdict.is === "wrong") violations.push(`${exchange.name}: ${seen.role}: ${verdict.why}`);
    else violations.push(...checkEnd(seen, end, { exchange, call, all: happened }));
    if (seen.isReplayed && verdict.is === "told") {
      violations.push(`${exchange.name}: a broken answer was replayed`);
    }
    const role = seen.isSlow ? `slow ${seen.role}` : seen.role;
    return { role, during: describe(seen, exchange, happened), end };
  });
  return { violations, ends };
}
