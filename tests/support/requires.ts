/**
 * The Debian packages that some tests need. If one is missing, its tests are skipped, and `npm
 * test` names them at its end with the command that installs the package. In CI (`CI=true`) such a
 * test fails instead.
 */
import process from "node:process";
import { describe, it } from "@std/testing/bdd";
import { findBrowser, findProgram } from "../../scripts/browser.ts";

/** Name of a package. */
export type DebianPackage =
  | "bsdutils"
  | "caddy"
  | "chromium-headless-shell"
  | "curl"
  | "fish"
  | "haproxy"
  | "nginx"
  | "openssl"
  | "prometheus"
  | "redis-server"
  | "squid"
  | "systemd"
  | "zsh";

/**
 * Programs that tests start, by the package that contains them. `tests/README.md` and `.ci/run`
 * name the same packages.
 */
const PROGRAMS: Readonly<Record<DebianPackage, readonly string[]>> = {
  bsdutils: ["script"],
  caddy: ["caddy"],
  "chromium-headless-shell": [], // has several names
  curl: ["curl"],
  fish: ["fish"],
  haproxy: ["haproxy"],
  nginx: ["nginx"],
  openssl: ["openssl"],
  prometheus: ["prometheus", "promtool"],
  "redis-server": ["redis-server"],
  squid: ["squid"],
  systemd: ["systemd-analyze"],
  zsh: ["zsh"],
};

/** All packages, in alphabetical order. */
export const DEBIAN_PACKAGES: readonly string[] = Object.keys(PROGRAMS);

const isCi = !["", "0", "false"].includes(process.env.CI ?? "");

function isInstalled(name: DebianPackage): boolean {
  return name === "chromium-headless-shell"
    ? findBrowser() !== undefined
    : PROGRAMS[name].every((program) => findProgram(program));
}

/** Functions for tests with needs: `describe` and `it`, or their skipped forms. */
export interface Needing {
  readonly isMet: boolean;
  it(name: string, fn: () => void | Promise<void>): void;
  /** Where it is skipped, it counts as one case. */
  describe(name: string, fn: () => void): void;
}

/**
 * Makes tests that need packages.
 *
 * @param packages The packages
 * @param gap Another reason why these tests cannot run here; `undefined` if they can
 * @returns The functions that make them
 */
export function needs(packages: readonly DebianPackage[], gap?: string): Needing {
  const missing = isCi ? [] : packages.filter((name) => !isInstalled(name));
  // scripts/test/skipped.ts parses both from the report.
  const reason = gap ?? `needs the Debian packages ${missing.join(" ")}`;
  if (gap === undefined && missing.length === 0) return { isMet: true, it, describe };
  const skip = (name: string) => it.skip(`${name} (skipped: ${reason})`, () => {});
  return { isMet: false, it: skip, describe: skip };
}
