/**
 * Finds the provider that the caller addressed: by the Host header, then by the path before `/v1`,
 * and by nothing else.
 *
 * @module
 */
import { HOST, splitAddress } from "../config/address.ts";
import { GatewayError } from "../errors/gateway_error.ts";

// RFC 1035 §2.3.4: a name has at most 255 octets, plus ":" and a port.
const MAX_HOST_LENGTH = 261;
const MAX_PORT = 65_535;

/** Provider that was addressed, and the path in its address. */
export interface AddressedProvider<Provider> {
  readonly provider: Provider;
  /** The path before `/v1`, such as `/groq`; empty for an address without one. */
  readonly prefix: string;
}

/**
 * Finds the provider for a Host header and a URL. The URL is absolute, or a path with its query.
 */
export type HostTable<Provider> = (host: string | null, url: string) => AddressedProvider<Provider>;

/** Finds a host among the hosts with the same path. */
type HostFinder<Provider> = (
  hostname: string,
  port: string | undefined,
) => AddressedProvider<Provider> | undefined;

/**
 * The path before the first segment `v1`, in plain characters. An absolute URL has its authority
 * before it.
 */
const BEFORE_V1 = /^(?:https?:\/\/[^/?#\\]+)?((?:\/[\w.~-]+)*?)(?=\/v1(?:[/?#]|$))/;
/** Segments that a URL parser, or a proxy in front, would resolve. */
const RESOLVABLE = /[\\\t\n\r]|\/(?:\.|%2e){1,2}(?:\/|$)/i;

/**
 * Reads the path before `/v1`; `undefined` if it is not plain, or if the rest of the path could
 * lead out of it.
 */
function readPrefix(url: string): string | undefined {
  if (url.startsWith("/v1/")) return "";
  const [before = "", prefix] = BEFORE_V1.exec(url) ?? [];
  if (prefix === undefined || prefix === "") return prefix;
  const [rest = ""] = url.slice(before.length).split(/[?#]/, 1);
  return RESOLVABLE.test(rest) ? undefined : prefix;
}

/** Scheme and authority of an absolute URL. HTTP/2 has one for every request. */
const AUTHORITY = /^https?:\/\/[^/?#\\]+/;

/**
 * Removes the path of an address from a URL.
 *
 * @param url A URL for which the table has found an address
 * @param prefix The path in this address
 * @returns The path that follows it, such as `/v1/models`, with its query; the URL for an address
 * without a path
 */
export function withoutPrefix(url: string, prefix: string): string {
  if (prefix === "") return url;
  return url.replace(AUTHORITY, "").slice(prefix.length);
}

/**
 * Returns whether a path lies below the path of an address, which need not be followed by `/v1`,
 * and cannot lead out of it.
 */
function isBelow(prefix: string, url: string): boolean {
  const path = url.replace(AUTHORITY, "");
  const [rest = ""] = path.slice(prefix.length).split(/[?#]/, 1);
  return path.startsWith(`${prefix}/`) && (prefix === "" || !RESOLVABLE.test(rest));
}

/** Returns the path before `/v1`, which can be the path of an address; empty if there is none. */
export function prefixOf(url: string): string {
  return BEFORE_V1.exec(url)?.[1] ?? "";
}

/** Builds the look-up of hosts with the same path. */
function createHostFinder<Provider>(
  entries: Iterable<[string, AddressedProvider<Provider>]>,
): HostFinder<Provider> {
  const exact = new Map<string, AddressedProvider<Provider>>();
  const suffixes: [string, AddressedProvider<Provider>][] = [];
  let rest: AddressedProvider<Provider> | undefined;
  for (const [pattern, address] of entries) {
    if (pattern === "*") rest = address;
    else if (pattern.startsWith("*.")) suffixes.push([pattern.slice(1), address]);
    else exact.set(pattern, address);
  }
  suffixes.sort(([a], [b]) => b.length - a.length);
  return (hostname, port) => {
    const withPort = port === undefined ? undefined : exact.get(`${hostname}:${port}`);
    const found = withPort ?? exact.get(hostname);
    if (found !== undefined) return found;
    for (const [suffix, address] of suffixes) if (hostname.endsWith(suffix)) return address;
    return rest;
  };
}

/**
 * An address with its provider. `anyPath` if the paths of its callers do not begin with `/v1`, as in
 * the shape of Gemini.
 */
export type HostEntry<Provider> = readonly [
  address: string,
  provider: Provider,
  paths?: "anyPath" | undefined,
];

/**
 * Builds the table once, at start.
 *
 * @param entries The addresses. The whole path before `/v1` must equal the path of the address. Of
 * the addresses with this path, precedence is: exact `host:port`, `host`, the longest `*.suffix`,
 * `*`. If there is none, the longest path of an address with `anyPath` is used
 * @returns The look-up. It throws `invalid_host` for text that is not a plain `host[:port]`,
 * `unknown_host` if no provider has the host, and `not_found` if providers have it, but not with
 * this path
 */
export function createHostTable<Provider>(
  entries: Iterable<HostEntry<Provider>>,
): HostTable<Provider> {
  const byPrefix = new Map<string | undefined, [string, AddressedProvider<Provider>][]>([["", []]]);
  const anyPath = new Set<string>();
  for (const [address, provider, paths] of entries) {
    const { host, prefix } = splitAddress(address);
    if (paths === "anyPath") anyPath.add(prefix);
    const hosts = byPrefix.get(prefix) ?? [];
    byPrefix.set(prefix, hosts);
    hosts.push([host, { provider, prefix }]);
  }
  const finders = new Map(
    Array.from(byPrefix, ([prefix, hosts]) => [prefix, createHostFinder(hosts)]),
  );
  const withoutPath = finders.get("");
  const hasPaths = finders.size > 1;
  const longestFirst = Array.from(anyPath).sort((a, b) => b.length - a.length);
  const findBelow = (url: string, ...host: Parameters<HostFinder<Provider>>) => {
    for (const prefix of longestFirst) {
      const found = isBelow(prefix, url) ? finders.get(prefix)?.(...host) : undefined;
      if (found !== undefined) return found;
    }
    return undefined;
  };
  const refuse = (...host: Parameters<HostFinder<Provider>>): never => {
    const isKnown = Array.from(finders.values()).some((find) => find(...host) !== undefined);
    if (!isKnown) throw new GatewayError("unknown_host");
    throw new GatewayError("not_found", {
      detail: "no provider of this host has this path before /v1",
    });
  };

  return (host, url) => {
    if (host === null || host.length > MAX_HOST_LENGTH) throw new GatewayError("invalid_host");
    const { hostname, port } = HOST.exec(host.toLowerCase())?.groups ?? {};
    const isInRange = port === undefined || Number(port) <= MAX_PORT;
    if (hostname === undefined || !isInRange) throw new GatewayError("invalid_host");
    const find = hasPaths ? finders.get(readPrefix(url)) : withoutPath;
    return find?.(hostname, port) ?? findBelow(url, hostname, port) ?? refuse(hostname, port);
  };
}
