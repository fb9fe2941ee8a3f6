/**
 * Examination of a configured egress by `sallyport doctor`: the proxy, its answer to CONNECT, and
 * TLS to the upstream with the authorities and the client certificate of the configuration.
 *
 * @module
 */
import { X509Certificate } from "node:crypto";
import type { Socket } from "node:net";
import type { FailureCause } from "../../errors/outcomes.ts";
import type { SocketEvents } from "../../upstream/http1/connection.ts";
import { toSecurity } from "../../upstream/http1/dial_egress.ts";
import { portOf } from "../../upstream/http1/dial_node.ts";
import { Tunnel } from "../../upstream/http1/dial_proxy.ts";
import { type Egress, findProxy, type Proxy } from "../../upstream/http1/egress.ts";
import { CallFailed } from "../../upstream/transport.ts";
import {
  failure,
  type Handshake,
  probeConnection,
  probeName,
  probeTls,
  type Step,
  timed,
} from "./doctor_probe.ts";
import { failed, type Finding, ok, toMs, warning } from "./finding.ts";
import { describeHandshake } from "./examine_connection.ts";

/** Advice for each failure of a proxy. */
const ADVICE = {
  proxy_unreachable: "see that egress.proxy is right; if its certificate is the company's own, " +
    "name that by egress.ca",
  proxy_auth:
    "correct the credentials of the proxy: in egress.proxy, or in the file of egress.credentials",
  proxy_refused: "ask the operators of the proxy to allow CONNECT to this host and port",
  proxy_upstream: "see that upstream is right; the proxy itself looks its name up and connects",
  proxy_failed:
    "see that egress.proxy names a proxy for HTTP, not one for SOCKS, and its right scheme",
} as const satisfies Partial<Record<FailureCause, string>>;

function adviseOn(cause: string): string {
  return Object.hasOwn(ADVICE, cause) ? ADVICE[cause as keyof typeof ADVICE] : ADVICE.proxy_failed;
}

const ignore = (): void => {};

/** Opens a tunnel. Returns the connection in it. */
function openTunnel(url: URL, proxy: Proxy, egress: Egress, ms: number): Promise<Step<Socket>> {
  return timed(() =>
    new Promise((resolve, reject) => {
      const events: SocketEvents = {
        opened: () => {
          clearTimeout(timer);
          resolve(tunnel.leave());
        },
        closed: (error) => {
          clearTimeout(timer);
          reject(
            error instanceof CallFailed
              ? failure(error.failureCause)
              : error ?? failure("proxy_failed"),
          );
        },
        received: ignore,
        flushed: ignore,
        ended: ignore,
      };
      // TLS inside is examined separately.
      const target = new URL(`http://${url.hostname}:${portOf(url)}`);
      const tunnel = new Tunnel(
        target,
        proxy,
        { proxy: toSecurity(egress, {}), upstream: toSecurity(egress, {}) },
        events,
      );
      const timer = setTimeout(() => {
        reject(failure(tunnel.lateCause ?? "proxy_failed"));
        tunnel.destroy();
      }, ms);
    })
  );
}

/** Examines the connection to the proxy, and the tunnel. */
async function examineProxy(
  url: URL,
  proxy: Proxy,
  egress: Egress,
  ms: number,
): Promise<Finding[]> {
  const proxyUrl = new URL(proxy.url);
  const name = await probeName(proxyUrl);
  if ("error" in name) {
    return [
      failed(
        "proxy DNS",
        `${proxyUrl.hostname} can't be looked up (${name.error})`,
        "correct egress.proxy",
      ),
    ];
  }
  const [first] = name.found;
  const found = [
    ok(
      "proxy DNS",
      first === undefined ? "an address, nothing to look up" : `${first}, ${toMs(name.ms)}`,
    ),
  ];
  const connection = await probeConnection(proxyUrl, ms);
  if ("error" in connection) {
    const says = `no connection (${connection.error}), ${toMs(connection.ms)}`;
    return [...found, failed("proxy connect", says, ADVICE.proxy_unreachable)];
  }
  found.push(ok("proxy connect", toMs(connection.ms)));
  const tunnel = await openTunnel(url, proxy, egress, ms);
  if ("error" in tunnel) {
    const says = `no tunnel (${tunnel.error}), ${toMs(tunnel.ms)}`;
    return [...found, failed("CONNECT", says, adviseOn(tunnel.error))];
  }
  tunnel.found.destroy();
  const credentials = proxy.credentials === undefined
    ? "no credentials shown"
    : "credentials shown";
  return [...found, ok("CONNECT", `the tunnel is open, ${credentials}, ${toMs(tunnel.ms)}`)];
}

/** Makes a TLS handshake through the egress. */
async function shake(
  url: URL,
  egress: Egress,
  options: {
    readonly identity: Pick<Egress, "cert" | "key">;
    readonly session?: Handshake["session"];
  },
  ms: number,
): Promise<Step<Handshake>> {
  const proxy = findProxy(egress, url);
  const { context } = toSecurity(egress, options.identity);
  const tunnel = proxy === undefined ? undefined : await openTunnel(url, proxy, egress, ms);
  if (tunnel !== undefined && "error" in tunnel) return tunnel;
  return await probeTls(url, ms, {
    ...(tunnel !== undefined && { socket: tunnel.found }),
    ...(context !== undefined && { secureContext: context }),
    ...(options.session !== undefined && { session: options.session }),
  });
}

/** Examines the client certificate: its validity, and whether the upstream requires it. */
async function examineIdentity(url: URL, egress: Egress, ms: number): Promise<Finding[]> {
  if (egress.cert === undefined) return [];
  const { subject, validTo } = new X509Certificate(egress.cert); // the file's first certificate
  const until = new Date(validTo).toISOString().slice(0, 10);
  const says = `${subject.replaceAll("\n", ", ")}, until ${until}`;
  if (Date.parse(validTo) < Date.now()) {
    return [failed("client certificate", `expired: ${says}`, "renew egress.cert")];
  }
  const without = await shake(url, egress, { identity: {} }, ms);
  if ("error" in without || without.found.isRefused) {
    return [ok("client certificate", `asked for and shown: ${says}`)];
  }
  return [
    warning(
      "client certificate",
      `a handshake without it is accepted too: ${says}`,
      "nothing, if the upstream judges by the call; else it asks for none and is shown none",
    ),
  ];
}

/** Describes a second handshake that offered the session of the first. */
function describeResumption(again: Step<Handshake>): string {
  if ("error" in again) return `session not resumed (${again.error})`;
  const { isResumed, handshakeMs } = again.found;
  if (isResumed === undefined) {
    return `${toMs(handshakeMs)}; this runtime does not tell whether a session is resumed`;
  }
  return `session ${isResumed ? "" : "not "}resumed, ${toMs(handshakeMs)}`;
}

/** Examines TLS with the upstream twice. The second handshake offers the session of the first. */
async function examineSecurity(url: URL, egress: Egress, ms: number): Promise<Finding[]> {
  const first = await shake(url, egress, { identity: egress }, ms);
  const finding = describeHandshake(first);
  if ("error" in first || first.found.isRefused) return [finding];
  const { session } = first.found;
  const again = await shake(url, egress, { identity: egress, session }, ms);
  return [
    finding,
    ok("TLS again", describeResumption(again)),
    ...await examineIdentity(url, egress, ms),
  ];
}

/**
 * Examines the egress to an upstream.
 *
 * @param ms Time limit of each step, milliseconds
 * @param direct Examines name and port of an upstream that is connected to directly
 */
export async function examineEgress(
  url: URL,
  egress: Egress,
  ms: number,
  direct: () => Promise<Finding[]>,
): Promise<Finding[]> {
  const proxy = findProxy(egress, url);
  const found = proxy === undefined ? await direct() : await examineProxy(url, proxy, egress, ms);
  if (url.protocol !== "https:" || found.some(({ state }) => state === "failure")) return found;
  return [...found, ...await examineSecurity(url, egress, ms)];
}
