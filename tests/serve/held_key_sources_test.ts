/** Sources of held keys that are slow, long, or no plain file. */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, it } from "@std/testing/bdd";
import type { HeldKeySource } from "../../src/config/held_key.ts";
import { createHeldKeyReader } from "../../src/serve/held_key_sources.ts";
import { isRunning } from "../support/program.ts";
import { until } from "../support/until.ts";

const HELD = "held-canary-1";

describe("a source of a held key", () => {
  let directory: string;
  beforeEach(() => {
    directory = mkdtempSync(join(tmpdir(), "held-source-"));
  });
  afterEach(() => rmSync(directory, { recursive: true }));

  const shell = (script: string): HeldKeySource => {
    return { exec: ["/bin/sh", "-c", `cd ${directory}; ${script}`], refreshMs: 1000 };
  };
  const file = (name: string): HeldKeySource => ({ file: join(directory, name), refreshMs: 1000 });
  const read = async (source: HeldKeySource) => await createHeldKeyReader(directory)(source);

  it("that is a directory, a device or a pipe is refused without waiting", async () => {
    mkdirSync(join(directory, "folder"), { mode: 0o700 });
    execFileSync("mkfifo", ["-m", "600", join(directory, "pipe")]);
    for (const source of [file("folder"), file("pipe"), file("../../dev/null")]) {
      await assert.rejects(async () => await read(source), /is no regular file/);
    }
  });

  it("that is a command ends with its processes at the deadline, whatever it ignores", async () => {
    const hanging = shell(
      "trap '' TERM; echo $$ > outer; /bin/sh -c 'echo $$ > inner; sleep 300; true' & wait; wait",
    );
    await assert.rejects(async () => await read(hanging), /did not end within 8 s/);
    for (const name of ["outer", "inner"]) {
      const pid = Number(readFileSync(join(directory, name), "utf8"));
      await until(() => !isRunning(pid), `${name} has ended`);
    }
  });

  it("that is a command can leave a process in the background", async () => {
    assert.equal(await read(shell(`echo ${HELD}; sleep 2 &`)), HELD);
  });

  it("that is a command has no standard input, and its standard error is dropped", async () => {
    assert.equal(await read(shell(`cat; yes | head -c 100000 >&2; echo ${HELD}`)), HELD);
  });

  it("that prints too much, or another form, is refused by its name", async () => {
    await assert.rejects(
      async () => await read(shell("yes held-canary")),
      /the command \/bin\/sh prints too much/,
    );
    writeFileSync(join(directory, "lines"), `${HELD}\n${HELD}`, { mode: 0o600 });
    await assert.rejects(async () => await read(file("lines")), (error: Error) => {
      assert.match(error.message, /the file \S+lines must have the key alone, on one line/);
      return !error.message.includes(HELD);
    });
  });

  it("is reported separately from the same command with other arguments", async () => {
    const reports: string[] = [];
    const reader = createHeldKeyReader(directory, (text) => reports.push(text));
    for (let turn = 0; turn < 3; turn++) {
      await assert.rejects(async () => await reader(shell("exit 3")));
      assert.equal(await reader(shell(`echo ${HELD}`)), HELD);
    }
    assert.equal(reports.length, 1, reports.join("\n"));
  });

  it("reports each new error once, without output of a command", async () => {
    const reports: string[] = [];
    const reader = createHeldKeyReader(directory, (text) => reports.push(text));
    const source = shell(`test -f ok && echo ${HELD} || { echo ${HELD}; exit 3; }`);
    const attempt = async () => {
      try {
        return await reader(source);
      } catch {
        return undefined;
      }
    };
    for (let tries = 0; tries < 3; tries++) await attempt();
    writeFileSync(join(directory, "ok"), "");
    assert.equal(await attempt(), HELD);
    rmSync(join(directory, "ok"));
    await attempt();
    const failed = "Cannot read a held key: the command /bin/sh failed (3)";
    assert.deepEqual(reports, [failed, failed]);
  });
});
