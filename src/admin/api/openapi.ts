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
import { BUDGET_ROUTES, budgetListSchema } from "./budgets.ts";
import { toCallerPaths, toCallerTags } from "./caller_paths.ts";
import { EXCHANGE_ROUTES } from "./exchanges.ts";
import { FLEET_ROUTES, fleetSchema } from "./fleet.ts";
import { type AdminRoute, KEY_ROUTES } from "./keys.ts";
import { liveSchemas } from "./live_schemas.ts";
import { OPERATOR_ROUTES, type OperatorRoute, TOKEN_HEADER } from "./operator_actions.ts";
import { PROVIDER_ROUTES, providerListSchema } from "./providers.ts";
import { RECORDING_ROUTES, recordingSchemas } from "./recordings.ts";
import { RevokedTokensSchema, TOKEN_ROUTES, tokenSchemas } from "./tokens.ts";
import { TEAM_ROUTES, teamListSchema, useSchema } from "./teams.ts";
import { USAGE_ROUTES, usageRowSchema, usageSchema } from "./usage.ts";

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

function schemas(): Record<string, unknown> {
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
    KeyPolicy: {
      type: "object",
      properties: propertiesOf(KeyPolicySchema),
      additionalProperties: false,
    },
    KeyPatch: {
      type: "object",
      properties: propertiesOf(KeyPatchSchema),
      additionalProperties: false,
    },
    Rotation: {
      type: "object",
      properties: { overlap: { ...text, default: DEFAULT_OVERLAP, examples: ["0s"] } },
      additionalProperties: false,
    },
    RevokedTokens: {
      type: "object",
      properties: propertiesOf(RevokedTokensSchema),
      additionalProperties: false,
    },
    ...tokenSchemas,
    ...recordingSchemas,
    Key: { type: "object", required: ["id", "state"], properties: key },
    NewKey: { type: "object", required: ["id", "state", "key"], properties: { ...key, ...whole } },
    KeyList: {
      type: "object",
      required: ["keys", "next", "readOnly"],
      properties: {
        keys: { type: "array", items: { $ref: "#/components/schemas/Key" } },
        next: { type: ["string", "null"], description: "What to give as after for the next page" },
        readOnly: {
          type: "boolean",
          description: "True if keys stand in the configuration: no call changes them",
        },
      },
    },
    TeamList: teamListSchema,
    BudgetList: budgetListSchema,
    ProviderList: providerListSchema,
    UsageReport: usageSchema,
    UsageRow: usageRowSchema,
    Fleet: fleetSchema,
    ...liveSchemas,
    Error: {
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
    },
  };
}

const content = (name: string, type = "application/json") => ({
  [type]: { schema: { $ref: `#/components/schemas/${name}` } },
});

function toParameters(query: AdminRoute["query"]): unknown[] {
  return Object.entries(query?.means ?? {}).map(([name, description]) => ({
    name,
    in: "query",
    description,
    schema: name === "limit" ? { type: "integer", minimum: 1 } : text,
  }));
}

function describe(
  { operationId, summary, path, query, body, status, answers, types = ["application/json"] }: Omit<
    AdminRoute,
    "run"
  >,
): unknown {
  const inPath = path.includes("{id}")
    ? [{ name: "id", in: "path", required: true, schema: text }]
    : [];
  const inQuery = toParameters(query);
  return {
    operationId,
    summary,
    parameters: [...inPath, ...inQuery],
    ...(body !== undefined && {
      requestBody: { required: true, content: content(body.form) },
    }),
    responses: {
      [status]: {
        description: "Done",
        content: Object.assign({}, ...types.map((type) => content(answers, type))),
      },
      default: { description: "Refused, and why", content: content("Error") },
    },
  };
}

function describeAction(
  { operationId, summary, path, tokenIn, query, body, answers, type }: OperatorRoute,
): unknown {
  const inPath = path.includes("{provider}")
    ? [{ name: "provider", in: "path", required: true, schema: text }]
    : [];
  return {
    operationId,
    summary,
    parameters: [...inPath, ...toParameters(query)],
    ...(tokenIn === TOKEN_HEADER &&
      { security: [{ tokenBeside: [], upstreamKey: [], gatewayKey: [] }] }),
    ...(body !== undefined && { requestBody: { required: true, content: content(body) } }),
    responses: {
      200: { description: "Done", content: content(answers, type) },
      default: { description: "Refused, and why", content: content("Error") },
    },
  };
}

/**
 * @param version The gateway's version
 * @returns An OpenAPI 3.1 document (https://spec.openapis.org/oas/v3.1.0)
 */
export function toOpenApi(version: string): Record<string, unknown> {
  const paths: Record<string, Record<string, unknown>> = {};
  const reports = [
    ...BUDGET_ROUTES,
    ...USAGE_ROUTES,
    ...EXCHANGE_ROUTES,
    ...RECORDING_ROUTES,
    ...FLEET_ROUTES,
  ];
  for (
    const route of [...KEY_ROUTES, ...TOKEN_ROUTES, ...TEAM_ROUTES, ...PROVIDER_ROUTES, ...reports]
  ) {
    (paths[route.path] ??= {})[route.method] = describe(route);
  }
  for (const route of OPERATOR_ROUTES) {
    (paths[route.path] ??= {})[route.method] = describeAction(route);
  }
  const inHeader = (name: string, description: string) => ({
    type: "apiKey",
    in: "header",
    name,
    description,
  });
  return {
    openapi: "3.1.0",
    info: {
      title: "Sallyport",
      version,
      license: { name: "MIT", identifier: "MIT" },
      description:
        "The admin API; and, with tags and servers of their own, the operations that callers can use",
    },
    servers: [{ url: "/", description: "The admin listener" }],
    security: [{ token: [] }],
    tags: toCallerTags(),
    paths: { ...paths, ...toCallerPaths() },
    components: {
      securitySchemes: {
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
      },
      schemas: schemas(),
    },
  };
}
