/**
 * The text that `serve` prints after the start. Its addresses can be called from this machine as
 * printed.
 *
 * @module
 */
import { splitAddress } from "../config/address.ts";
import { createHostTable } from "../inbound/host.ts";
import type { ProviderConfig } from "../config/provider.ts";

/** The printed facts of a started gateway. */
export interface Started {
  readonly version: string;
  /** URLs of the listeners for callers, such as `http://0.0.0.0:8787`. */
  readonly urls: readonly string[];
  /** URLs of the admin listeners. */
  readonly admins: readonly string[];
  readonly providers: Readonly<Record<string, Pick<ProviderConfig, "hosts" | "upstreams">>>;
}

const ANY = ["0.0.0.0", "[::]"];

/** Returns the names of a listener on this machine, its own address first. */
function namesOf(hostname: string): string[] {
  if (ANY.includes(hostname)) return ["127.0.0.1", "localhost"];
  if (["127.0.0.1", "[::1]", "localhost"].includes(hostname)) return [hostname, "localhost"];
  return [hostname];
}

/** Finds the name of the provider for a Host and a path before `/v1`. */
type Finder = (host: string, prefix: string) => string | undefined;

/** Creates a finder that uses the gateway's own address table. */
function createFinder(providers: Started["providers"]): Finder {
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
const addressesIn = (providers: Started["providers"]) =>
  Object.values(providers).flatMap(({ hosts }) => hosts.map(splitAddress));

/** Finds, for each provider, its first address that leads to a listener with one of these names. */
function addressesOf(
  listener: string,
  names: readonly string[],
  providers: Started["providers"],
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
function localHosts(providers: Started["providers"]): string[] {
  return addressesIn(providers).map(({ host }) => host.replace(/:\d+$/, ""))
    .filter((host) => /^\w.*\.localhost$/.test(host));
}

/**
 * Returns an address to call a listener at: its own, or the loopback address if it listens on all
 * interfaces.
 */
function toCallable(listener: string): string {
  const url = new URL(listener);
  return ANY.includes(url.hostname) ? listener.replace(url.hostname, "127.0.0.1") : listener;
}

const scope = (listener: string) =>
  ANY.includes(new URL(listener).hostname) ? " (all interfaces)" : "";

/** True if a provider's URL already shows one of its addresses. */
function isShown(address: string, url: URL): boolean {
  const { host, prefix } = splitAddress(address);
  return ["*", url.host, url.hostname].includes(host) && url.pathname === `${prefix}/v1`;
}

/** Writes the lines that `serve` prints, with their ends. */
export function toBanner(started: Started): string {
  const { version, urls, admins, providers } = started;
  const lines = [`sallyport ${version}`];
  const addresses = urls.map((url) => {
    const names = namesOf(new URL(url).hostname);
    const found = addressesOf(url, names, providers);
    const [first] = found.values();
    const origin = first === undefined ? toCallable(url) : new URL(first).origin;
    const hint = first === undefined ? " (callers name a host of a provider)" : "";
    lines.push(`listening on ${origin}${scope(url)}${hint}`);
    const isFound = first !== undefined || !names.includes("localhost");
    return isFound ? found : addressesOf(url, localHosts(providers), providers);
  });
  for (const url of admins) lines.push(`admin on ${toCallable(url)}${scope(url)}`);
  for (const [name, { hosts, upstreams }] of Object.entries(providers)) {
    const callable = addresses.flatMap((found) => found.get(name) ?? []).map((url) => `${url}/v1`);
    const others = hosts.filter((host) => !callable.some((url) => isShown(host, new URL(url))));
    const rest = others.join(", ");
    const more = rest === "" ? [] : [callable.length > 0 ? `also ${rest}` : rest];
    lines.push(`provider ${name}: ${[...callable, ...more].join(", ")} -> ${upstreams.join(", ")}`);
  }
  return `${lines.join("\n")}\n`;
}
