/** The commands and options of the command line, from the tables that its parser reads. */
import { COMMAND_NAMES, commandsUnder, specOf } from "../../src/cli/command_table.ts";
import { type OptionName, OPTIONS, type OptionSpec } from "../../src/cli/option_table.ts";
import { toTable } from "./parts.ts";

/** Makes the table of commands. */
export function makeCommands(): string {
  return toTable(
    ["command", "about"],
    COMMAND_NAMES.map((name) => {
      const { operand, text } = specOf(name);
      return [`\`sallyport ${[name, operand].filter(Boolean).join(" ")}\``, text];
    }),
  );
}

/** Lists the commands that accept an option; `keys` means all of its verbs. */
function commandsOf(option: OptionName): string[] {
  const names = COMMAND_NAMES.filter((name) => specOf(name).options.includes(option));
  const hasAllVerbs = commandsUnder("keys").every((verb) => names.includes(verb));
  return [...new Set(names.map((name) => hasAllVerbs && name.startsWith("keys ") ? "keys" : name))];
}

/** Makes the table of options. */
export function makeOptions(): string {
  const rows = Object.entries(OPTIONS) as [OptionName, OptionSpec][];
  return toTable(
    ["option", "commands", "variable", "about"],
    rows.map(([name, spec]) => [
      `\`--${[name, spec.value].filter(Boolean).join(" ")}\``,
      commandsOf(name).map((command) => `\`${command}\``).join(", "),
      spec.variable === undefined ? "" : `\`${spec.variable}\``,
      spec.text,
    ]),
  );
}
