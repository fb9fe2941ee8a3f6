/**
 * The setting with which operators sign in to the console at their identity provider: OpenID Connect
 * with an authorization code and PKCE (https://openid.net/specs/openid-connect-core-1_0.html, RFC
 * 7636).
 *
 * @module
 */
import * as v from "valibot";
import { about, nonEmpty, secret, shortText, strictObject } from "./schema.ts";

/** Source of a secret that is not in the configuration: a file or a variable. */
export type SecretSource =
  | {
    /** Path of a file with the secret alone, which only its owner can read. */
    readonly file: string;
  }
  | {
    /** Name of an environment variable with the secret. */
    readonly env: string;
  };

/** Sign-in at an identity provider. */
export interface SignInConfig {
  /** `client_id` of the console at the identity provider. */
  readonly clientId: string;
  /** `client_secret`, if the identity provider wants one, or its source. */
  readonly clientSecret?: string | SecretSource | undefined;
  /** Address of the console, to which the identity provider sends operators back. */
  readonly url: string;
  /** Scopes to ask for, `openid` included. */
  readonly scopes: readonly string[];
  /** The token that signs operators in. Its audience is in `audience`. */
  readonly token: "id" | "access";
}

/** Sign-in as written in the configuration. */
export interface SignInInput {
  /** `client_id` of the console at the identity provider. */
  readonly clientId: string;
  /** `client_secret`, if the identity provider wants one, or its source. */
  readonly clientSecret?: string | SecretSource | undefined;
  /** Address of the console as operators open it, such as `https://gateway.example:8789/`. */
  readonly url: string;
  /** Scopes in addition to `openid`. Default: `profile` and `email`. */
  readonly scopes?: readonly string[] | undefined;
  /** The token that signs operators in. Default: the id token. */
  readonly token?: "id" | "access" | undefined;
}

const LOOPBACK = /^http:\/\/(?:localhost|127\.0\.0\.1|\[::1\])(?::\d+)?\/?$/;
const urlForm = "expected the address of the console: an https address without a query, " +
  "or http on this machine, such as https://gateway.example:8789/";

/** Returns whether browsers let a page at this address compute digests, and codes can be sent to it. */
function isConsoleAddress(text: string): boolean {
  if (!URL.canParse(text) || /[?#@]/.test(text)) return false;
  return new URL(text).protocol === "https:" || LOOPBACK.test(text);
}

const scopesForm = 'expected an array of scopes, such as ["groups"]';
const scope = v.pipe(
  shortText,
  v.regex(/^[\x21\x23-\x5b\x5d-\x7e]+$/, "expected a scope without spaces (RFC 6749 §3.3)"),
);

const secretForm =
  'expected the secret of 16 to 512 visible ASCII characters, { "file": … } or { "env": … }';
const sourceForm = 'expected { "file": … } or { "env": … }';

const source = v.pipe(
  strictObject({
    file: v.optional(
      about(
        nonEmpty,
        "Path of a file that contains only the secret, and that only its owner can read",
      ),
    ),
    env: v.optional(
      about(nonEmpty, "Instead of `file`: name of an environment variable with the secret"),
    ),
  }, sourceForm),
  v.check(
    ({ file, env }) => (file === undefined) !== (env === undefined),
    `${sourceForm}, one of them`,
  ),
) as v.GenericSchema<SecretSource>;

/** @internal The schema of sign-in. */
export const SignInSchema: v.GenericSchema<SignInInput, SignInConfig> = v.pipe(
  strictObject({
    clientId: about(nonEmpty, "`client_id` of the console at the identity provider"),
    clientSecret: v.optional(
      about(
        v.union([secret, source], secretForm),
        "`client_secret`, if the identity provider requires one: the secret itself, or a file or a variable with it",
      ),
    ),
    url: about(
      v.pipe(nonEmpty, v.check(isConsoleAddress, urlForm)),
      "Address of the console as operators open it. Register it as the redirect URI",
    ),
    scopes: v.optional(
      about(
        v.array(scope, scopesForm),
        "Scopes to ask for in addition to `openid`. Left out: `profile` and `email`",
      ),
      ["profile", "email"],
    ),
    token: v.optional(
      about(
        v.picklist(["id", "access"], 'expected "id" or "access"'),
        "The token that signs operators in, `id` or `access`. Its `aud` has to be in `audience`",
      ),
      "id",
    ),
  }, "expected an object with clientId and url"),
  v.transform(({ url, scopes, ...rest }): SignInConfig => ({
    ...rest,
    url: new URL(url).href,
    scopes: [...new Set(["openid", ...scopes])],
  })),
);
