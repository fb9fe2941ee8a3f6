/**
 * The setting for the addresses of a provider: a pattern of hosts, with or without a path before
 * `/v1`.
 *
 * @module
 */
import * as v from "valibot";

/**
 * The grammar of `host[:port]` in lower case (RFC 9110 §7.2): a name in letters, digits, ".", "-"
 * and "_", or an IPv6 address in brackets.
 */
export const HOST: RegExp =
  /^(?<hostname>[a-z0-9_](?:[a-z0-9._-]*[a-z0-9_])?|\[[0-9a-f:.]+\])\.?(?::(?<port>[0-9]{1,5}))?$/;

/**
 * Checks that a pattern can match a Host: it has the form that the host table looks up, and a valid
 * port.
 */
function isHostPattern(pattern: string): boolean {
  if (pattern === "*") return true;
  const isSuffix = pattern.startsWith("*.");
  const { hostname, port } = HOST.exec(isSuffix ? pattern.slice(2) : pattern)?.groups ?? {};
  if (hostname === undefined) return false;
  if (isSuffix) return !hostname.startsWith("[") && pattern === `*.${hostname}`;
  if (port === undefined) return pattern === hostname;
  return pattern === `${hostname}:${Number(port)}` && Number(port) <= 65535;
}

/**
 * Segments of unreserved characters (RFC 3986 §2.3), which have only one spelling. A URL parser
 * would resolve `.` and `..`, and the path ends before the first `v1`.
 */
const PREFIX = /^(?:\/(?!(?:v1|\.\.?)(?:\/|$))[\w.~-]+)*$/;

/** An address in its two parts. */
export interface AddressParts {
  /** `host`, `host:port`, `*.suffix` or `*`. */
  readonly host: string;
  /** The path before `/v1`, such as `/groq`; empty if there is none. */
  readonly prefix: string;
}

/** Splits an address such as `gw.example.com/groq` at its first slash. */
export function splitAddress(address: string): AddressParts {
  const [host = ""] = address.split("/", 1);
  return { host, prefix: address.slice(host.length) };
}

function isAddress(address: string): boolean {
  const { host, prefix } = splitAddress(address);
  return isHostPattern(host) && PREFIX.test(prefix);
}

/** @internal An address. The case of its host does not matter. The case of its path does. */
export const AddressSchema: v.GenericSchema<string> = v.pipe(
  v.string("expected a string"),
  v.transform((text) => text.replace(/^[^/]*/, (host) => host.toLowerCase())),
  v.check(
    isAddress,
    'expected "host", "host:port", "*.suffix" or "*", ' +
      'or one of them with a plain path that ends before "/v1", ' +
      'such as "host/path"',
  ),
);
