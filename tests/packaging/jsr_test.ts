/**
 * The package for JSR: the files that `deno publish` would send, and its checks, which pass.
 * Nothing here needs the network.
 */
// runtimes: deno
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import process from "node:process";
import { pathToFileURL } from "node:url";
import { describe, it } from "@std/testing/bdd";

describe("the package for JSR", () => {
  it("has the same name and version as the package for npm", () => {
    const [jsr, npm] = ["deno.json", "package.json"].map((file) =>
      JSON.parse(readFileSync(file, "utf8"))
    );
    assert.match(jsr.name, /^@[a-z0-9-]+\/[a-z0-9-]+$/);
    assert.equal(jsr.version, npm.version);
    assert.equal(jsr.license, npm.license);
    assert.equal(jsr.exports, "./mod.ts");
  });

  it("passes the checks of a publication, including slow types", () => {
    const env = { ...process.env, NO_COLOR: "1", DENO_NO_UPDATE_CHECK: "1" };
    const args = ["publish", "--dry-run", "--allow-dirty", "--no-provenance"];
    // It prints everything on standard error, and exits with 1 if a check fails.
    const told = execFileSync("/bin/sh", ["-c", '"$0" "$@" 2>&1', process.execPath, ...args], {
      env,
      encoding: "utf8",
    });
    assert.match(told, /^Checking for slow types in the public API\.\.\.$/m);
    assert.match(told, /^Success Dry run complete$/m);
    // Without the names of the listed files: one of them contains "warnings".
    assert.doesNotMatch(told.replaceAll(/^\s+file:.*$/gm, ""), /warning/i);
    const root = `${pathToFileURL(process.cwd())}/`;
    const sent = Array.from(
      told.matchAll(/^\s+(file:\S+) \(/gm),
      ([, url = ""]) => url.replace(root, ""),
    );
    for (const name of ["LICENSE", "README.md", "deno.json", "mod.ts", "src/cli/main.ts"]) {
      assert.ok(sent.includes(name));
    }
    const isOurs = (name: string) =>
      /^(?:LICENSE|README\.md|deno\.json|mod\.ts|src\/(?!admin\/console\/).+\.ts)$/.test(name);
    assert.deepEqual(sent.filter((name) => !isOurs(name)), [], "nothing else is sent");
  });
});
