/** Usage in a file: the data that outlives a restart, and how several gateways share it. */
// runtimes: once
import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import {
  copyFileSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { afterEach, beforeEach, describe, it } from "@std/testing/bdd";
import { ConfigError } from "../../src/config/config.ts";
import { UsageMeter } from "../../src/usage/meter.ts";
import { FileUsage } from "../../src/usage/usage_file.ts";
import { SharedFile } from "../../src/storage/shared_file.ts";
import { HOUR_MS, UsageUnavailable } from "../../src/usage/counts.ts";
import { makeFolder } from "../support/program.ts";
import { ALL, exchange, NOON, rest, StillClock, tell } from "../support/usage.ts";
import { until } from "../support/until.ts";

const NOBODY: ReadonlySet<string> = new Set();
const one = { requests: 1, input: 3, output: 4 };

describe("usage in a file", () => {
  let folder: ReturnType<typeof makeFolder>;
  let path: string;
  beforeEach(() => {
    folder = makeFolder();
    path = join(folder.path, "keys.usage.jsonl");
  });
  afterEach(() => folder.remove());

  async function open() {
    const clock = new StillClock();
    const reports: string[] = [];
    const store = new FileUsage(new SharedFile(path), {
      clock,
      report: (text) => void reports.push(text),
      listed: NOBODY,
    });
    await store.start();
    const dimensions = new Set(["user", "client"] as const);
    const meter = new UsageMeter({ store, clock, rest, listed: NOBODY, dimensions });
    /** Flushes the counts so far, and writes them. */
    const write = async () => {
      const isDue = () => clock.timers.some(({ ms }) => ms >= 5000);
      if (!isDue()) clock.fire();
      await until(isDue, "what was counted is handed on");
      const before = statSync(path, { throwIfNoEntry: false })?.isFile()
        ? readFileSync(path, "utf8")
        : "";
      clock.fire();
      await until(() => {
        if (reports.length > 0) return true;
        return readdirSync(folder.path).join() === "keys.usage.jsonl" && statSync(path).isFile() &&
          readFileSync(path, "utf8") !== before;
      }, "it is written");
    };
    return { clock, reports, store, meter, write };
  }

  it("outlives the gateway, both hours and days", async () => {
    const first = await open();
    first.meter.settled(exchange());
    await first.meter.close();
    const second = await open();
    assert.deepEqual(await tell(second.meter), { "team a gpt-4o": one });
    second.meter.settled(exchange());
    await second.meter.close();
    const third = await open();
    for (const step of ["hour", "day"] as const) {
      assert.deepEqual(await tell(third.meter, { step }), {
        "team a gpt-4o": { requests: 2, input: 6, output: 8 },
      });
    }
    assert.deepEqual(readdirSync(folder.path), ["keys.usage.jsonl"]);
    assert.equal(statSync(path).mode & 0o077, 0, "for its owner only");
  });

  it("is written every five seconds if there was usage, and not otherwise", async () => {
    const { clock, meter, write } = await open();
    assert.equal(clock.timers.length, 0);
    meter.settled(exchange());
    await tell(meter);
    assert.deepEqual(clock.timers.map(({ ms }) => ms), [1000, 5000]);
    await write();
    assert.equal(clock.timers.length, 0);
    assert.match(
      readFileSync(path, "utf8"),
      /^\["hour",\d+,"team","a","gpt-4o",\[1,0,0,0,3,0,4,0,0\],"chat\.completions"\]\n\["day",/,
    );
  });

  it("distinguishes teams and plans of identity tokens, and reads older lines", async () => {
    const ann = { keyId: "jwt:corp:ann" };
    const line = (names: readonly unknown[], count: number, ...more: unknown[]) =>
      JSON.stringify([
        "hour",
        NOON,
        ...names,
        "a",
        "gpt-4o",
        [count, 0, 0, 0, 0, 0, 0, 0, 0],
        "chat.completions",
        ...more,
      ]);
    writeFileSync(path, `${line([ann.keyId], 5)}\n${line([ann.keyId], 7, null, "gold")}\n`);
    const { meter } = await open();
    meter.settled(exchange({ ...ann, team: "search", plan: "gold" }));
    meter.settled(exchange({ ...ann, team: "search", plan: "gold" }));
    meter.settled(exchange({ ...ann, team: "ads" }));
    meter.settled(exchange({ ...ann, plan: "gold" }));
    meter.settled(exchange(ann));
    await meter.close();
    const { store } = await open();
    const rows: unknown[] = [];
    for await (const some of store.read({ step: "hour", ...ALL })) {
      rows.push(...some.map(({ team, plan, counts }) => `${team} ${plan} ${counts.requests}`));
    }
    assert.deepEqual(rows.sort(), [
      "ads undefined 1",
      "search gold 2",
      "undefined gold 8",
      "undefined undefined 6",
    ]);
    const lines = readFileSync(path, "utf8");
    assert.match(lines, /^\["hour",\d+,"jwt:corp:ann",.*,"chat\.completions","search","gold"\]$/m);
    assert.match(lines, /^\["hour",\d+,"jwt:corp:ann",.*,"chat\.completions"\]$/m);
    writeFileSync(path, `${line([ann.keyId], 1, 7)}\n`);
    await assert.rejects(open(), ConfigError);
  });

  it("is one sum for gateways that share it, each of which adds its counts", async () => {
    const [here, there] = [await open(), await open()];
    for (let turn = 0; turn < 3; turn++) {
      here.meter.settled(exchange());
      there.meter.settled(exchange({ keyId: "two" }));
      there.meter.settled(exchange());
      await here.write();
      await there.write();
    }
    const sums = {
      "team a gpt-4o": { requests: 6, input: 18, output: 24 },
      "two a gpt-4o": { requests: 3, input: 9, output: 12 },
    };
    assert.deepEqual(await tell(here.meter), sums);
    assert.deepEqual(await tell(there.meter), sums);
    await Promise.all([here.meter.close(), there.meter.close()]);
    assert.deepEqual(await tell((await open()).meter), sums);
  });

  it("counts usage during a write once", async () => {
    const { meter, clock } = await open();
    for (let turn = 0; turn < 20; turn++) {
      meter.settled(exchange());
      clock.fire();
      await tell(meter);
      clock.fire();
      meter.settled(exchange());
      clock.fire();
    }
    await meter.close();
    assert.equal((await tell((await open()).meter))["team a gpt-4o"]?.requests, 40);
  });

  it("keeps counts that it cannot write, reports it once, and writes them later", async () => {
    const { meter, clock, reports, write } = await open();
    mkdirSync(path);
    meter.settled(exchange());
    await write();
    assert.equal(reports.length, 1);
    assert.match(reports[0] ?? "", /^Cannot (?:read|write) .*keys\.usage\.jsonl/);
    clock.fire();
    rmSync(path, { recursive: true });
    await meter.close();
    assert.equal(reports.length, 1);
    assert.deepEqual(await tell((await open()).meter), { "team a gpt-4o": one });
  });

  const requestsOf = async (meter: UsageMeter) => {
    const rows = [];
    for await (const some of meter.read({ step: "hour", ...ALL })) rows.push(...some);
    return rows.map((
      { key, operation, counts },
    ) => [key, operation, counts.requests, counts.estimated]);
  };
  const HOUR = NOON - NOON % HOUR_MS;

  it("is read as the first versions wrote it, and they can read it while nothing was estimated", async () => {
    copyFileSync(new URL("first_form.usage.jsonl", import.meta.url), path);
    const before = readFileSync(path, "utf8");
    const { meter } = await open();
    assert.deepEqual(await requestsOf(meter), [
      ["team", "chat.completions", 2, 0],
      ["team", "responses", 1, 0],
      ["two", "chat.completions", 5, 0],
    ]);
    meter.settled(exchange());
    await meter.close();
    const lines = readFileSync(path, "utf8").trim().split("\n");
    assert.equal(lines.length, before.trim().split("\n").length);
    for (const line of lines) assert.equal(JSON.parse(line)[5].length, 9, line);
    const next = await open();
    next.meter.settled(exchange({ isEstimated: true }));
    assert.deepEqual((await requestsOf(next.meter))[0], ["team", "chat.completions", 4, 1]);
    await next.meter.close();
    assert.match(
      readFileSync(path, "utf8"),
      /"team","a","gpt-4o",\[4,0,0,0,12,0,16,0,0,1,3,4\],"chat\.completions"\]/,
    );
  });

  it("is read as it was before the tokens of estimates were counted", async () => {
    writeFileSync(
      path,
      `["hour",${HOUR},"team","a","gpt-4o",[2,0,0,0,6,0,8,0,0,1],"chat.completions"]\n`,
    );
    const { meter } = await open();
    assert.deepEqual(await tell(meter), {
      "team a gpt-4o": { requests: 2, estimated: 1, input: 6, output: 8 },
    });
    meter.settled(exchange({ isEstimated: true }));
    await meter.close();
    assert.match(readFileSync(path, "utf8"), /\[3,0,0,0,9,0,12,0,0,2,3,4\]/);
  });

  it("keeps the additions of a later version: counts, and lines of another kind", async () => {
    const unknown = '["week",1,{"anything":true}]';
    writeFileSync(
      path,
      `["hour",${HOUR},"team","a","gpt-4o",[1,0,0,0,3,0,4,0,0,1,3,4,5,6],"responses",null,null,null,null,"eu"]\n${unknown}\n`,
    );
    const { meter } = await open();
    assert.deepEqual(await requestsOf(meter), [["team", "responses", 1, 1]]);
    meter.settled(exchange({ operation: "responses" }));
    await meter.close();
    const lines = readFileSync(path, "utf8").trim().split("\n");
    assert.equal(
      lines[0],
      `["hour",${HOUR},"team","a","gpt-4o",[2,0,0,0,6,0,8,0,0,1,3,4,5,6],"responses"]`,
    );
    assert.equal(lines.at(-1), unknown);
  });

  it("has billing classes that the previous version keeps, and tariffs that it refuses", async () => {
    // This version wrote the classes, then the previous version added calls to the same file.
    copyFileSync(new URL("./second_form.usage.jsonl", import.meta.url), path);
    const { meter } = await open();
    const part = (tariff: { tier?: string }) => ({
      total: 107,
      parts: [{
        classes: { input: 3, cacheWrite: 60, cacheWriteLong: 40, output: 4 },
        tariff: { context: 103, ...tariff },
      }],
    });
    meter.settled(exchange({ usage: part({}) }));
    await meter.close();
    const before = readFileSync(path, "utf8").split("\n");
    const sums = "[4,0,0,0,212,0,16,0,0,0,0,0,200,80]";
    assert.equal(before[0], `["hour",${HOUR},"team","a","gpt-4o",${sums},"chat.completions"]`);
    const second = await open();
    second.meter.settled(exchange({ usage: part({ tier: "fast" }) }));
    second.meter.settled(exchange({ keyId: "jwt:corp:ann", team: "search", usage: part({}) }));
    await second.meter.close();
    const lines = readFileSync(path, "utf8").split("\n");
    assert.equal(lines[0], '["version",2]', "the previous version does not read further");
    assert.equal(lines[1], before[0]);
    assert.equal(
      lines[2],
      `["hour",${HOUR},"team","a","gpt-4o",[1,0,0,0,103,0,4,0,0,0,0,0,100,40],` +
        `"chat.completions",null,null,"fast"]`,
    );
    assert.equal(lines.filter((line) => line.startsWith('["version"')).length, 1);
    const third = await open();
    const found: unknown[] = [];
    for await (const rows of third.meter.read({ step: "day", ...ALL })) {
      for (const { key, tariff, counts, more } of rows) {
        found.push([key, tariff, counts.requests, more]);
      }
    }
    assert.deepEqual(found, [
      ["team", undefined, 4, [200, 80]],
      ["team", "fast", 1, [100, 40]],
      ["jwt:corp:ann", undefined, 3, [100, 40]],
    ]);
  });

  const NEWER_NAMES = [
    {
      title: "attribution",
      more: { attribution: { user: "a&b=c", client: "codex" } },
      version: 3,
      names: [null, null, null, "user=a%26b%3Dc&client=codex"],
    },
    {
      title: "the payer",
      more: { usesHeldKey: true },
      version: 4,
      names: [null, null, null, null, "gateway"],
    },
  ];
  for (const { title, more, version, names } of NEWER_NAMES) {
    it(`has ${title} in the same rows after a restart, and in no version that would mix them`, async () => {
      for (const count of [1, 2]) {
        const { meter } = await open();
        meter.settled(exchange(more));
        meter.settled(exchange());
        await meter.close();
        const [first, ...lines] = readFileSync(path, "utf8").split("\n");
        assert.equal(first, `["version",${version}]`, "the previous version does not read further");
        const sums = [count, 0, 0, 0, 3 * count, 0, 4 * count, 0, 0];
        const row = ["hour", HOUR, "team", "a", "gpt-4o", sums, "chat.completions"];
        assert.deepEqual(lines.slice(0, 2).map((line) => JSON.parse(line)), [
          [...row, ...names],
          row,
        ]);
      }
    });
  }

  it("does not change a file in the form of a later version, and reports it", async () => {
    const content = `["version",5]\n{"any":"form"}\n`;
    writeFileSync(path, content);
    await assert.rejects(
      open(),
      (error) =>
        error instanceof ConfigError && /a later version wrote it/.test(error.message) &&
        !/[Rr]emove/.test(error.message),
    );
    rmSync(path);
    const { meter, reports } = await open();
    writeFileSync(path, content);
    meter.settled(exchange());
    await meter.close();
    assert.equal(readFileSync(path, "utf8"), content);
    assert.match(reports.join(), /a later version wrote it/);
  });

  it("continues with whole lines if its file was cut off, and reports it", async () => {
    const line = `["hour",${HOUR},"team","a","gpt-4o",[1,0,0,0,3,0,4,0,0],"responses"]`;
    for (const cut of [line.slice(0, -1), line.slice(0, 20), '["hour",1,"\u00e9']) {
      writeFileSync(
        path,
        Buffer.from(`${line}\n${cut}`).subarray(0, cut.endsWith("\u00e9") ? -1 : undefined),
      );
      const { meter, reports } = await open();
      assert.deepEqual(await requestsOf(meter), [["team", "responses", 1, 0]]);
      assert.deepEqual(reports, ["The file of usage ends within a line: that line is left out"]);
    }
    writeFileSync(path, `${line}\n${line}`);
    const { meter, reports } = await open();
    assert.deepEqual(
      await requestsOf(meter),
      [["team", "responses", 2, 0]],
      "only the end of the line is missing",
    );
    assert.deepEqual(reports, []);
  });

  it("reads lines without an operation as chat completions alone", async () => {
    const hour = NOON - NOON % HOUR_MS;
    writeFileSync(path, `["hour",${hour},"team","a","gpt-4o",[1,0,0,0,3,0,4,0,0]]\n`);
    const { meter } = await open();
    meter.settled(exchange());
    meter.settled(exchange({ operation: "responses" }));
    const rows = [];
    for await (const some of meter.read({ step: "hour", ...ALL })) rows.push(...some);
    assert.deepEqual(rows.map(({ operation, counts }) => [operation, counts.requests]), [
      ["chat.completions", 2],
      ["responses", 1],
    ]);
  });

  for (
    const broken of [
      "nonsense\n",
      '["hour",1,"a","b","c",[1]]\n',
      '["hour",1,"a","b","c",[1,2,3,4,5,6,7,8,-9]]\n',
      "[]\n",
    ]
  ) {
    it(`reports at the start that it is broken: ${JSON.stringify(broken)}`, async () => {
      writeFileSync(path, broken);
      await assert.rejects(
        open(),
        (error) => error instanceof ConfigError && /it is broken\. Remove it/.test(error.message),
      );
    });
  }

  it("reports if it breaks later, and does not overwrite it", async () => {
    const { meter, reports } = await open();
    writeFileSync(path, "nonsense\n");
    meter.settled(exchange());
    await assert.rejects(tell(meter), UsageUnavailable);
    await meter.close();
    assert.equal(readFileSync(path, "utf8"), "nonsense\n");
    assert.equal(reports.length, 1);
  });

  it("continues if its file was removed", async () => {
    const { meter, write } = await open();
    meter.settled(exchange());
    await write();
    rmSync(path);
    assert.deepEqual(await tell(meter), { "team a gpt-4o": one });
    meter.settled(exchange({ startedAt: NOON + 1 }));
    await meter.close();
    assert.equal((await tell((await open()).meter))["team a gpt-4o"]?.requests, 2);
  });
});
