/**
 * The previous build, which tests run next to the current one: from the last release, or from a
 * fixed commit before the first release. It is built from the history of the repository, once, in
 * `.cache/`.
 */
import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, renameSync, rmSync, symlinkSync } from "node:fs";
import { resolve } from "node:path";
import process from "node:process";

/** The previous build until the first release. */
const BEFORE_RELEASES = "565159f93ccd7ac9d29d13ed7ed1dcfc8cf65b53";

function git(...args: string[]): string | undefined {
  try {
    return execFileSync("git", args, { encoding: "utf8", stdio: ["ignore", "pipe", "ignore"] })
      .trim();
  } catch {
    return undefined;
  }
}

/** Finds a commit; `undefined` if the history is missing, as in an unpacked archive. */
export function findCommit(name: string): string | undefined {
  return git("rev-parse", "--verify", "--quiet", `${name}^{commit}`);
}

/** The commit of the previous build; `undefined` if the history is missing. */
export const previousCommit: string | undefined = findCommit(
  git("describe", "--tags", "--abbrev=0", "--match", "v*", "HEAD^") ?? BEFORE_RELEASES,
);

/**
 * Makes the build, unless it exists.
 *
 * @param commit Its commit
 * @returns The path of its one file
 */
export function makePreviousBuild(commit: string): string {
  const folder = resolve(".cache/previous", commit);
  const file = resolve(folder, "dist/sallyport.js");
  if (existsSync(file)) return file;
  const made = `${folder}.${process.pid}`;
  mkdirSync(made, { recursive: true });
  execFileSync("sh", ["-c", 'git archive "$1" | tar -x -C "$2"', "sh", commit, made]);
  symlinkSync(resolve("node_modules"), resolve(made, "node_modules"));
  execFileSync(process.execPath, ["scripts/build.ts", "--quiet", "--no-types"], { cwd: made });
  rmSync(folder, { recursive: true, force: true });
  renameSync(made, folder);
  return file;
}
