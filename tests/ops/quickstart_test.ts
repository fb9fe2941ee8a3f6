/**
 * `ops/compose/quickstart.yml`: its services fit together, and the commands in its first lines
 * work, as processes of this machine with the same environment as its gateway; Debian's
 * `redis-server` replaces Valkey. The start of the containers is not tested: it needs Docker.
 */
// runtimes: bun
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, it } from "@std/testing/bdd";
import { parseDuration } from "../../src/config/units.ts";
import { freePort } from "../support/free_port.ts";
import { readYaml, replaceIn } from "../support/ops_files.ts";
import { endPrograms, makeFolder, runProgram, startProgram } from "../support/program.ts";
import { COMPLETION, type Provider, startProvider } from "../support/provider.ts";
import { REDIS_TIMEOUT, type RedisServer, startRedis } from "../support/redis.ts";
import { needs } from "../support/requires.ts";

const FOLDER = "ops/compose";
const text = readFileSync(join(FOLDER, "quickstart.yml"), "utf8");
/** The commands in its first lines, one per line. */
const commands = Array.from(
  text.matchAll(/^# {3}(\S.*(?:\n# {5}.*)*)$/gm),
  ([, lines = ""]) => lines.replace(/\\\n# +/g, ""),
);
const { isMet, it: test } = needs(["redis-server", "curl"]);

describe("the quick start with Docker Compose", () => {
  let redis: RedisServer;
  let provider: Provider;
  let folder: ReturnType<typeof makeFolder>;
  if (isMet) {
    beforeAll(async () => {
      folder = makeFolder();
      redis = await startRedis();
      provider = await startProvider();
    });
    afterAll(async () => {
      await endPrograms();
      await provider.close();
      await redis.stop();
      folder.remove();
    });
  }

  it("is one file whose services fit together, and whose commands name them", async () => {
    const [{ services, volumes }] = await readYaml(text);
    const { gateway, valkey } = services;
    assert.deepEqual(Object.keys(services), ["gateway", "valkey"]);
    assert.deepEqual(gateway.depends_on, { valkey: { condition: "service_healthy" } });
    assert.ok(existsSync(join(FOLDER, gateway.build.context, gateway.build.dockerfile)));
    assert.equal(gateway.volumes, undefined, "there is nothing else to bring along");
    assert.deepEqual(
      valkey.volumes.map((volume: string) => volume.split(":")[0]),
      Object.keys(volumes),
    );
    const [host, published, inside] = gateway.ports[0].split(":");
    assert.equal(host, "127.0.0.1", "callers of this machine alone: it is a try-out without TLS");
    assert.ok(gateway.environment.SALLYPORT_LISTEN.endsWith(`:${inside}`));
    const [up = "", create = "", call = "", ...rest] = commands;
    assert.deepEqual(rest, []);
    const compose = `docker compose -f ${FOLDER}/quickstart.yml`;
    assert.equal(up, `${compose} up --build --wait`);
    assert.ok(create.startsWith(`${compose} run --rm gateway keys create`));
    assert.ok(call.startsWith(`curl http://localhost:${published}/v1/chat/completions`));
  });

  test("works as its first lines say, and its gateway has time to drain", async () => {
    const [{ services: { gateway } }] = await readYaml(text);
    const port = await freePort();
    const variables: Record<string, string> = gateway.environment;
    const redisUrl = replaceIn(
      variables.SALLYPORT_REDIS ?? "",
      /^redis:\/\/valkey:6379$/g,
      redis.url,
    );
    const env = {
      ...variables,
      SALLYPORT_LISTEN: replaceIn(
        variables.SALLYPORT_LISTEN ?? "",
        /^0\.0\.0\.0:8787$/g,
        `127.0.0.1:${port}`,
      ),
      SALLYPORT_ADMIN: `127.0.0.1:${await freePort()}`,
      SALLYPORT_PROVIDER_OPENAI: provider.url,
      SALLYPORT_REDIS: redisUrl,
      SALLYPORT_REDIS_TIMEOUT: REDIS_TIMEOUT,
    };
    const checked = await runProgram(["check"], { cwd: folder.path, env: { ...variables } });
    assert.equal(checked.status, 0, checked.stderr);
    const { drain, providers } = JSON.parse(checked.stdout);
    assert.deepEqual(providers.openai.upstreams, ["https://api.openai.com/v1"]);
    assert.ok(parseDuration(gateway.stop_grace_period) > drain.delayMs + drain.limitMs + 1000);

    const program = startProgram(["serve"], { cwd: folder.path, env });
    await program.waitFor(/admin on (http:\S+)/);
    assert.equal((await runProgram(["health", "--live"], { cwd: folder.path, env })).status, 0);
    const [, args = ""] = /run --rm gateway (.+)$/.exec(commands[1] ?? "") ?? [];
    const created = await runProgram(args.split(" "), { cwd: folder.path, env });
    assert.equal(created.status, 0, created.stderr);
    const [key] = /gk_\w+/.exec(created.stdout) ?? assert.fail(created.stdout);

    const curl = replaceIn(commands[2] ?? "", /localhost:8787/g, `127.0.0.1:${port}`);
    const { stdout } = await promisify(execFile)("sh", ["-c", `${curl} --silent --fail`], {
      env: { PATH: process.env.PATH, OPENAI_API_KEY: "sk-1", GATEWAY_KEY: key },
    });
    assert.equal(stdout, COMPLETION);
    assert.equal(provider.calls[0]?.headers.authorization, "Bearer sk-1");
  });
});
