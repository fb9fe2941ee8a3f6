/**
 * Schemas of live traffic: seconds, exchanges and reports.
 *
 * @module
 */
import * as v from "valibot";
import { type Attribution, DIMENSIONS } from "../../config/dimensions.ts";
import type { ErrorCode } from "../../errors/codes.ts";
import {
  FAILURE_CAUSES,
  type FailureCause,
  type Outcome,
  OUTCOMES,
} from "../../errors/outcomes.ts";
import type { Tariff, TokenUsage, UsagePart } from "../../exchange/billing.ts";
import type { GenAiOperation } from "../../exchange/record.ts";
import type { FleetLiveReport, LiveScope } from "../../observe/fleet/fleet_report.ts";
import {
  type LiveCost,
  type LiveExchange,
  type LiveReplica,
  type LiveReport,
  type LiveSecond,
  type ProviderTimes,
  REPORTED_EXCHANGES,
} from "../../observe/live/live_report.ts";
import {
  amount,
  anyObject,
  count,
  flag,
  list,
  objectOf,
  oneOf,
  optional,
  orNull,
  record,
  text,
} from "./schema.ts";

/** Schema of the state of a gateway. */
export const stateSchema: v.GenericSchema<LiveReport["state"]> = oneOf(
  ["starting", "ready", "draining", "leaving"],
  "Whether callers are welcome, an operator turned them elsewhere, " +
    "or the process was told to end",
);

const BINS = "Bin, how many, bin, how many: bin n ends at 2^(n/8 - 7) ms";
const durations = list(count(), BINS);

const second = objectOf<LiveSecond>({
  at: count("Seconds since 1970"),
  exchanges: count("Exchanges that settled in it"),
  errors: record(
    count(),
    "By the gateway's code, or upstream_ and the status that the provider answered",
  ),
  callers: record(
    count(),
    "Failures of callers: refused, with a provider's 4xx, or client_closed",
  ),
  tokens: count(),
  estimatedTokens: count("Tokens among them that the gateway estimated"),
  outputTokens: count(),
  duration: durations,
  firstToken: durations,
  overhead: list(count(), `The gateway's own time. ${BINS}`),
  providers: record(v.tuple([count(), count()]), "Exchanges, and errors among them"),
  times: record(
    objectOf<ProviderTimes>({ duration: durations, firstToken: durations }),
    "By provider; empty for seconds more than a minute ago",
  ),
});

const CAUSES = Object.keys(FAILURE_CAUSES) as FailureCause[];

/** Schema of a settled exchange. */
export const exchangeSchema: v.GenericSchema<LiveExchange> = objectOf<LiveExchange>({
  id: text("x-request-id"),
  settledAt: amount(
    "When it ended, milliseconds since 1970; with the id its place in the order",
  ),
  startedAt: amount("Wall clock, milliseconds since 1970"),
  durationMs: amount(),
  calledMs: optional(amount("Until the provider was called")),
  firstByteMs: optional(amount("Until the provider's answer began")),
  firstTokenMs: optional(amount("Until the first event of a stream")),
  overheadMs: amount("The gateway's own time"),
  outcome: oneOf(Object.keys(OUTCOMES) as Outcome[]),
  status: count(),
  code: optional(text<ErrorCode>()),
  cause: optional(oneOf(CAUSES, "Why the call to the provider failed")),
  retryCause: optional(oneOf(CAUSES, "Why a call failed that was made again")),
  provider: optional(text()),
  keyId: optional(text()),
  keyName: optional(text("Name of the key at the time, if it had one")),
  team: optional(text("Team of the key at the time, or of the identity token")),
  attribution: optional(v.pipe(
    objectOf<Attribution>(v.entriesFromList(DIMENSIONS, optional(text()))),
    v.description("Values of the configured headers, which the caller chose"),
  )),
  run: optional(text("Id of its run, which the caller chose")),
  repeats: optional(
    count("How many times in a row its run has sent the body, if that is more than runs.repeats"),
  ),
  usesHeldKey: optional(flag("Whether it used a provider key that the gateway holds")),
  gateway: optional(text("Name of its gateway, where the report is about several")),
  operation: optional(text()),
  genAi: optional(
    text<GenAiOperation>("Kind of a model's work, by OpenTelemetry's gen_ai.operation.name"),
  ),
  isMetered: optional(flag("Whether the operation costs tokens")),
  model: optional(text()),
  stream: optional(flag()),
  bytesIn: count(),
  bytesOut: count(),
  retries: count(),
  replica: optional(count()),
  usage: optional(objectOf<TokenUsage>({
    total: count(),
    input: optional(count()),
    output: optional(count()),
    cached: optional(count()),
    reasoning: optional(count()),
    parts: optional(list(objectOf<UsagePart>({
      model: optional(text("Another model than the caller named")),
      classes: record(count(), "Amounts by billing class"),
      tariff: objectOf<Tariff>({
        tier: optional(text("Tier that served the call, if it is not the standard one")),
        geo: optional(text("Region that served the call")),
        context: count(),
        asked: optional(record(text())),
      }),
    }))),
    statedCost: optional(text("Cost that the provider states")),
  })),
  cost: optional(objectOf<LiveCost>({
    total: orNull(text(), "Exact, as a decimal number; null if nothing has a price"),
    currency: text(),
    classes: record(text(), "By billing class; stated is a cost that the provider states"),
    unpriced: optional(
      record(count(), "Amounts without a price, by billing class: the total is a lower bound"),
    ),
  })),
  isEstimated: optional(
    flag("Whether the gateway estimated `usage`, since the provider stated none"),
  ),
  limit: optional(text("The limit that refused it")),
  observedLimit: optional(
    text("The limit that would have refused it, had it not been set to observe"),
  ),
});

const replica = objectOf<LiveReplica>({
  url: text(),
  inService: count("Number of processes in which it receives calls"),
  ejected: count("In how many it has a pause"),
  ejectedMs: amount("Until it is tried again"),
  failures: count("Since the last success"),
});

/** Schema of an event of the live feed. */
export const liveReportSchema: v.GenericSchema<FleetLiveReport> = objectOf<FleetLiveReport>({
  now: amount("Wall clock, milliseconds since 1970"),
  from: count("Seconds from this one on, up to now, are told here"),
  state: stateSchema,
  version: text(),
  health: anyObject<LiveReport["health"]>(
    "How the engines behind keys and limits do, and each worker",
  ),
  since: count(
    "First second that is known, since 1970; one before it was not idle, but unknown",
  ),
  openExchanges: count(),
  openStreams: count(),
  providers: list(objectOf<LiveReport["providers"][number]>({
    name: text(),
    hosts: list(text()),
    replicas: list(replica),
  })),
  seconds: list(second),
  exchanges: list(
    exchangeSchema,
    `Settled exchanges, the newest ${REPORTED_EXCHANGES} at most; GET /v1/exchanges has the rest`,
  ),
  scope: optional(v.pipe(
    objectOf<LiveScope>({ gateway: optional(text()), gateways: count(), isStale: flag() }),
    v.description("The gateways that it is about, if it was asked for others than this one"),
  )),
});
