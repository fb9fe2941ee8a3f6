/**
 * `ops/systemd`: the unit is valid and hardened, and its command works if only its own folder is
 * writable. Starting it with systemd is not tested: it needs a machine that systemd runs.
 */
// runtimes: bun
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { afterEach, beforeEach, describe, it } from "@std/testing/bdd";
import { createSelfSignedCertificate } from "../../src/cli/demo/certificate.ts";
import { parseConfig } from "../../src/config/config.ts";
import { hasLoopbacks, hasNamespaces, makeReadOnly, replaceIn } from "../support/ops_files.ts";
import { endPrograms, makeFolder, runProgram, startProgram } from "../support/program.ts";
import { needs } from "../support/requires.ts";

const UNIT = readFileSync("ops/systemd/sallyport.service", "utf8");
const ADDITION = readFileSync("ops/systemd/reload.conf", "utf8");
const PAGE = readFileSync("docs/operations.md", "utf8");
const PROGRAM = "/usr/local/bin/sallyport";
/**
 * In tenths, as `systemd-analyze security` counts: a server with arbitrary addresses and a JIT
 * compiler needs at least 1.2.
 */
const MAX_EXPOSURE = 13;
const TOKEN = "an-admin-token-of-32-characters!";

const withSystemd = needs(["systemd"], hasLoopbacks ? undefined : "tested on Linux");
const withReadOnly = needs(
  [],
  hasNamespaces ? undefined : "this user may not make a mount namespace",
);

const setting = (name: string): string =>
  new RegExp(`^${name}=(.*)$`, "m").exec(UNIT)?.[1] ?? assert.fail(`no ${name}`);

describe("the systemd unit", () => {
  let folder: ReturnType<typeof makeFolder>;
  beforeEach(() => void (folder = makeFolder()));
  afterEach(async () => {
    await endPrograms();
    folder.remove();
  });

  /** Runs systemd-analyze on the unit, with its program replaced by an existing one. */
  const analyze = (text: string, ...args: string[]) => {
    const file = join(folder.path, "sallyport.service");
    writeFileSync(
      file,
      replaceIn(text, /(?<=^ExecStart=)\/usr\/local\/bin\/sallyport/gm, process.execPath),
    );
    const { status, stdout, stderr, error } = spawnSync("systemd-analyze", [...args, file], {
      encoding: "utf8",
    });
    return { status, told: `${error?.message ?? ""}${stdout}${stderr}` };
  };

  withSystemd.it(`is valid for systemd`, () => {
    assert.deepEqual(analyze(UNIT, "verify"), { status: 0, told: "" });
  });

  withSystemd.it("is valid for systemd with the addition for reloads", () => {
    const both = UNIT.replace("[Install]", `${ADDITION}\n[Install]`);
    assert.deepEqual(analyze(both, "verify"), { status: 0, told: "" });
  });

  it("has a reload only with the addition, which reads the configuration that the page reloads", () => {
    const [, credential = ""] = /^LoadCredential=[^:]+:(.*)$/m.exec(UNIT) ?? [];
    assert.match(UNIT, /^ExecStart=.* --config %d\//m, "it starts from a copy");
    assert.doesNotMatch(UNIT, /^ExecReload=/m, "a reload would read the copy again");
    assert.match(ADDITION, /^ExecReload=.* -HUP \$MAINPID$/m);
    const config = /^ExecStart=\S+ serve --config (.*)$/m.exec(ADDITION)?.[1];
    assert.equal(config, credential);
    const reloads = PAGE.split("\n").filter((line) => line.endsWith("systemctl reload sallyport"));
    assert.deepEqual(reloads, [
      `sallyport check --config ${config} && systemctl reload sallyport`,
    ]);
    const [, section = ""] = /^## systemd\n(.*?)^## /ms.exec(PAGE) ?? [];
    for (const words of [reloads[0] ?? "", "systemctl restart sallyport", "reload.conf"]) {
      assert.ok(section.includes(words), words);
    }
  });

  withSystemd.it(`has an exposure of at most ${MAX_EXPOSURE / 10} of 10`, () => {
    const { status, told } = analyze(
      UNIT,
      "security",
      "--offline=true",
      `--threshold=${MAX_EXPOSURE}`,
      "--no-pager",
    );
    assert.equal(status, 0, told);
    assert.match(told, /Overall exposure level/);
  });

  it("does not stop a gateway before its drain is over", () => {
    const { delayMs, limitMs } =
      parseConfig({ admin: { port: 1 }, providers: { a: { upstream: "openai" } } }).drain;
    const [, minutes = ""] = /^(\d+)min$/.exec(setting("TimeoutStopSec")) ?? [];
    assert.ok(Number(minutes) * 60_000 > delayMs + limitMs + 1000);
    assert.equal(setting("KillMode"), "mixed");
  });

  withReadOnly.it(
    `starts from credentials, and writes only to its own folder`,
    async () => {
      const [credentials, state] = [join(folder.path, "credentials"), join(folder.path, "state")];
      for (const path of [credentials, state]) mkdirSync(path);
      const { cert, key } = createSelfSignedCertificate(["localhost"]);
      writeFileSync(join(credentials, "b.crt"), cert);
      writeFileSync(join(credentials, "b.key"), key);
      const [, credential = ""] = /^LoadCredential=([^:]+):/m.exec(UNIT) ?? [];
      writeFileSync(
        join(credentials, credential),
        JSON.stringify({
          listen: [{ port: 0, tls: { cert: "b.crt", key: "b.key" } }],
          admin: { port: 0, token: TOKEN },
          providers: { a: { upstream: "openai" } },
          keys: { file: join(state, "gateway-keys.json") },
          drain: { delay: "0s" },
        }),
      );
      const config = join(credentials, credential);
      assert.equal((await runProgram(["keys", "create", "--config", config])).status, 0);
      const [program, ...args] = setting("ExecStart").replaceAll("%d", credentials).split(" ");
      assert.equal(program, PROGRAM);
      const on = {
        kind: "bun" as const,
        command: makeReadOnly(folder.path, process.execPath, state),
      };
      const running = startProgram(args, { on, cwd: state });
      await running.waitFor(/listening on (https:\S+)/);
      const admin = await running.waitFor(/admin on (http:\S+)/);
      const headers = { "authorization": `Bearer ${TOKEN}`, "content-type": "application/json" };
      const made = await fetch(`${admin}/v1/keys`, {
        method: "POST",
        headers,
        body: `{"name":"made-while-it-runs"}`,
      });
      assert.equal(made.status, 201, await made.text());
      running.kill(setting("KillSignal") as "SIGTERM");
      assert.equal(await running.ended, 0, running.stderr());
      assert.equal(running.reports(), "");
      const { stdout } = await runProgram(["keys", "list", "--json", "--config", config]);
      assert.match(stdout, /"made-while-it-runs"/);
    },
  );
});
