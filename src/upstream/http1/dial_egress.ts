/**
 * Connections with configured egress: with or without a proxy, and with separate authorities and a
 * client certificate.
 *
 * @module
 */
import { X509Certificate } from "node:crypto";
import { readFileSync } from "node:fs";
import process from "node:process";
import tls, { createSecureContext, type SecureContext } from "node:tls";
import { runtime } from "../../runtime.ts";
import type { Dial } from "./connection.ts";
import { createNodeDial, type Security } from "./dial_node.ts";
import { Tunnel } from "./dial_proxy.ts";
import { type Egress, findProxy, splitPem } from "./egress.ts";
import { TlsSessions } from "./tls_sessions.ts";

/**
 * The variable that names a file of authorities which no function of the runtime returns:
 * `DENO_CERT`, and `NODE_EXTRA_CA_CERTS` before Node 22.15.
 */
export const UNLISTED_ROOTS: "DENO_CERT" | "NODE_EXTRA_CA_CERTS" | undefined = findUnlistedRoots();

function findUnlistedRoots(): typeof UNLISTED_ROOTS {
  if (runtime === "deno") return "DENO_CERT";
  return "getCACertificates" in tls ? undefined : "NODE_EXTRA_CA_CERTS";
}

/** Reads the file of that variable. Like the runtimes, it ignores an unusable file. */
function readUnlistedRoots(): readonly string[] {
  try {
    const file = UNLISTED_ROOTS && process.env[UNLISTED_ROOTS];
    return file ? splitPem(readFileSync(file, "utf8")) : [];
  } catch {
    return [];
  }
}

/**
 * Returns whether a certificate can be used. Deno 2.9 also lists unusable ones, and with one of
 * these no handshake ever ends.
 */
function isCertificate(pem: string): boolean {
  try {
    return new X509Certificate(pem).raw.byteLength > 0;
  } catch {
    return false;
  }
}

/**
 * Returns the authorities that the runtime trusts, including authorities from `NODE_EXTRA_CA_CERTS`
 * and `--use-system-ca`.
 */
function ownRoots(): readonly string[] {
  const { getCACertificates } = tls as Partial<typeof tls>;
  const listed = getCACertificates?.("default") ?? tls.rootCertificates;
  return [...listed, ...readUnlistedRoots()].filter(isCertificate);
}

/** Makes the settings of TLS. */
function toContext(
  { ca, isCaOnly }: Egress,
  identity: Pick<Egress, "cert" | "key">,
): SecureContext | undefined {
  const { cert, key } = identity;
  if (ca === undefined && cert === undefined) return undefined;
  return createSecureContext({
    ...(ca !== undefined && { ca: isCaOnly ? [...ca] : [...ownRoots(), ...ca] }),
    ...(cert !== undefined && key !== undefined && { cert, key }),
  });
}

/** Makes settings of TLS with their own sessions. */
export function toSecurity(egress: Egress, identity: Pick<Egress, "cert" | "key">): Security {
  return { context: toContext(egress, identity), sessions: new TlsSessions() };
}

/**
 * Creates the function that connects with an egress configuration.
 *
 * @param ownDial Connects to an upstream to which no setting of the egress applies
 */
export function createEgressDial(egress: Egress, ownDial: Dial): Dial {
  const upstream = toSecurity(egress, egress);
  const security = { upstream, proxy: toSecurity(egress, {}) };
  const direct = upstream.context === undefined ? ownDial : createNodeDial(upstream);
  return (url, events) => {
    const proxy = findProxy(egress, url);
    return proxy === undefined ? direct(url, events) : new Tunnel(url, proxy, security, events);
  };
}
