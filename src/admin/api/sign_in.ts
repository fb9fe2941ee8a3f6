/**
 * The routes with which the console signs operators in at an identity provider. They need no token.
 *
 * @module
 */
import * as v from "valibot";
import { shortText } from "../../config/schema.ts";
import { GatewayError } from "../../errors/gateway_error.ts";
import type { CodeGrant, CodeSignIn } from "../../keys/identity/code_sign_in.ts";
import { TokenRefused } from "../../keys/identity/token_fault.ts";
import type { TokenOperator } from "../../keys/identity/verifier.ts";
import { type AdminRoute, route } from "./route.ts";
import { list, objectOf, text } from "./schema.ts";

/** Sign-in at the identity providers of a configuration. */
export interface SignIns {
  readonly issuers: readonly CodeSignIn[];
  /**
   * Finds the operator of a token; `undefined` for a valid token without a role here.
   *
   * @throws {TokenRefused} For any other token
   */
  readonly findOperator: (token: string) => Promise<TokenOperator | undefined>;
  /**
   * Notes the end of a sign-in.
   *
   * @param who The operator, or the issuer of a sign-in that failed
   * @param outcome `ok`, or the code of the failure
   */
  readonly audit: (who: TokenOperator | { readonly issuer: string }, outcome: string) => void;
}

/** The address at which a sign-in begins. */
export interface SignInAddress {
  readonly url: string;
}

const MAX_CODE = 4096;
const secretText = v.pipe(v.string(), v.minLength(1), v.maxLength(MAX_CODE));

const GrantSchema: v.GenericSchema<unknown, CodeGrant & { readonly issuer: string }> = v
  .strictObject({
    issuer: v.pipe(shortText, v.description("Name of the issuer")),
    code: v.pipe(secretText, v.description("The code, as the issuer sent it")),
    iss: v.optional(v.pipe(shortText, v.description("`iss` of the answer (RFC 9207)"))),
    verifier: v.pipe(secretText, v.description("`code_verifier` of PKCE (RFC 7636)")),
    nonce: v.pipe(secretText, v.description("`nonce` of the sign-in")),
  }, "expected an object");

function findIssuer({ issuers }: SignIns, name: string): CodeSignIn {
  const found = issuers.find((each) => each.name === name);
  if (found !== undefined) return found;
  throw new GatewayError("sign_in_failed", { detail: "no issuer with this name has admin.signIn" });
}

/** Ends a sign-in. @throws {GatewayError} As `exchange` does, and `sign_in_failed` without a role */
async function signIn(
  signIns: SignIns,
  issuer: CodeSignIn,
  grant: CodeGrant,
): Promise<{ readonly token: string }> {
  const token = await issuer.exchange(grant);
  const operator = await signIns.findOperator(token).catch((thrown) => {
    if (!(thrown instanceof TokenRefused)) throw thrown;
    const detail = `its token cannot be accepted (${thrown.fault})`;
    throw new GatewayError("sign_in_failed", { detail });
  });
  if (operator === undefined) {
    const detail = "you are known there, but have no role at this gateway";
    throw new GatewayError("sign_in_failed", { detail });
  }
  signIns.audit(operator, "ok");
  return { token };
}

/** The routes. */
export const SIGN_IN_ROUTES: readonly AdminRoute<SignIns>[] = [
  route({
    method: "get",
    path: "/v1/sign-in",
    operationId: "listSignIns",
    summary: "List the issuers at which operators sign in to the console",
    isPublic: true,
    status: 200,
    response: {
      name: "SignInList",
      schema: objectOf<{ readonly issuers: readonly { readonly name: string }[] }>({
        issuers: list(objectOf<{ readonly name: string }>({ name: text("Name of the issuer") })),
      }),
    },
    run: ({ issuers }) => Promise.resolve({ issuers: issuers.map(({ name }) => ({ name })) }),
  }),
  route({
    method: "get",
    path: "/v1/sign-in/{issuer}",
    operationId: "beginSignIn",
    summary: "Show the address at which a sign-in begins. The page adds state, nonce and " +
      "code_challenge",
    isPublic: true,
    status: 200,
    response: {
      name: "SignInAddress",
      schema: objectOf<SignInAddress>({ url: text("Address at the issuer") }),
    },
    run: async (signIns, { id }) => ({ url: await findIssuer(signIns, id).toAddress() }),
  }),
  route({
    method: "post",
    path: "/v1/sign-in",
    operationId: "signIn",
    summary: "Exchange the code of a sign-in for a token with a role",
    isPublic: true,
    body: { name: "SignInGrant", schema: GrantSchema },
    status: 200,
    response: {
      name: "SignInToken",
      schema: objectOf<{ readonly token: string }>({ token: text("The operator's token") }),
    },
    async run(signIns, { body }) {
      let issuer: CodeSignIn | undefined;
      try {
        issuer = findIssuer(signIns, body.issuer);
        return await signIn(signIns, issuer, body);
      } catch (thrown) {
        const outcome = GatewayError.is(thrown) ? thrown.code : "admin_failed";
        signIns.audit({ issuer: issuer?.name ?? "an unknown issuer" }, outcome);
        throw thrown;
      }
    },
  }),
];
