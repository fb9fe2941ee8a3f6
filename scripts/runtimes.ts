/** The runtimes on this machine: Deno, Bun and a newer Node from npm, and the machine's Node. */
import { execFileSync } from "node:child_process";
import { accessSync, constants, realpathSync } from "node:fs";
import { delimiter, join } from "node:path";
import process from "node:process";

/** A runtime that can be started. */
export interface RuntimeOnMachine {
  /** Such as `node 20`. */
  readonly label: string;
  readonly kind: "deno" | "bun" | "node";
  readonly command: string;
  /** Node below 22.18 does not run TypeScript. */
  readonly runsTypeScript: boolean;
}

const fromNpm = (name: string) => realpathSync(join("node_modules", ".bin", name));

function findMachineNode(): string | undefined {
  const directories = (process.env.PATH ?? "").split(delimiter).filter((path) =>
    !path.includes("node_modules")
  );
  return directories.map((directory) => join(directory, "node")).find((path) => {
    try {
      accessSync(path, constants.X_OK);
      return true;
    } catch {
      return false;
    }
  });
}

function nodeOf(command: string): RuntimeOnMachine {
  const [major = "0", minor = "0"] = execFileSync(command, ["-p", "process.versions.node"])
    .toString().split(".");
  const runsTypeScript = Number(major) > 22 || (Number(major) === 22 && Number(minor) >= 18);
  return { label: `node ${major}`, kind: "node", command, runsTypeScript };
}

let known: readonly RuntimeOnMachine[] | undefined;

/**
 * @returns Each runtime once
 */
export function findRuntimes(): RuntimeOnMachine[] {
  return [...known ??= lookForRuntimes()];
}

function lookForRuntimes(): RuntimeOnMachine[] {
  const newest = nodeOf(fromNpm("node"));
  const machine = findMachineNode();
  const own = machine === undefined ? undefined : nodeOf(machine);
  return [
    { label: "deno", kind: "deno", command: fromNpm("deno"), runsTypeScript: true },
    {
      label: "bun",
      kind: "bun",
      command: realpathSync("node_modules/bun/bin/bun.exe"),
      runsTypeScript: true,
    },
    newest,
    ...(own === undefined || own.label === newest.label ? [] : [own]),
  ];
}
