/**
 * The description of the admin API, made from the routes themselves, and of the operations for
 * callers.
 *
 * @module
 */
import { toJsonSchema } from "@valibot/to-json-schema";
import type * as v from "valibot";
import { DEFAULT_OVERLAP } from "../../keys/lifecycle.ts";
import { KeyPatchSchema, KeyPolicySchema } from "../../config/key.ts";
import { budgetListSchema } from "./budgets.ts";
import { toCallerPaths, toCallerTags } from "./caller_paths.ts";
import { fleetSchema } from "./fleet.ts";
import { liveSchemas } from "./live_schemas.ts";
import { providerListSchema } from "./providers.ts";
import { recordingSchemas } from "./recordings.ts";
import { type RouteFacts, type RouteQuery, type SchemaName, TOKEN_HEADER } from "./route.ts";
import { ADMIN_ROUTES } from "./routes.ts";
import { RevokedTokensSchema, tokenSchemas } from "./tokens.ts";
import { teamListSchema, useSchema } from "./teams.ts";
import { usageRowSchema, usageSchema } from "./usage.ts";

const text = { type: "string" };
const time = { type: "string", format: "date-time" };

function propertiesOf(schema: v.GenericSchema): Record<string, unknown> {
  const { properties } = toJsonSchema(schema, { typeMode: "input", errorMode: "ignore" });
  return properties as Record<string, unknown>;
}

/** The part of a view about a record that a later version wrote. */
const NOT_UNDERSTOOD = {
  unreadable: {
    ...text,
    description: "Why it is refused: what this version does not understand of its record",
  },
  unknown: {
    type: "array",
    items: text,
    description: "Names of what this version does not understand of its record, and keeps",
  },
};

const ref = (name: SchemaName) => ({ $ref: `#/components/schemas/${name}` });

function objectOf(properties: Record<string, unknown>): Record<string, unknown> {
  return { type: "object", properties, additionalProperties: false };
}

function toKeySchemas(): Record<"Key" | "NewKey" | "KeyList", unknown> {
  const key = {
    ...propertiesOf(KeyPolicySchema),
    id: { ...text, description: "Names the key in logs and metrics" },
    state: { enum: ["active", "disabled", "revoked", "expired", "unreadable"] },
    ...NOT_UNDERSTOOD,
    created: time,
    revoked: time,
    lastUsed: { ...time, description: "Written down lazily" },
    previousExpires: {
      ...time,
      description: "Until when the secret before the last rotation is good",
    },
    use: useSchema,
  };
  const whole = { key: { ...text, description: "The key itself. No other answer shows it" } };
  return {
    Key: { type: "object", required: ["id", "state"], properties: key },
    NewKey: { type: "object", required: ["id", "state", "key"], properties: { ...key, ...whole } },
    KeyList: {
      type: "object",
      required: ["keys", "next", "readOnly"],
      properties: {
        keys: { type: "array", items: ref("Key") },
        next: { type: ["string", "null"], description: "What to give as after for the next page" },
        readOnly: {
          type: "boolean",
          description: "True if keys stand in the configuration: no call changes them",
        },
      },
    },
  };
}

const errorSchema = {
  type: "object",
  required: ["error"],
  properties: {
    error: {
      type: "object",
      required: ["message", "type", "param", "code"],
      properties: {
        message: text,
        type: text,
        param: { type: ["string", "null"] },
        code: text,
      },
    },
  },
};

/** Returns the schema of every body and answer. */
function toSchemas(): Record<SchemaName, unknown> {
  return {
    KeyPolicy: objectOf(propertiesOf(KeyPolicySchema)),
    KeyPatch: objectOf(propertiesOf(KeyPatchSchema)),
    Rotation: objectOf({ overlap: { ...text, default: DEFAULT_OVERLAP, examples: ["0s"] } }),
    RevokedTokens: objectOf(propertiesOf(RevokedTokensSchema)),
    ...tokenSchemas,
    ...recordingSchemas,
    ...toKeySchemas(),
    TeamList: teamListSchema,
    BudgetList: budgetListSchema,
    ProviderList: providerListSchema,
    UsageReport: usageSchema,
    UsageRow: usageRowSchema,
    Fleet: fleetSchema,
    ...liveSchemas,
    Error: errorSchema,
  };
}

const content = (name: SchemaName, type = "application/json") => ({
  [type]: { schema: ref(name) },
});

function toPathParameters(path: string): unknown[] {
  return Array.from(path.matchAll(/\{(\w+)\}/g), ([, name]) => ({
    name,
    in: "path",
    required: true,
    schema: text,
  }));
}

function toQueryParameters(query: RouteQuery | undefined): unknown[] {
  return Object.entries(query?.means ?? {}).map(([name, description]) => ({
    name,
    in: "query",
    description,
    schema: name === "limit" ? { type: "integer", minimum: 1 } : text,
  }));
}

function describe(route: RouteFacts): unknown {
  const { operationId, summary, body, answers, types = ["application/json"] } = route;
  return {
    operationId,
    summary,
    parameters: [...toPathParameters(route.path), ...toQueryParameters(route.query)],
    ...(route.tokenIn === TOKEN_HEADER &&
      { security: [{ tokenBeside: [], upstreamKey: [], gatewayKey: [] }] }),
    ...(body !== undefined && { requestBody: { required: true, content: content(body.form) } }),
    responses: {
      [route.status]: {
        description: "Done",
        content: Object.assign({}, ...types.map((type) => content(answers, type))),
      },
      default: { description: "Refused, and why", content: content("Error") },
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
      "Bearer and admin.token, where Authorization holds the provider's key",
    ),
    upstreamKey: {
      type: "http",
      scheme: "bearer",
      description: "The caller's key at the provider",
    },
    gatewayKey: inHeader("Gateway-Auth", "Bearer and the caller's key at this gateway"),
  };
}

/** Makes an OpenAPI 3.1 document (https://spec.openapis.org/oas/v3.1.0). */
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
