/**
 * Runs commands of the command line in the process of the test: a separate process needs ten times
 * as much time.
 */
import process from "node:process";
import { Writable } from "node:stream";
import { cleanEnvironment, makeFolder } from "./program.ts";

/** The output of a command, and its exit status. */
export interface Ran {
  readonly status: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

/** The options of a command. */
export interface CommandOptions {
  /** A fresh folder if left out. */
  readonly cwd?: string;
  readonly env?: Readonly<Record<string, string>>;
}

/** A standard output that is not a terminal. */
class Output extends Writable {
  text = "";

  override _write(chunk: Uint8Array, _: string, done: () => void): void {
    this.text += chunk.toString();
    done();
  }
}

/** Temporarily replaces some properties of the process. @returns A function that restores them */
function lend(values: Readonly<Record<string, unknown>>): () => void {
  const names = Object.keys(values);
  const own = names.map((name) => Object.getOwnPropertyDescriptor(process, name));
  for (const name of names) {
    Object.defineProperty(process, name, {
      value: values[name],
      writable: true,
      configurable: true,
    });
  }
  return () =>
    names.forEach((name, index) => Object.defineProperty(process, name, own[index] ?? {}));
}

async function run(args: readonly string[], { cwd, env = {} }: CommandOptions): Promise<Ran> {
  const folder = cwd === undefined ? makeFolder() : undefined;
  const [stdout, stderr, before] = [new Output(), new Output(), process.cwd()];
  const takeBack = lend({ stdout, stderr, env: { ...cleanEnvironment(), ...env }, exit: () => {} });
  process.chdir(cwd ?? folder?.path ?? "");
  process.exitCode = 0;
  try {
    const { main } = await import("../../src/cli/main.ts");
    await main([...args]);
    return { status: Number(process.exitCode ?? 0), stdout: stdout.text, stderr: stderr.text };
  } finally {
    process.exitCode = 0; // Bun keeps the last number if it is set to undefined
    process.chdir(before);
    takeBack();
    folder?.remove();
  }
}

let last: Promise<unknown> = Promise.resolve();

/**
 * Runs a command, after all earlier ones have ended: each has the environment, the folder and the
 * outputs of the whole process to itself. A program is started ({@link ./program.ts}) only for a
 * command that reads its standard input, waits for a signal or writes at the same time as another
 * one.
 */
export function runCommand(args: readonly string[], options: CommandOptions = {}): Promise<Ran> {
  const running = last.then(() => run(args, options));
  last = running.catch(() => {});
  return running;
}
