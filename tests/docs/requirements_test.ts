/**
 * The Debian packages that tests need: their names are the same everywhere, and the end of a run
 * names missing ones.
 */
// runtimes: once
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import process from "node:process";
import { pathToFileURL } from "node:url";
import { describe, it } from "@std/testing/bdd";
import { findRuntimes } from "../../scripts/runtimes.ts";
import { describeSkipped, hasReason, readTitle } from "../../scripts/test/skipped.ts";
import { DEBIAN_PACKAGES } from "../support/requires.ts";

const node = findRuntimes().find(({ kind, runsTypeScript }) => kind === "node" && runsTypeScript) ??
  assert.fail();

/** Result of a test that needs Caddy, on a machine without any program. */
function ask(ci: string): string {
  const url = pathToFileURL(resolve("tests", "support", "requires.ts"));
  const script =
    `import { needs } from "${url}"; console.log(needs(["caddy"]).isMet, needs([], "a gap").isMet)`;
  const env = { ...process.env, PATH: "/nowhere", CI: ci };
  const { stdout } = spawnSync(
    node.command,
    ["--no-warnings", "--input-type=module", "-e", script],
    {
      env,
      encoding: "utf8",
    },
  );
  return stdout.trim().split("\n")[0] ?? "";
}

describe("the packages that tests need", () => {
  it("are the same on the page of the tests, in CI and in the tests", () => {
    const [, install = ""] =
      /^sudo apt-get install (.+)$/m.exec(readFileSync("tests/README.md", "utf8")) ?? [];
    assert.deepEqual(install.split(" "), DEBIAN_PACKAGES);
    const pairs = readFileSync(".ci/run", "utf8").matchAll(/^for pair in ([^;]+);/gm);
    const named = Array.from(pairs, ([, list = ""]) => list.match(/(?<=:)[\w-]+/g) ?? []).flat();
    assert.deepEqual(named.sort(), DEBIAN_PACKAGES);
  });

  it("can be missing on a developer's machine, but not in CI", () => {
    assert.equal(ask(""), "false false");
    assert.equal(ask("true"), "true false");
  });
});

describe("the end of a run", () => {
  it("counts skipped tests by reason, and prints the command that installs missing packages", () => {
    const redis = "a connection to Redis (skipped: needs the Debian packages redis-server)";
    const both = "it works (skipped: needs the Debian packages caddy redis-server)";
    const text = describeSkipped(
      new Map([
        ["bun", [
          redis,
          "x (skipped: only Deno has a sandbox)",
          "y (skipped: only Deno has a sandbox)",
        ]],
        ["node 26", [redis, both, "z (skipped: not in a bare run)", "w"]],
        ["deno", []],
      ]),
    );
    assert.deepEqual(text.trim().split("\n"), [
      "skipped  reason",
      "      1  needs the Debian packages caddy redis-server: it works (node 26)",
      "      2  needs the Debian packages redis-server: a connection to Redis (bun, node 26)",
      "      1  no reason given: w (node 26)",
      "      1  not in a bare run (node 26)",
      "      2  only Deno has a sandbox (bun)",
      "",
      "To run what misses a package: sudo apt-get install caddy redis-server",
    ]);
    assert.equal(describeSkipped(new Map([["bun", []]])), "");
  });

  it("reads titles back from a report", () => {
    const title = readTitle(
      ' line="3" name="a &gt; b &amp; &quot;c&quot; (skipped: no)" classname="x"',
    );
    assert.equal(title, 'a > b & "c" (skipped: no)');
    assert.ok(hasReason(title) && !hasReason("a (b)"));
  });
});
