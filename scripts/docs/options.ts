/** The commands and options of the command line, from the tables that its parser reads. */
import { COMMANDS, type CommandSpec, OPTIONS, type OptionSpec } from "../../src/cli/options.ts";
import { toTable } from "./parts.ts";

/** Makes the table of commands. */
export function makeCommands(): string {
  const rows: readonly (readonly [string, CommandSpec])[] = Object.entries(COMMANDS);
  return toTable(
    ["command", "about"],
    rows.map(([name, { operand, text }]) => [`\`sallyport ${[name, operand].filter(Boolean).join(" ")}\``, text]),
  );
}

/** Makes the table of options. */
export function makeOptions(): string {
  const rows: readonly (readonly [string, OptionSpec])[] = Object.entries(OPTIONS);
  return toTable(
    ["option", "commands", "variable", "about"],
    rows.map(([name, spec]) => [
      `\`--${[name, spec.value].filter(Boolean).join(" ")}\``,
      spec.commands.map((command) => `\`${command}\``).join(", "),
      spec.variable === undefined ? "" : `\`${spec.variable}\``,
      spec.text,
    ]),
  );
}
