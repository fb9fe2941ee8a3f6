/**
 * The words that shells complete, from the tables of commands and options.
 *
 * @module
 */
import { GROUPS } from "../../config/operation_groups.ts";
import { PRESETS } from "../../config/presets.ts";
import {
  COMMAND_NAMES,
  type CommandName,
  commandsUnder,
  isCommand,
  specOf,
} from "../command_table.ts";
import { GENERAL_OPTIONS, type OptionName, OPTIONS, type OptionSpec } from "../option_table.ts";

/** A possible next word, and its description. */
export type Word = readonly [word: string, text: string];

/** Values of options for which the table has only an example. */
const VALUES: Readonly<Partial<Record<OptionName, readonly string[]>>> = {
  upstream: Object.keys(PRESETS),
  operations: [...Object.keys(GROUPS), "default", "all"],
};

/**
 * Returns the lower-case words between bars, such as those in `json|debug|FILE`; none without bars.
 */
function toAlternatives(value = ""): string[] {
  return value.includes("|") ? value.split("|").filter((word) => /^[a-z]/.test(word)) : [];
}

/** Returns the values of an option, `files`, or nothing if the shell cannot know them. */
export function valuesOf(name: OptionName): readonly string[] | "files" {
  const { value }: OptionSpec = OPTIONS[name];
  return value === "FILE" ? "files" : VALUES[name] ?? toAlternatives(value);
}

/** Names of the options that have a value. */
export const valued: readonly OptionName[] = (Object.keys(OPTIONS) as OptionName[]) // from a constant
  .filter((name) => OPTIONS[name].type === "string");

/** Lists the words that can follow a first word, such as `create` after `keys`. */
function verbsOf(first: string): Word[] {
  return commandsUnder(first).map((name) => [name.slice(first.length + 1), specOf(name).text]);
}

/** Lists the first words of all commands. A group's description lists its verbs. */
function listFirstWords(): Word[] {
  const firsts = new Set(COMMAND_NAMES.map((name) => name.replace(/ .*/, "")));
  return Array.from(firsts, (first): Word => {
    if (isCommand(first)) return [first, specOf(first).text];
    return [first, verbsOf(first).map(([verb]) => verb).join(", ")];
  });
}

/** The words that can follow each sequence of words. The empty sequence is the start. */
export function listWords(): Map<string, readonly Word[]> {
  const commands = listFirstWords();
  const firsts = commands.map(([first]) => first);
  const groups = firsts.filter((first) => verbsOf(first).length > 0);
  const words = new Map<string, readonly Word[]>([["", commands]]);
  for (const group of groups) words.set(group, verbsOf(group));
  words.set("help", commands);
  for (const group of groups) words.set(`help ${group}`, verbsOf(group));
  for (const name of COMMAND_NAMES) {
    const operands = toAlternatives(specOf(name).operand);
    if (operands.length > 0) words.set(name, operands.map((operand): Word => [operand, ""]));
  }
  return words;
}

/** Commands whose operand is a file. */
export const readers: readonly CommandName[] = COMMAND_NAMES.filter((name) =>
  specOf(name).operand === "[FILE]"
);

/** Returns the options of a command, with their dashes. */
export function optionsOf(name: CommandName): Word[] {
  const { options, texts } = specOf(name);
  return [...options, "help" as const].map((option): Word => {
    const text = option === "help"
      ? "print the help of the command"
      : texts?.[option] ?? OPTIONS[option].text;
    return [`--${option}`, text];
  });
}

/** The options that need no command. */
export const general: readonly Word[] = GENERAL_OPTIONS.map((name) =>
  [`--${name}`, OPTIONS[name].text] as const
);

/** Puts a text in single quotes, as bash and zsh read them. */
export const quote = (text: string): string => `'${text.replaceAll("'", `'\\''`)}'`;

/** Lists only the words, quoted together. */
export const plain = (words: readonly Word[]): string =>
  quote(words.map(([word]) => word).join(" "));

/** The patterns of a command in a shell's `case`: alone, and with its operand. */
export const casesOf = (name: string): string => `${quote(name)}|${quote(`${name} `)}*`;

/** Commands sorted by length, the longest first, so that `usage export` is found before `usage`. */
export const byLength: readonly CommandName[] = COMMAND_NAMES.toSorted((one, other) =>
  other.length - one.length
);

/** Options whose values a shell can complete. */
export const optionsWithValues: readonly OptionName[] = valued.filter((name) =>
  valuesOf(name).length > 0
);

/**
 * Reads the words before the word at the cursor, for bash and zsh: the command, and an option that
 * still needs its value.
 */
export const SCAN: string = `  for word in "\${words[@]}"; do
    if [[ -n $option ]]; then
      [[ $word == '=' ]] || option=
      continue
    fi
    case $word in
      ${valued.map((name) => `--${name}`).join("|")}) option=$word ;;
      -*) ;;
      *) command="\${command:+$command }$word" ;;
    esac
  done`;
