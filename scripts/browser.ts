/**
 * The browser that shows the console: the Chromium of the system. Its headless shell is preferred:
 * the console's tests need a fifth less CPU with it (2026-11-23).
 */
import { accessSync, constants } from "node:fs";
import { delimiter, join } from "node:path";
import process from "node:process";

const NAMES = [
  "chromium-headless-shell",
  "chromium",
  "chromium-browser",
  "google-chrome",
  "google-chrome-stable",
  "chrome",
];
const PLACES = [
  "/usr/bin",
  "/usr/local/bin",
  "/snap/bin",
  "/Applications/Chromium.app/Contents/MacOS",
  "/Applications/Google Chrome.app/Contents/MacOS",
];

/** Folders of programs for administrators, which are often not in PATH. */
const SYSTEM_PLACES = ["/usr/sbin"];

function isProgram(file: string): boolean {
  try {
    accessSync(file, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

function find(names: readonly string[], places: readonly string[]): string | undefined {
  const folders = [...(process.env.PATH ?? "").split(delimiter), ...places];
  return folders.flatMap((folder) => names.map((name) => join(folder, name))).find(isProgram);
}

/** @returns The program; `undefined` if there is none */
export function findBrowser(): string | undefined {
  return find([...NAMES, "Chromium", "Google Chrome"], PLACES);
}

/**
 * Finds a program as a shell would, and in the folders of the system's administrator.
 *
 * @param name Its name
 * @returns Its path; `undefined` if there is none
 */
export function findProgram(name: string): string | undefined {
  return find([name], SYSTEM_PLACES);
}
