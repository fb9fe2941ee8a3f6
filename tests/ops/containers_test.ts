/**
 * `ops/Dockerfile` and `ops/compose/compose.yml`: the files that they name exist and fit together,
 * and the image's commands work on a read-only file system. Building and running them with Docker
 * is not tested: it needs Docker.
 */
// runtimes: bun
import assert from "node:assert/strict";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import process from "node:process";
import { afterEach, beforeEach, describe } from "@std/testing/bdd";
import { it } from "../support/cases.ts";
import { parseDuration } from "../../src/config/units.ts";
import { freePort } from "../support/free_port.ts";
import { GOOD_BODY } from "../support/gateway.ts";
import { hasNamespaces, makeReadOnly, readYaml } from "../support/ops_files.ts";
import { endPrograms, makeFolder, ONE_FILE, runProgram, startProgram } from "../support/program.ts";
import { COMPLETION, startProvider } from "../support/provider.ts";
import { callRaw } from "../support/tcp_peer.ts";

const FOLDER = "ops/compose";
const KEY = "0123456789-secret-key";
const whyNot = hasNamespaces ? undefined : "this user may not make a mount namespace";

const dockerfile = readFileSync("ops/Dockerfile", "utf8").replaceAll("\\\n", "");
/** The command of an instruction of the Dockerfile, as JSON. */
const commandOf = (instruction: RegExp): string[] => {
  const [, command] = new RegExp(`^${instruction.source}.*?(\\[.*\\])$`, "m").exec(dockerfile) ??
    [];
  return JSON.parse(command ?? assert.fail(`no ${instruction}`));
};

describe("the image", () => {
  let folder: ReturnType<typeof makeFolder>;
  beforeEach(() => void (folder = makeFolder()));
  afterEach(async () => {
    await endPrograms();
    folder.remove();
  });

  it("contains the one file and the licence, which are the whole build context", () => {
    const [, copied = "", to = ""] = /^COPY (.+) (\S+)$/m.exec(dockerfile) ?? [];
    assert.deepEqual(copied.split(" "), ["LICENSE", "dist/sallyport.js"]);
    for (const file of copied.split(" ")) assert.ok(existsSync(file), file);
    const ignore = readFileSync("ops/Dockerfile.dockerignore", "utf8").trim().split("\n");
    assert.deepEqual(ignore, ["*", ...copied.split(" ").map((file) => `!${file}`)]);
    assert.equal(commandOf(/ENTRYPOINT/)[1], join(to, basename(ONE_FILE)));
    assert.match(
      dockerfile,
      /^USER [1-9]\d*:[1-9]\d*$/m,
      "Kubernetes tells by a number that it is not root",
    );
  });

  it.unless(
    whyNot,
    "serves, passes its health check and ends on a read-only file system",
    async () => {
      const provider = await startProvider();
      const [bun, file, ...rest] = [...commandOf(/ENTRYPOINT/), ...commandOf(/^CMD/)];
      const on = { kind: "bun" as const, command: makeReadOnly(folder.path, process.execPath) };
      const [, variables = ""] = /^ENV (.+)$/m.exec(dockerfile) ?? [];
      const env = {
        ...Object.fromEntries(variables.split(" ").map((pair) => pair.split("="))),
        HOME: "/",
        SALLYPORT_PROVIDER_A: provider.url,
        SALLYPORT_KEYS: KEY,
        SALLYPORT_LISTEN: "127.0.0.1:0",
        SALLYPORT_ADMIN: `127.0.0.1:${await freePort()}`,
        SALLYPORT_DRAIN_DELAY: "0s",
      };
      const [sameBun, sameFile, ...check] = commandOf(/HEALTHCHECK/);
      assert.deepEqual([sameBun, sameFile], [bun, file]);
      const health = () => runProgram(check, { on, env, cwd: "/" });
      assert.equal((await health()).status, 1, "it does not run yet");
      const program = startProgram(rest, { on, env, cwd: "/" });
      const url = await program.waitFor(/listening on (http:\S+)/);
      await program.waitFor(/admin on (http:\S+)/);
      const headers = {
        "authorization": "Bearer sk-1",
        "gateway-auth": `Bearer ${KEY}`,
        "content-type": "application/json",
      };
      assert.equal((await callRaw(url, { headers, body: GOOD_BODY })).body, COMPLETION);
      assert.equal((await health()).status, 0);
      program.kill("SIGTERM");
      assert.equal(await program.ended, 0, program.stderr());
      assert.equal(program.reports(), "");
      await provider.close();
    },
  );
});

interface Service {
  readonly volumes?: readonly string[];
  readonly depends_on?: Readonly<Record<string, unknown>>;
}

describe("compose.yml", () => {
  const read = (file: string) => readFileSync(join(FOLDER, file), "utf8");

  it("names only existing files, and its files match each other", async () => {
    const [compose] = await readYaml(read("compose.yml"));
    const { services, secrets } = compose;
    const mounts = new Map<string, string>();
    for (
      const [name, { volumes = [], depends_on: needed = {} }] of Object.entries<Service>(services)
    ) {
      for (const [from = "", to = ""] of volumes.map((volume) => volume.split(":"))) {
        if (from.startsWith(".")) {
          assert.ok(existsSync(join(FOLDER, from)), `${name} mounts ${from}`);
        } else assert.ok(from in compose.volumes, `${name} mounts ${from}`);
        mounts.set(`${name}:${from}`, to);
      }
      for (const other of Object.keys(needed)) {
        assert.ok(other in services, `${name} needs ${other}`);
      }
    }
    const gateways = Object.keys(services).filter((name) => name.startsWith("gateway-"));
    assert.deepEqual(gateways, ["gateway-1", "gateway-2", "gateway-3"]);
    for (const name of gateways) {
      const { build, read_only: isReadOnly, volumes } = services[name];
      assert.ok(existsSync(join(FOLDER, build.context, build.dockerfile)));
      assert.equal(isReadOnly, true);
      const [, workdir] = /^WORKDIR (.+)$/m.exec(dockerfile) ?? [];
      assert.deepEqual(volumes, [`./gateway.jsonc:${workdir}/gateway.jsonc:ro`]);
    }
    const [prometheus] = await readYaml(read("prometheus.yml"));
    const [{ authorization, static_configs: [{ targets }] }] = prometheus.scrape_configs;
    assert.deepEqual(targets, gateways.map((name) => `${name}:8789`));
    const [{ source, target }] = services.prometheus.secrets;
    const configured = mounts.get("prometheus:./prometheus.yml") ?? "";
    assert.equal(target, join(dirname(configured), authorization.credentials_file));
    assert.equal(
      mounts.get("prometheus:../prometheus/alerts.yml"),
      join(dirname(configured), prometheus.rule_files[0]),
    );
    assert.ok(secrets[source].environment in services["gateway-1"].environment);
    const haproxy = readFileSync("ops/haproxy/haproxy.cfg", "utf8");
    assert.deepEqual(
      Array.from(haproxy.matchAll(/^ +server (\S+) \1:8787$/gm), ([, name]) => name),
      gateways,
    );
    const [, bound] = /^ +bind :(\d+)/m.exec(haproxy) ?? [];
    assert.deepEqual(services.haproxy.ports, [`${bound}:${bound}`]);
    const [{ datasources: [{ url }] }] = await readYaml(
      readFileSync("ops/grafana/datasources.yml", "utf8"),
    );
    assert.ok(new URL(url).hostname in services);
    const [{ providers: [{ options }] }] = await readYaml(
      readFileSync("ops/grafana/dashboards.yml", "utf8"),
    );
    assert.equal(dirname(mounts.get("grafana:../grafana/sallyport.json") ?? ""), options.path);
  });

  it("sets a valid configuration for gateways, and time to drain", async () => {
    const [{ services }] = await readYaml(read("compose.yml"));
    const args = ["check", "--config", join(process.cwd(), FOLDER, "gateway.jsonc")];
    const env = { SALLYPORT_ADMIN_TOKEN: "an-admin-token-of-mine" };
    const { status, stdout, stderr } = await runProgram(args, { env });
    assert.equal(status, 0, stderr);
    const { redis, drain } = JSON.parse(stdout);
    assert.ok(new URL(redis.url).hostname in services);
    assert.ok(
      parseDuration(services["gateway-1"].stop_grace_period) > drain.delayMs + drain.limitMs + 1000,
    );
  });
});

describe("the page on operations", () => {
  it("names every file of ops/, and no missing file", () => {
    const page = readFileSync("docs/operations.md", "utf8");
    const named = new Set(page.match(/(?<=`)ops\/[\w./-]+(?=`)/g));
    for (const file of named) assert.ok(existsSync(file), file);
    const folders = readdirSync("ops", { withFileTypes: true }).filter((entry) =>
      entry.isDirectory()
    );
    for (const { name } of folders) {
      assert.ok(page.includes(`ops/${name}`), `ops/${name} is not on the page`);
    }
  });
});
