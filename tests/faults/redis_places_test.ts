/** The program with Redis behind Sentinels, and with an unusable Redis. */
// runtimes: bun, node
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterEach, beforeEach, it } from "@std/testing/bdd";
import { freePort } from "../support/free_port.ts";
import { GOOD_BODY } from "../support/gateway.ts";
import { endPrograms, makeFolder, runProgram, startProgram } from "../support/program.ts";
import { answerPlain, type Provider, startProvider } from "../support/provider.ts";
import { withRedis } from "../support/redis.ts";
import { type SentinelFleet, startSentinelFleet, startServer } from "../support/redis_fleets.ts";
import { until } from "../support/until.ts";

/** Longest time of a failover, until calls are counted again. Milliseconds. */
const FAILOVER_MS = 30_000;

withRedis.describe("the Redis of a program", () => {
  let folder: ReturnType<typeof makeFolder>;
  let provider: Provider;
  const closing: (() => Promise<unknown>)[] = [];
  beforeEach(async () => {
    folder = makeFolder();
    provider = await startProvider((response) => answerPlain(response));
  });
  afterEach(async () => {
    await endPrograms();
    for (const close of closing.splice(0).reverse()) await close();
    await provider.close();
    folder.remove();
  });
  const configure = (redis: unknown) =>
    writeFileSync(
      join(folder.path, "gateway.jsonc"),
      JSON.stringify({
        listen: [{ port: 0 }],
        providers: { a: { upstream: provider.url, hosts: ["*"] } },
        keys: "redis",
        redis,
      }),
    );
  const sentinelOf = ({ name, nodes }: SentinelFleet) => ({ sentinel: { name, nodes } });

  it("keys and limits are at the primary, before a planned failover and after it [Redis moves]", async () => {
    const fleet = await startSentinelFleet();
    closing.push(() => fleet.stop());
    configure(sentinelOf(fleet));
    // Below the size at which gateways reserve requests in blocks: Redis decides each call.
    const created = await runProgram(["keys", "create", "--requests", "900/h"], {
      cwd: folder.path,
    });
    assert.equal(created.status, 0, created.stderr);
    const program = startProgram(["serve"], { cwd: folder.path });
    const url = await program.waitFor(/listening on (http:\S+)/);
    const headers = {
      "authorization": "Bearer sk-1",
      "gateway-auth": `Bearer ${created.stdout.trim()}`,
      "content-type": "application/json",
    };
    const call = async () => {
      const answer = await fetch(`${url}/v1/chat/completions`, {
        method: "POST",
        headers,
        body: GOOD_BODY,
      });
      assert.equal(answer.status, 200, await answer.text());
    };
    const [, replica] = fleet.servers;
    /** Scripts that the second server has run for a gateway: at least one per decision. */
    const decisions = async () => {
      const stats = await replica.raw.info("commandstats");
      return ["eval", "evalsha"].map((name) =>
        Number(new RegExp(`cmdstat_${name}:calls=(\\d+)`).exec(stats)?.[1] ?? 0)
      )
        .reduce((sum, count) => sum + count);
    };
    for (let calls = 0; calls < 10; calls++) await call();
    assert.equal(await decisions(), 0, "a replica decides nothing");
    await fleet.failOver();
    await until(
      async () => {
        const before = await decisions();
        for (let calls = 0; calls < 10; calls++) await call();
        return await decisions() >= before + 10;
      },
      "each call is counted at the new primary",
      FAILOVER_MS,
    );
    assert.doesNotMatch(program.reports(), /unknown/);
  });

  it("a program does not start with an unusable Redis, and says why [Redis moves]", async () => {
    const cluster = await startServer([
      "--cluster-enabled",
      "yes",
      "--cluster-port",
      String(await freePort()),
    ]);
    closing.push(() => cluster.stop());
    configure(`redis://127.0.0.1:${cluster.port}`);
    const { status, stderr } = await runProgram(["serve"], { cwd: folder.path });
    assert.equal(status, 2, stderr);
    assert.match(stderr, /redis: this server is a node of a Cluster: configure redis\.cluster/);
  });
});
