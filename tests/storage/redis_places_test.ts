/** The connection to every kind of Redis: a Cluster, behind Sentinels, by TLS, at a Unix socket. */
// runtimes: all
// long: servers fail over, and connections are given up
import assert from "node:assert/strict";
import { afterEach } from "@std/testing/bdd";
import type { Redis } from "ioredis";
import { RedisClient, type RedisTarget, RedisUnfit } from "../../src/storage/redis_client.ts";
import { systemClock } from "../../src/exchange/clock.ts";
import { freePort } from "../support/free_port.ts";
import { isElsewhere, it } from "../support/cases.ts";
import { startLink } from "../support/redis_link.ts";
import {
  type AnyServer,
  makeCertificates,
  moveSlot,
  readCertificates,
  startCluster,
  startSentinelFleet,
  startServer,
} from "../support/redis_fleets.ts";
import { needs } from "../support/requires.ts";
import { until } from "../support/until.ts";

/** A deadline that a busy machine meets too. Milliseconds. */
const TIMEOUT_MS = 3000;
/** Longest recovery of a fleet. Milliseconds. */
const RECOVERY_MS = 40_000;
/** The script asks for the time too, as the limits do. */
const INCREMENT = "redis.call('TIME') return redis.call('INCR', KEYS[1])";

needs(["openssl", "redis-server"]).describe("Redis, wherever it is", () => {
  const closing: (() => unknown)[] = [];
  afterEach(async () => {
    for (const close of closing.splice(0).reverse()) await close();
  });
  const later = <T extends { stop(): Promise<void> }>(started: T): T => {
    closing.push(() => started.stop());
    return started;
  };
  const connect = async (target: string | Omit<RedisTarget, "timeoutMs">) => {
    const reports: string[] = [];
    const place = typeof target === "string" ? { url: target } : target;
    const full = { timeoutMs: TIMEOUT_MS, ...place };
    const client = new RedisClient(full, systemClock, (text) => reports.push(text));
    closing.push(() => client.close());
    const script = client.script("testIncrement", INCREMENT);
    const heard: string[] = [];
    client.listen("news", (message) => heard.push(message));
    /** Increments a key. */
    const count = (key: string) => client.run((redis) => script(redis, [key], []), Number);
    /** Tries until it can count again. */
    const countAgain = async (key: string): Promise<number> => {
      let counted = 0;
      await until(
        async () => (counted = await count(key).catch(() => 0)) > 0,
        `${key} is counted again`,
        RECOVERY_MS,
      );
      return counted;
    };
    await client.ready();
    return { client, count, countAgain, heard, reports };
  };
  type Connected = Awaited<ReturnType<typeof connect>>;
  /** Publishes until a message arrives, because messages during a disconnection are lost. */
  const hears = async ({ heard }: Connected, publisher: Redis) => {
    const before = heard.length;
    await until(
      async () => {
        await publisher.publish("news", "hello").catch(() => {});
        return heard.length > before;
      },
      "the message is heard",
      RECOVERY_MS,
    );
  };
  const idOf = ({ client }: Connected) => client.run((redis) => redis.client("ID"), Number);

  it.once("follows a planned failover of Sentinels, with passwords for both [Redis moves]", async () => {
    const passwords = { servers: "of the servers", sentinels: "of-sentinels" };
    const fleet = later(await startSentinelFleet(passwords));
    const [primary, replica] = fleet.servers;
    const sentinel = { name: fleet.name, nodes: fleet.nodes, password: passwords.sentinels };
    const connected = await connect({ sentinel, password: passwords.servers });
    assert.equal(await connected.count("a"), 1);
    await hears(connected, primary.raw);
    await until(async () => await replica.raw.get("a") === "1", "the replica follows");
    await fleet.failOver();
    await until(
      async () => await connected.countAgain("b") > 0 && await replica.raw.get("b") !== null,
      "it counts there",
      RECOVERY_MS,
    );
    assert.equal(await connected.countAgain("a"), 2, "the new primary has what the old one had");
    await hears(connected, replica.raw);
    assert.ok(connected.reports.length <= 2, connected.reports.join("\n"));
  });

  it.once("follows an unplanned failover: the primary is silent, its connections stay open [Redis moves]", async () => {
    const fleet = later(await startSentinelFleet());
    const [primary, replica] = fleet.servers;
    const connected = await connect({ sentinel: { name: fleet.name, nodes: fleet.nodes } });
    assert.equal(await connected.count("a"), 1);
    await until(async () => await replica.raw.get("a") === "1", "the replica follows");
    primary.pause();
    assert.equal(await connected.countAgain("a"), 2);
    assert.equal((await replica.raw.role())[0], "master");
    primary.resume();
  });

  it.once("leaves a primary that has become a replica without a write, and without losing its connection [Redis moves]", async () => {
    const server = later(await startServer());
    const connected = await connect(`redis://127.0.0.1:${server.port}`);
    const before = await idOf(connected);
    await server.raw.replicaof("127.0.0.1", 1);
    await until(() => !connected.client.health.isUp, "it is noticed", RECOVERY_MS);
    await until(() => connected.reports.length > 0, "it is told");
    assert.match(connected.reports.join(), /Redis fails \(.*replica/);
    await server.raw.replicaof("NO", "ONE");
    await connected.countAgain("a");
    assert.ok(await idOf(connected) > before, "the connection is another one");
  });

  it("uses all servers of a Cluster, and follows a slot that moves [Redis moves]", async () => {
    const { urls, servers } = later(await startCluster());
    const connected = await connect({ cluster: urls.slice(0, 1) });
    assert.equal(connected.client.health.isUp, true);
    for (let number = 0; number < 30; number++) {
      assert.equal(await connected.count(`{${number}}`), 1);
    }
    for (const { raw } of servers) assert.ok(await raw.dbsize() > 0, "each has some of them");
    for (const { raw } of servers) await hears(connected, raw);
    const [first, second] = servers as [AnyServer, AnyServer];
    const key = await first.raw.randomkey() ?? assert.fail();
    const slot = Number(await first.raw.cluster("KEYSLOT", key));
    // During the move, moved keys are found at the new server by ASK. After it, all are found by
    // MOVED.
    const id = String(await second.raw.cluster("MYID"));
    await second.raw.cluster("SETSLOT", slot, "IMPORTING", String(await first.raw.cluster("MYID")));
    await first.raw.cluster("SETSLOT", slot, "MIGRATING", id);
    await first.raw.call("MIGRATE", "127.0.0.1", second.port, key, 0, 5000);
    assert.equal(await connected.count(key), 2);
    await moveSlot(slot, first, second, servers);
    assert.equal(await connected.count(key), 3);
    assert.equal(connected.client.health.failures, 0);
    assert.deepEqual(connected.reports, []);
  });

  it.once("uses the other servers of a Cluster while one is silent, and its replica after the failover [Redis moves]", async () => {
    const { urls, servers } = later(
      await startCluster({ hasReplica: true, args: ["--cluster-require-full-coverage", "no"] }),
    );
    const [first, second, , replica] = servers as [AnyServer, AnyServer, AnyServer, AnyServer];
    const connected = await connect({ cluster: urls });
    for (let number = 0; number < 30; number++) await connected.count(`{${number}}`);
    const lost = await first.raw.randomkey() ?? assert.fail();
    const kept = await second.raw.randomkey() ?? assert.fail();
    await until(
      async () => await replica.raw.dbsize() === await first.raw.dbsize(),
      "the replica follows",
    );

    await replica.raw.cluster("FAILOVER");
    await until(
      async () => (await replica.raw.role())[0] === "master",
      "the replica takes over",
      RECOVERY_MS,
    );
    assert.equal(await connected.countAgain(lost), 2, "planned: nothing is lost");
    await until(
      async () => (await first.raw.info("replication")).includes("master_link_status:up"),
      "they are in step",
      RECOVERY_MS,
    );

    replica.pause();
    // The first call can reach another server, which was the primary a moment ago.
    await until(async () => {
      await assert.rejects(connected.count(lost));
      return !connected.client.health.isUp;
    }, "it is noticed");
    assert.equal(await connected.count(kept), 2, "the others go on");
    assert.equal(await connected.countAgain(lost), 3);
    assert.equal((await first.raw.role())[0], "master");
    await hears(connected, first.raw);
    await until(() => connected.client.health.isUp, "all are up", RECOVERY_MS);
    replica.resume();
  });

  it("uses TLS with its own authority and certificate: to one server, a Cluster, Sentinels", async () => {
    const certificates = await makeCertificates();
    closing.push(() => certificates.remove());
    const tls = readCertificates(certificates);
    const server = later(await startServer(certificates.args, { tls }));
    const url = `rediss://localhost:${server.port}`;
    assert.equal(await (await connect({ url, tls })).count("a"), 1);
    const strange = await connect({ url });
    assert.equal(strange.client.health.isUp, false);
    assert.match(strange.reports[0] ?? "", /Redis fails \(.*(?:certificate|UnknownIssuer)/i);
    const nameless = await connect({ url, tls: { ca: tls.ca } });
    assert.equal(nameless.client.health.isUp, false, "the server wants a certificate");
    if (isElsewhere) return; // other servers, same client
    const cluster = later(
      await startCluster({ args: ["--tls-cluster", "yes", ...certificates.args], tls }),
    );
    const sharded = await connect({ cluster: cluster.urls, tls });
    for (let number = 0; number < 30; number++) assert.equal(await sharded.count(`{${number}}`), 1);
    await hears(sharded, cluster.servers[0]?.raw ?? assert.fail());
    const tlsReplication = ["--tls-replication", "yes", ...certificates.args];
    const fleet = later(await startSentinelFleet({ args: tlsReplication, tls }));
    const named = await connect({ sentinel: { name: fleet.name, nodes: fleet.nodes }, tls });
    assert.equal(await named.count("a"), 1);
    await fleet.failOver();
    await until(
      async () => await named.countAgain("a") > 1 && await fleet.servers[1].raw.get("a") !== "1",
      "it follows",
      RECOVERY_MS,
    );
  });

  it("reaches a Unix socket, and a database by its number", async () => {
    const server = later(await startServer(["--unixsocket", "redis.sock"]));
    const path = `${server.folder}/redis.sock`;
    const connected = await connect(`unix://${path}?db=3`);
    assert.equal(await connected.count("a"), 1);
    assert.equal(await (await connect(`redis+unix://${path}?db=3`)).count("a"), 2);
    assert.equal(await (await connect(`redis://127.0.0.1:${server.port}/3`)).count("a"), 3);
    assert.equal(await server.raw.dbsize(), 0);
    await hears(connected, server.raw);
  });

  it("logs in as a user of the server's ACL with few permissions", async () => {
    const server = later(await startServer());
    const password = "p@ss/w%rd #1";
    await server.raw.acl(
      "SETUSER",
      "gate:way",
      "on",
      `>${password}`,
      "~*",
      "&*",
      "+@read",
      "+@write",
      "+@pubsub",
      "+@connection",
      "+eval",
      "+evalsha",
      "+time",
      "+info",
      "+role",
    );
    const user = `${encodeURIComponent("gate:way")}:${encodeURIComponent(password)}`;
    const address = `127.0.0.1:${server.port}`;
    const connected = await connect(`redis://${user}@${address}`);
    assert.equal(await connected.count("a"), 1);
    assert.equal(
      await connected.client.run((redis) => redis.acl("WHOAMI"), String).catch(() => "may not ask"),
      "may not ask",
    );
    const named = await connect({ url: `redis://${address}`, username: "gate:way", password });
    assert.equal(await named.count("a"), 2);
    await hears(named, server.raw);
    const wrong = await connect({
      url: `redis://${address}`,
      username: "gate:way",
      password: "wrong",
    });
    assert.equal(wrong.client.health.isUp, false);
    assert.match(wrong.reports[0] ?? "", /Redis fails \(WRONGPASS/);
    // A user that must not even ask for the kind of server.
    await server.raw.acl("SETUSER", "gate:way", "-info", "-role");
    const poor = await connect({ url: `redis://${address}`, username: "gate:way", password });
    assert.equal(await poor.count("a"), 3);
  });

  it.once("refuses unsuitable servers: another kind, a replica, a version that is too old", async () => {
    const server = later(await startServer());
    const cluster = later(
      await startServer(["--cluster-enabled", "yes", "--cluster-port", String(await freePort())]),
    );
    const replica = later(await startServer(["--replicaof", "127.0.0.1", "1"]));
    const sentinel = later(
      await startServer([], { sentinel: `sentinel monitor x 127.0.0.1 ${server.port} 1\n` }),
    );
    const old = await startLink(
      server.port,
      (text) => text.replace(/redis_version:\d+\.\d+/, "redis_version:6.1"),
    );
    closing.push(() => old.close());
    const refused: [Omit<RedisTarget, "timeoutMs">, RegExp][] = [
      [{ url: `redis://127.0.0.1:${cluster.port}` }, /node of a Cluster: configure redis\.cluster/],
      [
        { cluster: [`redis://127.0.0.1:${server.port}`] },
        /no node of a Cluster: configure redis\.url/,
      ],
      [{ url: `redis://127.0.0.1:${sentinel.port}` }, /is a Sentinel: configure redis\.sentinel/],
      [
        { url: `redis://127.0.0.1:${replica.port}` },
        /is a replica: configure its primary, or redis\.sentinel/,
      ],
      [{ url: old.url }, /Redis 6\.1, which is too old: 6\.2 is needed/],
    ];
    for (const [target, says] of refused) {
      await assert.rejects(
        connect(target),
        (error) => error instanceof RedisUnfit && says.test(error.message),
      );
    }
  });
});
