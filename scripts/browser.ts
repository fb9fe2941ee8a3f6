/** Which browser the console is looked at with: Chromium, as the system has it. */
import { accessSync, constants } from "node:fs";
import { delimiter, join } from "node:path";
import process from "node:process";

const NAMES = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome"];
const PLACES = [
  "/usr/bin",
  "/usr/local/bin",
  "/snap/bin",
  "/Applications/Chromium.app/Contents/MacOS",
  "/Applications/Google Chrome.app/Contents/MacOS",
];

function isProgram(file: string): boolean {
  try {
    accessSync(file, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

/** @returns The program; `undefined` where there is none */
export function findBrowser(): string | undefined {
  const folders = [...(process.env.PATH ?? "").split(delimiter), ...PLACES];
  const names = [...NAMES, "Chromium", "Google Chrome"];
  return folders.flatMap((folder) => names.map((name) => join(folder, name))).find(isProgram);
}
