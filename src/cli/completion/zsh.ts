/**
 * The completion script of zsh.
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
  quote,
  readers,
  SCAN,
  valuesOf,
  type Word,
} from "./words.ts";

/** Creates the script. */
export function toZsh(): string {
  const entries = (words: readonly Word[]) =>
    words.map(([word, text]) =>
      quote(`${word.replaceAll(":", "\\:")}${text === "" ? "" : `:${text}`}`)
    ).join(" ");
  const values = optionsWithValues.map((name) => {
    const found = valuesOf(name);
    return `    --${name}) ${found === "files" ? "_files" : `compadd -- ${found.join(" ")}`} ;;`;
  });
  return `#compdef sallyport
# Completion of sallyport for zsh. For this shell, after compinit: source <(sallyport completion zsh)
# For every one: sallyport completion zsh > _sallyport, in a folder of $fpath
_sallyport() {
  local word option= command=
  local -a words_before entries
  words_before=("\${(@)words[2,CURRENT-1]}")
${SCAN.replace('"${words[@]}"', '"${(@)words_before}"')}
  if [[ $PREFIX == --*=* ]]; then
    option=\${PREFIX%%=*}
    compset -P '*='
  fi
  case $option in
${values.join("\n")}
  esac
  [[ -n $option ]] && return
  if [[ $PREFIX == -* ]]; then
    case $command in
${
    byLength.map((name) => `      ${casesOf(name)}) entries=(${entries(optionsOf(name))}) ;;`).join(
      "\n",
    )
  }
      *) entries=(${entries(general)}) ;;
    esac
    _describe -o option entries
    return
  fi
  case $command in
${
    [...listWords()].map(([before, words]) =>
      `    ${quote(before)}) entries=(${entries(words)}) ;;`
    ).join("\n")
  }
${readers.map((name) => `    ${quote(name)}) _files; return ;;`).join("\n")}
  esac
  (( \${#entries} )) && _describe command entries
}
if [[ \${funcstack[1]} == _sallyport ]]; then _sallyport "$@"; else compdef _sallyport sallyport; fi
`;
}
