/** The fleet on a Redis Cluster, where all keys of a call must be in one slot. */
// runtimes: once
import assert from "node:assert/strict";
import { afterAll, beforeAll, it } from "@std/testing/bdd";
import { agree, AGREE_MS, type Member, startMember, watchUntil } from "../support/fleet.ts";
import { endPrograms } from "../support/program.ts";
import { answerPlain, type Provider, startProvider } from "../support/provider.ts";
import { withRedis } from "../support/redis.ts";
import { type RedisCluster, startCluster } from "../support/redis_fleets.ts";
import { until } from "../support/until.ts";

withRedis.describe("a fleet on a Redis Cluster", () => {
  let cluster: RedisCluster;
  let provider: Provider;
  let members: Member[] = [];
  beforeAll(async () => {
    [cluster, provider] = await Promise.all([startCluster(), startProvider(answerPlain)]);
    const env = {
      SALLYPORT_REDIS_CLUSTER: cluster.urls.join(","),
      SALLYPORT_REDIS_TIMEOUT: "5s",
    };
    members = await Promise.all(
      (["bun", "deno", "node"] as const).map((on) =>
        startMember({ name: `gw-${on}`, on, upstream: provider.url, env })
      ),
    );
    await agree(members);
  });
  afterAll(async () => {
    await endPrograms();
    await provider.close();
    await cluster.stop();
  });

  it("has reports, traffic, metrics and drains of all gateways", async () => {
    const [bun, , node] = members;
    if (bun === undefined || node === undefined) return assert.fail();
    assert.equal(await bun.chat(), 200);
    await until(async () => (await node.find("gw-bun"))?.p95 != null, "its figures", AGREE_MS);
    const countOf = (reports: readonly { exchanges: readonly object[] }[]) =>
      reports.reduce((sum, { exchanges }) => sum + exchanges.length, 0);
    const reports = await watchUntil(node, "?scope=fleet", (seen) => countOf(seen) > 0);
    assert.deepEqual(reports.at(-1)?.scope, { gateways: 3, isStale: false });
    const metrics = await (await node.ask("/metrics?scope=fleet")).text();
    for (const { name } of members) {
      assert.ok(metrics.includes(`sallyport_gateway_answered{instance="${name}"} 1`));
    }
    assert.equal((await node.ask("/v1/drain?gateway=all", "POST")).status, 200);
    assert.deepEqual(await Promise.all(members.map((member) => member.isReady())), [
      false,
      false,
      false,
    ]);
  });

  it("keeps everything in one slot, and every key expires", async () => {
    const keys: string[] = [];
    for (const { raw } of cluster.servers) {
      for (const key of await raw.keys("sallyport:{fleet}:*")) {
        keys.push(key);
        assert.ok(await raw.pttl(key) > 0, `${key} expires`);
      }
    }
    assert.ok(keys.includes("sallyport:{fleet}:records") && keys.length >= 2, keys.join());
  });
});
