/**
 * `sallyport completion`: scripts that let shells complete commands, options and their values.
 *
 * @module
 */
import { CommandLineError, print } from "../command.ts";
import type { CommandOptions } from "../options.ts";
import { toBash } from "./bash.ts";
import { toFish } from "./fish.ts";
import { toZsh } from "./zsh.ts";

/** Functions that create the scripts, by shell. */
const SHELLS: Readonly<Record<string, () => string>> = { bash: toBash, zsh: toZsh, fish: toFish };

/** Prints the script for a shell. @throws {CommandLineError} For another one */
export function completionCommand({ operand = "" }: CommandOptions): void {
  const make = Object.hasOwn(SHELLS, operand) ? SHELLS[operand] : undefined;
  if (make === undefined) throw new CommandLineError("completion expects bash, zsh or fish");
  print(make());
}
