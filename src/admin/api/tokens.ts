/**
 * The routes of identity tokens at the admin API, with the schemas of their bodies and their
 * answers.
 *
 * @module
 */
import * as v from "valibot";
import { shortText } from "../../config/schema.ts";
import type { RevokedTokens, TokenAdministration } from "../token_administration.ts";
import type { AdminRoute } from "./route.ts";

const text = { type: "string" };
const time = { type: "string", format: "date-time" };

/** @internal The body of a call that revokes tokens. */
export const RevokedTokensSchema: v.GenericSchema<unknown, RevokedTokens> = v.strictObject({
  issuer: v.optional(
    v.pipe(shortText, v.description("Name of the issuer; not needed where there is only one")),
  ),
  jti: v.optional(v.pipe(shortText, v.description("`jti` of one token"))),
  subject: v.optional(
    v.pipe(shortText, v.description("`sub` of tokens: all that were issued so far")),
  ),
  id: v.optional(
    v.pipe(shortText, v.description("Id of the caller in the log, such as `jwt:corp:ann`")),
  ),
}, "expected an object");

/** JSON Schemas of the answers, for the description. */
export const tokenSchemas: Readonly<
  Record<"Revocation" | "RevocationList" | "Operator", unknown>
> = {
  Revocation: {
    type: "object",
    required: ["id", "by", "value", "revoked", "until"],
    properties: {
      id: { ...text, description: "Id of the caller, or the claim and its value" },
      by: { enum: ["jti", "subject", "id"] },
      value: text,
      issuer: { ...text, description: "`iss` of the tokens" },
      revoked: time,
      until: { ...time, description: "When every one of these tokens has expired" },
    },
  },
  RevocationList: {
    type: "object",
    required: ["revoked"],
    properties: { revoked: { type: "array", items: { $ref: "#/components/schemas/Revocation" } } },
  },
  Operator: {
    type: "object",
    required: ["who", "role"],
    properties: {
      who: { ...text, description: "Id of the operator's token, or `admin token`" },
      role: { enum: ["viewer", "admin"] },
    },
  },
};

/** The routes of identity tokens. */
export const TOKEN_ROUTES: readonly AdminRoute<TokenAdministration>[] = [
  {
    method: "get",
    path: "/v1/me",
    operationId: "showOperator",
    summary: "Show as whom this token signs in, and with which role",
    status: 200,
    answers: "Operator",
    run(_, { operator }) {
      const { who, role } = operator;
      return Promise.resolve({ who, role });
    },
  },
  {
    method: "get",
    path: "/v1/tokens/revoked",
    operationId: "listRevokedTokens",
    summary: "List the revocations of identity tokens that have not expired, the latest first",
    status: 200,
    answers: "RevocationList",
    run: async (tokens) => ({ revoked: await tokens.list() }),
  },
  {
    method: "post",
    path: "/v1/tokens/revoke",
    operationId: "revokeTokens",
    summary:
      "Revoke identity tokens by jti, by subject or by id; takes effect everywhere within a second",
    body: { schema: RevokedTokensSchema, form: "RevokedTokens" },
    status: 200,
    answers: "Revocation",
    run: (tokens, { body }) => tokens.revoke(body as RevokedTokens),
  },
];
