/**
 * The settings of a provider: its hosts, its replicas, its deadlines and limits.
 *
 * @module
 */
import * as v from "valibot";
import { AddressSchema } from "./address.ts";
import { CREDENTIAL_HEADERS, findCredentialHeader } from "./credential.ts";
import { type DurableConfig, type DurableInput, DurableSchema } from "./durable.ts";
import {
  type EgressConfig,
  type EgressInput,
  ProviderEgressSchema,
  type StatedEgress,
} from "./egress.ts";
import { type HeldKeyInput, HeldKeySchema, type HeldKeySource } from "./held_key.ts";
import { type HeadersConfig, type HeadersInput, HeadersSchema } from "./headers.ts";
import { type LimitSet, LimitSetSchema, type WrittenLimits } from "./limit_set.ts";
import { OperationsSchema, type WrittenGroup } from "./operation_groups.ts";
import { explainUpstream, PRESETS, UPSTREAM_FORM } from "./presets.ts";
import { type Decimal, type Prices, PricesSchema, rate } from "./prices.ts";
import { toIssuePath } from "./issue.ts";
import { findMisshaped, SHAPE_SETTINGS, type ShapeName, ShapeSchema } from "./shape.ts";
import { about, duration, durationForm, nonEmpty, shortText, strictObject } from "./schema.ts";
import { parseDuration } from "./units.ts";

/** Charge for a call whose answer did not begin before a deadline of its provider. */
export type TimeoutCharge = "nothing" | "input" | "reservation";

/** One provider. */
export interface ProviderConfig extends
  Pick<
    ProviderInput,
    | "usage"
    | "maxOutput"
    | "maxInput"
    | "prices"
    | "region"
    | "statesCost"
    | "tiers"
    | "maxCalls"
    | "callPrices"
    | "chargeTimeouts"
  > {
  /**
   * `host`, `host:port`, `*.suffix` or `*` in lower case, each with or without a path before `/v1`.
   */
  readonly hosts: readonly string[];
  /** Base URLs of equivalent replicas, without a slash at their ends; at least one. */
  readonly upstreams: readonly string[];
  /** Shape of its addresses: the paths that callers use. */
  readonly shape: ShapeName;
  /** Groups of operations that callers can use. */
  readonly operations: readonly WrittenGroup[];
  /** Check of messages and their order: `ordered` by the gateway, `any` only by the provider. */
  readonly messages: "ordered" | "any";
  /** Deadlines of a call. Milliseconds from when it is sent, unless stated otherwise. */
  readonly deadlines: {
    /** Deadline for the connection. */
    readonly connectMs: number;
    /** Deadline for the response's header. */
    readonly firstByteMs: number;
    /** Deadline for the first event of a stream, counted from its header. */
    readonly firstEventMs: number;
    /**
     * The longest silence in an answer. After the first event of a stream, comments do not end it.
     */
    readonly idleMs: number;
    /** Deadline for the complete response. */
    readonly totalMs: number;
  };
  /** Silence after which the gateway sends a comment in a stream; 0 for never. Milliseconds. */
  readonly keepAliveMs: number;
  /**
   * Client of its calls: the gateway's own if the runtime has sockets, or the runtime's `fetch`.
   */
  readonly transport: "http1" | "fetch";
  /**
   * Proxy, authorities and client certificate of its calls. Default: a direct connection with the
   * runtime's authorities.
   */
  readonly egress?: EgressConfig | undefined;
  /** Header in which its interface expects the key. `Authorization` is accepted too. */
  readonly credential: "authorization" | "x-api-key" | "api-key" | "x-goog-api-key";
  /** True if callers can send `<gateway key>~<upstream key>` instead of the upstream key. */
  readonly combinedKey: boolean;
  /** Source of a key for callers that send none, and that are allowed to use it. */
  readonly upstreamKey?: HeldKeySource | undefined;
  /** Headers of its calls, in addition to the headers that are always forwarded. */
  readonly headers?: HeadersConfig | undefined;
  /** Durable exchanges. Default: none. */
  readonly durable?: DurableConfig | undefined;
  /** Limits that all keys share at this provider. */
  readonly limits?: LimitSet | undefined;
}

/** One provider as written in the configuration. */
export interface ProviderInput {
  /**
   * `host`, `host:port`, `*.suffix` or `*`, each with or without a path before `/v1`: `host/path`.
   * Default: `NAME.localhost`, or `*` for the only provider.
   */
  readonly hosts?: readonly string[] | undefined;
  /** A base URL, several URLs of equivalent replicas, or the short name of a known provider. */
  readonly upstream: string | readonly string[];
  /** Shape of its addresses: the paths that callers use. Default: `v1`. */
  readonly shape?: ShapeName | undefined;
  /** Check of messages and their order: `ordered` by the gateway, `any` only by the provider. */
  readonly messages?: "ordered" | "any" | undefined;
  /** Groups of operations that callers can use. Default: `default`. */
  readonly operations?: readonly WrittenGroup[] | undefined;
  /** Deadlines of a call, such as `30s`. */
  readonly deadlines?:
    | {
      readonly [name in "connect" | "firstByte" | "firstEvent" | "idle" | "total"]?:
        | string
        | undefined;
    }
    | undefined;
  /**
   * Silence after which the gateway sends a comment in a stream, such as `15s`; `off` for never.
   */
  readonly keepAlive?: string | undefined;
  /**
   * Proxy, authorities and client certificate of its calls, in addition to the defaults; `off` for
   * none of the defaults.
   */
  readonly egress?: EgressInput | undefined;
  /**
   * Header in which its interface expects the key, in addition to `Authorization`. Default: chosen
   * from the upstream.
   */
  readonly credential?: ProviderConfig["credential"] | undefined;
  /**
   * True if callers can send `<gateway key>~<upstream key>` instead of the upstream key. Default:
   * false.
   */
  readonly combinedKey?: boolean | undefined;
  /** Source of a key for callers that send none, and that are allowed to use it. Default: none. */
  readonly upstreamKey?: HeldKeyInput | undefined;
  /** `ask` if the gateway requests the tokens of streams for callers that do not. */
  readonly usage?: "ask" | undefined;
  /** Headers of its calls, in addition to the headers that are always forwarded. */
  readonly headers?: HeadersInput | undefined;
  /** Durable exchanges: answers that are recorded for callers that ask for it. Default: none. */
  readonly durable?: DurableInput | undefined;
  /** Limits that all keys share at this provider. */
  readonly limits?: WrittenLimits | undefined;
  /**
   * The most tokens of one of its answers. It caps the maximum that callers state, and replaces a
   * missing one.
   */
  readonly maxOutput?: number | undefined;
  /** The most tokens of input that one of its models accepts. No call is estimated at more. */
  readonly maxInput?: number | undefined;
  /** Prices of its models. They have precedence over the prices for all providers. */
  readonly prices?: Prices | undefined;
  /** Region of its models, if its answers do not state it and its price depends on it. */
  readonly region?: string | undefined;
  /** True if the cost that its answers state is its price. Default: false. */
  readonly statesCost?: boolean | undefined;
  /**
   * Tiers that can serve a call that asks for none, such as `priority`, in addition to the standard
   * one. Budgets reserve the price of the dearest.
   */
  readonly tiers?: readonly string[] | undefined;
  /** The most calls of tools by its models in one call, if the caller sets no maximum. */
  readonly maxCalls?: number | undefined;
  /**
   * Price of one call of operations whose answers state no usage, by operation or group, such as
   * `{ "batches": 0.5 }`. Without it, keys with limits of tokens or money cannot use them.
   */
  readonly callPrices?: Readonly<Record<string, Decimal>> | undefined;
  /**
   * Charge for a call whose answer did not begin before a deadline: all that was reserved for it, its
   * input, or nothing. Default: `reservation`, which strict limits always charge.
   */
  readonly chargeTimeouts?: TimeoutCharge | undefined;
}

const NAME = /^[a-z0-9](?:[a-z0-9-]*[a-z0-9])?$/;

const upstream = v.pipe(
  nonEmpty,
  v.transform((text) =>
    ((Object.hasOwn(PRESETS, text) ? PRESETS[text] : undefined) ?? text).replace(/\/+$/, "")
  ),
  v.check(
    (text) => URL.canParse(text) && /^https?:$/.test(new URL(text).protocol),
    ({ input }) => explainUpstream(input),
  ),
  v.check((text) => {
    if (!URL.canParse(text)) return true;
    const { username, password, search, hash } = new URL(text);
    return username + password + search + hash === "" && !/[\s?#]/.test(text);
  }, "expected a URL without credentials, query and fragment"),
);

/** The defaults. OpenAI's client libraries wait ten minutes for a header. */
const DEADLINES = {
  connect: "5s",
  firstByte: "10m",
  firstEvent: "10m",
  idle: "2m",
  total: "30m",
} as const;

/** Deadlines by their names. Milliseconds. */
type DeadlineSet = Readonly<Record<keyof typeof DEADLINES, number>>;

/**
 * Checks a deadline against its bound. The default is never a mistake, because a shorter bound
 * replaces it.
 */
function checkBound(name: keyof typeof DEADLINES, bound: keyof typeof DEADLINES) {
  const isBounded = (set: DeadlineSet) =>
    set[name] <= set[bound] || set[name] === parseDuration(DEADLINES[name]);
  return v.forward(v.check<DeadlineSet, string>(isBounded, `expected at most ${bound}`), [name]);
}

const deadlines = v.pipe(
  strictObject({
    connect: about(duration(DEADLINES.connect), "For a connection to the provider"),
    firstByte: about(duration(DEADLINES.firstByte), "Until its answer begins"),
    firstEvent: about(
      duration(DEADLINES.firstEvent),
      "From then until the first event of a stream; comments are no events",
    ),
    idle: about(
      duration(DEADLINES.idle),
      "The longest silence in an answer. Comments end a silence only before the first event of a stream",
    ),
    total: about(
      duration(DEADLINES.total),
      "For the whole answer; a smaller value also shortens the other deadlines that are left out",
    ),
  }, "expected an object"),
  checkBound("connect", "firstByte"),
  checkBound("firstByte", "total"),
  checkBound("firstEvent", "total"),
  checkBound("idle", "total"),
  v.transform((set) => ({
    connectMs: Math.min(set.connect, set.firstByte, set.total),
    firstByteMs: Math.min(set.firstByte, set.total),
    firstEventMs: Math.min(set.firstEvent, set.total),
    idleMs: Math.min(set.idle, set.total),
    totalMs: set.total,
  })),
);

const countForm = "expected a whole number of tokens, at least 1";
const tokenCount = v.pipe(
  v.number(countForm),
  v.integer(countForm),
  v.minValue(1, countForm),
  v.maxValue(1e9, countForm),
);

const NO_KEY =
  "Callers send their own provider key with each call. To let the gateway hold a key for " +
  "them, set upstreamKey";
/** Names that other programs have for settings of a provider. */
const HINTS: Readonly<Record<string, string>> = {
  apiKey: NO_KEY,
  api_key: NO_KEY,
  key: NO_KEY,
  baseURL: "Did you mean upstream?",
  baseUrl: "Did you mean upstream?",
  base_url: "Did you mean upstream?",
  url: "Did you mean upstream?",
  timeout: "Did you mean deadlines?",
};

const entries = {
  hosts: v.optional(v.pipe(
    v.array(AddressSchema, "expected an array of hosts"),
    v.nonEmpty("expected at least one host"),
    v.description(
      "`host`, `host:port`, `*.suffix` or `*`, each with or without a path before `/v1`: " +
        "`host/path`. Left out: `NAME.localhost`, or `*` for the only provider",
    ),
  )),
  upstream: about(
    v.union(
      [
        upstream,
        v.pipe(
          v.array(upstream, UPSTREAM_FORM),
          v.nonEmpty("expected at least one upstream"),
          v.check((urls) => new Set(urls).size === urls.length, "expected each upstream once"),
        ),
      ],
      UPSTREAM_FORM,
    ),
    "A base URL, several of equal replicas, or the short name of a known provider",
  ),
  shape: ShapeSchema,
  keepAlive: v.optional(
    about(
      v.union(
        [v.pipe(v.literal("off"), v.transform(() => 0)), duration("15s")],
        `${durationForm}, or "off"`,
      ),
      "Silence after which a stream is sent a comment, between events only; `off` for never",
    ),
    "15s",
  ),
  messages: v.optional(
    about(
      v.picklist(["ordered", "any"], 'expected "ordered" or "any"'),
      "With `any`, only one message is required, and the provider decides about the rest; " +
        "`ordered` also checks roles, contents and their order",
    ),
    "ordered",
  ),
  deadlines: v.optional(deadlines, {}),
  operations: v.optional(
    about(
      OperationsSchema,
      "Groups of operations that callers can use; " +
        "`default` means all that call models, `all` every path below `/v1`",
    ),
    ["default"],
  ),
  transport: v.optional(
    about(
      v.picklist(["http1", "fetch"], 'expected "http1" or "fetch"'),
      "The HTTP client that calls the provider: `http1` is the gateway's own, `fetch` the runtime's",
    ),
    "http1",
  ),
  egress: v.optional(
    about(
      ProviderEgressSchema,
      "How calls leave to it; overrides `egress` for all providers. `off`: none of those apply",
    ),
  ),
  credential: v.optional(about(
    v.picklist(
      CREDENTIAL_HEADERS,
      `expected ${CREDENTIAL_HEADERS.map((name) => `"${name}"`).join(", ")}`,
    ),
    "Header of its interface for the key, accepted in addition to `Authorization`. " +
      "Left out: by the upstream",
  )),
  combinedKey: v.optional(
    about(
      v.boolean("expected true or false"),
      "With `true`, `<gateway key>~<upstream key>` is accepted in the upstream key's place; " +
        "off if left out",
    ),
    false,
  ),
  upstreamKey: about(
    v.optional(HeldKeySchema),
    "Source of a key that the gateway holds, for callers that send none and have `heldKeys`: " +
      '`{ "file": … }`, `{ "env": … }` or `{ "exec": […] }`',
  ),
  usage: v.optional(about(
    v.picklist(["ask"], 'expected "ask"'),
    "With `ask`, the gateway asks the provider to state the tokens of streamed completions if the " +
      "caller does not, and removes that chunk. Nothing else changes bytes",
  )),
  headers: v.optional(HeadersSchema),
  durable: v.optional(
    about(DurableSchema, "Records answers for callers that ask for it, who can then attach again"),
  ),
  limits: v.optional(about(LimitSetSchema, "Limits that all keys share")),
  maxOutput: v.optional(about(
    tokenCount,
    "The most tokens that one answer can have. It limits the maximum that callers state, " +
      "and replaces a missing one",
  )),
  maxInput: v.optional(about(
    tokenCount,
    "The most tokens of input that one of its models accepts: no call is estimated at more. " +
      "Left out: 2,000,000",
  )),
  prices: v.optional(
    about(PricesSchema, "Prices of its models; they override the prices for all providers"),
  ),
  region: v.optional(about(
    shortText,
    "Region of its models, for factors and rows of prices with `geo`, if its answers state none",
  )),
  statesCost: v.optional(about(
    v.boolean("expected true or false"),
    "With `true`, the cost that its answers state is charged, and prices are used only without one",
  )),
  tiers: v.optional(about(
    v.array(shortText, "expected an array of strings"),
    "Tiers that can serve a call that asks for none. Budgets reserve the highest of their prices",
  )),
  maxCalls: v.optional(about(
    tokenCount,
    "The most tool calls that its models make within one call, if the caller sets no maximum",
  )),
  callPrices: v.optional(about(
    v.record(shortText, rate, 'expected an object such as { "batches": 0.5 }'),
    "Price of one call of an operation or group whose answers state no usage, such as `batches`. " +
      "Without it, keys with limits of tokens or money cannot use such operations",
  )),
  chargeTimeouts: v.optional(about(
    v.picklist(
      ["nothing", "input", "reservation"],
      'expected "nothing", "input" or "reservation"',
    ),
    "Charge for a call whose answer did not begin before a deadline: `nothing`, its `input`, or its " +
      "`reservation`. Left out: `reservation`, which strict limits always charge",
  )),
};
const settings = strictObject(entries, "expected an object", HINTS);

const provider = v.pipe(
  settings,
  v.rawCheck(({ dataset, addIssue }) => {
    if (!dataset.typed) return;
    for (const [path, message] of findMisshaped(dataset.value)) {
      addIssue({ message, path: toIssuePath(dataset.value, path) });
    }
  }),
);

/** Returns a provider's own host for local use; `*` for the only provider. */
function defaultHosts(name: string, isOnly: boolean): string[] {
  return isOnly ? ["*"] : [`${name}.localhost`];
}

/** A provider as the schema returns it. */
type ParsedProvider = v.InferOutput<typeof provider>;

/** A provider before the defaults of its egress are known. */
export type ProviderBeforeEgress = Omit<ProviderConfig, "egress"> & {
  readonly egress?: "off" | StatedEgress | undefined;
};

function toProvider(parsed: ParsedProvider, hostsElse: readonly string[]): ProviderBeforeEgress {
  const { hosts, upstream, keepAlive, credential, ...rest } = parsed;
  const upstreams = [upstream].flat();
  return {
    ...rest,
    hosts: hosts ?? hostsElse,
    upstreams,
    keepAliveMs: keepAlive,
    credential: credential ?? SHAPE_SETTINGS[rest.shape].credential ??
      findCredentialHeader(upstreams),
  };
}

function providersOf(
  parsed: Readonly<Record<string, ParsedProvider>>,
): Record<string, ProviderBeforeEgress> {
  const named = Object.entries(parsed);
  const isOnly = named.length === 1;
  return Object.fromEntries(
    named.map(([name, entry]) => [name, toProvider(entry, defaultHosts(name, isOnly))]),
  );
}

/** Finds addresses that an earlier provider has too. */
function* findSharedHosts(
  providers: Readonly<Record<string, ProviderBeforeEgress>>,
): Generator<readonly [name: string, index: number, message: string]> {
  const owners = new Map<string, readonly [name: string, path: string]>();
  for (const [name, { hosts }] of Object.entries(providers)) {
    for (const [index, host] of hosts.entries()) {
      const [owner, path] = owners.get(host) ?? [name, `providers.${name}.hosts[${index}]`];
      owners.set(host, [owner, path]);
      if (owner === name) continue;
      yield [name, index, `expected each address at one provider only: ${path} is the same`];
    }
  }
}

const noProvider = 'expected at least one provider, such as { "a": { "upstream": "openai" } }';

/** @internal The providers by their names: at least one, and each host at only one of them. */
export const ProvidersSchema: v.GenericSchema<
  Readonly<Record<string, ProviderInput>>,
  Record<string, ProviderBeforeEgress>
> = v.pipe(
  v.record(
    v.pipe(v.string(), v.regex(NAME, "expected letters, digits and -")),
    provider,
    noProvider,
  ),
  v.check((named) => Object.keys(named).length > 0, noProvider),
  v.transform(providersOf),
  v.rawCheck(({ dataset, addIssue }) => {
    if (!dataset.typed) return;
    for (const [name, index, message] of findSharedHosts(dataset.value)) {
      addIssue({ message, path: toIssuePath(dataset.value, [name, "hosts", index]) });
    }
  }),
);
