/**
 * Sign-in of operators at an identity provider. The browser gets a code there, and the gateway
 * exchanges it for a token. The browser keeps what belongs to one sign-in (`state`, `nonce` and the
 * verifier of PKCE), so any gateway of a fleet can finish it.
 *
 * @module
 */
import * as oauth from "oauth4webapi";
import { type IdentityConfig, isTrustedAddress } from "../../config/identity.ts";
import type { SecretSource, SignInConfig } from "../../config/sign_in.ts";
import { GatewayError } from "../../errors/gateway_error.ts";
import type { Clock } from "../../exchange/clock.ts";

/** Makes a call to an identity provider. @returns The answer with its whole body */
export type FetchIssuer = (url: string, init: {
  readonly method: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body?: unknown;
}) => Promise<Response>;

/**
 * Reads a client secret from its source.
 *
 * @throws {Error} Its message must not contain the secret
 */
export type SecretReader = (source: SecretSource) => Promise<string>;

/** The end of a sign-in, as the page sends it. */
export interface CodeGrant {
  /** The code, as the identity provider sent it. */
  readonly code: string;
  /** `iss` of its answer (RFC 9207), which tells a code of another issuer. */
  readonly iss?: string | undefined;
  /** `code_verifier` (RFC 7636 §4.1). */
  readonly verifier: string;
  readonly nonce: string;
}

/** Maximum number of codes that are exchanged at the same time. Everybody can send one. */
const MAX_OPEN = 16;
/** Time for which an issuer's description is used. Everybody can ask for it. Milliseconds. */
const DESCRIPTION_MS = 60_000;
/** Time for which a failure to read it is repeated. Milliseconds. */
const FAILURE_MS = 1000;
/** Codes of RFC 6749 §5.2. Another word of an issuer could be a secret. */
const ERRORS: ReadonlySet<string> = new Set([
  "invalid_request",
  "invalid_client",
  "invalid_grant",
  "unauthorized_client",
  "unsupported_grant_type",
  "invalid_scope",
]);

/** Codes of oauth4webapi for an answer that is no answer to a code. */
const UNREADABLE: ReadonlySet<string | undefined> = new Set<string | undefined>([
  oauth.RESPONSE_IS_NOT_CONFORM,
  oauth.PARSE_ERROR,
]);

/** An issuer at which operators sign in. */
export interface SignInIssuer extends Pick<IdentityConfig, "name" | "issuer" | "algorithms"> {
  readonly signIn: SignInConfig;
}

/** Returns the issuers at which operators sign in. */
export function signInIssuersOf(
  identity: readonly IdentityConfig[] | undefined,
): readonly SignInIssuer[] {
  return (identity ?? []).flatMap(({ name, issuer, algorithms, admin }) =>
    admin?.signIn === undefined ? [] : [{ name, issuer, algorithms, signIn: admin.signIn }]
  );
}

/** Lists the sources of client secrets, with their paths in the configuration. */
export function listSecretSources(
  identity: readonly IdentityConfig[] | undefined,
): { readonly path: string; readonly source: SecretSource }[] {
  return (identity ?? []).flatMap(({ admin }, index) => {
    const source = admin?.signIn?.clientSecret;
    const path = `identity[${index}].admin.signIn.clientSecret`;
    return source === undefined || typeof source === "string" ? [] : [{ path, source }];
  });
}

/** Calls that a sign-in makes. */
export interface SignInPorts {
  readonly fetchIssuer: FetchIssuer;
  readonly readSecret: SecretReader;
  readonly clock: Pick<Clock, "monotonic">;
}

/** Sign-in at one issuer. */
export class CodeSignIn {
  readonly name: string;
  readonly #issuer: SignInIssuer;
  readonly #options: oauth.DiscoveryRequestOptions & oauth.TokenEndpointRequestOptions;
  readonly #clock: Pick<Clock, "monotonic">;
  readonly #readSecret: SecretReader;
  #description: Promise<oauth.AuthorizationServer> | undefined;
  /** Time at which it is read again, on the clock. */
  #outdatedAt = -Infinity;
  #open = 0;

  constructor(issuer: SignInIssuer, { fetchIssuer, readSecret, clock }: SignInPorts) {
    this.#clock = clock;
    this.#readSecret = readSecret;
    this.name = issuer.name;
    this.#issuer = issuer;
    const isOnThisMachine = issuer.issuer.startsWith("http:"); // the configuration allows no other
    this.#options = {
      [oauth.customFetch]: (url: string, init: Parameters<FetchIssuer>[1]) =>
        fetchIssuer(url, init),
      [oauth.allowInsecureRequests]: isOnThisMachine,
    };
  }

  /**
   * Returns the address at which a sign-in begins. The page adds `state`, `nonce` and the challenge.
   *
   * @throws {GatewayError} `sign_in_unavailable` if the issuer cannot be reached
   */
  async toAddress(): Promise<string> {
    const { signIn: { clientId, url, scopes } } = this.#issuer;
    // A browser would also run `javascript:`.
    const address = toEndpoint(await this.#describe(), "authorization_endpoint");
    address.searchParams.set("response_type", "code");
    address.searchParams.set("client_id", clientId);
    address.searchParams.set("redirect_uri", url);
    address.searchParams.set("scope", scopes.join(" "));
    address.searchParams.set("code_challenge_method", "S256");
    return address.href;
  }

  /**
   * Exchanges a code for the token that signs the operator in. Its signature is not checked here.
   *
   * @throws {GatewayError} `sign_in_failed` for a code that the issuer refuses;
   * `sign_in_unavailable`, also if the client secret cannot be read; `too_many_sign_ins`
   */
  async exchange({ code, iss, verifier, nonce }: CodeGrant): Promise<string> {
    if (this.#open >= MAX_OPEN) throw new GatewayError("too_many_sign_ins", { retryAfterMs: 1000 });
    this.#open++;
    try {
      const server = await this.#describe();
      const { signIn } = this.#issuer;
      const client: oauth.Client = { client_id: signIn.clientId };
      const authentication = await this.#authenticate();
      const answer = new URLSearchParams({ code, ...(iss !== undefined && { iss }) });
      // The page has compared the state.
      const callback = oauth.validateAuthResponse(server, client, answer);
      const response = await oauth.authorizationCodeGrantRequest(
        server,
        client,
        authentication,
        callback,
        signIn.url,
        verifier,
        this.#options,
      );
      const tokens = await oauth.processAuthorizationCodeResponse(server, client, response, {
        expectedNonce: nonce,
        requireIdToken: true,
      });
      const token = signIn.token === "id" ? tokens.id_token : tokens.access_token;
      if (token === undefined) throw unavailable("it sends no such token");
      return token;
    } catch (thrown) {
      throw toFailure(thrown);
    } finally {
      this.#open--;
    }
  }

  /**
   * Identifies the gateway at the issuer. The secret is read for each sign-in, so that a replaced
   * one is used at once.
   */
  async #authenticate(): Promise<oauth.ClientAuth> {
    const { clientSecret } = this.#issuer.signIn;
    if (clientSecret === undefined) return oauth.None();
    if (typeof clientSecret === "string") return oauth.ClientSecretPost(clientSecret);
    const secret = await this.#readSecret(clientSecret).catch(() => {
      throw unavailable("the gateway cannot read its client secret: see its log");
    });
    return oauth.ClientSecretPost(secret);
  }

  /** Returns the issuer's description, which many sign-ins share. */
  #describe(): Promise<oauth.AuthorizationServer> {
    const now = this.#clock.monotonic();
    if (this.#description === undefined || now >= this.#outdatedAt) {
      this.#outdatedAt = now + DESCRIPTION_MS;
      this.#description = this.#discover();
      this.#description.catch(() => this.#outdatedAt = this.#clock.monotonic() + FAILURE_MS);
    }
    return this.#description;
  }

  /** Reads the issuer's description (OpenID Connect Discovery 1.0). */
  async #discover(): Promise<oauth.AuthorizationServer> {
    const issuer = new URL(this.#issuer.issuer);
    try {
      const response = await oauth.discoveryRequest(issuer, this.#options);
      const server = await oauth.processDiscoveryResponse(issuer, response);
      toEndpoint(server, "token_endpoint"); // the client secret is sent there
      return server;
    } catch (thrown) {
      throw GatewayError.is(thrown) ? thrown : unavailable("its description cannot be read");
    }
  }
}

/** Returns an endpoint of an issuer. @throws {GatewayError} Unless it is https or on this machine */
function toEndpoint(
  server: oauth.AuthorizationServer,
  name: "authorization_endpoint" | "token_endpoint",
): URL {
  const endpoint: unknown = server[name]; // only its presence was checked
  if (typeof endpoint === "string" && isTrustedAddress(endpoint)) return new URL(endpoint);
  throw unavailable(`it names no https ${name}`);
}

const failed = (detail: string): GatewayError => new GatewayError("sign_in_failed", { detail });
const unavailable = (detail: string): GatewayError =>
  new GatewayError("sign_in_unavailable", { detail });

/** Describes a failure without any part of an answer or a request: both can contain secrets. */
function toFailure(thrown: unknown): GatewayError {
  if (GatewayError.is(thrown)) return thrown;
  if (thrown instanceof oauth.ResponseBodyError) {
    const word = ERRORS.has(thrown.error) ? thrown.error : "unknown";
    return failed(`it refuses the code (${word})`);
  }
  if (thrown instanceof oauth.OperationProcessingError && !UNREADABLE.has(thrown.code)) {
    return failed(`its answer cannot be accepted (${thrown.code ?? "unknown"})`);
  }
  return unavailable("it does not answer as it should");
}
