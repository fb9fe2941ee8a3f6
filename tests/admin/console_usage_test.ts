/** The view of usage in Chromium: chart, table, drill-down, CSV, budgets, at three widths. */
// runtimes: once
import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterEach, it } from "@std/testing/bdd";
import type { BrowserContextOptions, Page } from "playwright-core";
import { DIMENSIONS } from "../../src/config/dimensions.ts";
import { BILLING_CLASSES } from "../../src/exchange/billing.ts";
import { CLASS_COUNTS, DAY_MS, HOUR_MS, USAGE_COUNTS } from "../../src/usage/counts.ts";
import { type Running, startAdmin, TOKEN } from "../support/admin.ts";
import { findBarriers, openPage, overflowOf, type Watched } from "../support/browser.ts";
import { needs } from "../support/requires.ts";

const SETTINGS = {
  prices: { "gpt-*": { input: 1000, output: 2000 } },
  teams: {
    search: { limits: { budget: ["1M/month", "100000 USD/month"] } },
    ads: { limits: { budget: "1M/day" } },
  },
};
const LONG = "a-name-of-a-key-that-is-much-longer-than-a-telephone-is-wide";

type Counts = Partial<Record<typeof USAGE_COUNTS[number], number>>;

needs(["chromium-headless-shell"]).describe("the view of usage", () => {
  let running: Running;
  let watched: Watched;
  /** Ids of the keys, by name. */
  let ids: Record<string, string>;
  afterEach(async () => {
    await watched.close();
    await running.stop();
  });

  /** Starts a gateway with some keys, opens the view, and returns its page. */
  const start = async (
    settings: Record<string, unknown> = SETTINGS,
    options: BrowserContextOptions = {},
  ) => {
    running = await startAdmin(settings);
    watched = await openPage({ viewport: { width: 1280, height: 900 }, ...options });
    ids = {};
    const { page } = watched;
    const make = async (name: string, more: Record<string, unknown> = {}) => {
      const { json } = await running.call("POST", "/v1/keys", { body: { name, ...more } });
      ids[name] = json.id;
      return String(json.key);
    };
    const view = async () => {
      await page.goto(running.admin);
      await page.getByLabel("Admin token").fill(TOKEN);
      await page.getByRole("button", { name: "Sign in" }).click();
      await page.getByRole("link", { name: "Usage", exact: true }).click();
    };
    return { page, make, view };
  };

  /** Stores usage of this hour, or of another one, as a gateway does. */
  const keep = (...rows: [key: string, model: string, counts: Counts, ageMs?: number][]) => {
    const lines = rows.flatMap(([key, model, counts, ageMs = 0]) =>
      (["hour", "day"] as const).map((step) => {
        const ms = step === "hour" ? HOUR_MS : DAY_MS;
        const at = Math.floor((Date.now() - ageMs) / ms) * ms;
        const list = USAGE_COUNTS.map((name) => counts[name] ?? (name === "requests" ? 1 : 0));
        return JSON.stringify([step, at, ids[key] ?? key, "a", model, list, "chat.completions"]);
      })
    );
    writeFileSync(join(running.at.path, "keys.usage.jsonl"), `${lines.join("\n")}\n`);
  };

  const make = async (options: BrowserContextOptions = {}) => {
    const started = await start(SETTINGS, options);
    await started.make("web", { team: "search", limits: { budget: "10k/month" } });
    await started.make(LONG, { team: "search" });
    await started.make("banner", { team: "ads" });
    keep(
      ["web", "gpt-5", {
        requests: 7,
        input: 6000,
        output: 1000,
        cached: 500,
        reasoning: 100,
        estimated: 2,
        estimatedInput: 900,
        estimatedOutput: 70,
      }],
      ["web", "llama", { requests: 2, input: 300, failed: 1 }],
      [LONG, "gpt-5", { requests: 3, input: 2000 }],
      ["banner", "gpt-5", { requests: 1, output: 400 }],
      ["banner", "gpt-5", { requests: 1, input: 50 }, 40 * DAY_MS],
    );
    await started.view();
    await started.page.locator("table.usage").waitFor();
    return started.page;
  };
  const rowsOf = (page: Page) =>
    page.locator("table.usage tbody tr").evaluateAll((rows) =>
      rows.map((row) => Array.from(row.children, (cell) => (cell.textContent ?? "").trim()))
    );
  /** The marks of a row: the estimated part of each amount. */
  const rowOf = (page: Page, name: string) =>
    page.locator("table.usage tbody tr", { hasText: name }).locator("abbr").evaluateAll((marks) =>
      marks.map((mark) =>
        (mark.getAttribute("title") ?? "").replace(" estimated by the gateway", "")
      )
    );
  const tile = (page: Page, name: string) =>
    page.locator(".tile", { has: page.getByText(name, { exact: true }) }).locator("dd").first();
  const download = async (page: Page, button: string) => {
    const saving = page.waitForEvent("download");
    await page.getByRole("button", { name: button }).click();
    return readFileSync(await (await saving).path(), "utf8");
  };

  it("shows the spending of each key, with shares, estimates, and models without a price", async () => {
    const page = await make();
    await page.getByRole("row", { name: "search" }).waitFor();
    assert.deepEqual(await rowsOf(page), [
      [
        "search",
        "96 %",
        ">=≈10.00300 unpriced",
        "≈9300",
        "12",
        "1",
        "2",
        "≈8300",
        "500",
        "≈1000",
        "100",
      ],
      ["ads", "4.1 %", "0.8000", "400", "1", "0", "0", "0", "0", "400", "0"],
    ]);
    assert.deepEqual([
      await tile(page, "Cost USD").innerText(),
      await tile(page, "Tokens").innerText(),
    ], [
      ">= ≈ 10.80",
      "≈ 9700",
    ]);
    await page.getByText("300 tokens have no price").waitFor();
    await page.getByText("no part of the cost, most of them of llama").waitFor();
    assert.equal(await tile(page, "Estimated").innerText(), "10 %");
    await page.getByText("the tokens of 2 of 13 calls, 970 of 9700 tokens, 1.04 of 10.80 in cost.")
      .waitFor();
    assert.deepEqual(await rowOf(page, "search"), [
      "At least: no price for input 300",
      "1.04",
      "970",
      "900",
      "70",
    ]);
    const legend = page.getByRole("list", { name: "Series" });
    assert.deepEqual(await legend.locator("li").allInnerTexts(), ["search ≈ 9300", "ads 400"]);
    assert.equal(await page.locator(".usage-chart canvas").count(), 1);
    await page.getByRole("button", { name: "Cost", exact: true }).click();
    await legend.getByText("10.00").waitFor();
    await page.getByRole("button", { name: "Failed" }).click();
    await page.locator("th[aria-sort='descending']", { hasText: "Failed" }).waitFor();
    const names = async () => (await rowsOf(page)).map(([name]) => name);
    assert.deepEqual(await names(), ["search", "ads"]);
    await page.getByRole("button", { name: "Failed" }).click();
    await page.locator("th[aria-sort='ascending']", { hasText: "Failed" }).waitFor();
    assert.deepEqual(await names(), ["ads", "search"]);
    await page.getByRole("columnheader", { name: "Team" }).getByRole("button").click();
    await page.locator("th[aria-sort='ascending']", { hasText: "Team" }).waitFor();
    assert.deepEqual(await names(), ["ads", "search"]);
    watched.assertClean(running.admin);
  });

  it("shows that estimated tokens are unknown for the counts of earlier versions", async () => {
    const { page, view } = await start();
    keep(["k1", "gpt-5", { requests: 4, input: 300, estimated: 1 }]);
    await view();
    await page.getByText("the tokens of 1 of 4 calls. Earlier versions did not count").waitFor();
    assert.equal(await tile(page, "Estimated").innerText(), "25 %");
    assert.deepEqual(await rowOf(page, "300"), ["in part", "in part", "in part", "in part"]);
  });

  it("navigates from a team to its keys and their models with the keyboard, and back", async () => {
    const page = await make();
    await page.getByTitle("Open team search").focus();
    await page.keyboard.press("Enter");
    const web = page.getByTitle("Open key web");
    await web.waitFor();
    assert.deepEqual((await rowsOf(page)).map(([name]) => name), [
      `web${ids.web}`,
      `${LONG}${ids[LONG]}`,
    ]);
    const gauges = page.getByRole("region", { name: "Budgets" });
    assert.equal(await gauges.locator("li").count(), 3, "those of the team and its keys");
    await web.focus();
    await page.keyboard.press("Enter");
    await page.getByTitle("Open model gpt-5").waitFor();
    assert.deepEqual((await rowsOf(page)).map(([name, , cost]) => [name, cost]), [[
      "gpt-5",
      "≈8.00",
    ], [
      "llama",
      "no price",
    ]]);
    await gauges.getByText("web").waitFor();
    assert.equal(await gauges.locator("li").count(), 1);
    await page.reload();
    await page.getByTitle("Open model gpt-5").waitFor();
    await page.getByRole("button", { name: "not only key web" }).waitFor();
    await page.getByRole("link", { name: "Traffic" }).click();
    await page.getByRole("link", { name: "Usage", exact: true }).click();
    await page.getByRole("button", { name: "not only key web" }).click();
    await web.waitFor();
    await page.getByRole("button", { name: "not only team search" }).click();
    await page.getByTitle("Open team ads").waitFor();
    watched.assertClean(running.admin);
  });

  it("shows two dimensions, months, and a custom period", async () => {
    const page = await make();
    await page.getByLabel("By", { exact: true }).selectOption("key");
    await page.getByLabel("Then by").selectOption("model");
    await page.getByRole("row", { name: "llama" }).waitFor();
    assert.equal((await rowsOf(page)).length, 4);
    await page.getByLabel("Filter rows").fill("LLAMA");
    assert.equal((await rowsOf(page)).length, 1);
    await page.getByLabel("Filter rows").fill("nothing has this");
    await page.getByText("No row has this name").waitFor();
    await page.getByLabel("Then by").selectOption("time");
    await page.getByRole("button", { name: "12 months" }).click();
    const month = (age: number) =>
      new Date(Date.now() - age).toLocaleString("en", {
        month: "short",
        year: "numeric",
        timeZone: "UTC",
      });
    await page.getByRole("cell", { name: month(40 * DAY_MS) }).waitFor();
    await page.getByRole("cell", { name: month(0) }).first().waitFor();
    await page.getByRole("button", { name: "Custom" }).click();
    const day = new Date(Date.now() - 40 * DAY_MS).toISOString().slice(0, 10);
    await page.getByLabel("First day").fill(day);
    await page.getByLabel("Last day").fill(day);
    const [, query] = (await page.evaluate(() => location.hash)).split("?");
    assert.deepEqual(Object.fromEntries(new URLSearchParams(query)), {
      ...{ range: "custom", first: day, last: day, by: "key", then: "time" },
    });
    await page.getByRole("row", { name: "web" }).first().waitFor({ state: "detached" });
    assert.deepEqual((await rowsOf(page)).map(([name, , , , tokens]) => [name, tokens]), [[
      `banner${ids.banner}`,
      "50",
    ]]);
    watched.assertClean(running.admin);
  });

  it("shows the cost of each billing class", async () => {
    const page = await make();
    await page.getByLabel("By", { exact: true }).selectOption("class");
    await page.getByRole("row", { name: "cacheRead" }).waitFor();
    const found = (await rowsOf(page)).map(([name, , cost]) => [name, cost]);
    assert.deepEqual(found, [
      ["input7800", ">=≈7.50300 unpriced"],
      ["output1300", "≈2.60"],
      ["cacheRead500", "0.5000"],
      ["reasoning100", "0.2000"],
      ["requests13", "–"],
    ]);
    watched.assertClean(running.admin);
  });

  it("saves the rows that are shown, and all rows, as CSV", async () => {
    const page = await make();
    await page.getByLabel("By", { exact: true }).selectOption("key");
    await page.getByRole("row", { name: "banner" }).waitFor();
    await page.getByLabel("Filter rows").fill("web");
    const more = `${CLASS_COUNTS.join(",")},amount,costIsPartial,unpricedClasses`;
    const none = "0,".repeat(CLASS_COUNTS.length);
    const columns = `${USAGE_COUNTS.join(",")},tokens,unpriced,cost,estimatedCost,currency,${more}`;
    const known: Readonly<Record<string, string>> = {
      input: "5800,5.5",
      cacheRead: "500,0.5",
      output: "900,1.8",
      reasoning: "100,0.2",
      requests: "8,0",
    };
    const classes = [...BILLING_CLASSES, "stated"];
    const costColumns = classes.map((name) => `${name}.amount,${name}.cost`).join(",");
    const costs = classes.map((name) => known[name] ?? "0,").join(",");
    assert.equal(
      await download(page, "CSV of these rows"),
      `key,name,${columns},${costColumns}\r\n` +
        `${ids.web},web,9,0,0,1,6300,500,1000,100,0,2,900,70,7300,300,8,1.04,USD,${none},true,` +
        `input=300,${costs}\r\n`,
    );
    const [head, ...lines] = (await download(page, "Full export")).trimEnd().split("\r\n");
    assert.equal(
      head,
      `from,step,key,provider,model,operation,team,${columns},tariff,${costColumns},${
        [...DIMENSIONS, "payer"].join(",")
      }`,
    );
    assert.equal(lines.length, 4);
    watched.assertClean(running.admin);
  });

  it("shows the most urgent budget first, with the date at which it will be used up", async () => {
    const { page, make, view } = await start({
      ...SETTINGS,
      teams: { search: { limits: { budget: "10M/month" } } },
    });
    const keys = [
      await make("lasts", { team: "search", limits: { budget: "100M/month" } }),
      await make("spent", { limits: { budget: "2/month" } }),
      await make("short", { limits: { budget: ["50/month"] } }),
    ];
    for (const key of keys) assert.equal(await running.chat(key), 200);
    await make("tiny", { limits: { budget: "0.00005 USD/month" } });
    await view();
    const gauges = page.getByRole("region", { name: "Budgets" }).locator("li");
    await gauges.nth(4).waitFor();
    await gauges.filter({ hasText: "tiny" }).getByText("0.00 of 0.00005 USD this month").waitFor();
    const texts = await gauges.allInnerTexts();
    const [spent = "", next = "", ...others] = texts;
    assert.match(spent, /^spent[^]*2 of 2 tokens this month[^]*100 %[^]*used up[^]*renews \w+ 1/);
    // Two tokens an hour use fifty in about two days, minus the hours until the month ends.
    const hoursLeft =
      (Date.UTC(new Date().getUTCFullYear(), new Date().getUTCMonth() + 1, 1) - Date.now()) /
      HOUR_MS;
    if (hoursLeft > 49) {
      assert.match(
        next,
        /^short[^]*2 of 50 tokens this month[^]*will run out about \w+ \d+[^]*48 tokens a day/,
      );
    }
    const lasting = others.filter((text) => !text.startsWith("tiny"));
    assert.ok(lasting.every((text) => /lasts until it renews/.test(text)), others.join("\n"));
    watched.assertClean(running.admin);
  });

  it("says that nothing was used, and that a period is not stored by the hour", async () => {
    const { page, view } = await start({ keys: [{ id: "own", key: "0123456789-own-key" }] });
    await view();
    await page.getByText("Nothing was used in this time").waitFor();
    await page.getByText("Kept in memory: lost").waitFor();
    await page.getByText("None yet. Keys get one").waitFor();
    await page.getByRole("button", { name: "Custom" }).click();
    await page.getByLabel("First day").fill(
      new Date(Date.now() - 30 * DAY_MS).toISOString().slice(0, 10),
    );
    await page.getByLabel("Step").selectOption("hour");
    await page.getByRole("alert").getByText("hours are kept for 8 days").waitFor();
    watched.assertClean(running.admin, { status: 400, times: 1 });
  });

  for (const colorScheme of ["light", "dark"] as const) {
    it(`has no barrier, and fits at 1280, 800 and 390 pixels, in ${colorScheme}`, async () => {
      const page = await make({ colorScheme, reducedMotion: "reduce" });
      for (const width of [1280, 800, 390]) {
        await page.setViewportSize({ width, height: 900 });
        for (const by of ["team", "key"]) {
          await page.getByLabel("By", { exact: true }).selectOption(by);
          await page.getByRole("row", { name: by === "key" ? LONG : "ads" }).waitFor();
          assert.deepEqual(await findBarriers(page), [], `${by} at ${width}`);
          assert.equal(await overflowOf(page), 0, `${by} at ${width}`);
        }
      }
      watched.assertClean(running.admin);
    });
  }
});
