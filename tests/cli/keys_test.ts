/**
 * `sallyport keys`, as a separate process, on keys in a file and in Redis; and its effects on a
 * running gateway.
 */
// runtimes: once
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { afterEach, beforeEach, describe, it } from "@std/testing/bdd";
import { gatewayKeyId, generateGatewayKey } from "../../src/keys/key_format.ts";
import { GOOD_BODY } from "../support/gateway.ts";
import { assertRefused, makePlace, manyKeys, type Place } from "../support/key_place.ts";
import { startProgram } from "../support/program.ts";
import { type Provider, startProvider } from "../support/provider.ts";
import { type RedisServer, startRedis, withRedis } from "../support/redis.ts";
import { untilSoon } from "../support/until.ts";

const DAY_MS = 86_400_000;
/** Time within which a change applies at every gateway. Milliseconds. */
const HOLDS_MS = 1000;
const KEY_LINE = /^gk_[0-9A-Za-z]{12}_[0-9A-Za-z]{43}_[0-9A-Za-z]{6}\n$/;
const ALL = [
  "--name",
  "team-x",
  "--providers",
  "a, b",
  "--models",
  "gpt-*,o3",
  "--requests",
  "600/min",
  "--tokens",
  "2.3M/min",
  "--concurrency",
  "20",
  "--budget",
  "5M/month",
  "--mode",
  "observe",
  "--durable",
  "keep=1h,retries=true",
  "--held-keys",
  "never",
  "--expires",
  "90d",
  "--metadata",
  "team=x",
  "--metadata",
  "mail=a=b",
];
const ALL_POLICY = {
  name: "team-x",
  providers: ["a", "b"],
  models: ["gpt-*", "o3"],
  durable: { keep: "1h", linger: "1m", size: "8MB", retries: true },
  heldKeys: false,
  metadata: { team: "x", mail: "a=b" },
  limits: {
    requests: "600/min",
    tokens: "2.3M/min",
    concurrency: 20,
    budget: "5M/month",
    mode: "observe",
  },
  state: "active",
};

const countOf = (text: string, part: string) => text.split(part).length - 1;

for (const engine of ["a file", "Redis"]) {
  (engine === "a file" ? describe : withRedis.describe)(`sallyport keys in ${engine}`, () => {
    let provider: Provider;
    let redis: RedisServer | undefined;
    let at: Place;
    beforeEach(async () => {
      provider = await startProvider();
      redis = engine === "Redis" ? await startRedis() : undefined;
      at = makePlace(provider.url, redis);
    });
    afterEach(async () => {
      await at.remove();
      await provider.close();
      await redis?.stop();
    });

    it("create shows the whole key once, only on stdout, and stores all of its settings", async () => {
      const before = Date.now();
      const { status, stdout, stderr } = await at.keys("create", ...ALL);
      assert.equal(status, 0, stderr);
      assert.match(stdout, KEY_LINE);
      const key = stdout.trim();
      const id = gatewayKeyId(key) ?? "";
      assert.match(stderr, new RegExp(`^id +${id}$`, "m"));
      assert.match(
        stderr,
        /^limits +600\/min requests, 2\.3M\/min tokens, 20 at once, 5M\/month tokens, \(observed\)$/m,
      );
      const secret = key.slice(16);
      const said = [
        stderr,
        await at.good("show", id),
        await at.good("list"),
        await at.good("list", "--json"),
      ];
      for (const text of [...said, await at.kept()]) {
        assert.ok(!text.includes(secret) && text.includes(id));
      }
      const { created, expires, ...shown } = await at.show(id);
      assert.deepEqual(shown, { ...ALL_POLICY, id });
      assert.ok(Math.abs(Date.parse(String(expires)) - before - 90 * DAY_MS) < 60_000);
      assert.ok(Math.abs(Date.parse(String(created)) - before) < 60_000);
      for (const word of ["digest", createHash("sha256").update(key).digest("hex")]) {
        assert.ok(!said.join().includes(word));
      }
    });

    it("a day is the key's last one, and a whole key is accepted as an id but never printed", async () => {
      const made = await at.keys("create", "--expires", "2127-01-31", "--json");
      const { key, id, expires } = JSON.parse(made.stdout);
      assert.equal(expires, "2127-01-31T23:59:59.999Z");
      const shown = await at.good("show", key);
      assert.equal(shown, await at.good("show", id));
      assert.ok(!shown.includes(key.slice(16)));
      await assertRefused(
        at.keys("show", `${key}x`),
        /: Cannot find a key with this id: sallyport/,
      );
    });

    it("a key without settings has no restrictions; each --json prints only one JSON value", async () => {
      const made = await at.keys("create", "--json");
      const { key, id, created, ...rest } = JSON.parse(made.stdout);
      assert.deepEqual([rest, made.stderr], [{ state: "active" }, ""]);
      assert.equal(gatewayKeyId(key), id);
      const shown = { id, created, state: "active" };
      assert.deepEqual(await at.show(id), shown);
      assert.deepEqual(JSON.parse(await at.good("list", "--json")), [shown]);
      assert.deepEqual(JSON.parse(await at.good("update", id, "--name", "x", "--json")), {
        ...shown,
        name: "x",
      });
      const rotated = JSON.parse(await at.good("rotate", id, "--now", "--json"));
      assert.deepEqual({ ...rotated, key: gatewayKeyId(rotated.key) }, {
        ...shown,
        name: "x",
        key: id,
      });
      assert.notEqual(rotated.key, key);
      const revoked = JSON.parse(await at.good("revoke", id, "--json"));
      assert.equal(revoked.state, "revoked");
      assert.ok(Date.parse(revoked.revoked) >= Date.parse(created));
    });

    it("list prints a table, the newest first, and says what to do if there is no key", async () => {
      assert.match(await at.good("list"), /^no keys: make one by sallyport keys create/);
      assert.deepEqual(JSON.parse(await at.good("list", "--json")), []);
      await at.create(
        "--name",
        "old",
        "--providers",
        "a",
        "--requests",
        "5/10s",
        "--concurrency",
        "2",
        "--mode",
        "observe",
      );
      const { id } = await at.create(
        "--name",
        "Größe 東京 🎉",
        "--models",
        "m-*",
        "--expires",
        "2099-01-31T12:34:00Z",
      );
      await at.create("--name", `n${"x".repeat(80)}`);
      const [head = "", ...rows] = (await at.good("list")).trimEnd().split("\n");
      assert.match(
        head,
        /^ID {12}NAME +STATE +EXPIRES +LAST USED +TEAM +PROVIDERS +MODELS +LIMITS$/,
      );
      assert.deepEqual(rows.map((row) => /^\w+ +(\S+)/.exec(row)?.[1]), [
        `n${"x".repeat(39)}`,
        "Größe",
        "old",
      ]);
      assert.match(
        rows[1] ?? "",
        new RegExp(`^${id}  Größe 東京 🎉 +active +2099-01-31 12:34 +all +m-\\*$`),
      );
      assert.match(rows[2] ?? "", / +active +a +all +5\/10s requests, 2 at once, \(observed\)$/);
      const column = head.indexOf("STATE");
      assert.deepEqual([rows[0]?.indexOf("active"), rows[2]?.indexOf("active")], [column, column]);
      assert.equal(
        rows[1]?.indexOf("active"),
        column - 2,
        "東京 takes four columns with two code units, 🎉 two with two",
      );
      assert.equal(countOf(await at.good("list", "--search", "GRÖSSE"), "\n"), 1);
      assert.match(await at.good("list", "--search", "GRÖß"), /東京/);
      assert.match(await at.good("list", "--search", id.toLowerCase()), /東京/);
      assert.match(await at.good("list", "--search", "nobody"), /^no key matches\n$/);
      assert.match(await at.good("list", "--team", "none"), /^no key matches\n$/);
      assert.match(await at.good("list", "--state", "revoked"), /^no key matches\n$/);
    });

    it("list --state finds all keys of one state, also after many others", async () => {
      const [leaked, off, ...others] = manyKeys(21_000);
      assert.ok(leaked !== undefined && off !== undefined);
      await at.fill([{ ...leaked, revokedAt: 1 }, { ...off, disabled: true }, ...others]);
      const idsOf = async (...options: string[]): Promise<string[]> =>
        JSON.parse(await at.good("list", "--json", ...options)).map(({ id }: { id: string }) => id);
      assert.deepEqual(await idsOf("--state", "revoked"), [leaked.id]);
      assert.deepEqual(await idsOf("--state", "disabled"), [off.id]);
      assert.equal((await idsOf("--state", "active", "--limit", "30")).length, 30);
      assert.deepEqual(await idsOf("--state", "disabled", "--search", "team-0"), []);
      const { status, stderr } = await at.keys("list", "--state", "deleted");
      assert.equal(status, 2);
      assert.match(
        stderr,
        /--state: expected one of active, disabled, revoked, expired, unreadable, team_not_configured/,
      );
    });

    it("2000 keys: list prints the newest 50, or as many as --limit allows, or the matching key", async () => {
      await at.fill(manyKeys(2000));
      const { stdout, stderr } = await at.keys("list");
      assert.equal(countOf(stdout, "\n"), 51);
      assert.match(stdout.split("\n")[1] ?? "", / team-1999 /);
      assert.match(stderr, /^the newest 50 are shown: --limit N shows more/);
      const all = await at.keys("list", "--limit", "2000");
      assert.deepEqual([countOf(all.stdout, "\n"), all.stderr], [2001, ""]);
      assert.match(all.stdout, / team-0 [^\n]*\n$/);
      assert.deepEqual(JSON.parse(await at.good("list", "--limit", "5000", "--json")).length, 2000);
      assert.equal(JSON.parse(await at.good("list", "--search", "TEAM-77", "--json")).length, 11);
      const { id } = await at.create("--name", "one more");
      assert.equal(JSON.parse(await at.good("list", "--limit", "1", "--json"))[0].id, id);
    });

    it("update sets fields, adds limits, and removes limits that are off", async () => {
      const { id } = await at.create(...ALL);
      await at.good(
        "update",
        id,
        "--name",
        "y",
        "--requests",
        "7/s",
        "--tokens",
        "off",
        "--mode",
        "off",
        "--models",
        "off",
      );
      const { created: _, expires, ...shown } = await at.show(id);
      const { models: __, ...left } = ALL_POLICY;
      const limits = { requests: "7/s", concurrency: 20, budget: "5M/month" };
      assert.deepEqual(shown, { ...left, id, name: "y", limits });
      assert.equal(typeof expires, "string");
      const never = ["--durable", "never", "--held-keys", "on"];
      await at.good("update", id, "--metadata", "cost=1", "--expires", "off", ...never);
      const { metadata, durable, heldKeys } = await at.show(id);
      assert.deepEqual([metadata, durable, heldKeys], [{ cost: "1" }, false, true]);
      const off = [
        "--requests",
        "off",
        "--concurrency",
        "off",
        "--budget",
        "off",
        "--metadata",
        "off",
        "--providers",
        "off",
        "--durable",
        "off",
        "--held-keys",
        "off",
      ];
      await at.good("update", id, ...off, "--name", "off");
      assert.deepEqual(Object.keys(await at.show(id)).sort(), ["created", "id", "state"]);
      await at.good("update", id, "--expires", "2020-01-01T00:00:00Z");
      assert.equal((await at.show(id)).state, "expired");
    });

    // A limit of 2.3M used to lose one token each time that any key was changed.
    it("other keys stay unchanged", async () => {
      const { id } = await at.create(...ALL);
      const before = await at.show(id);
      const { id: other } = await at.create("--expires", "1d");
      for (const verb of ["rotate", "update", "revoke"]) {
        await at.good(verb, other, ...(verb === "update" ? ["--name", "z"] : []));
      }
      assert.deepEqual(await at.show(id), before);
    });

    it("rotate prints the new key once; a second rotation must wait for the end of the overlap", async () => {
      const { key, id } = await at.create("--name", "r");
      const { status, stdout, stderr } = await at.keys("rotate", id, "--overlap", "24h");
      assert.equal(status, 0, stderr);
      assert.match(stdout, KEY_LINE);
      assert.equal(gatewayKeyId(stdout.trim()), id);
      assert.notEqual(stdout.trim(), key);
      assert.ok(!`${stderr}${await at.kept()}`.includes(stdout.trim().slice(16)));
      const { previousExpires, state } = await at.show(id);
      assert.ok(Math.abs(Date.parse(String(previousExpires)) - Date.now() - DAY_MS) < 60_000);
      assert.equal(state, "active");
      const again = at.keys("rotate", id, "--overlap", "1h");
      const [head = "", row = ""] = (await at.good("list")).split("\n");
      assert.match(head, /^ID +NAME +STATE +EXPIRES +OLD SECRET UNTIL +LAST USED/);
      const tomorrow = new Date(Date.now() + 86_400_000).toISOString().slice(0, 10);
      assert.match(row, new RegExp(`active +${tomorrow} \\d\\d:\\d\\d`));
      await assertRefused(again, /Cannot rotate a key twice: .* is valid until 20.*overlap of 0s/);
      await at.good("rotate", id, "--now");
      assert.equal((await at.show(id)).previousExpires, undefined);
      await at.good("rotate", id);
      const { previousExpires: byItself } = await at.show(id);
      assert.ok(
        Math.abs(Date.parse(String(byItself)) - Date.now() - DAY_MS) < 60_000,
        "24h if nothing is said",
      );
      await assertRefused(at.keys("rotate", id), /Cannot rotate a key twice: .*rotate --now/);
      // A time whose year has more than four digits used to make the whole file of keys unreadable.
      for (const overlap of ["4000000d", "99999999999999d"]) {
        await assertRefused(
          at.keys("rotate", id, "--overlap", overlap),
          /Cannot keep the old secret for longer than/,
        );
      }
      await at.good("revoke", id);
      await assertRefused(at.keys("rotate", id), /Cannot rotate a revoked key: create a new one/);
      const { revoked } = await at.show(id);
      await at.good("revoke", id);
      assert.equal((await at.show(id)).revoked, revoked, "revoked once");
    });

    it("create warns of a budget of so few tokens that money was probably meant", async () => {
      const few = await at.keys("create", "--budget", "50/month");
      assert.equal(few.status, 0, few.stderr);
      assert.match(few.stderr, /^sallyport: warning: --budget: counts 50 tokens/);
      const { stderr } = await at.keys("create", "--budget", "5M/month");
      assert.doesNotMatch(stderr, /warning/);
    });

    it("disable and enable reverse each other, and have no effect on a revoked key", async () => {
      const { id } = await at.create(...ALL);
      const before = await at.show(id);
      for (let times = 0; times < 2; times++) {
        assert.deepEqual(JSON.parse(await at.good("disable", id, "--json")), {
          ...before,
          disabled: true,
          state: "disabled",
        });
      }
      for (let times = 0; times < 2; times++) {
        assert.deepEqual(JSON.parse(await at.good("enable", id, "--json")), before);
      }
      await at.good("revoke", id);
      await assertRefused(
        at.keys("disable", id),
        /Cannot disable a revoked key: this state is final/,
      );
      await assertRefused(
        at.keys("enable", id),
        /Cannot enable a revoked key: this state is final/,
      );
    });

    it("refuses an unknown id and a provider that is not configured, and changes nothing", async () => {
      const { id } = await at.create("--name", "x");
      const before = await at.good("list", "--json");
      for (
        const args of [["show"], ["update", "--name", "y"], ["revoke"], ["rotate"], ["disable"], [
          "enable",
        ]]
      ) {
        const [verb = "", ...rest] = args;
        await assertRefused(
          at.keys(verb, "nobody", ...rest),
          /Cannot find a key with this id: sallyport keys list/,
          verb,
        );
      }
      for (const args of [["create"], ["update", id]]) {
        const says = /Cannot allow a provider that is not configured: expected one of a, b\./;
        await assertRefused(at.keys(...args, "--providers", "a,stranger"), says, args[0]);
      }
      assert.equal(await at.good("list", "--json"), before);
    });

    it("ten concurrent writers lose nothing", async () => {
      const programs = (all: readonly string[][]) =>
        Promise.all(all.map(async (args) => {
          const { status, stdout, stderr } = await at.program(...args);
          assert.equal(status, 0, stderr);
          return gatewayKeyId(stdout.trim()) ?? "";
        }));
      const made = await programs(
        Array.from({ length: 10 }, (_, index) => ["create", "--name", `team-${index}`]),
      );
      const listed: { id: string }[] = JSON.parse(await at.good("list", "--json"));
      assert.deepEqual(listed.map(({ id }) => id).sort(), made.toSorted());
      const [id = ""] = made;
      const changes = [["--models", "m"], ["--requests", "1/s"], ["--tokens", "2/s"], [
        "--name",
        "all",
      ], [
        "--budget",
        "3/day",
      ]];
      await programs(changes.map((change) => ["update", id, ...change]));
      const { models, limits, name } = await at.show(id);
      assert.deepEqual([models, limits, name], [["m"], {
        requests: "1/s",
        tokens: "2/s",
        budget: "3/day",
      }, "all"]);
    });

    it("a running gateway accepts a new key, and refuses a revoked key, within a second", async () => {
      // On a busy machine a late answer of Redis would lead to a 503.
      if (redis !== undefined) at.configure({ redis: { url: redis.url, timeout: "5s" } });
      await at.create("--name", "so that there is something to begin with");
      const gateway = startProgram(["serve"], { cwd: at.path });
      const url = await gateway.waitFor(/listening on (http:\S+)/);
      const call = async (key: string) => {
        const headers = {
          authorization: "Bearer sk-1",
          "gateway-auth": `Bearer ${key}`,
          "content-type": "application/json",
        };
        const response = await fetch(`${url}/v1/chat/completions`, {
          method: "POST",
          headers,
          body: GOOD_BODY,
        });
        return { status: response.status, text: await response.text() };
      };
      const holds = (key: string, wanted: number) =>
        untilSoon(async () => (await call(key)).status === wanted, `${wanted}`, HOLDS_MS);
      // The very next call is refused, even during a flood of unknown keys.
      let isFlooding = true;
      const flood = (async () => {
        while (isFlooding) assert.equal((await call(generateGatewayKey())).status, 401);
      })();
      try {
        for (let times = 0; times < 3; times++) {
          assert.equal((await call((await at.create()).key)).status, 200);
        }
      } finally {
        isFlooding = false;
        await flood;
      }
      const { key, id } = await at.create("--name", "w", "--providers", "a", "--models", "test-*");
      assert.equal((await call(key)).status, 200);
      await at.good("disable", id);
      await holds(key, 401);
      const toCode = ({ text }: { text: string }) => ({ ...JSON.parse(text).error });
      assert.deepEqual(
        toCode(await call(key)),
        toCode(await call(generateGatewayKey())),
        "like an unknown key",
      );
      await at.good("enable", id);
      await holds(key, 200);
      const rotated = (await at.good("rotate", id, "--overlap", "1h")).trim();
      assert.equal((await call(rotated)).status, 200);
      await holds(key, 200);
      await at.good("update", id, "--models", "other");
      await holds(rotated, 403);
      await at.good("update", id, "--models", "off", "--providers", "b");
      await holds(rotated, 403);
      await at.good("update", id, "--providers", "off");
      await holds(rotated, 200);
      await at.good("revoke", id);
      await Promise.all([holds(rotated, 401), holds(key, 401)]);
      assert.match((await call(rotated)).text, /"code":"invalid_gateway_key"/);
      gateway.kill("SIGTERM");
      assert.equal(await gateway.ended, 0, gateway.stderr());
      assert.match(String((await at.show(id)).lastUsed), /^20\d\d-/);
      assert.ok(!(gateway.stdout() + gateway.stderr()).includes(rotated.slice(16)));
    });
  });
}
