/**
 * Sources of provider keys that the gateway holds: files, variables and commands. Client secrets of
 * sign-ins have the same files and variables.
 *
 * @module
 */
import { Buffer } from "node:buffer";
import { type ChildProcess, spawn } from "node:child_process";
import { open, stat } from "node:fs/promises";
import { resolve } from "node:path";
import process from "node:process";
import * as v from "valibot";
import { clearTimeout, setTimeout } from "node:timers";
import type { Config } from "../config/config.ts";
import type { HeldKeySource } from "../config/held_key.ts";
import { secret as SecretSchema } from "../config/schema.ts";
import type { SecretSource } from "../config/sign_in.ts";
import type { ReportEvent } from "../exchange/reported_event.ts";
import { listSecretSources, type SecretReader } from "../keys/identity/code_sign_in.ts";
import { type HeldKeyReader, listHeldKeys, toSingleKey } from "../upstream/held_keys.ts";
import type { EngineReferences } from "./engines.ts";
import { codeOf } from "../errors/system_error.ts";

/** Access of a file by its group and by all others. */
const ACCESS_OF_OTHERS = 0o077;
/**
 * The longest time that a command can run. Shorter than `STORE_DEADLINE_MS`, so that a call that
 * waits for it learns why it failed. Milliseconds.
 */
const EXEC_MS = 8000;
/**
 * Time after the end of a command in which its output is read to its end. A process that it leaves
 * in the background can keep the output open. Milliseconds.
 */
const OUTPUT_MS = 500;
/** The most bytes that a source can have. */
const MAX_BYTES = 16_384;

/** Options of {@link openHeldKeyReader}. */
interface HeldKeyOptions {
  /** Directory that relative paths start from. */
  readonly directory: string;
  readonly report: ReportEvent;
  readonly references: EngineReferences;
}

/**
 * Makes the function that reads held keys. Its errors name files, variables and commands, and never
 * contain their content.
 *
 * @param directory Directory that relative paths start from
 * @param report Receives each new error of a source once. No error of a refresh reaches a caller
 */
export function createHeldKeyReader(
  directory: string,
  report: ReportEvent = () => {},
): HeldKeyReader {
  const failures = new SourceFailures(report, "held_key_failed");
  return async (source) => {
    const described = describe(source, directory);
    try {
      const key = toSingleKey(await readSource(source, directory, "held key"), described);
      failures.forget(source);
      return key;
    } catch (error) {
      failures.note(source, described, error as Error);
      throw error;
    }
  };
}

/** The key that was last read from a source. It outlives a change of the configuration. */
interface LastKey {
  key?: string;
}

/**
 * Makes the function that reads the held keys of a configuration. While a source fails, it returns
 * the key that was read before, also after a reload. After a reload that key is known at once.
 */
export async function openHeldKeyReader(
  config: Pick<Config, "providers" | "teams">,
  { directory, report, references }: HeldKeyOptions,
): Promise<HeldKeyReader> {
  const read = createHeldKeyReader(directory, report);
  const lastKeys = new Map<string, LastKey>();
  for (const { source } of listHeldKeys(config)) {
    const name = JSON.stringify(source);
    const open = () => Promise.resolve<LastKey>({});
    lastKeys.set(name, await references.use(`held key ${name}`, open, () => Promise.resolve()));
  }
  const lastOf = (source: HeldKeySource): LastKey => lastKeys.get(JSON.stringify(source)) ?? {};
  const readOrKeep = async (source: HeldKeySource): Promise<string> => {
    const last = lastOf(source);
    try {
      return last.key = await read(source);
    } catch (error) {
      if (last.key === undefined) throw error;
      return last.key;
    }
  };
  return Object.assign(readOrKeep, { last: (source: HeldKeySource) => lastOf(source).key });
}

/**
 * Makes the function that reads client secrets. Its errors name files and variables, and never
 * contain their content.
 *
 * @param report Receives each error once until the source can be read again: everybody can begin a
 * sign-in
 */
export function createSecretReader(
  directory: string,
  report: ReportEvent = () => {},
): SecretReader {
  const failures = new SourceFailures(report, "client_secret_failed");
  return async (source) => {
    const described = describe(source, directory);
    try {
      const secret = (await readSource(source, directory, "client secret")).trim();
      if (v.is(SecretSchema, secret)) {
        failures.forget(source);
        return secret;
      }
      throw new Error(
        `Cannot use a client secret: ${described} must have the secret alone, ` +
          "16 to 512 visible ASCII characters on one line",
      );
    } catch (error) {
      failures.note(source, described, error as Error);
      throw error;
    }
  };
}

type SecretLocation = HeldKeySource | SecretSource;

/** Reports the failures of sources of secrets: each message of a source once. */
class SourceFailures {
  readonly #report: ReportEvent;
  readonly #event: "client_secret_failed" | "held_key_failed";
  /** Last message by source, with all its arguments. */
  readonly #reported = new Map<string, string>();

  constructor(report: ReportEvent, event: "client_secret_failed" | "held_key_failed") {
    this.#report = report;
    this.#event = event;
  }

  /** @param described The source in the report: without the arguments of a command */
  note(source: SecretLocation, described: string, { message }: Error): void {
    const name = JSON.stringify(source);
    if (this.#reported.get(name) === message) return;
    this.#reported.set(name, message);
    this.#report(message, { event: this.#event, source: described });
  }

  forget(source: SecretLocation): void {
    this.#reported.delete(JSON.stringify(source));
  }
}

/** Names a source, without the arguments of a command. */
function describe(source: SecretLocation, directory: string): string {
  if ("env" in source) return `the variable ${source.env}`;
  return "file" in source
    ? `the file ${resolve(directory, source.file)}`
    : `the command ${source.exec[0]}`;
}

/** @param secret Name of the secret in errors */
async function readSource(
  source: SecretLocation,
  directory: string,
  secret: string,
): Promise<string> {
  if ("env" in source) return readVariable(source.env, secret);
  return await ("file" in source
    ? readSecretFile(resolve(directory, source.file), secret)
    : runCommand(source.exec));
}

function readVariable(name: string, secret: string): string {
  const { [name]: value } = process.env;
  if (value) return value;
  throw new Error(`Cannot read a ${secret}: the variable ${name} is not set`);
}

async function readSecretFile(path: string, secret: string): Promise<string> {
  const fail = (why: string) => new Error(`Cannot read a ${secret}: the file ${path} ${why}`);
  const failToRead = (error: unknown): never => {
    throw fail(`cannot be read (${codeOf(error)})`);
  };
  // Before it is opened, because opening a pipe waits for its writer.
  const found = await stat(path).catch(failToRead);
  if (!found.isFile()) throw fail("is no regular file");
  const file = await open(path).catch(failToRead);
  try {
    const { mode, size } = await file.stat();
    const isReadableByOthers = process.platform !== "win32" && (mode & ACCESS_OF_OTHERS) !== 0;
    if (isReadableByOthers) throw fail("can be used by others than its owner: run chmod 600 on it");
    if (size > MAX_BYTES) throw fail("is too large: it must have nothing else");
    return await file.readFile("utf8");
  } finally {
    await file.close();
  }
}

/**
 * Ends a command and the processes that it has started, which could outlive it.
 * `SIGKILL`, because a command can ignore the other signals.
 */
function endGroup(child: ChildProcess): void {
  try {
    if (child.pid !== undefined) process.kill(-child.pid, "SIGKILL");
  } catch {
    child.kill("SIGKILL"); // a system without process groups, or the group has ended
  }
}

function runCommand([command = "", ...args]: readonly string[]): Promise<string> {
  // Detached: it leads a new group of processes, which `endGroup` can end.
  const child = spawn(command, args, { stdio: ["ignore", "pipe", "ignore"], detached: true });
  const output: Uint8Array[] = [];
  let byteLength = 0;
  return new Promise<string>((done, failed) => {
    const fail = (why: string): void => {
      failed(new Error(`Cannot read a held key: the command ${command} ${why}`));
    };
    const end = (code: number | null, signal: string | null): void => {
      if (code === 0) done(Buffer.concat(output).toString("utf8"));
      else fail(`failed (${code ?? signal})`);
    };
    const late = setTimeout(() => {
      fail(`did not end within ${EXEC_MS / 1000} s`);
      endGroup(child);
    }, EXEC_MS);
    child.stdout.on("data", (chunk: Uint8Array) => {
      output.push(chunk);
      byteLength += chunk.length;
      if (byteLength <= MAX_BYTES) return;
      fail("prints too much: it must print the key alone");
      endGroup(child);
    });
    child.on("error", (error) => {
      clearTimeout(late);
      fail(`cannot be started (${codeOf(error)})`);
    });
    child.on("close", end);
    child.on("exit", (code, signal) => {
      clearTimeout(late);
      setTimeout(() => end(code, signal), OUTPUT_MS);
    });
  }).finally(() => child.stdout.destroy());
}

/**
 * Reads the files and variables of client secrets, to find those that cannot be read.
 *
 * @returns One line for each
 */
export async function describeUnreadableSecrets(
  { identity }: Pick<Config, "identity">,
  directory: string,
): Promise<string[]> {
  const read = createSecretReader(directory);
  const found = listSecretSources(identity).map(({ path, source }) =>
    read(source).then(() => [], ({ message }: Error) => [`${path}: ${message}`])
  );
  return (await Promise.all(found)).flat();
}

/**
 * Reads the files and variables of held keys, to find those that cannot be read. Commands are not
 * run.
 *
 * @returns One line for each
 */
export async function describeUnreadableKeys(
  config: Pick<Config, "providers" | "teams">,
  directory: string,
): Promise<string[]> {
  const read = createHeldKeyReader(directory);
  const found = listHeldKeys(config).map(async ({ path, source }) => {
    if ("exec" in source) return [];
    try {
      await read(source);
      return [];
    } catch (error) {
      return [`${path}: ${(error as Error).message}`];
    }
  });
  return (await Promise.all(found)).flat();
}
