/**
 * Exceptions from a proxy, as `NO_PROXY` lists them: hosts with their subdomains, addresses,
 * networks and ports.
 *
 * @module
 */
import { isIPv4, isIPv6 } from "node:net";

/** Bits of an address of IPv4, and of IPv6. */
const BITS_4 = 32;
const BITS_6 = 128;
/** Groups of an address of IPv6. */
const GROUPS = 8;
const GROUP_BITS = 16n;
/**
 * An entry: a host, an address or a network, with or without a port. An address of IPv6 with a port
 * is in brackets.
 */
const ENTRY = /^(?:\[([^\]]+)\]|([^:]*)|(.*:.*:.*))(?::(\d+))?$/;

/** An address as a number. */
interface NumericAddress {
  readonly value: bigint;
  readonly bits: number;
}

/** Converts an address to a number. @returns `undefined` for other text */
function toNumber(address: string): NumericAddress | undefined {
  if (isIPv4(address)) return { value: valueOf4(address), bits: BITS_4 };
  if (!isIPv6(address) || address.includes("%")) return undefined;
  return { value: valueOf6(address), bits: BITS_6 };
}

function valueOf4(address: string): bigint {
  let value = 0n;
  for (const part of address.split(".")) value = value * 256n + BigInt(part);
  return value;
}

function valueOf6(address: string): bigint {
  // The URL parser writes only hexadecimal groups.
  const plain = new URL(`http://[${address}]`).hostname.slice(1, -1);
  const [head = "", tail = ""] = plain.split("::");
  const before = splitGroups(head);
  const after = splitGroups(tail);
  const zeros = Array<string>(GROUPS - before.length - after.length).fill("0");
  let value = 0n;
  for (const group of [...before, ...zeros, ...after]) {
    value = (value << GROUP_BITS) + BigInt(`0x${group}`);
  }
  return value;
}

function splitGroups(text: string): string[] {
  return text === "" ? [] : text.split(":");
}

/** Returns whether an address equals an entry, or is in its network. */
function isInNetwork(address: string, entry: string): boolean {
  const [network = "", length] = entry.split("/");
  const one = toNumber(address);
  const other = toNumber(network);
  if (one === undefined || other === undefined) return false;
  if (one.bits !== other.bits) return false;
  if (length === undefined) return one.value === other.value;
  if (!/^\d{1,3}$/.test(length) || Number(length) > one.bits) return false;
  const rest = BigInt(one.bits - Number(length));
  return one.value >> rest === other.value >> rest;
}

/**
 * Returns whether a name equals an entry, or is a subdomain of it. A dot or `*.` before an entry
 * has no effect.
 */
function isBelow(name: string, entry: string): boolean {
  const plain = entry.replace(/^\*?\./, "").replace(/\.$/, "");
  return plain !== "" && (name === plain || name.endsWith(`.${plain}`));
}

/**
 * Returns whether an upstream is an exception, by the rules of curl, and by Go's rules for ports.
 *
 * @param list Entries, separated by commas or blanks; `*` is every host
 */
export function isExcepted({ hostname, port, protocol }: URL, list: string): boolean {
  const host = hostname.replace(/^\[|\]$/g, "").replace(/\.$/, "").toLowerCase();
  const ownPort = port || (protocol === "https:" ? "443" : "80");
  const isAddress = toNumber(host) !== undefined;
  return list.toLowerCase().split(/[\s,]+/).some((entry) => {
    if (entry === "" || entry === "*") return entry === "*";
    const [, bracketed, name, bare, wantedPort] = ENTRY.exec(entry) ?? [];
    if (wantedPort !== undefined && wantedPort !== ownPort) return false;
    const wanted = bracketed ?? name ?? bare ?? "";
    return isAddress ? isInNetwork(host, wanted) : isBelow(host, wanted);
  });
}
