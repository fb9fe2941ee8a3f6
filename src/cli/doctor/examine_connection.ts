/**
 * Examination of the connection to a provider by `sallyport doctor`: its name, the port and the
 * certificate.
 *
 * @module
 */
import { toPlain } from "../table.ts";
import { type Handshake, probeConnection, probeName, probeTls, type Step } from "./doctor_probe.ts";
import { failed, type Finding, ok, toMs, warning } from "./finding.ts";

/** Remaining validity of a certificate that causes a warning. Milliseconds. */
const SOON_MS = 14 * 86_400_000;

/** Examines the name and the port. @param connectMs Time limit of each step, milliseconds */
export async function examinePort(url: URL, connectMs: number): Promise<Finding[]> {
  const name = await probeName(url);
  if ("error" in name) {
    return [
      failed(
        "DNS",
        `${url.hostname} can't be looked up (${name.error})`,
        "correct upstream, or the resolver",
      ),
    ];
  }
  const [first] = name.found;
  const found = [
    ok(
      "DNS",
      first === undefined
        ? "an address, nothing to look up"
        : `${first}, ${name.found.length} in all, ${toMs(name.ms)}`,
    ),
  ];
  const connection = await probeConnection(url, connectMs);
  if ("error" in connection) {
    return [
      ...found,
      failed(
        "connect",
        `no connection (${connection.error}), ${toMs(connection.ms)}`,
        "see that the provider listens there, and that no firewall or proxy is between",
      ),
    ];
  }
  return [...found, ok("connect", toMs(connection.ms))];
}

/** Examines the connection. @param connectMs Time limit of each step, milliseconds */
export async function examineConnection(url: URL, connectMs: number): Promise<Finding[]> {
  const found = await examinePort(url, connectMs);
  if (url.protocol !== "https:" || found.some(({ state }) => state === "failure")) return found;
  return [...found, describeHandshake(await probeTls(url, connectMs))];
}

/** Describes a TLS handshake. Advises on a failed one. */
export function describeHandshake(shaken: Step<Handshake>): Finding {
  if ("error" in shaken) {
    return failed(
      "TLS",
      `no safe connection (${shaken.error})`,
      "correct the host, or trust who signed it: " +
        "egress.ca, or NODE_EXTRA_CA_CERTS on Node and Bun, DENO_CERT on Deno",
    );
  }
  const { protocol = "TLS", expiresAt, issuer, handshakeMs, isRefused } = shaken.found;
  const by = issuer === undefined ? "" : `, by ${toPlain(issuer)}`;
  const says = `${protocol}, ${toMs(handshakeMs)}${by}`;
  if (isRefused) {
    return failed(
      "TLS",
      `${says}, then the upstream broke off`,
      "it can require a client certificate, or another one: set egress.cert and egress.key",
    );
  }
  const day = expiresAt === undefined ? "" : new Date(expiresAt).toISOString().slice(0, 10);
  if (expiresAt === undefined || expiresAt - Date.now() > SOON_MS) {
    return ok("TLS", day === "" ? says : `${says}, until ${day}`);
  }
  return warning("TLS", `${says}, the certificate ends on ${day}`, "tell the provider");
}
