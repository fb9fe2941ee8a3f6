/**
 * The form of a route of the admin API. The handler, the audit and the API description read it.
 *
 * @module
 */
import type * as v from "valibot";
import type { GatewayRequest, GatewayResponse } from "../../http/message.ts";
import type { TextParts } from "./responses.ts";
import type { Operator } from "./guard.ts";
import type { Named } from "./schema.ts";

/** Header of the admin token if `Authorization` has the provider's key. */
export const TOKEN_HEADER = "Sallyport-Admin";

/** Arguments of a route. */
export interface AdminRequest<Query = unknown, Body = unknown> {
  /** Id or name in the path; empty if the path has none. */
  readonly id: string;
  /** The calling operator. */
  readonly operator: Operator;
  /** The query string's parameters, checked by the route's schema. */
  readonly query: Query;
  /** The parsed body, checked by the route's schema. */
  readonly body: Body;
  readonly inbound: GatewayRequest;
}

/** The query string's parameters: their schema, and the meaning of each. */
export interface RouteQuery<Query = unknown> {
  readonly schema: v.GenericSchema<unknown, Query>;
  readonly means: Readonly<Record<string, string>>;
}

/**
 * The description of a route. Unless it is public, any method except `get` needs the role admin and is
 * audited.
 */
export interface RouteDescription<Content = unknown, Query = unknown, Body = unknown> {
  readonly method: "get" | "post" | "patch" | "delete";
  /** Path with at most one parameter, such as `{id}`. */
  readonly path: string;
  /** Name of the operation in the description and in the audit. */
  readonly operationId: string;
  readonly summary: string;
  /** True for a route that needs no token. It writes its own audit. */
  readonly isPublic?: boolean;
  /** Header of the admin token; `Authorization` if left out. */
  readonly tokenIn?: typeof TOKEN_HEADER;
  readonly body?: Named<unknown, Body>;
  readonly query?: RouteQuery<Query>;
  readonly status: 200 | 201;
  readonly response: Named<Content>;
  /** Media types of the response; JSON if left out. */
  readonly types?: readonly string[];
}

/** A route that returns the content of its response: a value for JSON, or `TextParts`. */
interface ContentRoute<Service, Content, Query, Body>
  extends RouteDescription<Content, Query, Body> {
  run(service: Service, call: AdminRequest<Query, Body>): Promise<NoInfer<Content> | TextParts>;
}

/** A route that reads the body and creates the whole response itself. */
interface ResponseRoute<Service, Content, Query, Body>
  extends RouteDescription<Content, Query, Body> {
  respond(service: Service, call: Omit<AdminRequest<Query>, "body">): Promise<GatewayResponse>;
}

/** One route, and the function that runs it. */
export type AdminRoute<Service, Content = unknown, Query = unknown, Body = unknown> =
  | ContentRoute<Service, Content, Query, Body>
  | ResponseRoute<Service, Content, Query, Body>;

/** Creates a route. Its schemas determine the types of its query, its body and its response. */
export function route<Service, Content, Query, Body>(
  given: AdminRoute<Service, Content, Query, Body>,
): AdminRoute<Service> {
  return given;
}
