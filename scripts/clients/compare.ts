/** Compares a run through the gateway with what the provider received, and with a direct run. */
import type { Ended } from "./run_agent.ts";
import type { Seen } from "./wire.ts";

/**
 * Request headers that can differ. `accept-encoding` names what the gateway can read, `via` names
 * the gateway. Node's `fetch` sends `accept-language` and `sec-fetch-mode`, which no provider reads.
 */
const OWN_OF_REQUESTS: readonly string[] = [
  ...["host", "gateway-auth", "connection", "keep-alive", "te", "transfer-encoding"],
  ...["via", "accept-encoding", "accept-language", "sec-fetch-mode"],
];
/** Answer headers of one connection or of the moment, and those that the gateway adds. */
const OWN_OF_ANSWERS: readonly string[] = [
  ...["date", "connection", "keep-alive", "transfer-encoding", "content-length"],
  ...["cache-control", "x-content-type-options", "server-timing", "x-accel-buffering"],
  ...["x-request-id"],
];

/** What a run showed. */
export interface Run {
  readonly ended: Ended;
  /** Calls as the agent's end saw them. */
  readonly calls: readonly Seen[];
  /** Calls as the provider saw them. */
  readonly arrived: readonly Seen[];
  /** Values that the gateway logged for the last call; empty for a direct run. */
  readonly attribution: string;
}

type Fields = ReadonlyMap<string, string>;

/** Names of headers in lower case, because HTTP ignores their case, with all of their values. */
function fieldsOf(pairs: readonly string[], without: readonly string[]): Fields {
  const fields = new Map<string, string>();
  for (let at = 0; at < pairs.length; at += 2) {
    const name = (pairs[at] ?? "").toLowerCase();
    if (without.includes(name)) continue;
    const before = fields.get(name);
    const value = pairs[at + 1] ?? "";
    fields.set(name, before === undefined ? value : `${before}, ${value}`);
  }
  return fields;
}

/** Names the headers that differ. Values are not shown: they can be keys. */
function compareFields(what: string, from: Fields, to: Fields): string[] {
  const lost = [...from.keys()].filter((name) => !to.has(name)).map((name) => `withheld ${name}`);
  const added = [...to.keys()].filter((name) => !from.has(name)).map((name) => `added ${name}`);
  const changed = [...from].filter(([name, value]) => to.has(name) && to.get(name) !== value)
    .map(([name]) => `changed ${name}`);
  return [...lost, ...added, ...changed].map((text) => `${what}: ${text}`);
}

function compareRequests(call: Seen, arrived: Seen | undefined): string[] {
  if (arrived === undefined) return [`request: ${call.method} ${call.path} did not arrive`];
  const same = call.method === arrived.method && call.path === arrived.path;
  return [
    ...(same ? [] : [`request: ${arrived.method} ${arrived.path} instead of its line`]),
    ...(call.body.equals(arrived.body) ? [] : ["request: other bytes"]),
    ...compareFields(
      "request",
      fieldsOf(call.headers, OWN_OF_REQUESTS),
      fieldsOf(arrived.headers, OWN_OF_REQUESTS),
    ),
  ];
}

function compareAnswers(direct: Seen, through: Seen | undefined, isCutting: boolean): string[] {
  if (through === undefined) return ["answer: missing"];
  const [from, to] = [direct.answer, through.answer];
  if (from === undefined || to === undefined) return ["answer: not read"];
  const hasBytes = isCutting ? to.subarray(0, from.length).equals(from) : to.equals(from);
  return [
    ...(direct.status === through.status ? [] : [`answer: status ${through.status}`]),
    ...(hasBytes ? [] : ["answer: other bytes"]),
    ...compareFields(
      "answer",
      fieldsOf(direct.answerHeaders ?? [], OWN_OF_ANSWERS),
      fieldsOf(through.answerHeaders ?? [], OWN_OF_ANSWERS),
    ),
  ];
}

/** The verdict of an agent that ended by itself, or that repeated its call until it was ended. */
const verdictOf = ({ status }: Ended): string => status === 0 ? "success" : "failure";

/**
 * After a cut only the verdict is compared. The gateway ends a cut stream with an error event, so
 * agents name another cause, and repeat the call another number of times.
 */
function compareVerdicts(direct: Run, through: Run, isCutting: boolean): string[] {
  const pairs: readonly (readonly [name: string, one: unknown, other: unknown])[] = isCutting
    ? [["verdict", verdictOf(direct.ended), verdictOf(through.ended)]]
    : [
      ["exit status", direct.ended.status, through.ended.status],
      ["number of calls", direct.calls.length, through.calls.length],
      ["standard output", direct.ended.stdout, through.ended.stdout],
    ];
  return pairs.filter(([, one, other]) => one !== other)
    .map(([name, one, other]) => `${name}: ${one} direct, ${other} through`);
}

/** Returns all differences, each once. */
export function compareRuns(direct: Run, through: Run, isCutting: boolean): string[] {
  const requests = through.calls.flatMap((call, at) => compareRequests(call, through.arrived[at]));
  // A different number of calls is one difference, which the verdict names. After the first cut an
  // agent can make other calls.
  const compared = isCutting ? 1 : through.calls.length;
  const answers = direct.calls.slice(0, compared).flatMap((call, at) =>
    compareAnswers(call, through.calls[at], isCutting)
  );
  return [...new Set([...requests, ...answers, ...compareVerdicts(direct, through, isCutting)])];
}
