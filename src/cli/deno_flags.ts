/**
 * `sallyport check --deno-flags`: the narrowest permissions of Deno under which a configuration can be served.
 *
 * @module
 */
import { realpathSync } from "node:fs";
import { dirname, resolve } from "node:path";
import type { Config } from "../config/config.ts";
import { loadConfig, type LoadedConfig, readSetVariables } from "../serve/load_config.ts";
import { print, report } from "./command.ts";

/** Default ports by protocol: RFC 9110 §4.2, and Redis's own documentation. */
const DEFAULT_PORTS: Readonly<Record<string, number>> = { "http:": 80, "https:": 443, "redis:": 6379, "rediss:": 6379 };

/** Formats the host and port of a URL as `--allow-net` takes them. */
function toPeer(text: string): string {
  const { protocol, hostname, port } = new URL(text);
  return `${hostname}:${port === "" ? DEFAULT_PORTS[protocol] : port}`;
}

/** Formats an address to listen on as `--allow-net` takes it. */
function toAddress({ hostname, port }: { hostname: string; port: number }): string {
  return `${hostname.includes(":") ? `[${hostname}]` : hostname}:${port}`;
}

function toFlag(name: string, values: readonly string[]): string[] {
  return values.length === 0 ? [] : [`--allow-${name}=${[...new Set(values)].join(",")}`];
}

function netOf({ listen, admin, providers, redis, alerts }: Config): string[] {
  return [
    ...listen.map(toAddress),
    ...(admin === undefined ? [] : [toAddress(admin)]),
    ...Object.values(providers).flatMap(({ upstreams }) => upstreams.map(toPeer)),
    ...(redis === undefined ? [] : [toPeer(redis)]),
    ...(alerts === undefined ? [] : [toPeer(alerts.url)]),
  ];
}

/** Returns the folder of a file of keys, and that of the file to which it links. */
function foldersOf(file: string): string[] {
  try {
    return [dirname(file), dirname(realpathSync(file))];
  } catch {
    return [dirname(file)]; // there is none yet
  }
}

/** Returns the flags of `deno run` for one process. @param variables Environment variables that it consists of */
function toDenoFlags({ config, file, directory }: LoadedConfig, variables: readonly string[]): string[] {
  const { listen, keys } = config;
  const pems = listen.flatMap(({ tls }) => tls === undefined ? [] : [tls.cert, tls.key]);
  // A file of keys is replaced by a draft beside it, with a lock, and what keys have spent stands there too.
  const folders = typeof keys === "object" && "file" in keys ? foldersOf(resolve(directory, keys.file)) : [];
  return [
    "--no-prompt",
    ...toFlag("net", netOf(config)),
    ...toFlag("read", [
      ...(file === undefined ? [] : [file]),
      ...pems.map((pem) => resolve(directory, pem)),
      ...folders,
    ]),
    ...toFlag("write", folders),
    // Names of providers stand in names of variables: without a file that tells them, all must be looked through.
    ...(variables.length === 0 ? [] : file === undefined ? ["--allow-env"] : toFlag("env", variables.toSorted())),
  ];
}

/** Quotes a flag for a shell, but only if it needs quotes: without them it also works in `$(…)`. */
function quote(flag: string): string {
  return /^[\w@%+=:,./[\]-]+$/.test(flag) ? flag : `'${flag.replaceAll("'", `'\\''`)}'`;
}

/**
 * Prints the flags in one line.
 *
 * @param named The configuration's file, if one is named
 * @throws {ConfigError} For a mistake in it
 */
export function printDenoFlags(named: string | undefined): void {
  const loaded = loadConfig(named);
  print(`${toDenoFlags(loaded, readSetVariables(loaded)).map(quote).join(" ")}\n`);
  const { listen, keys } = loaded.config;
  if (listen.some(({ port }) => port === 0)) report("port 0 takes any free one: name a port to allow no other");
  if (typeof keys === "object" && "file" in keys) {
    report("the folder of the key file is written to: give it one of its own");
  }
}
