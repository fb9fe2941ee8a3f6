/**
 * `sallyport keys export` and `import`: between a file and Redis, and the records that are refused.
 */
// runtimes: once
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { afterEach, beforeEach, describe, it } from "@std/testing/bdd";
import { runCommand } from "../support/command.ts";
import { assertRefused, makePlace, manyKeys, type Place } from "../support/key_place.ts";
import { cleanEnvironment, ONE_FILE } from "../support/program.ts";
import { type RedisServer, startRedis } from "../support/redis.ts";
import { needs } from "../support/requires.ts";
import { runtime } from "../support/runtimes.ts";

const IMPORTED = {
  first: "2 teams added, 0 replaced, 0 there already\n1 key added, 0 replaced, 0 there already\n",
  again: "0 teams added, 0 replaced, 2 there already\n0 keys added, 0 replaced, 1 there already\n",
  replaced:
    "0 teams added, 1 replaced, 1 there already\n0 keys added, 0 replaced, 1 there already\n",
};
const UPSTREAM = "http://127.0.0.1:9";

/** Runs `keys import` with a text on its standard input. */
async function importText(at: Place, text: string, ...args: string[]): Promise<string> {
  const program = [
    ...(runtime === "deno" ? ["run", "-A"] : []),
    ONE_FILE,
    "keys",
    "import",
    ...args,
  ];
  const child = spawn(process.execPath, program, { cwd: at.path, env: cleanEnvironment() });
  let [stdout, stderr] = ["", ""];
  child.stdout.on("data", (data) => stdout += data);
  child.stderr.on("data", (data) => stderr += data);
  child.stdin.end(text);
  assert.equal(await new Promise((resolve) => child.on("close", resolve)), 0, stderr);
  return stdout;
}

describe("sallyport keys export and import", () => {
  let from: Place;
  let to: Place;
  beforeEach(() => {
    from = makePlace(UPSTREAM);
    to = makePlace(UPSTREAM);
  });
  afterEach(async () => {
    await from.remove();
    await to.remove();
  });
  const teams = (at: Place, ...args: string[]) => runCommand(["teams", ...args], { cwd: at.path });

  it("also has the created teams, and can be repeated", async () => {
    await teams(from, "create", "ads", "--requests", "5/min", "--held-keys", "on");
    await teams(from, "create", "search");
    const { id } = await from.create("--team", "ads");
    const file = await exportTo(from);
    assert.equal(await to.good("import", file), IMPORTED.first);
    assert.equal((await to.show(id)).state, "active");
    const { stdout } = await teams(to, "show", "ads", "--json");
    assert.deepEqual(JSON.parse(stdout), {
      name: "ads",
      source: "store",
      limits: { requests: "5/min" },
      heldKeys: true,
    });
    assert.equal(await to.good("import", file), IMPORTED.again);
    await teams(to, "update", "ads", "--requests", "7/min");
    await assertRefused(to.keys("import", file), /the team ads: it has other settings already/);
    assert.equal(await to.good("import", file, "--replace"), IMPORTED.replaced);
    const changes = await runCommand(["changes"], { cwd: to.path });
    assert.match(changes.stdout, /import +team \* +[^]*import +key \*/);
  });

  it("names teams and keys whose budget has another currency than the prices", async () => {
    const prices = { "*": { input: 1, output: 2 } };
    from.configure({ prices });
    await teams(from, "create", "ads", "--budget", "5 USD/day");
    await from.create("--team", "ads", "--name", "bidder", "--budget", "3 USD/day");
    const file = await exportTo(from);
    to.configure({ prices, currency: "EUR" });
    const { status, stdout, stderr } = await to.keys("import", file);
    assert.deepEqual([status, stdout], [
      0,
      "1 team added, 0 replaced, 0 there already\n" +
      "1 key added, 0 replaced, 0 there already\n",
    ]);
    const why = "limits\\.budget: expected a budget in EUR";
    assert.match(stderr, new RegExp(`warning: calls of the team ads can be refused: ${why}`));
    assert.match(stderr, new RegExp(`warning: calls of 1 key can be refused: bidder: ${why}`));
    to.configure({ prices });
    assert.equal((await to.keys("import", file)).stderr, "");
  });

  it("names keys whose team is neither in the import nor here", async () => {
    await teams(from, "create", "ads");
    await from.create("--team", "ads", "--name", "bidder");
    const isOfKeys = (line: string) => !line.startsWith('{"createdTeam"');
    const file = await exportTo(from);
    writeFileSync(file, readFileSync(file, "utf8").split("\n").filter(isOfKeys).join("\n"));
    const { status, stderr } = await to.keys("import", file);
    assert.equal(status, 0);
    assert.match(stderr, /warning: 1 key is refused, because the team ads is not .*: bidder\. /);
  });

  it("refuses teams that are damaged, twice there, or in the configuration", async () => {
    const line = '{"createdTeam":"ads","settings":{"limits":{}}}';
    const file = join(to.path, "teams.jsonl");
    const refused: readonly (readonly [string, RegExp])[] = [
      [line.replace("limits", "other"), /line 1: /],
      [line.replace("ads", "No"), /line 1: .*lower-case/],
      [line.slice(0, -1), /line 1: it is no JSON/],
      [`\n${line}\n${line}`, /line 3: its team is there twice/],
    ];
    for (const [text, why] of refused) {
      writeFileSync(file, text);
      await assertRefused(to.keys("import", file), why);
    }
    to.configure({ teams: { ads: { limits: {} } } });
    writeFileSync(file, line);
    await assertRefused(to.keys("import", file), /the team ads: it is in the configuration/);
  });

  /** Exports to a file, and returns its name. */
  const exportTo = async (at: Place, path = join(to.path, "exported.jsonl")): Promise<string> => {
    writeFileSync(path, await at.good("export"));
    return path;
  };
  const list = async (at: Place) => JSON.parse(await at.good("list", "--json", "--limit", "5000"));
  const fillOne = async () => {
    const { key, id } = await from.create(
      "--name",
      "Größe 値",
      "--models",
      "m-*",
      "--budget",
      "5M/month",
    );
    const rotated = (await from.good("rotate", id)).trim();
    return { id, secrets: [key, rotated].map((each) => each.slice(16)) };
  };

  it("export prints a line of JSON for each key, the oldest first, with its digest and never the key", async () => {
    const { id, secrets } = await fillOne();
    const { id: second } = await from.create("--metadata", "team=x");
    await from.good("revoke", second);
    const text = await from.good("export");
    const lines = text.trimEnd().split("\n").map((line) => JSON.parse(line));
    assert.deepEqual(lines.map((line) => line.id), [id, second]);
    for (const { digest, key } of lines) {
      assert.deepEqual([/^[0-9a-f]{64}$/.test(digest), key], [true, undefined]);
    }
    assert.match(lines[0].previous.digest, /^[0-9a-f]{64}$/);
    for (const secret of secrets) assert.ok(!text.includes(secret));
    assert.equal(await to.good("export"), "");
  });

  it("import adds missing keys, and can be repeated", async () => {
    await from.fill(manyKeys(2500));
    await fillOne();
    const path = await exportTo(from);
    assert.equal(await to.good("import", path), "2501 keys added, 0 replaced, 0 there already\n");
    assert.deepEqual(await list(to), await list(from));
    assert.equal(
      await to.good("export"),
      readFileSync(path, "utf8"),
      "in the same order, with the same digests",
    );
    const { id } = await from.create();
    const text = await from.good("export");
    assert.deepEqual(JSON.parse(await importText(to, text, "--json")), {
      added: 1,
      replaced: 0,
      same: 2501,
    });
    assert.equal((await to.show(id)).id, id);
    // As people write it: other lines between, fields in a different order, no final line break.
    const { id: last, ...rest } = JSON.parse(text.trimEnd().split("\n").at(-1) ?? "");
    const written = `\r\n${JSON.stringify({ ...rest, id: last })}`;
    assert.equal(await importText(to, written, "-"), "0 keys added, 0 replaced, 1 there already\n");
  });

  it("import refuses a different record with the same id, all or nothing; --replace accepts it", async () => {
    const { id } = await fillOne();
    await to.good("import", await exportTo(from));
    await from.good("update", id, "--name", "new");
    const { id: other } = await from.create();
    const path = await exportTo(from);
    const before = await to.good("export");
    const says = new RegExp(
      `Cannot import the key ${id}: another record with this id is there already\\. --replace`,
    );
    await assertRefused(to.keys("import", path), says);
    assert.equal(await to.good("export"), before, "the other one was not added either");
    assert.equal(
      await to.good("import", path, "--replace"),
      "1 key added, 1 replaced, 0 there already\n",
    );
    assert.deepEqual([(await to.show(id)).name, (await to.show(other)).state], ["new", "active"]);
    // A revoked key does not return with an older copy.
    await to.good("revoke", id);
    for (const args of [[], ["--replace"]]) await to.good("import", path, ...args);
    assert.equal((await to.show(id)).state, "revoked");
    const line = readFileSync(path, "utf8").split("\n")[0]?.replace(id, "another-id") ?? "";
    writeFileSync(path, line);
    await assertRefused(
      to.keys("import", path, "--replace"),
      /Cannot add the key: \w+ has the same digest/,
    );
  });

  it("import names the line that is not a key, does not print it, and changes nothing", async () => {
    const [good, other] = manyKeys(2).map(({ id, digest }) => JSON.stringify({ id, digest }));
    const path = join(to.path, "given.jsonl");
    const cases: [second: string | undefined, says: RegExp][] = [
      ["{secret-text", /Cannot import line 2: it is no JSON/],
      ['"secret-text"', /Cannot import line 2: expected an object/],
      ['{"id":"x"}', /Cannot import line 2: expected either key or digest/],
      [
        '{"id":"x","key":"secret-text-of-a-key"}',
        /Cannot import line 2: expected a digest, never a key itself/,
      ],
      ['{"id":"x","digest":"secret-text"}', /Cannot import line 2\.digest: expected SHA-256/],
      [good, /Cannot import line 2: its id or digest is there twice/],
      [
        good?.replace(/"id":"[^"]+"/, '"id":"x"'),
        /Cannot import line 2: its id or digest is there twice/,
      ],
    ];
    for (const [second, says] of cases) {
      writeFileSync(path, `${good}\n${second}\n${other}\n`);
      await assertRefused(to.keys("import", path), says, second);
      assert.doesNotMatch((await to.keys("import", path)).stderr, /secret-text/);
    }
    assert.deepEqual(await list(to), []);
  });

  it("keys of the configuration can be exported, with their digests, but not imported into it", async () => {
    from.configure({ keys: [{ id: "own", key: "0123456789-own-key", models: ["m-*"] }] });
    const path = await exportTo(from);
    assert.ok(!readFileSync(path, "utf8").includes("0123456789-own-key"));
    await to.good("import", path);
    assert.deepEqual((await to.show("own")).models, ["m-*"]);
    await assertRefused(
      from.keys("import", path),
      /Cannot change keys of the configuration/,
    );
  });

  needs(["redis-server"]).it("keys go from a file to Redis and back", async () => {
    const redis: RedisServer = await startRedis();
    const there = makePlace(UPSTREAM, redis);
    try {
      await from.fill(manyKeys(300));
      const { id } = await fillOne();
      const path = await exportTo(from);
      assert.equal(
        await there.good("import", path),
        "301 keys added, 0 replaced, 0 there already\n",
      );
      assert.deepEqual(await list(there), await list(from));
      assert.equal(
        await there.good("import", path),
        "0 keys added, 0 replaced, 301 there already\n",
      );
      await there.good("update", id, "--name", "changed there");
      const back = await exportTo(there, join(to.path, "back.jsonl"));
      const before = await from.good("export");
      await assertRefused(
        from.keys("import", back),
        /another record with this id is there already/,
      );
      assert.equal(await from.good("export"), before);
      await assertRefused(
        there.keys("import", path),
        /another record with this id is there already/,
      );
      assert.equal(
        await from.good("import", back, "--replace"),
        "0 keys added, 1 replaced, 300 there already\n",
      );
      assert.deepEqual(await list(from), await list(there));
    } finally {
      await there.remove();
      await redis.stop();
    }
  });
});
