/**
 * The text that `serve` prints when it has started. Its addresses can be called from this machine as they stand.
 *
 * @module
 */
import { createHostTable } from "../inbound/host.ts";
import type { ProviderConfig } from "../config/provider.ts";

/** The facts that are printed of a gateway that has started. */
export interface Started {
  readonly version: string;
  /** URLs of the listeners for callers, such as `http://0.0.0.0:8787`. */
  readonly urls: readonly string[];
  /** URLs of the admin listeners. */
  readonly admins: readonly string[];
  readonly providers: Readonly<Record<string, Pick<ProviderConfig, "hosts" | "upstreams">>>;
}

const ANY = ["0.0.0.0", "[::]"];

/** Returns the names that lead from this machine to a listener, its own address first. */
function namesOf(hostname: string): string[] {
  if (ANY.includes(hostname)) return ["127.0.0.1", "localhost"];
  if (["127.0.0.1", "[::1]", "localhost"].includes(hostname)) return [hostname, "localhost"];
  return [hostname];
}

/** Finds the name of the provider that a Host leads to. */
type Finder = (host: string) => string | undefined;

/** Makes a finder that looks hosts up in the gateway's own table. */
function createFinder(providers: Started["providers"]): Finder {
  const table = createHostTable(
    Object.entries(providers).flatMap(([name, { hosts }]) => hosts.map((host): [string, string] => [host, name])),
  );
  return (host) => {
    try {
      return table(host);
    } catch {
      return undefined; // no provider has it
    }
  };
}

/** Finds, for each provider, the first address by which it can be called at a listener, by these names. */
function addressesOf(listener: string, names: readonly string[], find: Finder): Map<string, string> {
  const { protocol, port } = new URL(listener);
  const found = new Map<string, string>();
  for (const name of names) {
    const host = port === "" ? name : `${name}:${port}`;
    const provider = find(host);
    if (provider !== undefined && !found.has(provider)) found.set(provider, `${protocol}//${host}`);
  }
  return found;
}

/** Returns the hosts of providers that lead to this machine without an entry in any DNS (RFC 6761 §6.3). */
function localHosts(providers: Started["providers"]): string[] {
  const hosts = Object.values(providers).flatMap(({ hosts }) => hosts);
  return hosts.map((host) => host.replace(/:\d+$/, "")).filter((host) => /^\w.*\.localhost$/.test(host));
}

/** Returns an address at which a listener can be called: its own, but the loopback for one on all interfaces. */
function toCallable(listener: string): string {
  const url = new URL(listener);
  return ANY.includes(url.hostname) ? listener.replace(url.hostname, "127.0.0.1") : listener;
}

const scope = (listener: string) => ANY.includes(new URL(listener).hostname) ? " (all interfaces)" : "";

/**
 * Writes the lines that `serve` prints.
 *
 * @param started What has started
 * @returns Lines with their ends
 */
export function toBanner({ version, urls, admins, providers }: Started): string {
  const find = createFinder(providers);
  const lines = [`sallyport ${version}`];
  const addresses = urls.map((url) => {
    const names = namesOf(new URL(url).hostname);
    const found = addressesOf(url, names, find);
    const [first] = found.values();
    const hint = first === undefined ? " (callers name a host of a provider)" : "";
    lines.push(`listening on ${first ?? toCallable(url)}${scope(url)}${hint}`);
    return first !== undefined || !names.includes("localhost") ? found : addressesOf(url, localHosts(providers), find);
  });
  for (const url of admins) lines.push(`admin on ${toCallable(url)}${scope(url)}`);
  for (const [name, { hosts, upstreams }] of Object.entries(providers)) {
    const callable = addresses.flatMap((found) => found.get(name) ?? []).map((url) => `${url}/v1`);
    const isTold = (host: string) =>
      callable.map((url) => new URL(url)).some((url) => [url.host, url.hostname].includes(host));
    const rest = hosts.filter((host) => host !== "*" && !isTold(host)).join(", ");
    const more = rest === "" ? [] : [callable.length > 0 ? `also ${rest}` : rest];
    lines.push(`provider ${name}: ${[...callable, ...more].join(", ") || "*"} -> ${upstreams.join(", ")}`);
  }
  return `${lines.join("\n")}\n`;
}
