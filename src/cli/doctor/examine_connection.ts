/**
 * Examination of the connection to a provider by `sallyport doctor`: its name, the port and the certificate.
 *
 * @module
 */
import { probeConnection, probeName, probeTls } from "./doctor_probe.ts";
import { failed, type Finding, ok, toMs, warning } from "./finding.ts";

/** Remaining life of a certificate below which a warning is given. Milliseconds. */
const SOON_MS = 14 * 86_400_000;

/** Examines the connection. @param connectMs Time limit of each step, milliseconds */
export async function examineConnection(url: URL, connectMs: number): Promise<Finding[]> {
  const name = await probeName(url);
  if ("error" in name) {
    return [failed("DNS", `${url.hostname} can't be looked up (${name.error})`, "correct upstream, or the resolver")];
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
  found.push(ok("connect", toMs(connection.ms)));
  return url.protocol === "https:" ? [...found, await examineTls(url, connectMs)] : found;
}

async function examineTls(url: URL, ms: number): Promise<Finding> {
  const shaken = await probeTls(url, ms);
  if ("error" in shaken) {
    return failed(
      "TLS",
      `no safe connection (${shaken.error})`,
      "correct the host, or let the runtime trust who signed it: NODE_EXTRA_CA_CERTS on Node and Bun, DENO_CERT on Deno",
    );
  }
  const { protocol = "TLS", expiresAt } = shaken.found;
  const says = `${protocol}, ${toMs(shaken.ms)}`;
  const day = expiresAt === undefined ? "" : new Date(expiresAt).toISOString().slice(0, 10);
  if (expiresAt === undefined || expiresAt - Date.now() > SOON_MS) {
    return ok("TLS", day === "" ? says : `${says}, until ${day}`);
  }
  return warning("TLS", `${says}, the certificate ends on ${day}`, "tell the provider");
}
