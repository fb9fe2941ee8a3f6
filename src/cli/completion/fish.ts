/**
 * The completion script of fish.
 *
 * @module
 */
import { COMMAND_NAMES } from "../command_table.ts";
import { GENERAL_OPTIONS, type OptionName, OPTIONS, type OptionSpec } from "../option_table.ts";
import { byLength, listWords, optionsOf, readers, valued, valuesOf } from "./words.ts";

/** Quotes a text for fish. */
const text = (words: string) => `'${words.replaceAll("\\", "\\\\").replaceAll("'", "\\'")}'`;
const describe = (about: string) => about === "" ? "" : ` -d ${text(about)}`;

/** Returns the arguments of `complete` that list the values of an option. */
function toValues(name: OptionName): string {
  if (OPTIONS[name].type === "boolean") return "";
  const found = valuesOf(name);
  return found === "files" ? " -rF" : ` -x -a ${text(found.join(" "))}`;
}

function toOptions(): string[] {
  return COMMAND_NAMES.flatMap((name) =>
    optionsOf(name).map(([option, about]) => {
      const word = option.slice(2) as OptionName; // from the table
      const { short }: OptionSpec = OPTIONS[word];
      const shortOption = short === undefined ? "" : ` -s ${short}`;
      const condition = text(`__sallyport_in ${text(name)}`);
      const start = `complete -c sallyport -n ${condition} -l ${word}`;
      return `${start}${shortOption}${toValues(word)}${describe(about)}`;
    })
  );
}

/** Creates the script. */
export function toFish(): string {
  const words = [...listWords()].flatMap(([before, found]) =>
    found.map(([word, about]) =>
      `complete -c sallyport -n ${text(`__sallyport_at ${text(before)}`)} -a ${word}${
        describe(about)
      }`
    )
  );
  return `# Completion of sallyport for fish. For this shell: sallyport completion fish | source
# For every one: sallyport completion fish > ~/.config/fish/completions/sallyport.fish
function __sallyport_command
    set -l words
    set -l option
    for word in (commandline -opc)[2..-1]
        if test -n "$option"
            set option
        else if contains -- $word ${valued.map((name) => `--${name}`).join(" ")}
            set option $word
        else if not string match -q -- '-*' $word
            set -a words $word
        end
    end
    echo "$words"
end
function __sallyport_at
    test (__sallyport_command) = "$argv"
end
function __sallyport_in
    set -l command (__sallyport_command)
    # The longest command that begins so: of usage export and usage the first.
    for name in ${byLength.map((name) => text(name)).join(" ")}
        if test "$command" = $name; or string match -q -- "$name *" $command
            test "$argv" = $name
            return
        end
    end
    return 1
end
complete -c sallyport -f
${
    GENERAL_OPTIONS.map((name) =>
      `complete -c sallyport -n '__sallyport_at ""' -l ${name}${describe(OPTIONS[name].text)}`
    ).join("\n")
  }
${words.join("\n")}
${
    readers.map((name) => `complete -c sallyport -n ${text(`__sallyport_at ${text(name)}`)} -F`)
      .join("\n")
  }
${toOptions().join("\n")}
`;
}
