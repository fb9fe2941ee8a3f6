/**
 * The completion script of bash, from version 3.2 on.
 *
 * @module
 */
import {
  byLength,
  casesOf,
  general,
  listWords,
  optionsOf,
  optionsWithValues,
  plain,
  quote,
  readers,
  SCAN,
  valuesOf,
} from "./words.ts";

/** Creates the script. */
export function toBash(): string {
  const values = optionsWithValues.map((name) => {
    const found = valuesOf(name);
    return `    --${name}) ${
      found === "files" ? "_sallyport_files" : `_sallyport_offer ${quote(found.join(" "))}`
    } ;;`;
  });
  return `# Completion of sallyport for bash. For this shell: source <(sallyport completion bash)
# For every one: sallyport completion bash > ~/.local/share/bash-completion/completions/sallyport
_sallyport() {
  local word option= command= cur=\${COMP_WORDS[COMP_CWORD]}
  local -a words=("\${COMP_WORDS[@]:1:COMP_CWORD-1}")
${SCAN}
  [[ -n $option && $cur == '=' ]] && cur=
  COMPREPLY=()
  compopt +o default 2>/dev/null
  _sallyport_offer() { COMPREPLY=($(compgen -W "$1" -- "$cur")); }
  _sallyport_files() { compopt -o default 2>/dev/null; }
  case $option in
${values.join("\n")}
  esac
  [[ -n $option ]] && return
  if [[ $cur == -* ]]; then
    case $command in
${
    byLength.map((name) => `      ${casesOf(name)}) _sallyport_offer ${plain(optionsOf(name))} ;;`)
      .join("\n")
  }
      *) _sallyport_offer ${plain(general)} ;;
    esac
    return
  fi
  case $command in
${
    [...listWords()].map(([before, words]) =>
      `    ${quote(before)}) _sallyport_offer ${plain(words)} ;;`
    ).join("\n")
  }
${readers.map((name) => `    ${quote(name)}) _sallyport_files ;;`).join("\n")}
  esac
}
complete -o default -F _sallyport sallyport
`;
}
