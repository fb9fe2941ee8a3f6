/**
 * Filters of exchanges. The admin API, the console's page and `sallyport log` share them, so that
 * the same words select the same exchanges everywhere.
 *
 * @module
 */
import { type Dimension, DIMENSIONS } from "../../config/dimensions.ts";
import { parseDuration } from "../../config/units.ts";
import type { ExchangeRecord } from "../../exchange/record.ts";
import { concernOf, type EndFacts } from "../../errors/outcomes.ts";

/**
 * Reads a duration of a filter.
 *
 * @param text Milliseconds, or with a unit such as `2s`
 * @returns Milliseconds; `undefined` for any other text, or none
 */
export function readDuration(text = ""): number | undefined {
  const ms = /^[0-9]+$/.test(text) ? Number(text) : parseDuration(text);
  return Number.isNaN(ms) ? undefined : ms;
}

/** Kinds of ends. Every exchange has exactly one. */
export const END_KINDS = ["ok", "errors", "refused", "cancelled"] as const;

/** Kind of an end. */
export type EndKind = typeof END_KINDS[number];

/** The meaning of each kind, for help and pages. */
export const END_KIND_MEANINGS: Readonly<Record<EndKind, string>> = {
  ok: "relayed whole",
  errors: "for the operator to act on",
  refused: "turned down by the gateway, or by the provider with a 4xx",
  cancelled: "left by the caller",
};

/** The full values of attribution, by dimension. */
type AttributionFilter = { readonly [Name in Dimension]?: string | undefined };

/**
 * A filter. An exchange must match each part that is set. Texts are compared without regard to
 * case.
 */
export interface ExchangeFilter extends AttributionFilter {
  /**
   * Part of any name or code: id, key, team, attribution, provider, model, operation, run, outcome,
   * code, cause or status.
   */
  readonly search?: string | undefined;
  readonly id?: string | undefined;
  /** Part of the key's id or name. */
  readonly key?: string | undefined;
  /** The full name of the team. */
  readonly team?: string | undefined;
  /** The full name of the provider. */
  readonly provider?: string | undefined;
  /** Part of the model's name. */
  readonly model?: string | undefined;
  /** Part of the operation's name. */
  readonly operation?: string | undefined;
  /** The full id of the run. */
  readonly run?: string | undefined;
  readonly outcome?: EndKind | undefined;
  /** Part of the code or of the cause. */
  readonly code?: string | undefined;
  /** Status, such as `429`, or a class such as `5xx`. */
  readonly status?: string | undefined;
  readonly stream?: boolean | undefined;
  readonly minDurationMs?: number | undefined;
  readonly minFirstTokenMs?: number | undefined;
}

/** The facts of an exchange that a filter reads. */
export interface FilteredExchange extends
  Pick<
    ExchangeRecord,
    | "id"
    | "keyId"
    | "keyName"
    | "usesHeldKey"
    | "team"
    | "attribution"
    | "provider"
    | "model"
    | "operation"
    | "run"
    | "outcome"
    | "code"
    | "cause"
    | "status"
    | "stream"
    | "durationMs"
    | "firstTokenMs"
  > {}

/**
 * Returns the kind of an exchange's end. A provider's 4xx is mostly the caller's concern, as is a
 * refusal by the gateway.
 */
export function endKindOf(end: EndFacts): EndKind {
  if (end.outcome === "client_closed") return "cancelled";
  const concern = concernOf(end);
  if (concern === "operator") return "errors";
  return concern === "caller" ? "refused" : "ok";
}

type Test = (exchange: FilteredExchange) => boolean;

function holds(text: string | undefined, part: string): boolean {
  return text !== undefined && text.toLowerCase().includes(part);
}

const searchedTexts = (exchange: FilteredExchange): readonly (string | undefined)[] => [
  exchange.id,
  exchange.keyId,
  exchange.keyName,
  exchange.team,
  ...Object.values(exchange.attribution ?? {}),
  exchange.provider,
  exchange.model,
  exchange.operation,
  exchange.run,
  exchange.outcome,
  exchange.code,
  exchange.cause,
  String(exchange.status),
];

/** The test of each dimension. */
const ATTRIBUTION_TESTS = Object.fromEntries(
  DIMENSIONS.map((name) => [
    name,
    (wanted: string): Test => ({ attribution }) => attribution?.[name] === wanted,
  ]),
) as Record<Dimension, (wanted: string) => Test>; // it has all dimensions

/** The test of each part of a filter. */
const TESTS: {
  readonly [Name in keyof ExchangeFilter]-?: (wanted: NonNullable<ExchangeFilter[Name]>) => Test;
} = {
  search(wanted) {
    const part = wanted.toLowerCase();
    return (exchange) => searchedTexts(exchange).some((each) => holds(each, part));
  },
  id: (wanted) => ({ id }) => id === wanted,
  key(wanted) {
    const part = wanted.toLowerCase();
    return ({ keyId, keyName }) => holds(keyId, part) || holds(keyName, part);
  },
  team: (wanted) => ({ team }) => team === wanted,
  ...ATTRIBUTION_TESTS,
  provider: (wanted) => ({ provider }) => provider === wanted,
  model: (wanted) => ({ model }) => holds(model, wanted.toLowerCase()),
  operation: (wanted) => ({ operation }) => holds(operation, wanted.toLowerCase()),
  run: (wanted) => ({ run }) => run === wanted,
  outcome: (wanted) => (exchange) => endKindOf(exchange) === wanted,
  code(wanted) {
    const part = wanted.toLowerCase();
    return ({ code, cause }) => holds(code, part) || holds(cause, part);
  },
  status(wanted) {
    const begin = wanted.replaceAll("x", "");
    return ({ status }) => String(status).startsWith(begin);
  },
  stream: (wanted) => ({ stream }) => (stream === true) === wanted,
  minDurationMs: (wanted) => ({ durationMs }) => durationMs >= wanted,
  minFirstTokenMs: (wanted) => ({ firstTokenMs }) =>
    firstTokenMs !== undefined && firstTokenMs >= wanted,
};

/** Creates the test of a filter. */
export function createTest(filter: ExchangeFilter): Test {
  const tests: Test[] = [];
  for (const [name, wanted] of Object.entries(filter)) {
    // The table has the test with the type of this part.
    const create = TESTS[name as keyof typeof TESTS] as (wanted: unknown) => Test;
    if (wanted !== undefined) tests.push(create(wanted));
  }
  return (exchange) => tests.every((test) => test(exchange));
}
