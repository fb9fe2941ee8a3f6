/** Values with units, parsed and formatted. */
// runtimes: once
import assert from "node:assert/strict";
import { describe, it } from "@std/testing/bdd";
import fc from "fast-check";
import {
  formatBudget,
  formatCount,
  formatRate,
  parseBudget,
  parseCount,
  parseDuration,
  parseMoneyBudget,
  parseRate,
  parseSize,
  periodEnd,
  PERIODS,
  periodStart,
} from "../../src/config/units.ts";

const DAY_MS = 86_400_000;
const UNITS: Readonly<Record<string, number>> = { k: 1000, M: 1e6, G: 1e9 };
const WINDOWS: Readonly<Record<string, number>> = {
  s: 1000,
  min: 60_000,
  h: 3_600_000,
  day: DAY_MS,
};

const count = fc.oneof(
  fc.integer({ min: 1, max: 1_000_000 }),
  fc.maxSafeNat().map((number) => 1 + number % 1e15),
  // Values that are written with a unit.
  fc.tuple(fc.integer({ min: 1, max: 9_999_999 }), fc.constantFrom(100, 1000, 1e5, 1e6, 1e8)).map((
    [n, by],
  ) => n * by),
);
/** Every window that can be written. */
const window = fc.tuple(fc.integer({ min: 1, max: 9999 }), fc.constantFrom(...Object.keys(WINDOWS)))
  .filter(([times, unit]) => times * (WINDOWS[unit] ?? NaN) <= 31 * DAY_MS);

/** Texts that are not a count, a rate and so on, and the reason. */
const WRONG: readonly [name: string, parse: (text: string) => unknown, texts: readonly string[]][] =
  [
    ["a duration", parseDuration, [
      "",
      "5",
      "s",
      "5 s",
      " 5s",
      "5s ",
      "-5s",
      "+5s",
      "5S",
      "5w",
      "5y",
      "5sec",
      "1e3s",
      "0x5s",
      ".5s",
      "5.s",
      "5s5s",
      "1h30m",
      "1,5s",
      "٥s",
      "5constructor",
      "5__proto__",
      "off",
      "NaN",
      "Infinitys",
    ]],
    ["a size", parseSize, [
      "",
      "5",
      "5mb",
      "5M",
      "5MiB",
      "5 MB",
      "-5MB",
      "1e3B",
      "5TB",
      "5toString",
    ]],
    ["a count", parseCount, [
      "",
      "0",
      "0k",
      "-1",
      "+1",
      "1e3",
      "0x10",
      "1_000",
      "1,000",
      "1.5",
      "k",
      "5K",
      "5m",
      "5g",
      "5T",
      "5 k",
      " 5",
      "1.0005k",
      "0.0001k",
      "0.5k5",
      "1000000000000001",
      "10000000000000000",
      "1000001G",
      "9".repeat(400),
      "NaN",
      "Infinity",
      "5constructor",
      `${"9".repeat(400)}k`,
    ]],
    ["a rate", parseRate, [
      "",
      "600",
      "600/",
      "/min",
      "600/m",
      "600/minute",
      "600/hour",
      "600/d",
      "600/sec",
      "600/month",
      "600 /min",
      "600/ min",
      "0/min",
      "-1/min",
      "1.5/min",
      "600/0min",
      "600/01min",
      "600/-1min",
      "600/1.5h",
      "600/10000s",
      "600/32day",
      "600/745h",
      "600/min/min",
      "600/MIN",
      "1e3/min",
      "600/min\n",
      "600/ms",
      "off",
      "600/1e1s",
    ]],
    ["a budget", parseBudget, [
      "",
      "5M",
      "5M/",
      "/month",
      "5M/months",
      "5M/weeks",
      "5M/year",
      "5M/2day",
      "0/day",
      "1.5/day",
      "5M/Month",
      "5M /day",
      "5M/day\n",
      "5M/min",
      "5M/1month",
    ]],
  ];

describe("units", () => {
  it("parse the values that people write", () => {
    assert.equal(parseDuration("90d"), 90 * DAY_MS);
    assert.equal(parseDuration("1.5h"), 5_400_000);
    assert.equal(parseDuration("500ms"), 500);
    assert.equal(parseDuration("0s"), 0);
    assert.equal(parseDuration("4.35s"), 4350);
    assert.equal(parseSize("32MB"), 32 * 1024 ** 2);
    assert.equal(parseSize("0.5KB"), 512);
    assert.equal(parseCount("1.5M"), 1_500_000);
    assert.equal(parseCount("1000000G"), 1e15);
    assert.deepEqual(parseRate("600/min"), { limit: 600, windowMs: 60_000 });
    assert.deepEqual(parseRate("5/10s"), { limit: 5, windowMs: 10_000 });
    assert.deepEqual(parseRate("1/31day"), { limit: 1, windowMs: 31 * DAY_MS });
    assert.deepEqual(parseBudget("5M/month"), { limit: 5_000_000, period: "month" });
    assert.deepEqual(parseBudget("100k/week"), { limit: 100_000, period: "week" });
    assert.deepEqual(parseMoneyBudget("0.5 EUR/week"), {
      limit: 500_000_000,
      period: "week",
      currency: "EUR",
    });
  });

  // 2.3 times 1,000,000 is 2,299,999.9999999995 in floating point; and each rewriting of a file
  // used to subtract one more.
  it("parse a decimal fraction exactly", () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 1, max: 9_999_999 }),
        fc.constantFrom("k", "M", "G"),
        (tenths, unit) => {
          const text = `${Math.floor(tenths / 10)}.${tenths % 10}${unit}`;
          const number = tenths * (UNITS[unit] ?? NaN) / 10;
          assert.equal(parseCount(text), number <= 1e15 ? number : NaN, text);
        },
      ),
    );
    assert.equal(parseCount("2.3M"), 2_300_000);
  });

  it("format a count that parses to the same value", () => {
    fc.assert(
      fc.property(count, (number) => assert.equal(parseCount(formatCount(number)), number)),
      { numRuns: 2000 },
    );
    const shortest = {
      999: "999",
      1000: "1k",
      1500: "1.5k",
      1550: "1550",
      2_300_000: "2.3M",
      1e9: "1G",
      1e15: "1000000G",
    };
    for (const [number, text] of Object.entries(shortest)) {
      assert.equal(formatCount(Number(number)), text);
    }
  });

  it("format a rate that parses to the same value", () => {
    fc.assert(
      fc.property(count, window, (limit, [times, unit]) => {
        const rate = parseRate(`${limit}/${times}${unit}`);
        assert.deepEqual(rate, { limit, windowMs: times * (WINDOWS[unit] ?? NaN) });
        assert.deepEqual(rate && parseRate(formatRate(rate)), rate);
      }),
      { numRuns: 2000 },
    );
    assert.equal(formatRate({ limit: 100_000, windowMs: 3_600_000 }), "100k/h");
    assert.equal(formatRate({ limit: 5, windowMs: 10_000 }), "5/10s");
    assert.equal(formatRate({ limit: 5, windowMs: 7 * DAY_MS }), "5/7day");
  });

  it("format a budget that parses to the same value", () => {
    fc.assert(
      fc.property(count, fc.constantFrom(...PERIODS), (limit, period) => {
        assert.deepEqual(parseBudget(formatBudget({ limit, period })), { limit, period });
      }),
    );
  });

  for (const [name, parse, texts] of WRONG) {
    it(`refuse other texts for ${name}`, () => {
      for (const text of texts) {
        const parsed = parse(text);
        assert.ok(
          parsed === undefined || Number.isNaN(parsed),
          `${JSON.stringify(text)} became ${JSON.stringify(parsed)}`,
        );
      }
    });
  }

  it("never throw, and return a valid number or none", () => {
    const text = fc.oneof(
      fc.string(),
      fc.stringMatching(/^[0-9.]{0,20}[a-zA-Z]{0,5}(?:\/[0-9]{0,5}[a-z]{0,5})?$/),
    );
    fc.assert(
      fc.property(text, (given) => {
        for (const number of [parseDuration(given), parseSize(given)]) {
          assert.ok(Number.isNaN(number) || number >= 0);
        }
        const number = parseCount(given);
        assert.ok(
          Number.isNaN(number) || (Number.isInteger(number) && number >= 1 && number <= 1e15),
        );
        const rate = parseRate(given);
        assert.ok(
          rate === undefined ||
            (rate.windowMs >= 1000 && rate.windowMs <= 31 * DAY_MS && rate.limit >= 1),
        );
      }),
      { numRuns: 2000 },
    );
  });
});

describe("the end of a budget's period", () => {
  const ENDS: readonly [now: string, day: string, month: string][] = [
    ["2026-01-31T00:00:00.000Z", "2026-02-01T00:00:00.000Z", "2026-02-01T00:00:00.000Z"],
    ["2026-01-31T23:59:59.999Z", "2026-02-01T00:00:00.000Z", "2026-02-01T00:00:00.000Z"],
    ["2026-02-01T00:00:00.000Z", "2026-02-02T00:00:00.000Z", "2026-03-01T00:00:00.000Z"],
    ["2026-02-28T12:00:00.000Z", "2026-03-01T00:00:00.000Z", "2026-03-01T00:00:00.000Z"],
    ["2028-02-28T12:00:00.000Z", "2028-02-29T00:00:00.000Z", "2028-03-01T00:00:00.000Z"],
    ["2028-02-29T23:59:59.999Z", "2028-03-01T00:00:00.000Z", "2028-03-01T00:00:00.000Z"],
    ["2100-02-28T23:59:59.999Z", "2100-03-01T00:00:00.000Z", "2100-03-01T00:00:00.000Z"],
    ["2000-02-29T00:00:00.000Z", "2000-03-01T00:00:00.000Z", "2000-03-01T00:00:00.000Z"],
    ["2026-12-31T23:59:59.999Z", "2027-01-01T00:00:00.000Z", "2027-01-01T00:00:00.000Z"],
    ["2026-12-01T00:00:00.000Z", "2026-12-02T00:00:00.000Z", "2027-01-01T00:00:00.000Z"],
    ["2026-03-29T01:30:00.000Z", "2026-03-30T00:00:00.000Z", "2026-04-01T00:00:00.000Z"],
    ["2026-04-30T23:59:59.999Z", "2026-05-01T00:00:00.000Z", "2026-05-01T00:00:00.000Z"],
  ];
  for (const [now, day, month] of ENDS) {
    it(`of ${now}: ${day.slice(0, 10)} for a day, ${month.slice(0, 10)} for a month`, () => {
      assert.equal(new Date(periodEnd("day", Date.parse(now))).toISOString(), day);
      assert.equal(new Date(periodEnd("month", Date.parse(now))).toISOString(), month);
    });
  }

  const WEEKS: readonly [now: string, end: string][] = [
    ["2026-11-27T10:00:00.000Z", "2026-11-30T00:00:00.000Z"],
    ["2026-11-29T23:59:59.999Z", "2026-11-30T00:00:00.000Z"],
    ["2026-11-30T00:00:00.000Z", "2026-12-07T00:00:00.000Z"],
    ["2027-01-01T00:00:00.000Z", "2027-01-04T00:00:00.000Z"],
  ];
  for (const [now, end] of WEEKS) {
    it(`of ${now}: ${end.slice(0, 10)} for a week`, () => {
      assert.equal(new Date(periodEnd("week", Date.parse(now))).toISOString(), end);
    });
  }

  const LONGEST = { day: 1, week: 7, month: 31 };
  it("is in the future, at a midnight, and at most one period away", () => {
    const time = fc.integer({ min: 0, max: Date.UTC(2200, 0, 1) });
    fc.assert(
      fc.property(time, fc.constantFrom(...PERIODS), (now, period) => {
        const end = periodEnd(period, now);
        assert.ok(end > now && end - now <= LONGEST[period] * DAY_MS);
        assert.equal(end % DAY_MS, 0);
        if (period === "month") assert.equal(new Date(end).getUTCDate(), 1);
        if (period === "week") assert.equal(new Date(end).getUTCDay(), 1, "a Monday");
        assert.ok(periodStart(period, now) <= now && periodStart(period, end) === end);
        assert.equal(periodEnd(period, end - 1), end, "the same for all of the period");
      }),
    );
  });
});
