/**
 * The help: the general one, short, and one for each command.
 *
 * @module
 */
import { VERSION } from "./command.ts";
import {
  COMMAND_NAMES,
  type CommandName,
  commandsUnder,
  isCommand,
  specOf,
} from "./command_table.ts";
import { GENERAL_OPTIONS, type OptionName, OPTIONS, type OptionSpec } from "./option_table.ts";
import { WIDTH, wrap } from "./table.ts";

/** The widest first column. The text of a longer entry begins on the next line. Characters. */
const MAX_COLUMN = 30;

/** Formats entries and their texts in two columns. */
function toColumns(rows: readonly (readonly [entry: string, text: string])[]): string {
  const widths = rows.map(([entry]) => entry.length).filter((width) => width <= MAX_COLUMN);
  const column = Math.max(...widths) + 2;
  const indent = " ".repeat(column + 2);
  return rows.map(([entry, text]) => {
    const lines = wrap(text, WIDTH - indent.length).join(`\n${indent}`);
    return entry.length > MAX_COLUMN
      ? `  ${entry}\n${indent}${lines}`
      : `  ${entry.padEnd(column)}${lines}`;
  }).join("\n");
}

/** Formats an option as it is typed, such as `--config FILE`. */
function toOption(name: OptionName): string {
  const { short, value }: OptionSpec = OPTIONS[name];
  return [
    ...short === undefined ? [] : [`-${short},`],
    `--${name}`,
    ...value === undefined ? [] : [value],
  ].join(" ");
}

function toOptions(
  names: readonly OptionName[],
  texts: Readonly<Partial<Record<OptionName, string>>> = {},
): string {
  return toColumns(names.map((name) => {
    const { text, variable, multiple }: OptionSpec = OPTIONS[name];
    const notes = [
      multiple ? " (can be repeated)" : "",
      variable === undefined ? "" : ` [env: ${variable}]`,
    ].join("");
    return [toOption(name), `${texts[name] ?? text}${notes}`];
  }));
}

function toCommands(names: readonly CommandName[]): string {
  return toColumns(names.map((name) => {
    const { operand, text } = specOf(name);
    return [[name, operand].filter(Boolean).join(" "), text];
  }));
}

/** Returns the help of one command. */
function toCommandHelp(name: CommandName): string[] {
  const { operand, text, notes, options, texts, example, fails } = specOf(name);
  const usage = [
    `sallyport ${name}`,
    ...options.length > 0 ? ["[OPTIONS]"] : [],
    ...operand === undefined ? [] : [operand],
  ];
  const exits: (readonly [status: string, why: string])[] = [
    ["0", "success"],
    ...fails === undefined ? [] : [["1", fails] as const],
    ["2", "a mistake in the command or the configuration"],
  ];
  return [
    wrap(`sallyport ${name}: ${text}`, WIDTH).join("\n"),
    `Usage\n  ${usage.join(" ")}`,
    ...notes === undefined ? [] : [wrap(notes, WIDTH).join("\n")],
    `Options\n${toOptions([...options, "help"], { ...texts, help: "print this text" })}`,
    `Example\n  ${example}`,
    `Exit status\n${toColumns(exits)}`,
  ];
}

/** Returns the general help: every command. */
function toGeneralHelp(): string[] {
  return [
    `sallyport ${VERSION}: a gateway in front of model providers`,
    "Usage\n  sallyport COMMAND [OPTIONS]",
    `Commands\n${toCommands(COMMAND_NAMES)}`,
    `Options\n${toOptions(GENERAL_OPTIONS)}`,
    "sallyport help COMMAND explains a command.",
  ];
}

function toParts(topic: string): string[] {
  if (topic === "") return toGeneralHelp();
  const parts = isCommand(topic)
    ? toCommandHelp(topic)
    : [`Usage\n  sallyport ${topic} COMMAND [OPTIONS]`];
  const under = commandsUnder(topic);
  return under.length === 0 ? parts : [...parts, `Commands\n${toCommands(under)}`];
}

/**
 * Returns the help, in lines of at most 80 characters.
 *
 * @param topic A command, or the first word of several. Default: the general help
 */
export function toHelp(topic = ""): string {
  return `${toParts(topic).join("\n\n")}\n`;
}
