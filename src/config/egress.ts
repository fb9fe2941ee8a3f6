/**
 * The settings of egress to providers: a proxy, the authorities to trust, a client certificate. The
 * settings for all providers are defaults for each provider's own settings.
 *
 * @module
 */
import * as v from "valibot";
import { about, nonEmpty, strictObject } from "./schema.ts";

/** The egress to one provider. */
export interface EgressConfig {
  /** URL of the proxy, which can contain its credentials. Default: no proxy. */
  readonly proxy?: string | undefined;
  /** File with `user:password` for the proxy. */
  readonly credentials?: string | undefined;
  /** True if `HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY` and `NO_PROXY` decide on the proxy. */
  readonly fromEnvironment?: true | undefined;
  /** PEM files of authorities to trust in addition to the runtime's. */
  readonly ca?: readonly string[] | undefined;
  /** True if only the authorities of `ca` are trusted. */
  readonly caOnly?: true | undefined;
  /** PEM file of the certificate for upstreams that request one. */
  readonly cert?: string | undefined;
  /** PEM file of the private key of that certificate. */
  readonly key?: string | undefined;
}

/**
 * The egress to providers as written in the configuration. `off` at a provider means none of the
 * defaults.
 */
export type EgressInput = "off" | EgressSettings;

/** Settings of egress as written in the configuration. */
export interface EgressSettings {
  /** URL of the proxy, or `off` to use no proxy although all providers have one. */
  readonly proxy?: string | undefined;
  /** File with `user:password` for the proxy. */
  readonly credentials?: string | undefined;
  /** True if `HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY` and `NO_PROXY` decide on the proxy. */
  readonly fromEnvironment?: boolean | undefined;
  /** PEM file, or several, of authorities to trust in addition to the runtime's. */
  readonly ca?: string | readonly string[] | undefined;
  /** True if only the authorities of `ca` are trusted. */
  readonly caOnly?: boolean | undefined;
  /** PEM file of the certificate for upstreams that request one. */
  readonly cert?: string | undefined;
  /** PEM file of the private key of that certificate. */
  readonly key?: string | undefined;
}

/** A parsed proxy. */
export interface ProxyAddress {
  /** Only its scheme, host and port. */
  readonly url: URL;
  /** `user:password`, decoded. */
  readonly credentials?: string | undefined;
}

const PROXY_FORM = 'expected a URL such as "http://proxy.example:3128"';

/**
 * Parses the URL of a proxy.
 *
 * @returns The proxy, or a description of the fault, which never quotes the URL
 */
export function readProxyUrl(text: string): ProxyAddress | string {
  if (!URL.canParse(text)) return PROXY_FORM;
  const { protocol, host, hostname, username, password, pathname, search, hash } = new URL(text);
  if (protocol.startsWith("socks")) return `${PROXY_FORM}: SOCKS is not supported`;
  if (!/^https?:$/.test(protocol) || hostname === "") return PROXY_FORM;
  const rest = pathname + search + hash;
  if (rest !== "/") {
    return "expected nothing after the port: /, ? and # are written %2f, %3f and %23 in a password";
  }
  const url = new URL(`${protocol}//${host}`);
  if (username === "" && password === "") return { url };
  try {
    return { url, credentials: `${decodeURIComponent(username)}:${decodeURIComponent(password)}` };
  } catch {
    return "expected a percent-encoded user and password: % is written %25";
  }
}

const proxy = v.pipe(
  nonEmpty,
  v.check(
    (text) => text === "off" || typeof readProxyUrl(text) !== "string",
    ({ input }) => String(readProxyUrl(input)),
  ),
);

const flagForm = "expected true or false";
const SETTINGS_FORM = "expected an object with proxy, fromEnvironment, ca, or cert and key";

/** Checked settings. A group that is stated in part counts as stated completely. */
export type StatedEgress = Omit<EgressSettings, "ca"> & {
  readonly ca?: readonly string[] | undefined;
};

/** Finds mistakes in combinations of settings. */
function* findMistakes(
  settings: StatedEgress,
): Generator<readonly [name: keyof EgressSettings, message: string]> {
  const { proxy, credentials, fromEnvironment = false, ca, caOnly = false, cert, key } = settings;
  if (proxy !== undefined && fromEnvironment) {
    yield ["fromEnvironment", "can't be combined with proxy"];
  }
  if (credentials !== undefined) {
    const address = proxy === undefined || proxy === "off" ? undefined : readProxyUrl(proxy);
    if (address === undefined && !fromEnvironment) {
      yield ["credentials", "needs proxy or fromEnvironment"];
    } else if (typeof address === "object" && address.credentials !== undefined) {
      yield ["credentials", "expected them once: they are in the URL of the proxy too"];
    }
  }
  const hasAuthorities = ca !== undefined && ca.length > 0;
  if (caOnly && !hasAuthorities) yield ["caOnly", "needs ca"];
  if (cert !== undefined && key === undefined) yield ["key", "expected together with cert"];
  if (key !== undefined && cert === undefined) yield ["cert", "expected together with key"];
}

const settings = v.pipe(
  strictObject({
    proxy: v.optional(about(
      proxy,
      "URL of the proxy, `http://` or `https://`, with `user:password@` if it requires them; " +
        "`off` for none",
    )),
    credentials: v.optional(
      about(nonEmpty, "File with `user:password` for the proxy, instead of in its URL"),
    ),
    fromEnvironment: v.optional(about(
      v.boolean(flagForm),
      "With `true`, the proxy is read from the variables `HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY` " +
        "and `NO_PROXY`, as curl reads them",
    )),
    ca: v.optional(about(
      v.union([
        v.pipe(nonEmpty, v.transform((file) => [file])),
        v.array(nonEmpty, "expected a file, or an array of files"),
      ], "expected a file, or an array of files"),
      "PEM files of authorities that are trusted in addition to the authorities of the runtime",
    )),
    caOnly: v.optional(
      about(v.boolean(flagForm), "With `true`, only the authorities of `ca` are trusted"),
    ),
    cert: v.optional(
      about(nonEmpty, "PEM file of the client certificate, for upstreams that ask for one"),
    ),
    key: v.optional(about(nonEmpty, "PEM file of the private key of `cert`")),
  }, SETTINGS_FORM),
  v.rawCheck(({ dataset, addIssue }) => {
    if (!dataset.typed) return;
    for (const [key, message] of findMistakes(dataset.value)) {
      addIssue({
        message,
        path: [{
          type: "unknown",
          origin: "value",
          input: dataset.value,
          key,
          value: null,
        }] as never,
      });
    }
  }),
);

/** @internal The schema of the egress to all providers. */
export const EgressSchema: v.GenericSchema<EgressSettings, StatedEgress> = settings;

/** @internal The schema of the egress to one provider. */
export const ProviderEgressSchema: v.GenericSchema<EgressInput, "off" | StatedEgress> = v.union(
  [v.literal("off"), settings],
  `${SETTINGS_FORM}, or "off"`,
);

/** Groups of settings. If a provider states one of a group, none of that group's defaults apply. */
const GROUPS: readonly (readonly (keyof EgressConfig)[])[] = [
  ["proxy", "credentials", "fromEnvironment"],
  ["ca", "caOnly"],
  ["cert", "key"],
];

/** Returns whether a setting has an effect. */
function isSet(value: StatedEgress[keyof StatedEgress]): boolean {
  if (value === undefined || value === "off") return false;
  return typeof value === "boolean" ? value : value.length > 0;
}

/** Merges the settings of a provider with the settings for all; `undefined` if nothing is set. */
function mergeEgress(
  own: "off" | StatedEgress | undefined,
  shared: StatedEgress | undefined,
): EgressConfig | undefined {
  if (own === "off") return undefined;
  const merged: Record<string, unknown> = {};
  for (const group of GROUPS) {
    const source = group.some((name) => own?.[name] !== undefined) ? own : shared;
    for (const name of group) {
      const value = source?.[name];
      if (isSet(value)) merged[name] = value;
    }
  }
  return Object.keys(merged).length === 0 ? undefined : merged;
}

/** Sets the egress to each provider. @param shared The settings for all providers */
export function withEgress<Provider extends { readonly egress?: "off" | StatedEgress | undefined }>(
  providers: Readonly<Record<string, Provider>>,
  shared: StatedEgress | undefined,
): Record<string, Omit<Provider, "egress"> & { readonly egress?: EgressConfig | undefined }> {
  return Object.fromEntries(
    Object.entries(providers).map(([name, provider]) => {
      const { egress, ...rest } = provider;
      const merged = mergeEgress(egress, shared);
      return [name, { ...rest, ...(merged !== undefined && { egress: merged }) }];
    }),
  );
}
