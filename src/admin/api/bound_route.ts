/**
 * A route of the admin API with the service that runs it.
 *
 * @module
 */
import { TextParts, toResponse, toTextResponse } from "./responses.ts";
import { readJsonBody } from "./read_request.ts";
import type { AdminRequest, AdminRoute, RouteDescription } from "./route.ts";
import type { Answered } from "./supervision.ts";

/** A route with the service that runs it. */
export interface BoundRoute extends RouteDescription {
  readonly answer: (call: Omit<AdminRequest, "body">) => Promise<Answered>;
}

async function answerWith<Service>(
  route: AdminRoute<Service>,
  service: Service,
  call: Omit<AdminRequest, "body">,
): Promise<Answered> {
  if ("respond" in route) return { response: await route.respond(service, call) };
  const body = route.body && await readJsonBody(route.body.schema, call.inbound);
  const content = await route.run(service, { ...call, body });
  if (content instanceof TextParts) return { response: toTextResponse(route.status, content) };
  return { response: toResponse(route.status, content), ...toAuditFields(content, call.query) };
}

/** Returns the fields of a response for the audit. Only credits have an amount. */
function toAuditFields(content: unknown, query: unknown): Omit<Answered, "response"> {
  const answered = Object(content) as Readonly<Record<string, unknown>>;
  const { id, reason = Object(query).reason, tokens, money } = answered;
  const facts = { id: typeof id === "string" ? id : undefined };
  if (typeof reason !== "string") return facts;
  const amounts = [tokens === undefined ? [] : `${tokens} tokens`, money ?? []].flat();
  return { ...facts, reason, ...(amounts.length > 0 && { amount: amounts.join(" and ") }) };
}

/** Binds a route to its service. */
export function bindRoute<Service>(route: AdminRoute<Service>, service: Service): BoundRoute {
  return { ...route, answer: (call) => answerWith(route, service, call) };
}
