/**
 * Addresses at which callers on this machine reach a listener and the providers behind it. The
 * start prints them, and the console's first example uses them.
 *
 * @module
 */
import { splitAddress } from "../config/address.ts";
import { createHostTable } from "./host.ts";

/** The addresses of providers, by the name of each. */
export type ProviderHosts = Readonly<Record<string, { readonly hosts: readonly string[] }>>;

/** A listener as callers on this machine reach it. */
export interface CallableListener {
  /** Address on this machine, such as `http://127.0.0.1:8787`. */
  readonly origin: string;
  /** True if callers must name the host of a provider: no provider has the address itself. */
  readonly needsHost: boolean;
  /** The first address of each provider that works as it is, without `/v1`. */
  readonly providers: ReadonlyMap<string, string>;
}

const ANY = ["0.0.0.0", "[::]"];

/** Returns whether a listener listens on all interfaces. */
export const isOnAllInterfaces = (listener: string): boolean =>
  ANY.includes(new URL(listener).hostname);

/** Returns the names of a listener on this machine, its own address first. */
function namesOf(hostname: string): string[] {
  if (ANY.includes(hostname)) return ["127.0.0.1", "localhost"];
  if (["127.0.0.1", "[::1]", "localhost"].includes(hostname)) return [hostname, "localhost"];
  return [hostname];
}

/** Finds the name of the provider for a Host and a path before `/v1`. */
type Finder = (host: string, prefix: string) => string | undefined;

/** Creates a finder that uses the gateway's own address table. */
function createFinder(providers: ProviderHosts): Finder {
  const table = createHostTable(
    Object.entries(providers).flatMap(([name, provider]) =>
      provider.hosts.map((host): [string, string] => [host, name])
    ),
  );
  return (host, prefix) => {
    try {
      return table(host, `${prefix}/v1`).provider;
    } catch {
      return undefined; // no provider has this address
    }
  };
}

/** The addresses of all providers, in their parts. */
const addressesIn = (providers: ProviderHosts) =>
  Object.values(providers).flatMap(({ hosts }) => hosts.map(splitAddress));

/** Finds, for each provider, its first address that leads to a listener with one of these names. */
function addressesOf(
  listener: string,
  names: readonly string[],
  providers: ProviderHosts,
): Map<string, string> {
  const { protocol, port } = new URL(listener);
  const find = createFinder(providers);
  const prefixes = new Set(addressesIn(providers).map(({ prefix }) => prefix));
  const found = new Map<string, string>();
  for (const name of names) {
    const host = port === "" ? name : `${name}:${port}`;
    for (const prefix of prefixes) {
      const provider = find(host, prefix);
      if (provider !== undefined && !found.has(provider)) {
        found.set(provider, `${protocol}//${host}${prefix}`);
      }
    }
  }
  return found;
}

/** Returns the hosts of providers that resolve to this machine without DNS (RFC 6761 §6.3). */
function localHosts(providers: ProviderHosts): string[] {
  return addressesIn(providers).map(({ host }) => host.replace(/:\d+$/, ""))
    .filter((host) => /^\w.*\.localhost$/.test(host));
}

/**
 * Returns an address to call a listener at: its own, or the loopback address if it listens on all
 * interfaces.
 */
export function toCallable(listener: string): string {
  return isOnAllInterfaces(listener)
    ? listener.replace(new URL(listener).hostname, "127.0.0.1")
    : listener;
}

/** Finds the addresses of a listener, such as `http://0.0.0.0:8787`, and of the providers there. */
export function toCallableListener(listener: string, providers: ProviderHosts): CallableListener {
  const names = namesOf(new URL(listener).hostname);
  const found = addressesOf(listener, names, providers);
  const [first] = found.values();
  const needsHost = first === undefined;
  return {
    origin: needsHost ? toCallable(listener) : new URL(first).origin,
    needsHost,
    providers: needsHost && names.includes("localhost")
      ? addressesOf(listener, localHosts(providers), providers)
      : found,
  };
}
