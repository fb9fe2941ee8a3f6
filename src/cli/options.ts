/**
 * Reading of the command line, with the tables of commands and options.
 *
 * @module
 */
import { parseArgs } from "node:util";
import { CommandLineError } from "./command.ts";
import {
  COMMAND_NAMES,
  type CommandName,
  commandsUnder,
  isCommand,
  specOf,
} from "./command_table.ts";
import { findNearest } from "../config/nearest.ts";
import {
  GENERAL_OPTIONS,
  type OptionName,
  OPTIONS,
  type OptionSpec,
  type OptionValues,
} from "./option_table.ts";

/** Options without a command to run. */
export interface Bare extends OptionValues {
  readonly command?: undefined;
  /** The command, or the first word of several, to show the help of. Empty for the general help. */
  readonly topic?: string;
}

/** A command with its options and its operand. */
export interface CommandOptions extends OptionValues {
  readonly command: CommandName;
  readonly operand?: string | undefined;
  /** All operands, if the command accepts several. */
  readonly operands?: readonly string[];
}

/** Returns the end of an error message: a suggestion for a mistyped word, if there is one. */
function suggest(typed: string, words: readonly string[], before = ""): string {
  const nearest = findNearest(typed, words);
  return nearest === undefined ? "" : `. Did you mean ${before}${nearest}?`;
}

/** Lists the second words of the commands that begin with this word. */
function verbsOf(word: string): string[] {
  return commandsUnder(word).map((name) => name.slice(word.length + 1));
}

/** Finds the command that the first words name. The words after it are its operands. */
function findCommand(
  [first = "", ...rest]: readonly string[],
): { command: CommandName; operands: readonly string[] } {
  const [second = ""] = rest;
  const command = `${first} ${second}`;
  if (isCommand(command)) return { command, operands: rest.slice(1) };
  if (isCommand(first) && !first.includes(" ")) return { command: first, operands: rest };
  const verbs = verbsOf(first);
  if (verbs.length === 0) {
    const words = COMMAND_NAMES.map((name) => name.replace(/ .*/, ""));
    throw new CommandLineError(`unknown command: ${first}${suggest(first, words)}`);
  }
  const hint = suggest(second, verbs, `${first} `);
  if (hint !== "") throw new CommandLineError(`unknown command: ${command}${hint}`);
  throw new CommandLineError(
    `${first} expects ${verbs.slice(0, -1).join(", ")} or ${verbs.at(-1)}`,
    first,
  );
}

/** Finds the command to show the help of. The words after it are ignored. */
function findTopic(words: readonly string[]): string {
  const [first] = words;
  if (first === undefined) return "";
  return words.length === 1 && commandsUnder(first).length > 0 ? first : findCommand(words).command;
}

/** Returns the options of a command; all options if the command is unknown. */
function listOptions(command: CommandName | undefined): string[] {
  return command === undefined
    ? Object.keys(OPTIONS)
    : [...specOf(command).options, ...GENERAL_OPTIONS];
}

/** Finds the first unknown option, such as `--confg`. */
function findUnknownOption(args: readonly string[]): string | undefined {
  const end = args.indexOf("--");
  const shorts = Object.values(OPTIONS).flatMap((spec: OptionSpec) =>
    spec.short === undefined ? [] : `-${spec.short}`
  );
  return args.slice(0, end === -1 ? undefined : end)
    .map((arg) => arg.startsWith("--") ? arg.replace(/=.*/s, "") : arg.slice(0, 2))
    .find((arg) =>
      /^-./.test(arg) && !(Object.hasOwn(OPTIONS, arg.slice(2)) || shorts.includes(arg))
    );
}

function parse(args: readonly string[]): { values: OptionValues; positionals: readonly string[] } {
  try {
    return parseArgs({ args: [...args], options: OPTIONS, allowPositionals: true });
  } catch (error) {
    const isUnknown = error instanceof Error && "code" in error &&
      error.code === "ERR_PARSE_ARGS_UNKNOWN_OPTION";
    const unknown = isUnknown ? findUnknownOption(args) : undefined;
    if (unknown === undefined) {
      const [message = ""] = error instanceof Error ? error.message.split(/\.\s/) : [];
      throw new CommandLineError(message || "cannot read the arguments");
    }
    const words = args.filter((arg) => !arg.startsWith("-")).slice(0, 2);
    const command = [words.join(" "), ...words.slice(0, 1)].find(isCommand);
    const hint = suggest(unknown.replace(/^-+/, ""), listOptions(command), "--");
    throw new CommandLineError(`unknown option: ${unknown}${hint}`, command);
  }
}

/**
 * Reads the command line. Returns only options if one of them, such as `--help`, replaces the
 * command, or there are no arguments.
 *
 * @param args The arguments, without the program's own name
 * @throws {CommandLineError} For an unknown command or option, and for an option that the command
 * does not have
 */
export function readCommandLine(args: readonly string[]): CommandOptions | Bare {
  const { values, positionals } = parse(args);
  if (values.version || positionals.length === 0) return values;
  if (positionals[0] === "help" && !values.help) {
    return { help: true, topic: findTopic(positionals.slice(1)) };
  }
  if (values.help) return { help: true, topic: findTopic(positionals) };
  const { command, operands } = findCommand(positionals);
  const { operand: wanted, options } = specOf(command);
  const isList = wanted?.includes("...") === true;
  const most = wanted === undefined ? 0 : 1;
  const unexpected = isList ? undefined : operands[most];
  if (unexpected !== undefined) {
    const hint = suggest(unexpected, verbsOf(command), `${command} `);
    throw new CommandLineError(`unexpected argument: ${unexpected}${hint}`, command);
  }
  const stray = Object.keys(OPTIONS).find((name) =>
    values[name as OptionName] !== undefined && !options.includes(name as OptionName)
  );
  if (stray !== undefined) {
    const hint = suggest(stray, listOptions(command), "--");
    throw new CommandLineError(`${command} has no option --${stray}${hint}`, command);
  }
  return { ...values, command, operand: operands[0], ...(isList && { operands }) };
}
