/**
 * Egress to providers, with everything that the configuration refers to: files, and proxy
 * variables.
 *
 * @module
 */
import { X509Certificate } from "node:crypto";
import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import process from "node:process";
import { type Config, ConfigError, type ConfigIssue } from "../config/config.ts";
import { type EgressConfig, readProxyUrl } from "../config/egress.ts";
import { type Egress, type Proxy, splitPem } from "../upstream/http1/egress.ts";
import { checkTls } from "./load_config.ts";
import { codeOf } from "../errors/system_error.ts";

/**
 * Variables that name a proxy, by the scheme of upstreams. As in curl, lower case takes precedence.
 */
const PROXY_VARIABLES = {
  "http:": ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"],
  "https:": ["https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"],
} as const;
const EXCEPTION_VARIABLES = ["no_proxy", "NO_PROXY"] as const;

/** Every variable that `fromEnvironment` reads. */
export const EGRESS_VARIABLES: readonly string[] = [
  ...new Set([...PROXY_VARIABLES["http:"], ...PROXY_VARIABLES["https:"], ...EXCEPTION_VARIABLES]),
];

/** Returns the first variable that is set, with its name. Deno can deny access. */
function readVariable(
  names: readonly string[],
): readonly [name: string, value: string] | undefined {
  for (const name of names) {
    try {
      const value = process.env[name]?.trim();
      if (value) return [name, value];
    } catch {
      // Access denied: treated as not set.
    }
  }
  return undefined;
}

/**
 * Returns the certificates in the text of a PEM file. Returns none if one of them can't be read.
 */
function toCertificates(text: string): string[] {
  try {
    return splitPem(text).map((pem) => new X509Certificate(pem).toString());
  } catch {
    return [];
  }
}

/**
 * Reads the settings of one provider, and collects mistakes in the files and variables that they
 * name.
 */
class EgressReader {
  readonly #path: string;
  readonly #directory: string;
  readonly issues: ConfigIssue[] = [];

  constructor(path: string, directory: string) {
    this.#path = path;
    this.#directory = directory;
  }

  #report(setting: keyof EgressConfig, message: string, source: string | undefined): void {
    this.issues.push({ path: `${this.#path}.${setting}`, message, source });
  }

  #read(setting: "ca" | "cert" | "key" | "credentials", file: string): string | undefined {
    const path = resolve(this.#directory, file);
    try {
      return readFileSync(path, "utf8");
    } catch (error) {
      this.#report(setting, `cannot read the file (${codeOf(error)})`, path);
      return undefined;
    }
  }

  /** Reads the file of credentials: one line, with an optional line break. */
  #credentials(file: string | undefined): string | undefined {
    if (file === undefined) return undefined;
    const text = this.#read("credentials", file)?.replace(/\r?\n$/, "");
    if (text === undefined || /^[^:\n\r]+:[^\n\r]*$/.test(text)) return text;
    this.#report("credentials", "expected one line, user:password", resolve(this.#directory, file));
    return undefined;
  }

  #toProxy(url: string, credentials: string | undefined, source?: string): Proxy | undefined {
    // As in curl, a name without a scheme is a proxy over http.
    const address = readProxyUrl(
      source === undefined || url.includes("://") ? url : `http://${url}`,
    );
    if (typeof address !== "string") {
      return { url: address.url.href, credentials: address.credentials ?? credentials };
    }
    this.#report("fromEnvironment", address, source);
    return undefined;
  }

  #route(
    { proxy, credentials: file, fromEnvironment }: EgressConfig,
  ): Pick<Egress, "proxies" | "noProxy"> {
    const credentials = this.#credentials(file);
    if (proxy !== undefined) {
      const same = this.#toProxy(proxy, credentials);
      return { proxies: { "http:": same, "https:": same } };
    }
    if (fromEnvironment === undefined) return { proxies: {} };
    const named = (scheme: keyof typeof PROXY_VARIABLES): Proxy | undefined => {
      const [name, value] = readVariable(PROXY_VARIABLES[scheme]) ?? [];
      return value === undefined ? undefined : this.#toProxy(value, credentials, name);
    };
    const [, noProxy] = readVariable(EXCEPTION_VARIABLES) ?? [];
    return { proxies: { "http:": named("http:"), "https:": named("https:") }, noProxy };
  }

  /** Reads the files and variables that the settings name. */
  read(config: EgressConfig): Egress {
    const { ca: files, caOnly, cert: certFile, key: keyFile } = config;
    const ca = files?.flatMap((file) => {
      const text = this.#read("ca", file);
      const found = text === undefined ? [] : toCertificates(text);
      if (text !== undefined && found.length === 0) {
        this.#report("ca", "expected a PEM file with certificates", resolve(this.#directory, file));
      }
      return found;
    });
    const cert = certFile && this.#read("cert", certFile);
    const key = keyFile && this.#read("key", keyFile);
    if (cert && key) {
      const paths = { cert: certFile, key: keyFile };
      for (const [name, message] of checkTls({ cert, key })) {
        this.#report(name, message, resolve(this.#directory, paths[name]));
      }
    }
    return { ...this.#route(config), ca, isCaOnly: caOnly, cert, key };
  }
}

/**
 * Reads the egress of each provider that has one.
 *
 * @param directory Directory that relative paths start from
 * @returns The egress settings, by the names of the providers
 * @throws {ConfigError} For every file that can't be read, and every other invalid value
 */
export function readEgress(
  { providers }: Pick<Config, "providers">,
  directory: string,
): Map<string, Egress> {
  const found = new Map<string, Egress>();
  const issues: ConfigIssue[] = [];
  for (const [name, { egress }] of Object.entries(providers)) {
    if (egress === undefined) continue;
    const reader = new EgressReader(`providers.${name}.egress`, directory);
    found.set(name, reader.read(egress));
    issues.push(...reader.issues);
  }
  if (issues.length > 0) throw new ConfigError(issues);
  return found;
}
