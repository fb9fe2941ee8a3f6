/**
 * Finds the provider that the caller addressed, by the Host header and nothing else of the request.
 *
 * @module
 */
import { HOST } from "../config/provider.ts";
import { GatewayError } from "../errors/gateway_error.ts";

// RFC 1035 §2.3.4: a name has at most 255 octets; ":" and a port come on top.
const MAX_HOST_LENGTH = 261;

/** Finds the provider for a Host header. */
export type HostTable<Provider> = (host: string | null) => Provider;

/**
 * Builds the table once, at start.
 *
 * @param entries Pattern and provider. Exact `host:port` wins over `host`, that over the longest `*.suffix`, that over
 *   `*`
 * @returns The look-up. It throws `invalid_host` for what is no plain `host[:port]`, `unknown_host` if no provider has
 *   it
 */
export function createHostTable<Provider>(entries: Iterable<[string, Provider]>): HostTable<Provider> {
  const exact = new Map<string, Provider>();
  const suffixes: [string, Provider][] = [];
  let rest: Provider | undefined;
  for (const [pattern, provider] of entries) {
    if (pattern === "*") rest = provider;
    else if (pattern.startsWith("*.")) suffixes.push([pattern.slice(1), provider]);
    else exact.set(pattern, provider);
  }
  suffixes.sort(([a], [b]) => b.length - a.length);

  return (host) => {
    if (host === null || host.length > MAX_HOST_LENGTH) throw new GatewayError("invalid_host");
    const address = host.toLowerCase();
    const { hostname, port } = HOST.exec(address)?.groups ?? {};
    if (hostname === undefined || Number(port ?? 0) > 65535) throw new GatewayError("invalid_host");
    const provider = exact.get(port === undefined ? hostname : `${hostname}:${port}`) ??
      exact.get(hostname) ?? suffixes.find(([suffix]) => hostname.endsWith(suffix))?.[1] ?? rest;
    if (provider === undefined) throw new GatewayError("unknown_host");
    return provider;
  };
}
