/** `sallyport usage`: the sources of its numbers, and its output. */
// runtimes: once
import assert from "node:assert/strict";
import { rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterEach, beforeEach, describe, it } from "@std/testing/bdd";
import { DIMENSIONS } from "../../src/config/dimensions.ts";
import { BILLING_CLASSES } from "../../src/exchange/billing.ts";
import { CLASS_COUNTS, DAY_MS, HOUR_MS, OTHER_NAME, USAGE_COUNTS } from "../../src/usage/counts.ts";
import { TOKEN } from "../support/admin.ts";
import { freePort } from "../support/free_port.ts";
import { assertRefused, makePlace, type Place } from "../support/key_place.ts";
import { type Ran, runCommand } from "../support/command.ts";
import { startProgram } from "../support/program.ts";
import { GOOD_BODY } from "../support/gateway.ts";
import { type Provider, startProvider } from "../support/provider.ts";
import { REDIS_TIMEOUT, startRedis, withRedis } from "../support/redis.ts";
import { until } from "../support/until.ts";

/** This hour, so that it is not expired. */
const HOUR = Math.floor(Date.now() / HOUR_MS) * HOUR_MS;
const KEY = "0123456789-secret-key";

const COUNTS = [...USAGE_COUNTS, ...CLASS_COUNTS];
type Counts = Partial<Record<typeof COUNTS[number], number>>;

const CLASSES = [...BILLING_CLASSES, "stated"];
/** The last columns: the amount and the cost of each class. */
const COSTS = CLASSES.map((name) => `${name}.amount,${name}.cost`).join(",");
const toCosts = (costs: Readonly<Record<string, string>>) =>
  CLASSES.map((name) => costs[name] ?? "0,").join(",");
/** Columns after the currency. */
const MORE = `${CLASS_COUNTS.join(",")},amount,costIsPartial,unpricedClasses`;

describe("sallyport usage", () => {
  let provider: Provider;
  let at: Place;
  beforeEach(async () => {
    provider = await startProvider();
    at = makePlace(provider.url);
    await at.fill([]);
  });
  afterEach(async () => {
    await at.remove();
    await provider.close();
  });

  const run = (...args: string[]): Promise<Ran> => runCommand(["usage", ...args], { cwd: at.path });
  const good = async (...args: string[]): Promise<string> => {
    const { status, stdout, stderr } = await run(...args);
    assert.equal(status, 0, stderr);
    assert.equal(stderr, "");
    return stdout;
  };
  /** Stores usage as a gateway leaves it when it ends. */
  const keep = (...rows: [key: string, model: string, counts: Counts, time?: number][]) => {
    const lines = rows.flatMap(([key, model, counts, time = HOUR]) =>
      (["hour", "day"] as const).map((step) =>
        JSON.stringify([
          step,
          step === "hour" ? time : time - time % DAY_MS,
          key,
          "a",
          model,
          COUNTS.map((name) => counts[name] ?? (name === "requests" ? 1 : 0)),
        ])
      )
    );
    writeFileSync(join(at.path, "keys.usage.jsonl"), `${lines.join("\n")}\n`);
  };
  /** The table without the line of its period. */
  const table = async (...args: string[]) => (await good(...args)).split("\n").slice(1).join("\n");

  const PRICES = { "gpt-4o": { input: 2.5, output: 10, cached: 1.25 } };

  it("is a table with right-aligned numbers and a total", async () => {
    at.configure({ prices: PRICES });
    keep(
      ["team-x-key", "gpt-4o", { requests: 1204, input: 1_234_567, output: 98_765, cached: 1000 }],
      ["k2", "gpt-4o", { requests: 3, input: 7, output: 1 }],
    );
    assert.match(await good(), /^\d{4}-\d\d-\d\d \d\d:00 to \d{4}-\d\d-\d\d \d\d:00 UTC\n/);
    assert.equal(
      await table(),
      `
KEY         REQUESTS      INPUT  CACHED  OUTPUT     TOKENS  COST USD
team-x-key     1,204  1,234,567   1,000  98,765  1,333,332    4.0728
k2                 3          7       0       1          8   <0.0001
total          1,207  1,234,574   1,000  98,766  1,333,340    4.0728
`,
    );
  });

  it("shows partial, unmetered, failed and unpriced usage, if there is any", async () => {
    at.configure({ prices: PRICES, currency: "EUR" });
    keep(
      ["k1", "gpt-4o", { requests: 2, partial: 1, input: 5, other: 3 }],
      ["k1", "o3", { requests: 3, unmetered: 1, failed: 1, input: 5 }],
    );
    assert.equal(
      await table("--by", "model"),
      `
MODEL   REQUESTS  PARTIAL  UNMETERED  FAILED  INPUT  OUTPUT  OTHER  TOKENS  UNPRICED  COST EUR
gpt-4o         2        1          0       0      5       0      3       8         0   <0.0001
o3             3        0          1       1      5       0      0       5         5         -
total          5        1          1       1     10       0      3      13         5        >0

partial: broke off; the tokens that the provider had stated until then are counted
unmetered: the provider stated no tokens; these can have cost something
failed: refused by the provider, or never reached it
other: tokens that were stated in sum only
unpriced: tokens without a price, which are no part of the cost; see prices in the configuration
>= is a lower bound: no price for input 5
`,
    );
  });

  it("marks a cost as a lower bound, shows billing classes, and prices by another table", async () => {
    at.configure({ prices: PRICES });
    const written = { written: 1000, writtenLong: 600, webSearches: 3 };
    keep(["k1", "gpt-4o", { requests: 2, input: 1_001_000, output: 100_000, ...written }]);
    const text = await table();
    assert.match(text, /^KEY +REQUESTS +INPUT +OUTPUT +TOKENS +UNPRICED +WRITTEN +COST USD$/m);
    assert.match(text, /^k1 +2 +1,001,000 +100,000 +1,101,000 +600 +1,000 +>=3\.5010$/m);
    assert.match(text, /^>= is a lower bound: no price for cacheWriteLong 600, webSearches 3$/m);
    const classes = await table("--by", "class");
    assert.match(classes, /^input +1,000,000 +0 +2\.5000$/m);
    assert.match(classes, /^cacheWriteLong +600 +600 +-$/m);
    const file = join(at.path, "other-prices.jsonc");
    const price = { input: 1, output: 2, cacheWrite: 10, cacheWriteLong: 20, webSearches: 1000 };
    writeFileSync(file, JSON.stringify({ "gpt-*": price }));
    const report = JSON.parse(await good("--json", "--prices", file));
    assert.equal(report.totals.cost, "4.216");
    assert.equal(report.totals.costIsPartial, false);
    assert.match(await good("export", "--prices", file), /"cost":"4\.216"/);
    writeFileSync(file, '{ "gpt-*": { "input": -1 } }');
    const { status, stderr } = await run("--prices", file);
    assert.equal(status, 2);
    assert.match(stderr, /prices\.gpt-\*\.input: expected a price from 0/);
  });

  it("says that nothing was used", async () => {
    assert.match(await good(), /^nothing was used from \S+ \S+ to \S+ \S+ UTC\n$/);
    assert.match(await good("--from", "2020-01-01", "--to", "2020-01-02"), /^nothing was used/);
  });

  it("prints the names of keys, whole or truncated, and no name can move the cursor", async () => {
    const { id } = await at.create("--name", "team\u001b[31m-x");
    keep([id, "gpt\u202e-4o", {}], ["k2", "\u6a21\u578b", {}]);
    const told = await table("--by", "key,model");
    for (const hidden of ["\u001b", "\u202e"]) assert.ok(!told.includes(hidden));
    assert.match(told, new RegExp(`${id} +gpt\ufffd-4o +team\ufffd\\[31m-x +1`));
    assert.match(told, /k2 +\u6a21\u578b +1/);
  });

  it("is JSON, with costs to the last decimal", async () => {
    at.configure({ prices: PRICES });
    keep(["k1", "gpt-4o", { requests: 2, input: 1 }]);
    const report = JSON.parse(await good("--json", "--by", "key,hour"));
    assert.equal(report.rows[0].cost, "0.0000025");
    assert.equal(report.rows[0].hour, `${new Date(HOUR).toISOString().slice(0, 13)}:00Z`);
    assert.deepEqual([report.backend, report.totals.requests, report.left], ["file", 2, 0]);
  });

  it("is CSV that a spreadsheet reads without evaluating it", async () => {
    const { id } = await at.create("--name", 'a "b", c');
    at.configure({ prices: PRICES });
    keep(
      [id, '=HYPERLINK("http://x.example")', { input: 9 }],
      ["k2", "+1", { input: 8 }],
      ["k3", "@SUM(1)", { input: 7 }],
      ["k4", "-2", { input: 6 }],
      ["k5", "gpt-4o", { requests: 2, input: 4, output: 1 }],
    );
    const none = `${"0,".repeat(CLASS_COUNTS.length)}`;
    const unpriced = (input: number) => toCosts({ input: `${input},`, requests: "1," });
    assert.equal(
      await good("--csv", "--by", "key,model"),
      [
        `key,name,model,requests,partial,unmetered,failed,input,cached,output,reasoning,other,estimated,estimatedInput,estimatedOutput,tokens,unpriced,cost,estimatedCost,currency,${MORE},${COSTS}`,
        `${id},"a ""b"", c","'=HYPERLINK(""http://x.example"")",1,0,0,0,9,0,0,0,0,0,0,0,9,9,,,,${none},false,input=9,${
          unpriced(9)
        }`,
        `k2,,'+1,1,0,0,0,8,0,0,0,0,0,0,0,8,8,,,,${none},false,input=8,${unpriced(8)}`,
        `k3,,'@SUM(1),1,0,0,0,7,0,0,0,0,0,0,0,7,7,,,,${none},false,input=7,${unpriced(7)}`,
        `k4,,'-2,1,0,0,0,6,0,0,0,0,0,0,0,6,6,,,,${none},false,input=6,${unpriced(6)}`,
        `k5,,gpt-4o,2,0,0,0,4,0,1,0,0,0,0,0,5,0,0.00002,0,USD,${none},false,,${
          toCosts({ input: "4,0.00001", output: "1,0.00001", requests: "2,0" })
        }`,
        "",
      ].join("\r\n"),
    );
    const empty = await good("--csv", "--last", "1h", "--key", "nobody");
    assert.equal(empty.split("\r\n").length, 2, "a header alone");
  });

  it("marks the gateway's estimates", async () => {
    at.configure({ prices: PRICES });
    const some = { requests: 2, estimated: 1, input: 4, output: 1 };
    const known = { ...some, estimatedInput: 2, estimatedOutput: 1 };
    // Earlier versions counted only calls.
    for (
      const [counts, note] of [[some, ""], [known, ": 3 of 8 tokens, <0.0001 of <0.0001"]] as const
    ) {
      keep(["k1", "gpt-4o", counts], ["k2", "gpt-4o", { input: 3 }]);
      assert.equal(
        await table(),
        `
KEY    REQUESTS  INPUT  OUTPUT  ESTIMATED  TOKENS  COST USD
k1            2     ~4      ~1          1      ~5  ~<0.0001
k2            1      3       0          0       3   <0.0001
total         3     ~7      ~1          1      ~8  ~<0.0001

estimated: the provider stated no tokens; ~ marks sums with estimated tokens${note}
`,
      );
    }
  });

  it("is exported row by row, even to a reader that leaves", async () => {
    at.configure({ prices: PRICES });
    keep(["k1", "gpt-4o", { requests: 2, input: 4 }], ["k2", "=o3", { estimated: 1, output: 1 }]);
    const rows = (await good("export")).trimEnd().split("\n").map((line) => JSON.parse(line));
    assert.deepEqual(
      rows.map((
        { step, from, key, requests, estimated, tokens, cost },
      ) => [step, from, key, requests, estimated, tokens, cost]),
      [
        ["hour", new Date(HOUR).toISOString(), "k1", 2, 0, 4, "0.00001"],
        ["hour", new Date(HOUR).toISOString(), "k2", 1, 1, 1, null],
      ],
    );
    const day = new Date(HOUR - HOUR % DAY_MS).toISOString();
    assert.equal(
      await good("export", "--csv", "--by", "day", "--key", "k2"),
      `from,step,key,provider,model,operation,team,${
        USAGE_COUNTS.join(",")
      },tokens,unpriced,cost,estimatedCost,currency,${MORE},tariff,${COSTS},${DIMENSIONS},payer\r\n` +
        `${day},day,k2,a,'=o3,chat.completions,(removed),1,0,0,0,0,0,1,0,0,1,0,0,1,1,,,USD,${
          "0,".repeat(CLASS_COUNTS.length)
        },false,output=1,,${toCosts({ output: "1,", requests: "1," })},,,,,,caller\r\n`,
    );
    assert.equal(await good("export", "--key", "nobody"), "");
  });

  it("prints the requested number of rows, and the total number", async () => {
    keep(...["k1", "k2", "k3"].map((key): [string, string, Counts] => [key, "m", {}]));
    assert.match(
      await good("--limit", "1"),
      /\nk1 [^]*\ntotal +3 [^]*\n2 more rows are part of the total/,
    );
    const { stdout, stderr } = await run("--limit", "1", "--csv");
    assert.equal(stdout.split("\r\n").length, 3);
    assert.match(stderr, /^2 more rows are left out: --limit N prints more\n$/);
  });

  it("can be limited to a day, a provider, a model, a key", async () => {
    const before = HOUR - 2 * DAY_MS;
    keep(["k1", "m", {}, before], ["k1", "o3", {}], [OTHER_NAME, "m", {}]);
    const sum = async (...args: string[]) =>
      JSON.parse(await good("--json", ...args)).totals.requests;
    assert.equal(await sum(), 3);
    assert.equal(await sum("--last", "24h"), 2);
    const day = new Date(before).toISOString().slice(0, 10);
    assert.equal(
      await sum("--from", day, "--to", new Date(before + DAY_MS).toISOString().slice(0, 10)),
      1,
    );
    assert.equal(await sum("--by", "day", "--key", "k1"), 2);
    assert.equal(await sum("--model", "o3"), 1);
    assert.equal(await sum("--provider", "b"), 0);
    assert.equal(await sum("--team", "(removed)"), 2, "no key of that id is there");
    assert.equal(
      JSON.parse(await good("export", "--team", "(other)", "--last", "24h")).key,
      OTHER_NAME,
    );
    const months = JSON.parse(await good("--json", "--by", "month,model", "--model", "m")).rows;
    const names = [HOUR, before].map((time) => new Date(time).toISOString().slice(0, 7));
    assert.deepEqual(
      months.map(({ month }: { month: string }) => month),
      [...new Set(names)].sort(),
    );
  });

  const WRONG: readonly [args: string[], says: RegExp][] = [
    [
      ["--by", "squad"],
      /--by: expected one or several of key, team, provider, model, operation, tariff, class, payer, user, session, agent, client, project, month, day, hour/,
    ],
    [["--by", ""], /--by is empty/],
    [["--last", "7"], /--last: expected a duration such as "7d" or "24h"/],
    [["--last", "401d"], /--last: days are kept for 400 days/],
    [["export", "--by", "key"], /--by: expected hour or day/],
    [["export", "--limit", "1"], /usage export has no option --limit/],
    [["export", "--json"], /usage export has no option --json/],
    [["export", "--by", "hour", "--last", "30d"], /--by: hours are kept for 8 days/],
    [["--last", "7d", "--from", "2026-01-01"], /--last: expected either this or from/],
    [["--from", "monday"], /--from: expected a day such as/],
    [["--to", "2026-02-30"], /--to: expected a day such as/],
    [["--from", "2026-02-02", "--to", "2026-02-01"], /--from: expected a time before the end/],
    [["--by", "hour", "--last", "30d"], /--by: hours are kept for 8 days/],
    [["--limit", "none"], /--limit: expected a whole number from 1 to 10000/],
    [["--json", "--csv"], /either --json or --csv/],
    [["--name", "x"], /usage has no option --name/],
    [["today"], /unexpected argument: today/],
  ];
  for (const [args, says] of WRONG) {
    it(`refuses ${args.join(" ")}`, () => assertRefused(run(...args), says));
  }

  it("says if the usage is unknown, and what to do", async () => {
    at.configure({ keys: [{ id: "team", key: KEY }] });
    await assertRefused(run(), /configure admin with a port and a token/);
    const port = await freePort();
    at.configure({ keys: [{ id: "team", key: KEY }], admin: { port, token: TOKEN } });
    await assertRefused(run(), new RegExp(`no gateway runs at http://127\\.0\\.0\\.1:${port}`));
    writeFileSync(join(at.path, "keys.usage.jsonl"), "nonsense\n");
    at.configure({});
    await assertRefused(run(), /Cannot read .*keys\.usage\.jsonl: it is broken/);
  });

  /** Starts a gateway there, and sends it the record of one exchange. */
  async function serve(): Promise<void> {
    const program = startProgram(["serve"], { cwd: at.path });
    const url = await program.waitFor(/listening on (http:\S+)/);
    await program.waitFor(/admin on (http:\S+)/);
    const headers = {
      "authorization": "Bearer sk-1",
      "gateway-auth": `Bearer ${KEY}`,
      "content-type": "application/json",
    };
    const answer = await fetch(`${url}/v1/chat/completions`, {
      method: "POST",
      headers,
      body: GOOD_BODY,
    });
    assert.equal(answer.status, 200);
    await answer.text();
  }

  it("reads from the running gateway, with the gateway's prices", async () => {
    const admin = { port: await freePort(), token: TOKEN };
    at.configure({
      keys: [{ id: "team", key: KEY }],
      admin,
      prices: { "test-*": { input: 1e6, output: 1e6 } },
    });
    await serve();
    at.configure({ keys: [{ id: "team", key: KEY }], admin });
    const told = await table();
    assert.match(told, /^team +1 +1 +1 +2 +2\.0000$/m);
    assert.match(told, /kept in memory: lost when the gateway ends/);
    const exported = JSON.parse(await good("export"));
    assert.deepEqual([exported.key, exported.requests, exported.cost], ["team", 1, "2"]);
    const file = join(at.path, "other-prices.json");
    writeFileSync(file, '{ "*": { "input": 1000000, "output": 0 } }');
    const repriced = JSON.parse(await good("--json", "--by", "team,model", "--prices", file));
    assert.equal(Number(repriced.totals.cost), repriced.totals.input);
    assert.deepEqual(repriced.rows.map(({ team }: { team: string }) => team), ["(none)"]);
    const lines = (await good("export", "--prices", file)).trimEnd().split("\n");
    const sum = lines.reduce((cost, line) => cost + Number(JSON.parse(line).cost), 0);
    assert.equal(sum, repriced.totals.input);
    at.configure({ keys: [{ id: "team", key: KEY }], admin: { ...admin, token: `${TOKEN}x` } });
    await assertRefused(run(), /has another admin\.token than the configuration/);
    await assertRefused(run("export"), /has another admin\.token than the configuration/);
    at.configure({
      keys: [{ id: "team", key: KEY }],
      admin: { ...admin, port: Number(new URL(provider.url).port) },
    });
    await assertRefused(run(), /the server at \S+ is no gateway of this version: restart/);
  });

  it("reads the file of the last gateway if none runs", async () => {
    const admin = { port: await freePort(), token: TOKEN };
    at.configure({ admin });
    keep(["k1", "m", { requests: 5 }]);
    const { status, stdout, stderr } = await run();
    assert.equal(status, 0);
    assert.match(stderr, /^no gateway runs at \S+: this is the usage that the last one stored\n$/);
    assert.match(stdout, /\nk1 +5 /);
    rmSync(join(at.path, "keys.usage.jsonl"));
    assert.match((await run()).stdout, /^nothing was used/);
  });

  withRedis.it("reads Redis, with or without a running gateway", async () => {
    const redis = await startRedis();
    try {
      at.configure({
        keys: [{ id: "team", key: KEY }],
        admin: { port: 0, token: TOKEN },
        redis: { url: redis.url, timeout: REDIS_TIMEOUT },
      });
      await serve();
      await until(async () => /^team +1 /m.test(await table()), "the call is in Redis");
      assert.match(await table(), /^team +1 +1 +1 +2 +2 +-$/m);
      assert.equal(JSON.parse(await good("export")).requests, 1);
      await redis.kill();
      await assertRefused(run(), /Cannot read usage: Redis does not answer/);
    } finally {
      await redis.stop();
    }
  });
});
