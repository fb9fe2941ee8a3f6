/**
 * The settings of a provider: its hosts, its replicas, its credentials and limits. Its deadlines and
 * charges have their own files.
 *
 * @module
 */
import * as v from "valibot";
import { AddressSchema } from "./address.ts";
import { CREDENTIAL_HEADERS } from "./credential.ts";
import { type DeadlinesConfig, type DeadlinesInput, DeadlinesSchema } from "./deadlines.ts";
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
import { CHARGE_ENTRIES, type ProviderCharges } from "./provider_charges.ts";
import { toIssuePath } from "./issue.ts";
import { findMisshaped, type ShapeName, ShapeSchema } from "./shape.ts";
import { about, duration, durationForm, strictObject } from "./schema.ts";
import { UpstreamSchema } from "./upstream.ts";

/** One provider. */
export interface ProviderConfig extends ProviderCharges, Pick<ProviderInput, "usage"> {
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
  readonly deadlines: DeadlinesConfig;
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
export interface ProviderInput extends ProviderCharges {
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
  readonly deadlines?: DeadlinesInput | undefined;
  /**
   * Client of its calls. Default: `http1`, the gateway's own, if the runtime has sockets; otherwise
   * `fetch`, the runtime's.
   */
  readonly transport?: ProviderConfig["transport"] | undefined;
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
}

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
      "Hosts at which callers reach it: `host`, `host:port`, `*.suffix` or `*`, each with or without " +
        "a path before `/v1` (`host/path`). Left out: `NAME.localhost`, or `*` for the only provider",
    ),
  )),
  upstream: UpstreamSchema,
  shape: ShapeSchema,
  keepAlive: v.optional(
    about(
      v.union(
        [v.pipe(v.literal("off"), v.transform(() => 0)), duration("15s")],
        `${durationForm}, or "off"`,
      ),
      "After this time of silence in a stream, the gateway sends the caller a comment. `off`: never",
    ),
    "15s",
  ),
  messages: v.optional(
    about(
      v.picklist(["ordered", "any"], 'expected "ordered" or "any"'),
      "`ordered` checks the roles, the contents and the order of messages. " +
        "`any` requires only a model and one message",
    ),
    "ordered",
  ),
  deadlines: v.optional(DeadlinesSchema, {}),
  operations: v.optional(
    about(
      OperationsSchema,
      "Groups of operations that callers can use. " +
        "`default`: all groups that call models. `all`: every path below `/v1`. Left out: `default`",
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
      "How the gateway connects to this provider. With `off`, the top-level `egress` does not apply",
    ),
  ),
  credential: v.optional(about(
    v.picklist(
      CREDENTIAL_HEADERS,
      `expected ${CREDENTIAL_HEADERS.map((name) => `"${name}"`).join(", ")}`,
    ),
    "Header in which callers can send the provider key, in addition to `Authorization`. " +
      "Left out: the header of its interface, such as `x-api-key` for Anthropic",
  )),
  combinedKey: v.optional(
    about(
      v.boolean("expected true or false"),
      "With `true`, a caller can send both keys as one, in the header of the provider key and " +
        "without `Gateway-Auth`: `<gateway key>~<provider key>`. Left out: `false`",
    ),
    false,
  ),
  upstreamKey: about(
    v.optional(HeldKeySchema),
    "Source of a provider key for callers that send none and have `heldKeys`: " +
      '`{ "file": … }`, `{ "env": … }` or `{ "exec": […] }`',
  ),
  usage: v.optional(about(
    v.picklist(["ask"], 'expected "ask"'),
    "With `ask`, the gateway asks the provider to state the tokens of a streamed completion if the " +
      "caller does not, and removes the chunk that states them",
  )),
  headers: v.optional(HeadersSchema),
  durable: v.optional(
    about(DurableSchema, "Records answers for callers that ask for it, who can then attach again"),
  ),
  limits: v.optional(about(LimitSetSchema, "Limits that all keys share")),
  ...CHARGE_ENTRIES,
} satisfies Readonly<Record<keyof ProviderInput, unknown>>;
const settings = strictObject(entries, "expected an object", HINTS);

/** @internal A provider before the defaults that depend on its name and on other settings. */
export type ParsedProvider =
  & Omit<ProviderConfig, "hosts" | "upstreams" | "keepAliveMs" | "credential" | "egress">
  & {
    readonly hosts?: readonly string[] | undefined;
    readonly upstream: string | readonly string[];
    readonly keepAlive: number;
    readonly credential?: ProviderConfig["credential"] | undefined;
    readonly egress?: "off" | StatedEgress | undefined;
  };

/** @internal The schema of one provider. */
export const ProviderSchema: v.GenericSchema<ProviderInput, ParsedProvider> = v.pipe(
  settings,
  v.rawCheck(({ dataset, addIssue }) => {
    if (!dataset.typed) return;
    for (const [path, message] of findMisshaped(dataset.value)) {
      addIssue({ message, path: toIssuePath(dataset.value, path) });
    }
  }),
);
