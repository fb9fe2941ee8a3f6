/**
 * The commands that `sallyport init` prints at its end, ready to be typed on this machine.
 *
 * @module
 */
import { basename, relative } from "node:path";
import process from "node:process";
import { findCredentialHeader } from "../../config/credential.ts";
import { PRESETS } from "../../config/presets.ts";
import { runtime } from "../../runtime.ts";
import { readVariable } from "../env_file.ts";
import { CERTIFICATE_NAME, type NewGateway } from "./gateway_file.ts";

/** Quotes a word for a shell if needed. */
function quote(word: string): string {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;
}

/** Returns the path of a file as typed in the working directory. */
function toPath(file: string): string {
  const path = relative("", file);
  return quote(path.startsWith("..") ? file : path);
}

/**
 * Returns the words that started this program, such as `npx sallyport` or `bun
 * dist/sallyport.js`.
 */
function findProgram(): string {
  const [, script = ""] = process.argv;
  if (readVariable("npm_command") === "exec") return "npx sallyport";
  if (basename(script) === "sallyport") return "sallyport";
  // In an executable that includes the runtime, the script is not a file.
  if (!/\.[cm]?[jt]s$/.test(script) || script.startsWith("/$bunfs/")) {
    return toPath(process.execPath);
  }
  const file = toPath(script);
  return runtime === "deno" ? `deno run -A ${file}` : `${runtime} ${file}`;
}

/** Returns the header with the provider key, which the shell expands. */
function toUpstreamHeaders(upstream: string): string[] {
  const url = PRESETS[upstream] ?? upstream;
  const isLocal = /^http:\/\/(?:127\.|localhost[:/])/.test(url);
  const name = upstream in PRESETS ? `${upstream.toUpperCase()}_API_KEY` : "UPSTREAM_API_KEY";
  const key = isLocal ? "none" : `$${name}`;
  const credential = findCredentialHeader([url]);
  const more = url === PRESETS.anthropic ? ["anthropic-version: 2023-06-01"] : [];
  return [
    credential === "authorization" ? `Authorization: Bearer ${key}` : `${credential}: ${key}`,
    ...more,
  ];
}

/** Returns the curl options to resolve and trust a host that only this machine knows. */
function toHostOptions({ host, port }: NewGateway, directory: string): string[] {
  if (host === undefined) return [];
  const isKnown = /(?:^|\.)localhost$|^[\d.]+$/.test(host);
  const resolve = isKnown ? [] : [`--resolve ${host}:${port}:127.0.0.1`];
  return [`--cacert ${quote(`${directory}${CERTIFICATE_NAME}.crt`)}`, ...resolve];
}

/** Facts that determine the commands. */
export interface Written {
  readonly gateway: NewGateway;
  /** The configuration's path, if commands do not find it by default. */
  readonly config: string | undefined;
  /** The folder of the configuration with a slash at its end. Empty for the working directory. */
  readonly directory: string;
  /** The new gateway key; `undefined` if none could be created. */
  readonly key: string | undefined;
}

/** Formats the commands, including the new key. */
export function toNextCommands(written: Written): string {
  const { gateway, config, directory, key } = written;
  const { host, port, upstream } = gateway;
  const program = findProgram();
  const option = config === undefined ? "" : ` --config ${quote(config)}`;
  const url = `${host === undefined ? "http" : "https"}://${host ?? "localhost"}:${port}/v1`;
  const headers = [...toUpstreamHeaders(upstream), "Gateway-Auth: Bearer $GATEWAY_KEY"];
  const curl = [
    `curl ${url}/models`,
    ...toHostOptions(gateway, directory),
    ...headers.map((header) => `-H "${header}"`),
  ];
  const made = key === undefined
    ? `Then create a gateway key, and use it in another terminal:
  GATEWAY_KEY=$(${program} keys create${option} --name first)
`
    : `Then, in another terminal, with the new gateway key, which is shown only once:
  GATEWAY_KEY=${key}
`;
  return `Check the configuration, and start the gateway:
  ${program} check${option}
  ${program} serve${option}

${made}  ${curl.join(" \\\n    ")}

Client libraries need the base URL ${url},
the provider key, and Gateway-Auth as a default header.
`;
}
