/**
 * The effective configuration: a file, the environment over it, and for every mistake the place where it was made.
 *
 * @module
 */
import { readFileSync } from "node:fs";
import { dirname, resolve } from "node:path";
import process from "node:process";
import { findNodeAtLocation, type Node, type ParseError, parseTree, printParseErrorCode } from "jsonc-parser";
import { getNodeValue } from "jsonc-parser";
import { type Config, ConfigError, type ConfigIssue, parseConfig } from "../config.ts";

/** Looked for in the working directory when no other file is named. */
const DEFAULT_FILE = "gateway.jsonc";
const PREFIX = "SALLYPORT_";
/** The caller's key at a provider, for `sallyport doctor` alone: no part of the configuration. */
export const UPSTREAM_KEY_VARIABLE = "SALLYPORT_UPSTREAM_KEY";
/** Variables that end in a provider's name, and what they set. */
const PROVIDER_SETTINGS: Readonly<Record<string, string>> = {
  SALLYPORT_PROVIDER_: "upstream",
  SALLYPORT_HOSTS_: "hosts",
  SALLYPORT_MESSAGES_: "messages",
  SALLYPORT_DEADLINES_: "deadlines",
  SALLYPORT_KEEP_ALIVE_: "keepAlive",
  SALLYPORT_SHARED_LIMITS_: "limits",
  SALLYPORT_PRICES_: "prices",
};
const PROVIDER_VARIABLES = Object.keys(PROVIDER_SETTINGS);
/** Variables that set one text, and where. */
const SIMPLE_VARIABLES: Readonly<Record<string, readonly [section: string, setting: string]>> = {
  SALLYPORT_LIMITS_BODY: ["limits", "body"],
  SALLYPORT_LIMITS_BODY_TIME: ["limits", "bodyTime"],
  SALLYPORT_LIMITS_BODIES: ["limits", "bodies"],
  SALLYPORT_LIMITS_EXCHANGES: ["limits", "exchanges"],
  SALLYPORT_LIMITS_WRITE_STALL: ["limits", "writeStall"],
  SALLYPORT_DRAIN_DELAY: ["drain", "delay"],
  SALLYPORT_DRAIN_LIMIT: ["drain", "limit"],
};

const FIXED_VARIABLES = [
  "SALLYPORT_CONFIG",
  "SALLYPORT_LISTEN",
  "SALLYPORT_ADMIN",
  "SALLYPORT_ADMIN_TOKEN",
  "SALLYPORT_KEYS",
  "SALLYPORT_KEYS_FILE",
  "SALLYPORT_REDIS",
  "SALLYPORT_LOG",
  "SALLYPORT_PRICES",
  "SALLYPORT_CURRENCY",
  ...Object.keys(SIMPLE_VARIABLES),
];

type Json = Record<string, unknown>;

/** A configuration and where it came from. */
export interface LoadedConfig {
  readonly config: Config;
  /** The file, if there was one. */
  readonly file?: string | undefined;
  /** Relative paths in the configuration start here. */
  readonly directory: string;
}

/** What a file says, with the line of each setting. */
interface ConfigFile {
  readonly file: string;
  readonly input: Json;
  lineOf(path: string): string;
}

function lineAt(text: string, offset: number): number {
  return text.slice(0, offset).split("\n").length;
}

function toSegments(path: string): (string | number)[] {
  return Array.from(
    path.matchAll(/\[(\d+)\]|[^.[\]]+/g),
    ([name, index]) => index === undefined ? name : Number(index),
  );
}

/** The line of a setting, or of the closest one around it. */
function findLine(root: Node, text: string, path: string): number {
  const segments = toSegments(path);
  for (let length = segments.length; length > 0; length--) {
    const node = findNodeAtLocation(root, segments.slice(0, length));
    if (node !== undefined) return lineAt(text, node.parent?.type === "property" ? node.parent.offset : node.offset);
  }
  return 1;
}

function readConfigFile(file: string): ConfigFile {
  let text: string;
  try {
    text = readFileSync(file, "utf8");
  } catch (error) {
    const code = error instanceof Error ? ` (${"code" in error ? error.code : error.name})` : "";
    throw new ConfigError([{ path: "config", message: `cannot read the file${code}`, source: file }]);
  }
  const errors: ParseError[] = [];
  const root = parseTree(text, errors, { allowTrailingComma: true });
  const [error] = errors;
  if (error !== undefined || root?.type !== "object") {
    const what = error === undefined ? "expected an object" : printParseErrorCode(error.error);
    const source = `${file}:${lineAt(text, error?.offset ?? 0)}`;
    throw new ConfigError([{ path: "config", message: `cannot parse the file: ${what}`, source }]);
  }
  return { file, input: getNodeValue(root), lineOf: (path) => `${file}:${findLine(root, text, path)}` };
}

/** Deno may allow single variables only: then the ones that could be meant are asked for one by one. */
function readVariables(providers: readonly string[]): Map<string, string> {
  let names: string[];
  try {
    names = Object.keys(process.env).filter((name) => name.startsWith(PREFIX));
  } catch {
    const suffixes = providers.map((name) => name.toUpperCase().replaceAll("-", "_"));
    names = [...FIXED_VARIABLES, ...PROVIDER_VARIABLES.flatMap((stem) => suffixes.map((suffix) => stem + suffix))];
  }
  const variables = new Map<string, string>();
  for (const name of names) {
    try {
      const value = process.env[name];
      if (value !== undefined && value !== "") variables.set(name, value);
    } catch {
      // not allowed to know: as if it were not set
    }
  }
  return variables;
}

/**
 * The variables of the environment that a configuration was made with.
 *
 * @param loaded The configuration
 * @returns Their names
 */
export function readSetVariables({ config }: LoadedConfig): string[] {
  return Array.from(readVariables(Object.keys(config.providers)).keys());
}

function splitList(text: string): string[] {
  return text.split(",").map((item) => item.trim()).filter((item) => item !== "");
}

/** `127.0.0.1:8787`, `http://…` or `https://127.0.0.1:8788?cert=b.crt&key=b.key`. */
function toListen(text: string): Json {
  const full = /^https?:/.test(text) ? text : `http://${text}`;
  if (!URL.canParse(full)) return { port: text };
  const url = new URL(full);
  const port = Number(/:(\d+)(?:[/?]|$)/.exec(full.replace(/^https?:/, ""))?.[1] ?? NaN);
  const { cert, key } = Object.fromEntries(url.searchParams);
  return {
    hostname: url.hostname.replace(/^\[|\]$/g, ""),
    port: Number.isNaN(port) ? text : port,
    ...(url.protocol === "https:" && { tls: { cert, key } }),
  };
}

/** Plain keys in a comma-separated list, `redis`, or the whole `keys` setting as JSON. */
function toKeys(text: string): unknown {
  if (text === "redis") return text;
  if (!text.startsWith("[")) return splitList(text).map((key, index) => ({ id: `key-${index + 1}`, key }));
  return toJson(text);
}

/** What is no JSON becomes a text, which no schema takes for an object or an array. */
function toJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return "no JSON";
  }
}

/** Lays one variable over the settings. @returns The path it sets, or nothing for an unknown one. */
function layVariable(input: Json, name: string, value: string): string | undefined {
  const simple = Object.hasOwn(SIMPLE_VARIABLES, name) ? SIMPLE_VARIABLES[name] : undefined;
  if (simple !== undefined) {
    const [section, setting] = simple;
    ((input[section] ??= {}) as Json)[setting] = setting === "exchanges" ? Number(value) : value;
    return simple.join(".");
  }
  switch (name) {
    case "SALLYPORT_LISTEN":
      input.listen = splitList(value).map(toListen);
      return "listen";
    case "SALLYPORT_KEYS":
      input.keys = toKeys(value);
      return "keys";
    case "SALLYPORT_KEYS_FILE":
      input.keys = { file: value };
      return "keys";
    case "SALLYPORT_LOG":
      input.log = value;
      return "log";
    case "SALLYPORT_REDIS":
      input.redis = value;
      return "redis";
    case "SALLYPORT_PRICES":
      input.prices = toJson(value);
      return "prices";
    case "SALLYPORT_CURRENCY":
      input.currency = value;
      return "currency";
    case "SALLYPORT_ADMIN":
      input.admin = { ...input.admin as Json | undefined, ...toListen(value) };
      return "admin";
    case "SALLYPORT_ADMIN_TOKEN":
      input.admin = { ...input.admin as Json | undefined, token: value };
      return "admin.token";
  }
  const stem = PROVIDER_VARIABLES.find((candidate) => name.startsWith(candidate));
  if (stem === undefined || name === stem) return undefined;
  const id = name.slice(stem.length).toLowerCase().replaceAll("_", "-");
  const provider = (((input.providers ??= {}) as Json)[id] ??= {}) as Json;
  const setting = PROVIDER_SETTINGS[stem] ?? "";
  if (setting === "hosts") provider.hosts = splitList(value);
  else if (setting === "upstream") provider.upstream = splitList(value);
  else if (setting === "prices") provider.prices = toJson(value);
  else if (setting === "deadlines" || setting === "limits") {
    const pairs = splitList(value).map((pair) => pair.split("=").map((side) => side.trim()));
    const given = pairs.map(([name, text]) => [name, name === "concurrency" ? Number(text) : text]);
    provider[setting] = { ...provider[setting] as Json | undefined, ...Object.fromEntries(given) };
  } else provider[setting] = value;
  return `providers.${id}.${setting}`;
}

const isLoopback = (hostname: string) => /^(?:localhost|127(?:\.\d+){3}|::1)$/.test(hostname);

function assertSafeBind({ listen, keys, admin }: Config): void {
  const wide = listen.findIndex(({ hostname }) => !isLoopback(hostname));
  if (wide !== -1 && Array.isArray(keys) && keys.length === 0) {
    throw new ConfigError([{
      path: `listen[${wide}].hostname`,
      message: "cannot listen beyond this machine without a gateway key: configure keys, or set SALLYPORT_KEYS",
    }]);
  }
  if (admin !== undefined && !isLoopback(admin.hostname) && admin.token === undefined) {
    const message = "expected a token: the admin listener is open beyond this machine";
    throw new ConfigError([{ path: "admin.token", message }]);
  }
}

/**
 * Loads the effective configuration.
 *
 * @param named The file named on the command line; else `SALLYPORT_CONFIG`, else `gateway.jsonc` where it exists
 * @returns The configuration
 * @throws {ConfigError} With every mistake and where it was made
 */
export function loadConfig(named?: string): LoadedConfig {
  const fromEnvironment = readVariables([]);
  const wanted = named ?? fromEnvironment.get("SALLYPORT_CONFIG");
  const found = wanted === undefined ? readDefaultFile() : readConfigFile(resolve(wanted));
  const input: Json = structuredClone(found?.input ?? {});
  const { providers } = input;
  const names = typeof providers === "object" && providers !== null ? Object.keys(providers) : [];

  const issues: ConfigIssue[] = [];
  const sources = new Map<string, string>();
  for (const [name, value] of readVariables(names)) {
    if (name === "SALLYPORT_CONFIG" || name === UPSTREAM_KEY_VARIABLE) continue;
    const path = layVariable(input, name, value);
    if (path === undefined) issues.push({ path: name, message: "unknown variable", source: "environment" });
    else sources.set(path, name);
  }
  try {
    const config = parseConfig(input);
    if (issues.length === 0) {
      assertSafeBind(config);
      return { config, file: found?.file, directory: found === undefined ? process.cwd() : dirname(found.file) };
    }
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    issues.push(...error.issues.map(({ path, message }) => {
      const [, variable] = Array.from(sources).filter(([prefix]) => path.startsWith(prefix))
        .toSorted(([a], [b]) => b.length - a.length)[0] ?? []; // of admin and admin.token the one that is meant
      return { path, message, source: variable ?? found?.lineOf(path) };
    }));
  }
  throw new ConfigError(issues);
}

function readDefaultFile(): ConfigFile | undefined {
  try {
    return readConfigFile(resolve(DEFAULT_FILE));
  } catch (error) {
    // Absent, or (Deno) not allowed to be read: then there is none. A file with mistakes is another matter.
    if (error instanceof ConfigError && error.issues[0]?.message.startsWith("cannot read")) return undefined;
    throw error;
  }
}

/**
 * Reads the certificate and key of each listener.
 *
 * @param loaded The configuration; relative paths start at its directory
 * @returns The listeners, files replaced by their text
 * @throws {ConfigError} For every file that can't be read
 */
export function readTlsFiles({ config, directory }: LoadedConfig): {
  hostname: string;
  port: number;
  tls?: { cert: string; key: string } | undefined;
}[] {
  const issues: ConfigIssue[] = [];
  const read = (path: string, file: string): string => {
    try {
      return readFileSync(resolve(directory, file), "utf8");
    } catch (error) {
      const why = error instanceof Error ? "code" in error ? error.code : error.name : "unknown";
      issues.push({ path, message: `cannot read the PEM file (${why})`, source: resolve(directory, file) });
      return "";
    }
  };
  const listeners = config.listen.map(({ hostname, port, tls }, index) => ({
    hostname,
    port,
    tls: tls && {
      cert: read(`listen[${index}].tls.cert`, tls.cert),
      key: read(`listen[${index}].tls.key`, tls.key),
    },
  }));
  if (issues.length > 0) throw new ConfigError(issues);
  return listeners;
}
