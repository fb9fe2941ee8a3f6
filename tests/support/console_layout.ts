/**
 * Every view and every dialog of the console, found by the navigation and the buttons, at one
 * width.
 */
import assert from "node:assert/strict";
import type { Page } from "playwright-core";
import { findViolations } from "./browser.ts";
import { type Console, open, PIECES, playOut, signIn, viewsOf } from "./console.ts";
import { GOOD_BODY, STREAM_BODY } from "./gateway.ts";
import { findFaults } from "./layout.ts";

/** A name of a key, a model and a team that is wider than a telephone. */
export const LONG_NAME = "a-name-that-is-much-longer-than-a-telephone-is-wide-and-goes-on-and-on";
const LONG_URL =
  "https://eu-central-1.a-very-long-host-name-of-a-cloud.example.com/deployments/with/a/long/path/v1";
/**
 * The smallest usable height of a window, without the browser's controls: on a small laptop, and on
 * a telephone.
 */
const HEIGHT = 640;

/** A configuration that fills all views. */
export const FULL: Parameters<Console["start"]>[0] = {
  prices: { "*": { input: 1000, output: 1000 } },
  teams: {
    search: { limits: { budget: ["5M/month", "50 USD/month"], requests: "600/min" } },
    [LONG_NAME.slice(0, 63)]: { limits: { tokens: "5M/10s", mode: "observe" } },
  },
  providers: (upstream) => ({
    a: {
      ...{ hosts: ["*"], upstream, maxOutput: 100 },
      limits: {
        requests: "600/min",
        tokens: "100k/min",
        concurrency: 40,
        budget: ["50M/month", "500 USD/month"],
      },
    },
    b: { hosts: ["b.example", `b.example/${LONG_NAME}`], upstream: [upstream, LONG_URL] },
    ...Object.fromEntries(
      Array.from(
        { length: 12 },
        (_, index) => [`a-provider-with-a-long-name-${index}`, { upstream }],
      ),
    ),
  }),
};

/** Asserts that the current content of a page has no layout faults, in light and in dark. */
export async function assertSound(page: Page, what: string): Promise<void> {
  for (const colorScheme of ["light", "dark"] as const) {
    await page.emulateMedia({ colorScheme, reducedMotion: "reduce" });
    const where = `${what}, ${colorScheme}`;
    // Apart from contrast, the findings of axe-core are the same in both.
    assert.deepEqual(
      await findViolations(page, colorScheme === "dark" ? ["color-contrast"] : undefined),
      [],
      where,
    );
    assert.deepEqual(await findFaults(page), [], where);
  }
}

/** Opens each dialog of a view, with one button of each kind that opens a dialog. */
async function assertDialogs(page: Page, where: string): Promise<string[]> {
  const seen: string[] = [];
  const buttons = page.locator('main [aria-haspopup="dialog"]:visible:enabled');
  for (let index = 0; index < await buttons.count(); index++) {
    const button = buttons.nth(index);
    const name = await button.innerText();
    if (seen.includes(name)) continue;
    seen.push(name);
    await button.click();
    await page.getByRole("dialog").waitFor();
    await assertSound(page, `${where}: ${name}`);
    await page.keyboard.press("Escape");
    await page.getByRole("dialog").waitFor({ state: "detached" });
  }
  return seen;
}

async function fill({ running, callGateway }: Console): Promise<string> {
  const make = async (body: unknown) => (await running.call("POST", "/v1/keys", { body })).json;
  const limits = {
    requests: "600/min",
    tokens: "2M/min",
    budget: ["5M/month", "20 USD/day"],
    concurrency: 4,
  };
  const policy = { team: "search", limits, models: ["test-*", "a-*"], providers: ["a", "b"] };
  await make({
    name: "night-batch",
    expires: "2099-01-01T00:00:00Z",
    limits: { requests: "5/10s", mode: "observe" },
  });
  await running.call("POST", "/v1/teams", { body: { name: "made-here", limits } });
  const [old, paused, rotated] = [
    await make({ name: "old" }),
    await make({}),
    await make({ name: "rotated" }),
  ];
  await running.call("POST", `/v1/keys/${old.id}/revoke`);
  await running.call("POST", `/v1/keys/${paused.id}/disable`);
  await running.call("POST", `/v1/keys/${rotated.id}/rotate`, { body: { overlap: "24h" } });
  const { key } = await make({ name: LONG_NAME, ...policy });
  for (const body of [GOOD_BODY, STREAM_BODY, GOOD_BODY.replace("test-1", LONG_NAME)]) {
    await callGateway(key, body);
  }
  await callGateway("a-wrong-key-of-some-length");
  return key;
}

/** Checks the pages of a key, a team and a provider. */
async function assertPagesSound(page: Page, { running }: Console, width: number): Promise<void> {
  const { keys } = (await running.call("GET", "/v1/keys")).json;
  const { id, team } = keys.find(({ name }: { name?: string }) => name === LONG_NAME);
  for (const [of, subject] of [["key", id], ["team", team], ["provider", "a"]]) {
    await page.evaluate((hash) => location.hash = hash, `#${of}?id=${subject}`);
    await page.getByRole("region", { name: "Failed calls by cause" }).waitFor();
    const last = of === "provider" ? "Last exchanges" : "Last changes";
    await page.getByRole("region", { name: last }).getByRole("link").first().waitFor();
    await page.locator(".chart canvas").nth(3).waitFor();
    await assertSound(page, `the page of a ${of} at ${width}`);
  }
}

/** Checks all views and dialogs. @param width Width of the window, in pixels */
export async function assertAllSound(ui: Console, width: number): Promise<void> {
  const page = await ui.start(FULL, { viewport: { width, height: HEIGHT } });
  const key = await fill(ui);
  await signIn(page, ui.running.admin);
  await page.getByText("invalid gateway key").waitFor();
  for (const view of await viewsOf(page)) {
    const where = `${view} at ${width}`;
    await open(page, view);
    if (view === "Teams") await page.getByRole("button", { name: "Delete team" }).waitFor();
    if (view === "Keys") {
      // Other views show the name too, so the buttons of its row tell that the keys are there.
      const row = page.locator("main tr", { hasText: LONG_NAME }).first();
      await row.locator('[aria-haspopup="dialog"]:visible:enabled').first().waitFor();
    }
    if (view === "Providers") await page.getByText("of 600 per minute").waitFor();
    await assertSound(page, where);
    const dialogs = await assertDialogs(page, where);
    if (view === "Keys") assert.deepEqual(dialogs, ["Make a key", "Change", "Rotate", "Revoke"]);
    if (view === "Teams") assert.deepEqual(dialogs, ["Make a team", "Change", "Delete"]);
  }
  await assertPagesSound(page, ui, width);
  await open(page, "Exchanges");
  await page.locator("tbody button").first().click();
  await assertSound(page, `an exchange at ${width}`);
  await playOut(page, key);
  await page.locator(".said").getByText(PIECES.join("")).waitFor();
  await assertSound(page, `an answer at ${width}`);
  ui.watched.assertClean(ui.running.admin);
}
