/** Runs in a Redis Cluster: the runs of each gateway key are in one slot. */
// runtimes: once
// long: a Cluster starts
import assert from "node:assert/strict";
import { afterAll, afterEach, beforeAll } from "@std/testing/bdd";
import { systemClock } from "../../src/exchange/clock.ts";
import { GatewayError } from "../../src/errors/gateway_error.ts";
import { RedisRuns } from "../../src/runs/redis/runs.ts";
import type { RunCall, RunLease } from "../../src/runs/run_registry.ts";
import { RedisClient } from "../../src/storage/redis_client.ts";
import { it } from "../support/cases.ts";
import { withRedis } from "../support/redis.ts";
import { moveSlot, type RedisCluster, startCluster } from "../support/redis_fleets.ts";
import { until } from "../support/until.ts";
import { costing } from "./runs_suite.ts";

const KEYS = Array.from({ length: 12 }, (_, index) => `agent-${index}`);
const BUDGET = 30;
const CALL = 10;

withRedis.describe("runs in a Cluster", () => {
  let cluster: RedisCluster;
  const closing: (() => void)[] = [];
  beforeAll(async () => void (cluster = await startCluster()));
  afterAll(() => cluster.stop());
  afterEach(() => {
    for (const close of closing.splice(0)) close();
  });

  async function join(): Promise<RedisRuns> {
    const client = new RedisClient(
      { cluster: cluster.urls.slice(0, 1), timeoutMs: 5000 },
      systemClock,
      () => {},
    );
    await client.ready();
    const runs = new RedisRuns(client, systemClock, { idleMs: 60_000 });
    closing.push(() => client.close(), () => runs.close());
    return runs;
  }
  const callOf = (keyId: string, id: string, parent?: string): RunCall => ({
    keyId,
    run: { id, parent, limits: parent === undefined ? { budget: BUDGET } : {} },
    reservation: costing(CALL),
    bounds: { idleMs: 60_000, maxPerKey: 10 },
  });
  async function tryAdmit(runs: RedisRuns, call: RunCall): Promise<RunLease | undefined> {
    try {
      return await runs.admit(call, () => {});
    } catch (error) {
      assert.ok(GatewayError.is(error) && error.code === "run_budget_exceeded", String(error));
      return undefined;
    }
  }
  const slotOf = async (keyId: string) =>
    Number(await cluster.servers[0]?.raw.cluster("KEYSLOT", `{key:${keyId}}`));

  it("keep their budgets on all primaries, for two gateways and with runs below them", async () => {
    const [one, other] = [await join(), await join()];
    const primaries = new Set<number>();
    for (const keyId of KEYS) {
      const admitted: RunLease[] = [];
      for (let call = 0; call < 3; call++) {
        for (const [runs, id] of [[one, "a"], [other, "b"]] as const) {
          const lease = await tryAdmit(runs, callOf(keyId, id, id === "b" ? "a" : undefined));
          if (lease !== undefined) admitted.push(lease);
        }
      }
      assert.equal(admitted.length, BUDGET / CALL, keyId);
      for (const lease of admitted) lease.release(CALL, false);
      primaries.add(Math.floor(await slotOf(keyId) / 5462));
    }
    assert.equal(primaries.size, 3, "the keys are on all primaries");
    const isSettled = async () =>
      (await other.list(undefined, 100)).filter(({ spent, open }) => spent === BUDGET && open === 0)
        .length === KEYS.length;
    await until(isSettled, "the run of each key has spent its budget");
  });

  it("stop at every gateway, also after their slot has moved", async () => {
    const [one, other] = [await join(), await join()];
    const keyId = "moving";
    const [first, second, third] = cluster.servers;
    const slot = await slotOf(keyId);
    const [from, to] = slot < 5461
      ? [first, second]
      : slot < 10_923
      ? [second, third]
      : [third, first];
    let isStopped = false;
    const lease = await one.admit(callOf(keyId, "a"), () => void (isStopped = true));
    await moveSlot(slot, from ?? assert.fail(), to ?? assert.fail(), cluster.servers);
    assert.equal(await other.stop(keyId, "a"), true);
    await until(() => isStopped, "the open call ends");
    lease.release(CALL, false);
    await assert.rejects(
      async () => await other.admit(callOf(keyId, "a"), () => {}),
      (error) => GatewayError.is(error) && error.code === "run_stopped",
    );
  });
});
