/**
 * The package for JSR: what `deno publish` would send, and that its checks let it. Nothing of it
 * asks the network.
 */
// runtimes: deno
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import process from "node:process";
import { pathToFileURL } from "node:url";
import { describe, it } from "@std/testing/bdd";

describe("the package for JSR", () => {
  it("says who it is, the same as the one for npm", () => {
    const [jsr, npm] = ["deno.json", "package.json"].map((file) =>
      JSON.parse(readFileSync(file, "utf8"))
    );
    assert.match(jsr.name, /^@[a-z0-9-]+\/[a-z0-9-]+$/);
    assert.equal(jsr.version, npm.version);
    assert.equal(jsr.license, npm.license);
    assert.equal(jsr.exports, "./mod.ts");
  });

  it("passes the checks of a publication, slow types among them", () => {
    const env = { ...process.env, NO_COLOR: "1", DENO_NO_UPDATE_CHECK: "1" };
    const args = ["publish", "--dry-run", "--allow-dirty", "--no-provenance"];
    // It tells all of it on standard error, and ends with 1 where a check fails.
    const told = execFileSync("/bin/sh", ["-c", '"$0" "$@" 2>&1', process.execPath, ...args], {
      env,
      encoding: "utf8",
    });
    assert.match(told, /^Checking for slow types in the public API\.\.\.$/m);
    assert.match(told, /^Success Dry run complete$/m);
    // But for the names of the files that it lists: one of them is about warnings.
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
