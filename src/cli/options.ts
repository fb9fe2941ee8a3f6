/**
 * Commands and their options, in two tables that the parser, the help and the documentation all read.
 *
 * @module
 */
import { parseArgs } from "node:util";
import { CommandLineError } from "./command.ts";

/** A command in the table. */
export interface CommandSpec {
  /** The word that follows the command, as the help shows it: in brackets where it can be left out. */
  readonly operand?: string;
  readonly text: string;
}

/** An option in the table. */
export interface OptionSpec {
  readonly type: "string" | "boolean";
  readonly short?: string;
  /** True if it can be given several times. */
  readonly multiple?: boolean;
  /** The value of a string, as the help shows it. */
  readonly value?: string;
  /** The environment variable that sets the same. */
  readonly variable?: string;
  readonly text: string;
  /** The commands that take it; `keys` stands for all of its verbs, `usage` for itself alone. */
  readonly commands: readonly (CommandName | "keys")[];
}

/** Every command, and each verb of `keys`. */
export const COMMANDS = {
  "serve": { text: "start the gateway" },
  "demo": { text: "try it: two hosts, two stand-in providers, two calls" },
  "check": { text: "check the configuration and print the effective one" },
  "health": { text: "ask the gateway that runs whether it is ready, or alive" },
  "keys create": { text: "make a key, and print it this once" },
  "keys list": { text: "list keys, the newest first" },
  "keys show": { operand: "ID", text: "show all that is known of a key" },
  "keys update": { operand: "ID", text: "change a key; the value off takes a setting away" },
  "keys rotate": { operand: "ID", text: "make a new secret; the old one ends after the overlap, or now" },
  "keys disable": { operand: "ID", text: "refuse a key until it is enabled" },
  "keys enable": { operand: "ID", text: "accept a disabled key again" },
  "keys revoke": { operand: "ID", text: "end a key for good" },
  "keys export": { text: "print all keys, a line of JSON each: their digests, never a key itself" },
  "keys import": { operand: "[FILE]", text: "add keys that were exported, from a file or standard input" },
  "keys confirm": { text: "say that the keys in Redis are all, after it has lost some" },
  "usage": { text: "show what was used and what it costs" },
  "usage export": { text: "print each hour or day of usage, row by row: JSON lines, or CSV" },
  "certificate": {
    operand: "[NAME]",
    text: "make NAME.crt and NAME.key for a listener that speaks https, signed by itself",
  },
  "doctor": { operand: "PROVIDER", text: "call a provider directly and through the gateway, and say what differs" },
} as const;

/** Name of a command. */
export type CommandName = keyof typeof COMMANDS;

/** Every option. */
export const OPTIONS = {
  "config": {
    type: "string",
    variable: "SALLYPORT_CONFIG",
    value: "FILE",
    text: "the configuration; else ./gateway.jsonc, else the environment alone",
    commands: ["serve", "check", "health", "keys", "usage", "usage export", "doctor"],
  },
  "workers": {
    type: "string",
    value: "N|auto",
    text: "so many processes on the same addresses, auto for one a core",
    commands: ["serve"],
  },
  "log": {
    type: "string",
    variable: "SALLYPORT_LOG",
    value: "json|debug|pretty|off",
    text: "the access log on standard output; else pretty at a terminal, json into a pipe",
    commands: ["serve"],
  },
  "server": {
    type: "string",
    value: "native|node",
    text: "the runtime's own server, or node:http, which on Deno bounds slow callers",
    commands: ["serve"],
  },
  "once": { type: "boolean", text: "end after the two calls", commands: ["demo"] },
  "deno-flags": {
    type: "boolean",
    text: "print the narrowest flags of deno run for the configuration, and nothing else",
    commands: ["check"],
  },
  "live": { type: "boolean", text: "ask whether the process answers, though it may be draining", commands: ["health"] },
  "name": { type: "string", value: "NAME", text: "a name for people", commands: ["keys create", "keys update"] },
  "providers": {
    type: "string",
    value: "a,b",
    text: "providers that it may use",
    commands: ["keys create", "keys update"],
  },
  "models": {
    type: "string",
    value: "'gpt-*,o3'",
    text: "models that it may use",
    commands: ["keys create", "keys update"],
  },
  "operations": {
    type: "string",
    value: "chat,embeddings",
    text: "groups of operations that it may use",
    commands: ["keys create", "keys update"],
  },
  "team": {
    type: "string",
    value: "NAME",
    text: "the team that it belongs to; usage: only that of its keys",
    commands: ["keys create", "keys update", "usage", "usage export"],
  },
  "requests": { type: "string", value: "600/min", text: "limit of requests", commands: ["keys create", "keys update"] },
  "tokens": { type: "string", value: "100k/min", text: "limit of tokens", commands: ["keys create", "keys update"] },
  "concurrency": {
    type: "string",
    value: "20",
    text: "limit of open exchanges",
    commands: ["keys create", "keys update"],
  },
  "budget": {
    type: "string",
    multiple: true,
    value: "5M/month",
    text: "tokens, or money such as '50 USD/month', in a day or month; twice for one of each",
    commands: ["keys create", "keys update"],
  },
  "mode": {
    type: "string",
    value: "observe|strict",
    text: "count, but refuse nothing; or refuse what could exceed a limit",
    commands: ["keys create", "keys update"],
  },
  "metadata": {
    type: "string",
    multiple: true,
    value: "team=x",
    text: "a note of your own",
    commands: ["keys create", "keys update"],
  },
  "expires": {
    type: "string",
    value: "90d",
    text: "the end of a key or a certificate",
    commands: ["keys create", "keys update", "certificate"],
  },
  "overlap": {
    type: "string",
    value: "24h",
    text: "the time for which the old secret stays valid, 24h without it",
    commands: ["keys rotate"],
  },
  "now": { type: "boolean", text: "end the old secret at once", commands: ["keys rotate"] },
  "replace": { type: "boolean", text: "replace keys of the same id", commands: ["keys import"] },
  "search": { type: "string", value: "TEXT", text: "only keys with this in their name or id", commands: ["keys list"] },
  "by": {
    type: "string",
    value: "key,model",
    text: "sums by key, team, provider, model, operation, month, day or hour (UTC); export: hour or day",
    commands: ["usage", "usage export"],
  },
  "last": { type: "string", value: "7d", text: "the period that ends now", commands: ["usage", "usage export"] },
  "from": { type: "string", value: "2027-01-01", text: "the start of the period", commands: ["usage", "usage export"] },
  "to": { type: "string", value: "2027-02-01", text: "the end of the period", commands: ["usage", "usage export"] },
  "key": { type: "string", value: "ID", text: "only the usage of this key", commands: ["usage", "usage export"] },
  "provider": {
    type: "string",
    value: "NAME",
    text: "only the usage of this provider",
    commands: ["usage", "usage export"],
  },
  "model": {
    type: "string",
    value: "NAME",
    text: "only the usage of this model; doctor: the model to call",
    commands: ["usage", "usage export", "doctor"],
  },
  "operation": {
    type: "string",
    value: "NAME",
    text: "only the usage of this operation",
    commands: ["usage", "usage export"],
  },
  "limit": { type: "string", value: "N", text: "the largest number of rows", commands: ["keys list", "usage"] },
  "csv": { type: "boolean", text: "print comma-separated values", commands: ["usage", "usage export"] },
  "key-env": {
    type: "string",
    value: "VARIABLE",
    text: "the variable with your key at the provider, else SALLYPORT_UPSTREAM_KEY",
    commands: ["doctor"],
  },
  "hosts": {
    type: "string",
    value: "localhost,127.0.0.1",
    text: "names and addresses in it",
    commands: ["certificate"],
  },
  "force": { type: "boolean", text: "replace files that are there", commands: ["certificate"] },
  "json": {
    type: "boolean",
    text: "print JSON, also of --version",
    commands: [
      "keys create",
      "keys list",
      "keys show",
      "keys update",
      "keys rotate",
      "keys disable",
      "keys enable",
      "keys revoke",
      "keys import",
      "usage",
      "doctor",
    ],
  },
  "help": { type: "boolean", short: "h", text: "print this text", commands: [] },
  "version": { type: "boolean", short: "v", text: "print the version", commands: [] },
} as const;

type ValueOf<Spec> = Spec extends { type: "boolean" } ? boolean
  : Spec extends { multiple: true } ? readonly string[]
  : string;

/** The options of a command as they were given. */
export type OptionValues = {
  readonly [Name in keyof typeof OPTIONS]?: ValueOf<typeof OPTIONS[Name]> | undefined;
};

/** Options without a command. */
export interface Bare extends OptionValues {
  readonly command?: undefined;
}

/** A command with its options and its operand. */
export interface CommandOptions extends OptionValues {
  readonly command: CommandName;
  readonly operand?: string | undefined;
}

/** Returns whether a command takes an option. */
export function takesOption(command: CommandName, { commands }: OptionSpec): boolean {
  return commands.some((each) => command === each || (each === "keys" && command.startsWith("keys ")));
}

function isCommand(name: string): name is CommandName {
  return Object.hasOwn(COMMANDS, name);
}

/** Finds the command that the first words name. @returns The command and the words after it */
function findCommand([first = "", ...rest]: readonly string[]): { command: CommandName; operands: readonly string[] } {
  const command = `${first} ${rest[0]}`;
  if (isCommand(command)) return { command, operands: rest.slice(1) };
  if (first !== "keys") {
    if (isCommand(first) && !first.includes(" ")) return { command: first, operands: rest };
    throw new CommandLineError(`unknown command: ${first}`);
  }
  const verbs = Object.keys(COMMANDS).filter((name) => name.startsWith("keys ")).map((name) => name.slice(5));
  throw new CommandLineError(`keys takes ${verbs.slice(0, -1).join(", ")} or ${verbs.at(-1)}`);
}

function parse(args: readonly string[]): { values: OptionValues; positionals: readonly string[] } {
  try {
    return parseArgs({ args: [...args], options: OPTIONS, allowPositionals: true });
  } catch (error) {
    const [message = ""] = error instanceof Error ? error.message.split(/\.\s/) : [];
    throw new CommandLineError(message || "cannot read the arguments");
  }
}

/**
 * Reads the command line.
 *
 * @param args The arguments, without the program's own name
 * @returns The command with its options; only the options where one of them, such as `--help`, or nothing is asked for
 * @throws {CommandLineError} For an unknown command or option, and for one that the command does not take
 */
export function readCommandLine(args: readonly string[]): CommandOptions | Bare {
  const { values, positionals } = parse(args);
  if (values.version || values.help || positionals.length === 0) return values;
  const { command, operands } = findCommand(positionals);
  const { operand: spec }: CommandSpec = COMMANDS[command];
  const [operand, extra] = operands;
  const unexpected = spec === undefined ? operand : extra;
  if (unexpected !== undefined) throw new CommandLineError(`unexpected argument: ${unexpected}`);
  const stray = Object.entries(OPTIONS).find(([name, spec]) =>
    values[name as keyof OptionValues] !== undefined && !takesOption(command, spec)
  );
  if (stray !== undefined) throw new CommandLineError(`${command} takes no --${stray[0]}`);
  return { ...values, command, operand };
}
