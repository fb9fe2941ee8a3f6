/**
 * Description of the admin API, generated from the routes, and of the operations for callers.
 *
 * @module
 */
import {
  type JsonSchema,
  type OverrideSchemaContext,
  toJsonSchemaDefs,
} from "@valibot/to-json-schema";
import { CALLER_SCHEMAS, ERROR } from "./caller_schemas.ts";
import { toCallerPaths, toCallerTags, toUpstreamSchemes } from "./caller_paths.ts";
import { type RouteDescription, type RouteQuery, TOKEN_HEADER } from "./route.ts";
import { ADMIN_ROUTES } from "./routes.ts";
import type { Named } from "./schema.ts";

/** Writes `null` next to the type, as is common in API descriptions. */
function withNull({ valibotSchema, jsonSchema }: OverrideSchemaContext): JsonSchema | undefined {
  if (valibotSchema.type !== "nullable") return undefined;
  if (jsonSchema.anyOf === undefined) throw new Error("nullable without its type");
  const [value] = jsonSchema.anyOf;
  return { ...Object(value), type: [Object(value).type, "null"] };
}

/** Returns the JSON Schema of every body and answer, by name. */
function toSchemas(): Record<string, unknown> {
  const ofRoutes = ADMIN_ROUTES.flatMap(({ body, response }) => [body ?? [], response].flat());
  const all = [...ofRoutes, ...CALLER_SCHEMAS];
  return toJsonSchemaDefs(
    Object.fromEntries(all.map(({ name, schema }) => [name, schema])),
    {
      target: "draft-2020-12",
      typeMode: "input",
      errorMode: "ignore",
      overrideSchema: withNull,
      overrideRef: ({ referenceId }) => ref(referenceId).$ref,
    },
  );
}

const ref = (name: string) => ({ $ref: `#/components/schemas/${name}` });

const content = ({ name }: Named, type = "application/json") => ({
  [type]: { schema: ref(name) },
});

function toPathParameters(path: string): unknown[] {
  return Array.from(path.matchAll(/\{(\w+)\}/g), ([, name]) => ({
    name,
    in: "path",
    required: true,
    schema: { type: "string" },
  }));
}

function toQueryParameters(query: RouteQuery | undefined): unknown[] {
  return Object.entries(query?.means ?? {}).map(([name, description]) => ({
    name,
    in: "query",
    description,
    schema: name === "limit" ? { type: "integer", minimum: 1 } : { type: "string" },
  }));
}

function describe(route: RouteDescription): unknown {
  const { operationId, summary, body, response, types = ["application/json"] } = route;
  return {
    operationId,
    summary,
    parameters: [...toPathParameters(route.path), ...toQueryParameters(route.query)],
    ...(route.isPublic === true && { security: [] }),
    ...(route.tokenIn === TOKEN_HEADER &&
      { security: [{ tokenBeside: [], upstreamKey: [], gatewayKey: [] }] }),
    ...(body !== undefined && { requestBody: { required: true, content: content(body) } }),
    responses: {
      [route.status]: {
        description: "Done",
        content: Object.assign({}, ...types.map((type) => content(response, type))),
      },
      default: { description: "Refused, and why", content: content(ERROR) },
    },
  };
}

function toSecuritySchemes(): Record<string, unknown> {
  const inHeader = (name: string, description: string) => ({
    type: "apiKey",
    in: "header",
    name,
    description,
  });
  return {
    token: {
      type: "http",
      scheme: "bearer",
      description: "admin.token of the configuration, or an identity token with a role",
    },
    tokenBeside: inHeader(
      TOKEN_HEADER,
      "Bearer and admin.token, where Authorization has the provider's key",
    ),
    ...toUpstreamSchemes(),
    gatewayKey: inHeader("Gateway-Auth", "Bearer and the caller's key at this gateway"),
  };
}

/** Creates an OpenAPI 3.1 document (https://spec.openapis.org/oas/v3.1.0). */
export function toOpenApi(version: string): Record<string, unknown> {
  const paths: Record<string, Record<string, unknown>> = {};
  for (const route of ADMIN_ROUTES) (paths[route.path] ??= {})[route.method] = describe(route);
  return {
    openapi: "3.1.0",
    info: {
      title: "Sallyport",
      version,
      license: { name: "MIT", identifier: "MIT" },
      description: "The admin API; and, with tags and servers of their own, " +
        "the operations that callers can use",
    },
    servers: [{ url: "/", description: "The admin listener" }],
    security: [{ token: [] }],
    tags: toCallerTags(),
    paths: { ...paths, ...toCallerPaths() },
    components: { securitySchemes: toSecuritySchemes(), schemas: toSchemas() },
  };
}
