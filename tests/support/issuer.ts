/**
 * An issuer of identity tokens, as a real HTTP server: it rotates its keys, stops, and sends
 * invalid answers.
 */
import { createServer, type ServerResponse } from "node:http";
import { exportJWK, generateKeyPair, type JWK, type JWTPayload, SignJWT } from "jose";
import { freePort } from "./free_port.ts";

/** The audience of the tokens. */
export const AUDIENCE = "sallyport-tests";

/** A key pair of the issuer. */
export interface IssuerKey {
  readonly kid: string;
  readonly alg: string;
  readonly privateKey: CryptoKey;
  readonly publicJwk: JWK;
}

/** Makes a key pair. */
export async function makeIssuerKey(
  alg = "ES256",
  kid: string = crypto.randomUUID(),
): Promise<IssuerKey> {
  const { privateKey, publicKey } = await generateKeyPair(alg, { extractable: true });
  return {
    kid,
    alg,
    privateKey,
    publicJwk: { ...await exportJWK(publicKey), kid, alg, use: "sig" },
  };
}

/** Differences of a token from a good one. */
export interface TokenOptions {
  /** Claims in addition to or instead of the usual ones; `undefined` leaves one out. */
  readonly claims?: Record<string, unknown>;
  readonly header?: Record<string, unknown>;
  readonly key?: IssuerKey;
}

/** An issuer that listens. */
export interface TestIssuer {
  /** `iss`. */
  readonly url: string;
  /** Paths that were requested. */
  readonly asked: string[];
  /** The keys that it publishes; the last one signs. */
  keys: IssuerKey[];
  /**
   * Answers the request for its keys instead of the issuer; `undefined` for the issuer's own
   * answer.
   */
  answering: ((response: ServerResponse) => void) | undefined;
  /** Makes a token. */
  token(options?: TokenOptions): Promise<string>;
  /** Publishes a new key instead of all others, and signs with it from then on. */
  rotate(alg?: string): Promise<IssuerKey>;
  /** Stops listening; `start` listens at the same address again. */
  stop(): Promise<void>;
  start(): Promise<void>;
}

/** Starts one. */
export async function startIssuer(alg = "ES256"): Promise<TestIssuer> {
  const port = await freePort();
  const url = `http://127.0.0.1:${port}`;
  const create = () =>
    createServer((request, response) => {
      const path = request.url ?? "";
      issuer.asked.push(path);
      if (path === "/.well-known/openid-configuration") {
        return void response.end(JSON.stringify({ issuer: url, jwks_uri: `${url}/keys` }));
      }
      if (path !== "/keys") return void response.writeHead(404).end();
      if (issuer.answering !== undefined) return issuer.answering(response);
      response.writeHead(200, { "content-type": "application/json" });
      response.end(JSON.stringify({ keys: issuer.keys.map(({ publicJwk }) => publicJwk) }));
    });
  let server = create();
  const issuer: TestIssuer = {
    url,
    asked: [],
    keys: [await makeIssuerKey(alg)],
    answering: undefined,
    async token({ claims = {}, header = {}, key = issuer.keys.at(-1) } = {}) {
      if (key === undefined) throw new Error("no key signs");
      const now = Math.floor(Date.now() / 1000);
      const good = {
        iss: url,
        aud: AUDIENCE,
        sub: "ann",
        iat: now,
        exp: now + 600,
        jti: crypto.randomUUID(),
      };
      const all = Object.entries({ ...good, ...claims }).filter(([, value]) => value !== undefined);
      return await new SignJWT(Object.fromEntries(all) as JWTPayload)
        .setProtectedHeader({ alg: key.alg, kid: key.kid, typ: "JWT", ...header }).sign(
          key.privateKey,
        );
    },
    async rotate(next = alg) {
      const key = await makeIssuerKey(next);
      issuer.keys = [key];
      return key;
    },
    async stop() {
      server.closeAllConnections();
      await new Promise<void>((resolve) => server.close(() => resolve()));
    },
    async start() {
      server = create();
      await new Promise<void>((resolve) => server.listen(port, "127.0.0.1", resolve));
    },
  };
  await issuer.start();
  return issuer;
}

/** Encodes a part of a token. */
export const toPart = (value: unknown): string =>
  btoa(typeof value === "string" ? value : JSON.stringify(value)).replace(/=+$/, "").replaceAll(
    "+",
    "-",
  ).replaceAll(
    "/",
    "_",
  );
