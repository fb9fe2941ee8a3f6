/**
 * `sallyport init`: the first configuration, a key, and the files that they need.
 *
 * @module
 */
import { existsSync } from "node:fs";
import { dirname, join, relative, resolve } from "node:path";
import process from "node:process";
import { KeyAdministration } from "../../admin/key_administration.ts";
import { KeyStoreError } from "../../keys/key_store.ts";
import { assemble } from "../../serve/compose.ts";
import { loadConfig } from "../../serve/load_config.ts";
import { createSelfSignedCertificate } from "../demo/certificate.ts";
import { DAY_MS, writeNew } from "../certificate.ts";
import { CommandLineError, print, report } from "../command.ts";
import { readVariable } from "../env_file.ts";
import type { CommandOptions } from "../options.ts";
import { openChanges, readAuthor } from "../with_stores.ts";
import { makeChoices } from "./choices.ts";
import {
  CERTIFICATE_NAME,
  KEYS_FILE,
  LOCAL_NAMES,
  type NewGateway,
  toGatewayFile,
} from "./gateway_file.ts";
import { toNextCommands } from "./next_commands.ts";

const DEFAULT_FILE = "gateway.jsonc";
const DEFAULT_PORT = 8787;
const DEFAULT_HTTPS_PORT = 8443;
const CERTIFICATE_DAYS = 90;
/** Name of the first key. */
const KEY_NAME = "first";

/** A file to write, and the line that describes it. */
interface NewFile {
  readonly path: string;
  readonly text: string;
  readonly mode: number;
  readonly about: string;
}

function readPort(text: string | undefined, fallback: number): number {
  const port = Number(text ?? fallback);
  const isInRange = port > 0 && port <= 65535;
  if (Number.isInteger(port) && isInRange) return port;
  throw new CommandLineError("--port expects a whole number from 1 to 65535");
}

function assertFree(paths: readonly string[], isForced: boolean): void {
  const taken = paths.filter((path) => existsSync(path)).map((path) => relative("", path));
  if (taken.length === 0 || isForced) return;
  throw new CommandLineError(
    `cannot replace ${taken.join(" and ")} without --force`,
  );
}

/** Creates the contents of a gateway's files. Only the owner can read a file with a secret. */
function toFiles(gateway: NewGateway, file: string): NewFile[] {
  const { host, redis } = gateway;
  const hasSecret = redis !== undefined && new URL(redis).password !== "";
  const text = toGatewayFile(gateway, file);
  const config = { path: file, text, mode: hasSecret ? 0o600 : 0o644, about: "the configuration" };
  if (host === undefined) return [config];
  const name = join(dirname(file), CERTIFICATE_NAME);
  const lifeMs = CERTIFICATE_DAYS * DAY_MS;
  const otherNames = LOCAL_NAMES.filter((each) => each !== host);
  const { cert, key } = createSelfSignedCertificate([host, ...otherNames], lifeMs);
  const end = new Date(Date.now() + lifeMs).toISOString().slice(0, 10);
  return [
    config,
    {
      path: `${name}.crt`,
      text: cert,
      mode: 0o644,
      about: `for ${host}, signed by itself, until ${end}`,
    },
    {
      path: `${name}.key`,
      text: key,
      mode: 0o600,
      about: "its private key, which only its owner can read",
    },
  ];
}

/**
 * Creates the first key if the configuration stores keys; `undefined` if Redis is not reachable.
 */
async function makeKey(file: string): Promise<string | undefined> {
  const { config, directory } = loadConfig(file);
  const assembly = await assemble(config, { directory, report: () => {}, isServing: false });
  try {
    const { keys, parts: { digest } } = assembly;
    const changes = openChanges(assembly);
    const administration = new KeyAdministration({ keys, digest, changes, now: Date.now, config });
    return (await administration.create({ name: KEY_NAME }, readAuthor({}))).key;
  } catch (error) {
    if (!(error instanceof KeyStoreError)) throw error;
    report(`${error.message}. All is written but a gateway key`);
    return undefined;
  } finally {
    await assembly.close();
  }
}

/**
 * Writes a configuration and the files that it names, creates a key, and prints the next commands.
 * Existing files are not replaced unless an option says so. A file of keys is extended.
 *
 * @throws {CommandLineError} For an invalid option, or if a file already exists or can't be written
 * @throws {ConfigError} For a mistake in the environment variables that the gateway would use
 */
export async function initCommand(options: CommandOptions): Promise<void> {
  const isForced = options.force === true;
  const given = options.config ?? readVariable("SALLYPORT_CONFIG");
  const file = resolve(given || DEFAULT_FILE);
  assertFree([file], isForced);
  const choices = await makeChoices(options);
  const port = readPort(
    options.port,
    choices.host === undefined ? DEFAULT_PORT : DEFAULT_HTTPS_PORT,
  );
  const gateway = { ...choices, port };
  const files = toFiles(gateway, file);
  assertFree(files.map(({ path }) => path), isForced);
  for (const { path, text, mode } of files) writeNew(relative("", path), text, mode);
  const key = await makeKey(file);
  if (key === undefined) process.exitCode = 1;
  const written = files.map(({ path, about }) => ({ path, about }));
  if (gateway.redis === undefined) {
    const path = join(dirname(file), KEYS_FILE);
    written.push({ path, about: "digests of gateway keys, which only its owner can read" });
  }
  const directory = relative("", dirname(file));
  const commands = toNextCommands({
    gateway,
    config: options.config === undefined ? undefined : relative("", file),
    directory: directory === "" ? "" : `${directory}/`,
    key,
  });
  print(`${toFileLines(written)}\n${commands}`);
}

/** Formats the names of files, relative to the working directory, and their purposes. */
function toFileLines(files: readonly Pick<NewFile, "path" | "about">[]): string {
  const rows = files.map(({ path, about }) => [relative("", path), about] as const);
  const width = Math.max(...rows.map(([path]) => path.length));
  return rows.map(([path, about]) => `${path.padEnd(width)}  ${about}\n`).join("");
}
