/** The commands and options of the command line, from the tables that its parser reads. */
import {
  COMMAND_NAMES,
  type CommandName,
  commandsUnder,
  specOf,
} from "../../src/cli/command_table.ts";
import { type OptionName, OPTIONS, type OptionSpec } from "../../src/cli/option_table.ts";
import { toTable } from "./parts.ts";

/** Makes the table of commands. */
export function makeCommands(): string {
  return toTable(
    ["command", "effect"],
    COMMAND_NAMES.map((name) => {
      const { operand, text } = specOf(name);
      return [`\`sallyport ${[name, operand].filter(Boolean).join(" ")}\``, text];
    }),
  );
}

/** Words that are no commands without a verb, such as `keys`. */
const isGroup = (word: string): boolean => COMMAND_NAMES.every((name) => name !== word);

/** Commands and their verbs, in a list; `keys` means all of its verbs. */
function toList(names: readonly CommandName[]): string {
  const short = names.map((name) => {
    const [word = ""] = name.split(" ");
    const verbs = isGroup(word) ? commandsUnder(word) : [];
    return verbs.length > 1 && verbs.every((verb) => names.includes(verb)) ? word : name;
  });
  return [...new Set(short)].map((name) => `\`${name}\``).join(", ");
}

/** The text of an option. The texts of commands that override it follow, with the commands. */
function toText(option: OptionName, general: string, commands: readonly CommandName[]): string {
  const byText = Map.groupBy(commands, (name) => specOf(name).texts?.[option] ?? general);
  const entries = [...byText].toSorted(([a], [b]) => Number(b === general) - Number(a === general));
  if (entries.length <= 1) return entries[0]?.[0] ?? general;
  return entries.map(([text, names]) => text === general ? text : `${toList(names)}: ${text}`)
    .join(". ");
}

/** Makes the table of options. */
export function makeOptions(): string {
  const rows = Object.entries(OPTIONS) as [OptionName, OptionSpec][];
  const about =
    "If an option has another effect for some commands, it is after the names of these commands.";
  const table = toTable(
    ["option", "effect", "commands", "variable"],
    rows.map(([name, { value, variable, text }]) => {
      const commands = COMMAND_NAMES.filter((command) => specOf(command).options.includes(name));
      return [
        `\`--${[name, value].filter(Boolean).join(" ")}\``,
        toText(name, text, commands),
        toList(commands),
        variable === undefined ? "" : `\`${variable}\``,
      ];
    }),
  );
  return `${about}\n\n${table}`;
}
