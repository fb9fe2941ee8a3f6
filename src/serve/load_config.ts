/**
 * Loading of the effective configuration: a file, overridden by the environment. Each error names
 * the place of the mistake.
 *
 * @module
 */
import { createPrivateKey, X509Certificate } from "node:crypto";
import { readFileSync } from "node:fs";
import { dirname, resolve } from "node:path";
import process from "node:process";
import { checkConfig, type Config, ConfigError, type ConfigIssue } from "../config/config.ts";
import type { TlsIdentity } from "./listener.ts";
import { codeOf } from "../errors/system_error.ts";
import {
  describeUnknownVariable,
  type Json,
  layVariable,
  listVariableNames,
  PREFIX,
} from "../config/environment.ts";
import { findPlaceholders } from "../config/placeholders.ts";
import { type JsonFile, readJsonFile } from "./json_file.ts";
import { layPriceFiles } from "./price_files.ts";

/** Default file in the working directory. */
const DEFAULT_FILE = "gateway.jsonc";
/**
 * Variable with the provider key. Only `sallyport doctor` reads it. It is not part of the
 * configuration.
 */
export const UPSTREAM_KEY_VARIABLE = "SALLYPORT_UPSTREAM_KEY";

/** A configuration and its origin. */
export interface LoadedConfig {
  readonly config: Config;
  /**
   * The file's content, overridden by the environment, with the prices of the files that it names,
   * before validation.
   */
  readonly input: Json;
  /** The file, if there was one. */
  readonly file?: string | undefined;
  /** Directory that relative paths in the configuration start from. */
  readonly directory: string;
  /** Files of prices that it names. */
  readonly priceFiles: readonly string[];
}

/** One address to listen on, with the content of its certificate files. */
export interface ListenerAddress {
  readonly hostname: string;
  readonly port: number;
  readonly tls?: TlsIdentity | undefined;
}

/**
 * Reads the variables of the gateway. If Deno permits only single variables, each possible name is
 * tried.
 */
function readVariables(providers: readonly string[]): Map<string, string> {
  let names: string[];
  try {
    names = Object.keys(process.env).filter((name) => name.startsWith(PREFIX));
  } catch {
    names = ["SALLYPORT_CONFIG", ...listVariableNames(providers)];
  }
  const variables = new Map<string, string>();
  for (const name of names) {
    try {
      const value = process.env[name];
      if (value !== undefined && value !== "") variables.set(name, value);
    } catch {
      // Access denied: treated as not set.
    }
  }
  return variables;
}

/** Returns the names of the environment variables from which a configuration was read. */
export function readSetVariables({ config }: LoadedConfig): string[] {
  return Array.from(readVariables(Object.keys(config.providers)).keys());
}

const isLoopback = (hostname: string) => /^(?:localhost|127(?:\.\d+){3}|::1)$/.test(hostname);

function assertSafeBind(config: Config): void {
  const { listen, keys, admin, identity = [] } = config;
  const wide = listen.findIndex(({ hostname }) => !isLoopback(hostname));
  const hasNoCallers = Array.isArray(keys) && keys.length === 0 && identity.length === 0;
  if (wide !== -1 && hasNoCallers) {
    const message = "cannot listen beyond this machine without a gateway key: " +
      "configure keys, or set SALLYPORT_KEYS";
    throw new ConfigError([{ path: `listen[${wide}].hostname`, message }]);
  }
  const isRemoteAdmin = admin !== undefined && !isLoopback(admin.hostname);
  const hasOperators = identity.some((issuer) => issuer.admin !== undefined);
  if (isRemoteAdmin && admin.token === undefined && !hasOperators) {
    const message = "expected a token: the admin listener is open beyond this machine";
    throw new ConfigError([{ path: "admin.token", message }]);
  }
}

/**
 * Loads the effective configuration.
 *
 * @param named The file from the command line. Default: `SALLYPORT_CONFIG`, else `gateway.jsonc` if
 * it exists
 * @throws {ConfigError} With every mistake and its place
 */
export function loadConfig(named?: string): LoadedConfig {
  const fromEnvironment = readVariables([]);
  const wanted = named ?? fromEnvironment.get("SALLYPORT_CONFIG");
  const found = wanted === undefined ? readDefaultFile() : readJsonFile(resolve(wanted), "config");
  const input: Json = structuredClone(found?.input ?? {});
  const { providers } = input;
  const names = typeof providers === "object" && providers !== null ? Object.keys(providers) : [];

  const issues: ConfigIssue[] = [];
  const sources = new Map<string, string>();
  for (const [name, value] of readVariables(names)) {
    if (name === "SALLYPORT_CONFIG" || name === UPSTREAM_KEY_VARIABLE) continue;
    const path = layVariable(input, name, value);
    if (path === undefined) {
      const message = describeUnknownVariable(name, names);
      issues.push({ path: name, message, source: "environment" });
    } else sources.set(path, name);
  }
  const directory = found === undefined ? process.cwd() : dirname(found.file);
  const priced = layPriceFiles(input, directory);
  issues.push(...priced.issues);
  if (found === undefined && sources.size + issues.length === 0) throw noConfiguration();
  /** Adds the variable, or else the line, of a mistake. */
  const withSource = ({ path, message }: ConfigIssue): ConfigIssue => {
    // Of `admin` and `admin.token`, the longer prefix applies.
    const [longest] = Array.from(sources.keys()).filter((prefix) => path.startsWith(prefix))
      .toSorted((one, other) => other.length - one.length);
    const variable = longest === undefined ? undefined : sources.get(longest);
    return { path, message, source: variable ?? found?.lineOf(path) };
  };
  issues.push(...Array.from(findPlaceholders(input), withSource));
  try {
    const config = checkConfig(input);
    if (issues.length === 0) {
      assertSafeBind(config);
      return { config, input, file: found?.file, directory, priceFiles: priced.files };
    }
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    const isNew = ({ path }: ConfigIssue) => issues.every((other) => other.path !== path);
    issues.push(...error.issues.filter(isNew).map(withSource));
  }
  throw new ConfigError(issues);
}

function noConfiguration(): ConfigError {
  const message = `there is no ${DEFAULT_FILE} in this folder, and no variable with ${PREFIX}: ` +
    "write the file with sallyport init, or name one with --config";
  return new ConfigError([{ path: "config", message }]);
}

function readDefaultFile(): JsonFile | undefined {
  try {
    return readJsonFile(resolve(DEFAULT_FILE), "config");
  } catch (error) {
    // The file is absent, or Deno denies access: continues without a file. A file with mistakes is
    // an error.
    if (error instanceof ConfigError && error.issues[0]?.message.startsWith("cannot read")) {
      return undefined;
    }
    throw error;
  }
}

/** Finds mistakes in a certificate and its key, by the setting that names the file. */
export function* checkTls(
  { cert, key }: TlsIdentity,
): Generator<readonly [name: "cert" | "key", message: string]> {
  const tryTo = <T>(act: () => T): T | undefined => {
    try {
      return act();
    } catch {
      return undefined;
    }
  };
  const certificate = tryTo(() => new X509Certificate(cert));
  const privateKey = tryTo(() => createPrivateKey(key));
  if (certificate === undefined) yield ["cert", "expected a PEM file with a certificate"];
  if (privateKey === undefined) {
    yield ["key", "expected a PEM file with a private key that has no passphrase"];
  }
  if (certificate === undefined || privateKey === undefined) return;
  if (!certificate.checkPrivateKey(privateKey)) {
    yield ["key", "expected the private key of the certificate"];
  }
}

/**
 * Reads the certificate and key of each listener. Relative paths start at the directory.
 *
 * @returns The addresses, with files replaced by their text
 * @throws {ConfigError} For every file that can't be read, or whose content is invalid
 */
export function readTlsFiles(
  { config, directory }: Pick<LoadedConfig, "config" | "directory">,
): ListenerAddress[] {
  const issues: ConfigIssue[] = [];
  const addresses = config.listen.map(({ hostname, port, tls: files }, index): ListenerAddress => {
    if (files === undefined) return { hostname, port };
    const before = issues.length;
    const report = (name: "cert" | "key", message: string) =>
      issues.push({
        path: `listen[${index}].tls.${name}`,
        message,
        source: resolve(directory, files[name]),
      });
    const read = (name: "cert" | "key"): string => {
      try {
        return readFileSync(resolve(directory, files[name]), "utf8");
      } catch (error) {
        report(name, `cannot read the PEM file (${codeOf(error)})`);
        return "";
      }
    };
    const tls = { cert: read("cert"), key: read("key") };
    if (issues.length === before) {
      for (const [name, message] of checkTls(tls)) report(name, message);
    }
    return { hostname, port, tls };
  });
  if (issues.length > 0) throw new ConfigError(issues);
  return addresses;
}
