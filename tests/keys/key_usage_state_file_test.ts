/** The state of keys next to their file: last uses and spent budgets. */
// runtimes: bun, node
import assert from "node:assert/strict";
import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, it } from "@std/testing/bdd";
import { FileKeyUsageState } from "../../src/keys/key_usage_state_file.ts";
import { type LimitSubject, NO_RESERVATION } from "../../src/limits/limiter.ts";
import { MemoryLimiter } from "../../src/limits/memory_limiter.ts";
import { ConfigError } from "../../src/config/config.ts";
import { type Clock, systemClock } from "../../src/exchange/clock.ts";
import { FileUnavailable, SharedFile } from "../../src/storage/shared_file.ts";
import { makeFolder } from "../support/program.ts";
import { until } from "../support/until.ts";
import { HOUR_MS, SOME_DAY } from "./key_store_suite.ts";

const BUDGET: LimitSubject = {
  name: "key:one",
  limits: { budget: { limit: 1000, period: "day" } },
};
const PROVIDER: LimitSubject = {
  name: "provider:a",
  limits: { budget: { limit: 5000, period: "month" } },
};

/** A gateway on a given day, whose clock stands still. A test fires its timers. */
class Gateway {
  readonly reports: string[] = [];
  readonly timers: { ms: number; fire: () => void }[] = [];
  readonly state: FileKeyUsageState;
  readonly limiter: MemoryLimiter;

  constructor(folder: string, now = SOME_DAY) {
    const clock: Clock = {
      now: () => now,
      monotonic: systemClock.monotonic,
      timer: (ms, fire) => (this.timers.push({ ms, fire }), () => {}),
    };
    this.limiter = new MemoryLimiter(clock);
    const report = (text: string): void => void this.reports.push(text);
    this.state = new FileKeyUsageState(new SharedFile(join(folder, "keys.state.json")), {
      clock,
      limiter: this.limiter,
      report,
    });
  }

  /** Uses a key and spends some of its budget. */
  spend(tokens: number, subject = BUDGET): void {
    this.limiter.count([subject], NO_RESERVATION)({ tokens, spend: 0 });
    this.state.used("one", SOME_DAY);
  }

  spent(subject = BUDGET): number | undefined {
    return this.limiter.statuses([subject]).find(({ name }) => name === "budget")?.used;
  }

  /** Fires the timers that are due. Resolves when their work is done. */
  async write(): Promise<void> {
    for (const { fire } of this.timers.splice(0)) fire();
    await this.state.lastUsed([]).catch(() => {}); // after all earlier work
  }
}

async function within(act: (folder: string, file: string) => Promise<void>): Promise<void> {
  const folder = makeFolder();
  try {
    await act(folder.path, join(folder.path, "keys.state.json"));
  } finally {
    folder.remove();
  }
}

describe("the state of keys", () => {
  it("outlives the gateway: last uses and spent budgets", () =>
    within(async (folder) => {
      const before = new Gateway(folder);
      await before.state.start();
      before.spend(300);
      before.spend(200);
      before.spend(70, PROVIDER);
      before.state.used("__proto__", SOME_DAY + 5);
      await before.state.close();
      const after = new Gateway(folder, SOME_DAY + 1000);
      await after.state.start();
      const used = new Map([["one", SOME_DAY], ["__proto__", SOME_DAY + 5]]);
      assert.deepEqual(await after.state.lastUsed(["one", "two", "__proto__"]), used);
      assert.deepEqual([after.spent(), after.spent(PROVIDER)], [500, 70]);
      // A day later the daily budget starts again, and the monthly budget continues.
      const later = new Gateway(folder, SOME_DAY + 24 * HOUR_MS);
      await later.state.start();
      assert.deepEqual([later.spent(), later.spent(PROVIDER)], [0, 70]);
    }));

  it("survives the gateway: the number of gateways, next to other contents of the file", () =>
    within(async (folder, file) => {
      const texts = [
        '{"used":{\n"one":5\n},"budgets":[\n\n]}\n',
        '{"used": {"one": 5}, "budgets": [], "later": 1}',
      ];
      for (const text of texts) {
        writeFileSync(file, text);
        const before = new Gateway(folder);
        await before.state.start();
        assert.equal(before.state.gateways, undefined);
        before.state.noteGateways(3);
        await before.state.close();
        const after = new Gateway(folder);
        await after.state.start();
        assert.equal(after.state.gateways, 3);
        assert.deepEqual(await after.state.lastUsed(["one"]), new Map([["one", 5]]));
        assert.equal(JSON.parse(readFileSync(file, "utf8")).gateways, 3);
        after.state.noteGateways(3);
        assert.deepEqual(after.timers, [], "nothing has changed");
      }
    }));

  it("is written every few seconds if it has changed, and not otherwise", () =>
    within(async (folder, file) => {
      const { state, timers, write, spend } = bound(new Gateway(folder));
      await state.start();
      assert.deepEqual(timers, []);
      spend(5);
      spend(5);
      assert.deepEqual(timers.map(({ ms }) => ms), [5000]);
      assert.throws(() => readFileSync(file), /ENOENT/);
      await write();
      assert.deepEqual(JSON.parse(readFileSync(file, "utf8")).used, { one: SOME_DAY });
      assert.deepEqual(timers, []);
    }));

  it("loses no use that occurs during a write", () =>
    within(async (folder) => {
      const gateway = new Gateway(folder);
      await gateway.state.start();
      gateway.state.used("one", SOME_DAY);
      const writing = gateway.write();
      for (let index = 0; index < 50; index++) {
        gateway.state.used(`during-${index}`, SOME_DAY);
        await Promise.resolve();
      }
      await writing;
      await until(() => gateway.timers.length > 0, "it must be written again");
      await gateway.write();
      const ids = Array.from({ length: 50 }, (_, index) => `during-${index}`);
      assert.equal((await new Gateway(folder).state.lastUsed(ids)).size, 50);
    }));

  it("is written completely before the gateway ends, and then no more", () =>
    within(async (folder, file) => {
      const gateway = new Gateway(folder);
      await gateway.state.start();
      gateway.spend(1);
      gateway.timers[0]?.fire();
      gateway.spend(1);
      await gateway.state.close();
      assert.equal(JSON.parse(readFileSync(file, "utf8")).budgets[0].used, 2);
      assert.equal(gateway.timers.length, 1, "no other timer holds the process");
    }));

  it("is shared by gateways on one machine: the later use and the larger sum stay", () =>
    within(async (folder) => {
      const [here, there] = [new Gateway(folder), new Gateway(folder)];
      await here.state.start();
      await there.state.start();
      here.spend(300);
      there.spend(200);
      there.state.used("two", SOME_DAY + 2);
      here.state.used("two", SOME_DAY + 1);
      await Promise.all([here.write(), there.write()]);
      here.spend(1);
      await here.write();
      const next = new Gateway(folder);
      await next.state.start();
      assert.equal(next.spent(), 301);
      assert.deepEqual(await next.state.lastUsed(["two"]), new Map([["two", SOME_DAY + 2]]));
    }));

  it("that is broken is refused at the start, with the fix", async () => {
    const faults = [
      "",
      "{",
      "[]",
      "null",
      '{"used":{}}',
      '{"used":null,"budgets":[]}',
      '{"used":{"one":-1},"budgets":[]}',
      '{"used":{"one":"now"},"budgets":[]}',
      '{"used":{},"budgets":[{"subject":"key:one","used":1.5,"until":1}]}',
      '{"used":{},"budgets":[{"subject":"key:one"}]}',
    ];
    for (const text of faults) {
      await within(async (folder, file) => {
        writeFileSync(file, text);
        await assert.rejects(() => new Gateway(folder).state.start(), (error) => {
          assert.ok(error instanceof ConfigError, text);
          const fix = `Cannot read ${file}: it is broken. Remove it to start its counts at zero`;
          assert.ok(error.message.includes(fix), error.message);
          return true;
        });
        await assert.rejects(() => new Gateway(folder).state.lastUsed(["one"]), FileUnavailable);
        assert.equal(readFileSync(file, "utf8"), text);
      });
    }
  });

  it("is read in every form of JSON, with none, one and many entries", async () => {
    const spent = (index: number) => ({
      subject: `key:${index}`,
      used: index + 1,
      until: SOME_DAY + HOUR_MS,
    });
    for (const count of [0, 1, 2, 3000]) {
      const ids = Array.from({ length: count }, (_, index) => index);
      const used = Object.fromEntries(ids.map((id) => [`key-${id}`, SOME_DAY + id]));
      const whole = { used, budgets: ids.map(spent) };
      const ours =
        `{"used":{\n${JSON.stringify(used).slice(1, -1).replaceAll(",", ",\n")}\n},"budgets":[\n` +
        `${ids.map((id) => JSON.stringify(spent(id))).join(",\n")}\n]}\n`;
      for (
        const text of [
          JSON.stringify(whole),
          JSON.stringify(whole, null, 2),
          ours,
          ours.replaceAll("\n", "\r\n"),
        ]
      ) {
        await within(async (folder, file) => {
          writeFileSync(file, text);
          const gateway = new Gateway(folder);
          await gateway.state.start();
          assert.equal((await gateway.state.lastUsed(Object.keys(used))).size, count);
          assert.equal((await gateway.state.lastUsed(["key-1"])).get("key-1"), used["key-1"]);
          assert.deepEqual(Array.from(gateway.limiter.budgets()), whole.budgets);
          gateway.state.used("key-new", SOME_DAY);
          await gateway.state.close();
          const expected = { used: { ...used, "key-new": SOME_DAY }, budgets: whole.budgets };
          assert.deepEqual(JSON.parse(readFileSync(file, "utf8")), expected);
        });
      }
    }
  });

  it("that cannot be read is an error, and does not count as empty", () =>
    within(async (folder, file) => {
      mkdirSync(file);
      await assert.rejects(
        () => new Gateway(folder).state.start(),
        /Cannot read .*keys\.state\.json: E/,
      );
    }));

  it("that cannot be written is kept and reported once, until a write succeeds", () =>
    within(async (folder, file) => {
      const gateway = new Gateway(folder);
      await gateway.state.start();
      gateway.spend(5);
      writeFileSync(file, "broken by somebody");
      for (let tries = 0; tries < 3; tries++) await gateway.write();
      assert.equal(gateway.reports.length, 1);
      assert.match(gateway.reports[0] ?? "", /it is broken\. Remove it/);
      assert.equal(readFileSync(file, "utf8"), "broken by somebody");
      rmSync(file);
      await gateway.write();
      assert.equal(JSON.parse(readFileSync(file, "utf8")).budgets[0].used, 5);
      assert.equal(gateway.reports.length, 1);
    }));

  it("of many keys is written and read whole", () =>
    within(async (folder) => {
      const before = new Gateway(folder);
      const ids = Array.from({ length: 2501 }, (_, index) => `key-${index}`);
      for (const [index, id] of ids.entries()) before.state.used(id, SOME_DAY + index);
      await before.state.close();
      const used = await new Gateway(folder).state.lastUsed(ids);
      for (const [index, id] of ids.entries()) assert.equal(used.get(id), SOME_DAY + index);
    }));
});

/** The parts of a gateway as separate names. */
function bound(gateway: Gateway) {
  const { state, timers } = gateway;
  return {
    state,
    timers,
    write: () => gateway.write(),
    spend: (tokens: number) => gateway.spend(tokens),
  };
}
