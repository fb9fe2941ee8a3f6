/**
 * The routes of identity tokens at the admin API, with the schemas of their bodies and their
 * answers.
 *
 * @module
 */
import * as v from "valibot";
import { shortText } from "../../config/schema.ts";
import type {
  RevocationView,
  RevokedTokens,
  TokenAdministration,
} from "../token_administration.ts";
import { authorOf, REASON } from "./changes.ts";
import type { Operator } from "./guard.ts";
import { type AdminRoute, route } from "./route.ts";
import { list, objectOf, oneOf, optional, text, time } from "./schema.ts";

const RevokedTokensSchema: v.GenericSchema<unknown, RevokedTokens> = v.strictObject({
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

const revocation = objectOf<RevocationView>({
  id: text("Id of the caller, or the claim and its value"),
  by: oneOf(["jti", "subject", "id"]),
  value: text(),
  issuer: optional(text("`iss` of the tokens")),
  revoked: time(),
  until: time("When every one of these tokens has expired"),
});

/** The operator that a token identifies. */
export type SignedIn = Pick<Operator, "who" | "role">;

/** The routes of identity tokens. */
export const TOKEN_ROUTES: readonly AdminRoute<TokenAdministration>[] = [
  route({
    method: "get",
    path: "/v1/me",
    operationId: "showOperator",
    summary: "Show the operator and the role of this token",
    status: 200,
    response: {
      name: "Operator",
      schema: objectOf<SignedIn>({
        who: text("Id of the operator's token, or `admin token`"),
        role: oneOf(["viewer", "admin"]),
      }),
    },
    run(_, { operator }) {
      const { who, role } = operator;
      return Promise.resolve({ who, role });
    },
  }),
  route({
    method: "get",
    path: "/v1/tokens/revoked",
    operationId: "listRevokedTokens",
    summary: "List the revocations of identity tokens that have not expired, the latest first",
    status: 200,
    response: {
      name: "RevocationList",
      schema: objectOf<{ readonly revoked: readonly RevocationView[] }>({
        revoked: list(revocation),
      }),
    },
    run: async (tokens) => ({ revoked: await tokens.list() }),
  }),
  route({
    method: "post",
    path: "/v1/tokens/revoke",
    operationId: "revokeTokens",
    summary:
      "Revoke identity tokens by jti, by subject or by id. All gateways apply this within a second",
    query: REASON,
    body: { name: "RevokedTokens", schema: RevokedTokensSchema },
    status: 200,
    response: { name: "Revocation", schema: revocation },
    run: (tokens, { body, query, operator }) => tokens.revoke(body, authorOf({ operator, query })),
  }),
];
