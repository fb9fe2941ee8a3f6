/**
 * The form of a route of the admin API: the handler, the audit and the description all read it.
 *
 * @module
 */
import type * as v from "valibot";
import type { GatewayRequest, GatewayResponse } from "../../http/message.ts";
import type { Operator } from "./guard.ts";

/** Header of the admin token where `Authorization` holds the provider's key. */
export const TOKEN_HEADER = "Sallyport-Admin";

/** Names of the schemas in the description of the API. */
export type SchemaName =
  | ("Key" | "NewKey" | "KeyList" | "KeyPolicy" | "KeyPatch" | "Rotation")
  | ("Operator" | "Revocation" | "RevocationList" | "RevokedTokens")
  | ("TeamList" | "ProviderList" | "BudgetList" | "UsageReport" | "UsageRow")
  | ("RecordingList" | "StoppedRecording" | "ExchangeList" | "Fleet" | "State" | "LiveReport")
  | ("ChatCompletionRequest" | "ChatCompletion" | "Error");

/** Arguments of a route. */
export interface AdminCall {
  /** Id or name in the path; empty if the path has none. */
  readonly id: string;
  /** The operator who calls. */
  readonly operator: Operator;
  /** The query string's parameters, checked by the route's schema. */
  readonly query: unknown;
  /** The parsed body, checked by the route's schema. */
  readonly body: unknown;
  readonly inbound: GatewayRequest;
}

/** The query string's parameters: their schema, and the meaning of each. */
export interface RouteQuery {
  readonly schema: v.GenericSchema;
  readonly means: Readonly<Record<string, string>>;
}

/** A route as it is described. Any method except `get` needs the role admin, and is audited. */
export interface RouteFacts {
  readonly method: "get" | "post" | "patch";
  /** Path, with one parameter at most, such as `{id}`. */
  readonly path: string;
  /** Names the operation in the description and in the audit. */
  readonly operationId: string;
  readonly summary: string;
  /** Header of the admin token; `Authorization` if left out. */
  readonly tokenIn?: typeof TOKEN_HEADER;
  /** Name of the body's schema. A route without a `schema` here reads the body itself. */
  readonly body?: { readonly form: SchemaName; readonly schema?: v.GenericSchema };
  readonly query?: RouteQuery;
  readonly status: 200 | 201;
  /** Name of the answer's schema. */
  readonly answers: SchemaName;
  /** Media types of the answer; JSON if left out. */
  readonly types?: readonly string[];
}

/** A route that returns the content of its answer: a value for JSON, or `TextParts`. */
interface ContentRoute<Service> extends RouteFacts {
  run(service: Service, call: AdminCall): Promise<unknown>;
}

/** A route that makes the whole answer itself. */
interface AnswerRoute<Service> extends RouteFacts {
  respond(service: Service, call: AdminCall): Promise<GatewayResponse>;
}

/** One route, and the function that runs it. */
export type AdminRoute<Service> = ContentRoute<Service> | AnswerRoute<Service>;
