/**
 * The text of `sallyport --help`.
 *
 * @module
 */
import { VERSION } from "./command.ts";
import { type CommandName, COMMANDS, type CommandSpec, OPTIONS, type OptionSpec, takesOption } from "./options.ts";

/** The longest line. Characters. */
const WIDTH = 120;
/** The column at which the text of a command begins. */
const COMMAND_COLUMN = 36;
/** Options that nearly every command takes. The lines of the commands leave them out. */
const COMMON = ["config", "json"];

const commands: readonly (readonly [string, CommandSpec])[] = Object.entries(COMMANDS);
const options: readonly (readonly [string, OptionSpec])[] = Object.entries(OPTIONS);

/** Formats an option as it is given, such as `--config FILE`. */
function toOption([name, { value }]: readonly [string, OptionSpec]): string {
  return value === undefined ? `--${name}` : `--${name} ${value}`;
}

/** Formats a command with the options that it takes, and its text. */
function toUsage([command, { operand, text }]: readonly [string, CommandSpec]): string {
  const words = options
    .filter(([name, spec]) => !COMMON.includes(name) && takesOption(command as CommandName, spec))
    .map((option) => `[${toOption(option)}]${option[1].multiple ? "..." : ""}`);
  const lines = [`  sallyport ${[command, operand].filter(Boolean).join(" ")}`];
  for (const word of words) {
    const last = lines.pop() ?? "";
    lines.push(...(last.length + word.length < WIDTH ? [`${last} ${word}`] : [last, `      ${word}`]));
  }
  const usage = lines.join("\n");
  const isShort = usage.length < COMMAND_COLUMN;
  return isShort ? usage.padEnd(COMMAND_COLUMN) + text : `${usage}\n${" ".repeat(COMMAND_COLUMN)}${text}`;
}

/** Formats the options with their texts. */
function toOptions(): string {
  const width = Math.max(...options.map((option) => toOption(option).length));
  return options.map((option) => {
    const [, { text, variable }] = option;
    return `  ${toOption(option).padEnd(width)}  ${text}${variable === undefined ? "" : ` [env: ${variable}]`}`;
  }).join("\n");
}

/** Returns the help: every command and every option. */
export function toHelp(): string {
  return `sallyport ${VERSION}: a gateway in front of model providers

Usage
${commands.map(toUsage).join("\n")}

Options
${toOptions()}

SIGHUP: serve reads the configuration again; what the command line says stays as it is.
Exit status: 0 on success, 1 where doctor finds a failure or health finds nothing well, 2 on a mistake in the command or
the configuration.
`;
}
