/**
 * Files of environment variables (`--env-file`), read the same way on every runtime.
 *
 * @module
 */
import { readFileSync } from "node:fs";
import process from "node:process";
import util from "node:util";
import { ConfigError } from "../config/config.ts";
import { runtime } from "../runtime.ts";

const BLANK = /[ \t]*(?:#[^\n]*)?(?:\n|$)/y;
const NAME = /[ \t]*(?:export[ \t]+)?([A-Za-z_][\w.-]*)[ \t]*=/y;
const QUOTED = /[ \t]*(?:'([^']*)'|`([^`]*)`|"((?:[^"\\]|\\[^])*)")[ \t]*(?:#[^\n]*)?(?:\n|$)/y;

/** Escapes in double quotes: the characters after a backslash and their meanings. */
const ESCAPES = { n: "\n", r: "\r", t: "\t", '"': '"', "\\": "\\" } as const;
const ESCAPE = /\\([nrt"\\])/g;

/** A mistake in a file. Its message omits the line, which can contain a secret. */
class EnvSyntaxError extends Error {
  readonly line: number;

  constructor(message: string, line: number) {
    super(message);
    this.line = line;
  }
}

/**
 * Parses dotenv files: `NAME=value` lines with or without `export`. A value ends at the end of its
 * line, or before a `#` that follows white space. In single quotes or backticks a value is literal.
 * In double quotes, `\n`, `\r`, `\t`, `\"` and `\\` are escapes. Quoted values can have several
 * lines. Nothing is expanded. A later line takes precedence over an earlier one.
 */
export function parseVariables(content: string): Map<string, string> {
  const text = content.replace(/^\uFEFF/, "").replaceAll("\r\n", "\n");
  const variables = new Map<string, string>();
  let offset = 0;
  const take = (pattern: RegExp): RegExpExecArray | null => {
    pattern.lastIndex = offset;
    const match = pattern.exec(text);
    if (match !== null) offset = pattern.lastIndex;
    return match;
  };
  while (offset < text.length) {
    if (take(BLANK) !== null) continue;
    const line = text.slice(0, offset).split("\n").length;
    const [, name] = take(NAME) ?? [];
    if (name === undefined) throw new EnvSyntaxError("expected NAME=value", line);
    const quoted = take(QUOTED);
    if (quoted !== null) {
      variables.set(name, readQuoted(quoted));
      continue;
    }
    const lineEnd = text.indexOf("\n", offset);
    const plain = text.slice(offset, lineEnd === -1 ? text.length : lineEnd);
    offset += plain.length + 1;
    if (/^[ \t]*['"`]/.test(plain)) {
      throw new EnvSyntaxError("expected a closing quote, and at most a comment after it", line);
    }
    variables.set(name, plain.replace(/[ \t]#.*$/, "").trim());
  }
  return variables;
}

/** Reads a match of {@link QUOTED}: one of its three groups has the text between the quotes. */
function readQuoted([, single, backticks, double]: RegExpExecArray): string {
  const value = single ?? backticks ??
    double?.replace(ESCAPE, (_, letter: keyof typeof ESCAPES) => ESCAPES[letter]);
  if (value === undefined) throw new Error("Cannot read a value: it has no quotes");
  return value;
}

/** Reads a variable of the environment; `undefined` if it is not set, or Deno denies access. */
export function readVariable(name: string): string | undefined {
  try {
    return process.env[name];
  } catch {
    return undefined;
  }
}

/** A file of variables. */
interface EnvFile {
  readonly text: string;
  readonly variables: ReadonlyMap<string, string>;
}

/** Returns the code or the name of an error. */
function codeOf(error: unknown): unknown {
  if (!(error instanceof Error)) return "unknown";
  return "code" in error ? error.code : error.name;
}

function readEnvFile(file: string): EnvFile {
  let text: string;
  try {
    text = readFileSync(file, "utf8");
  } catch (error) {
    throw new ConfigError([{
      path: "--env-file",
      message: `cannot read the file (${codeOf(error)})`,
      source: file,
    }]);
  }
  try {
    return { text, variables: parseVariables(text) };
  } catch (error) {
    if (!(error instanceof EnvSyntaxError)) throw error;
    throw new ConfigError([{
      path: "--env-file",
      message: error.message,
      source: `${file}:${error.line}`,
    }]);
  }
}

/**
 * Reads the names of variables in files, whether or not the environment sets them.
 *
 * @throws {ConfigError} For a file that can't be read, and for the first mistake in one
 */
export function readEnvNames(files: readonly string[]): string[] {
  return files.flatMap((file) => [...readEnvFile(file).variables.keys()]);
}

/** Variables that were set from files. A later reading can change or remove them. */
const fromFiles = new Set<string>();

/**
 * Finds the variables that Node has set itself. Node reads `--env-file` anywhere on its command
 * line, even after the program's name, and applies the files by its own rules before the program
 * begins.
 */
function findSetByNode(files: readonly EnvFile[]): string[] {
  if (runtime !== "node") return [];
  const read: NodeJS.Dict<string> = Object.assign(
    {},
    ...files.map(({ text }) => util.parseEnv(text)),
  );
  return Object.keys(read).filter((name) => process.env[name] === read[name]);
}

let isFirst = true;

/**
 * Puts the variables of files into the environment of this process. Variables that were set when
 * the process began are not changed, even if they are empty. Reading a file again changes the
 * variables that it set before.
 *
 * @param names The files. A later file takes precedence over an earlier one
 * @throws {ConfigError} For a file that can't be read, and for the first mistake in a file. Nothing
 * is changed then
 */
export function applyEnvFiles(names: readonly string[] = []): void {
  const files = names.map(readEnvFile);
  if (isFirst) {
    for (const name of findSetByNode(files)) fromFiles.add(name);
  }
  isFirst = false;
  const variables = new Map(files.flatMap((file) => [...file.variables]));
  for (const name of fromFiles) {
    if (variables.has(name)) continue;
    delete process.env[name];
    fromFiles.delete(name);
  }
  for (const [name, value] of variables) {
    try {
      if (!fromFiles.has(name) && process.env[name] !== undefined) continue;
      process.env[name] = value;
      fromFiles.add(name);
    } catch {
      const message = `cannot set ${name}: Deno has to be started with --allow-env=${name}, ` +
        "see sallyport check --deno-flags";
      throw new ConfigError([{ path: "--env-file", message }]);
    }
  }
}
