/**
 * The text that `serve` prints after the start. Its addresses can be called from this machine as
 * printed.
 *
 * @module
 */
import { splitAddress } from "../config/address.ts";
import { isOnAllInterfaces, toCallable, toCallableListener } from "../inbound/callable_address.ts";
import type { ProviderConfig } from "../config/provider.ts";

/** The printed facts of a started gateway. */
export interface Started {
  readonly version: string;
  /** URLs of the listeners for callers, such as `http://0.0.0.0:8787`. */
  readonly urls: readonly string[];
  /** URLs of the admin listeners. */
  readonly admins: readonly string[];
  readonly providers: Readonly<
    Record<string, Pick<ProviderConfig, "hosts" | "upstreams" | "shape">>
  >;
}

const scope = (listener: string) => isOnAllInterfaces(listener) ? " (all interfaces)" : "";

/** True if a provider's URL already shows one of its addresses. */
function isShown(address: string, url: URL): boolean {
  const { host, prefix } = splitAddress(address);
  const isSamePath = [`${prefix}/v1`, prefix, `${prefix}/`].includes(url.pathname);
  return ["*", url.host, url.hostname].includes(host) && isSamePath;
}

/** Returns the lines that `serve` prints. */
export function toBanner(started: Started): string[] {
  const { version, urls, admins, providers } = started;
  const lines = [`sallyport ${version}`];
  const listeners = urls.map((url) => {
    const listener = toCallableListener(url, providers);
    const hint = listener.needsHost ? " (callers name a host of a provider)" : "";
    lines.push(`listening on ${listener.origin}${scope(url)}${hint}`);
    return listener;
  });
  for (const url of admins) lines.push(`admin on ${toCallable(url)}${scope(url)}`);
  for (const [name, { hosts, upstreams, shape }] of Object.entries(providers)) {
    // Clients with a shape of their own add the whole path.
    const path = shape === "v1" ? "/v1" : "";
    const callable = listeners.flatMap((each) => each.providers.get(name) ?? [])
      .map((url) => url + path);
    const others = hosts.filter((host) => !callable.some((url) => isShown(host, new URL(url))));
    const rest = others.join(", ");
    const more = rest === "" ? [] : [callable.length > 0 ? `also ${rest}` : rest];
    lines.push(`provider ${name}: ${[...callable, ...more].join(", ")} -> ${upstreams.join(", ")}`);
  }
  return lines;
}
