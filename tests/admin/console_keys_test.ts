/** The console's view of keys and teams: each dialog works. */
// runtimes: once
import assert from "node:assert/strict";
import { it } from "@std/testing/bdd";
import { lookAgain, open, OWN_KEY, signIn, useConsole } from "../support/console.ts";
import { GOOD_BODY } from "../support/gateway.ts";
import { needs } from "../support/requires.ts";

needs(["chromium-headless-shell"]).describe("the console's view of keys", () => {
  const ui = useConsole();

  it("creates a working key, shows its use, rotates its secret, and revokes it", async () => {
    const page = await ui.start();
    await signIn(page, ui.running.admin);
    await open(page, "Keys");
    await page.getByText("No keys yet").waitFor();
    await page.getByRole("button", { name: "Make a key" }).click();
    const dialog = page.getByRole("dialog");
    await dialog.getByLabel("Name").fill("team-x");
    await dialog.getByLabel("Requests").fill("six");
    await dialog.getByRole("button", { name: "Make the key" }).click();
    const requests = dialog.locator(".field", { hasText: "Requests" });
    await requests.getByRole("alert").getByText('Expected a rate such as "600/min"').waitFor();
    assert.equal(
      await page.evaluate(() => document.activeElement?.getAttribute("aria-invalid")),
      "true",
      "the focus is at the mistake",
    );
    await dialog.getByLabel("Requests").fill("600/min");
    await dialog.getByLabel("b", { exact: true }).check();
    await dialog.getByLabel("a", { exact: true }).check();
    await dialog.getByRole("button", { name: "Make the key" }).click();
    const key = await dialog.getByLabel("The whole key").innerText();
    assert.match(key, /^gk_/);
    assert.equal(await ui.callGateway(key), 200);
    await dialog.getByRole("button", { name: "I have it" }).click();
    const row = page.getByRole("row", { name: "team-x" });
    await lookAgain(page);
    await row.getByText("1 of 600 per minute").waitFor();
    assert.ok(
      !(await page.content()).includes(key.slice(16)),
      "the whole key is gone from the page",
    );
    await row.getByRole("button", { name: "Rotate" }).click();
    await dialog.getByLabel("The old secret").selectOption("0s");
    await dialog.getByRole("button", { name: "Rotate" }).click();
    const rotated = await dialog.getByLabel("The whole key").innerText();
    assert.deepEqual([await ui.callGateway(key), await ui.callGateway(rotated)], [401, 200]);
    await page.keyboard.press("Escape");
    await row.getByRole("button", { name: "Change" }).click();
    await dialog.getByLabel("At once").fill("3");
    await dialog.getByRole("button", { name: "Save" }).click();
    await row.getByText("Open at once 0 of 3").waitFor();
    await row.getByRole("button", { name: "Revoke" }).click();
    await dialog.getByRole("button", { name: "Cancel" }).click();
    assert.equal(await ui.callGateway(rotated), 200);
    await row.getByRole("button", { name: "Revoke" }).click();
    await dialog.getByRole("button", { name: "Revoke permanently" }).click();
    await row.getByText("revoked").waitFor();
    assert.equal(await ui.callGateway(rotated), 401);
    await open(page, "Exchanges");
    await page.getByText("invalid gateway key").first().waitFor();
    ui.watched.assertClean(ui.running.admin);
  });

  it("puts a key into a team, with budgets of tokens and money, and shows money as money", async () => {
    const page = await ui.start({
      prices: { "*": { input: 1000, output: 1000 } },
      teams: {
        search: { limits: { budget: "50 USD/month" } },
        ads: { limits: { requests: "5/s", mode: "observe" } },
      },
    });
    await signIn(page, ui.running.admin);
    await open(page, "Keys");
    await page.getByRole("button", { name: "Make a key" }).click();
    const dialog = page.getByRole("dialog");
    await dialog.getByLabel("Name").fill("team-x");
    await dialog.getByLabel("Team").selectOption("search");
    await dialog.getByLabel("Budget of tokens").fill("5M/month");
    await dialog.getByLabel("Budget of money").fill("20 EUR/day");
    await dialog.getByRole("button", { name: "Make the key" }).click();
    const money = dialog.locator(".field", { hasText: "Budget of money" });
    await money.getByRole("alert").getByText("Expected a budget in USD").waitFor();
    await dialog.getByLabel("Budget of money").fill("20 USD/day");
    await dialog.getByLabel("When one is reached").selectOption("strict");
    await dialog.getByRole("button", { name: "Make the key" }).click();
    const mode = dialog.locator(".field", { hasText: "When one is reached" });
    await mode.getByRole("alert").getByText("maxOutput").waitFor();
    await dialog.getByLabel("When one is reached").selectOption("enforce");
    await dialog.getByRole("button", { name: "Make the key" }).click();
    const key = await dialog.getByLabel("The whole key").innerText();
    assert.equal(
      await ui.callGateway(key, JSON.stringify({ ...JSON.parse(GOOD_BODY), max_tokens: 1 })),
      200,
    );
    await dialog.getByRole("button", { name: "I have it" }).click();
    const row = page.getByRole("row", { name: "team-x" });
    await lookAgain(page);
    await row.getByText("team search").waitFor();
    await row.getByText("2 of 5M tokens this month").waitFor(); // two tokens at 1000 USD for a million
    await row.getByText("0.0020 of 20 USD today").waitFor();
    await row.getByRole("button", { name: "Change" }).click();
    assert.deepEqual(
      [
        await dialog.getByLabel("Team").inputValue(),
        await dialog.getByLabel("Budget of money").inputValue(),
      ],
      ["search", "20 USD/day"],
    );
    await dialog.getByLabel("Team").selectOption("");
    await dialog.getByLabel("Budget of tokens").fill("");
    await dialog.getByLabel("When one is reached").selectOption("observe");
    await dialog.getByRole("button", { name: "Save" }).click();
    await row.getByText("only observed").waitFor();
    await row.getByText("team search").waitFor({ state: "detached" });
    await row.getByText("0.0020 of 20 USD today").waitFor();
    assert.equal(await row.getByText("of 5M tokens").count(), 0);
    ui.watched.assertClean(ui.running.admin, { status: 409, times: 2 });
  });

  it("filters keys by team and state, keeps the filter in the address, and lets a key use held keys", async () => {
    const page = await ui.start({ teams: { ads: { limits: {} }, search: { limits: {} } } });
    const make = async (name: string, more: Record<string, unknown> = {}) =>
      (await ui.running.call("POST", "/v1/keys", { body: { name, ...more } })).json.id;
    await make("banner", { team: "ads" });
    await make("finder", { team: "search" });
    const paused = await make("paused", { team: "ads" });
    await ui.running.call("POST", `/v1/keys/${paused}/disable`);
    await ui.running.call("POST", `/v1/keys/${paused}/rotate`, { body: { overlap: "24h" } });
    await signIn(page, ui.running.admin);
    await open(page, "Keys");
    const names = () => page.locator("table.keys .name").allInnerTexts();
    await page.getByRole("row", { name: "paused" }).getByText(
      /old secret valid for 24 hours, until/,
    )
      .waitFor();
    const first = await page.locator("main table").boundingBox();
    assert.ok(first !== null && first.y < 300, "keys come first");
    await page.getByLabel("Team", { exact: true }).selectOption("ads");
    await page.getByRole("row", { name: "finder" }).waitFor({ state: "detached" });
    assert.deepEqual(await names(), ["paused", "banner"]);
    await page.getByLabel("State").selectOption("active");
    await page.getByRole("row", { name: "paused" }).waitFor({ state: "detached" });
    assert.equal(await page.evaluate(() => location.hash), "#keys?team=ads&state=active");
    await page.reload();
    await page.getByRole("row", { name: "banner" }).waitFor();
    assert.deepEqual(await names(), ["banner"]);
    await page.getByRole("button", { name: "Change banner" }).click();
    const dialog = page.getByRole("dialog");
    await dialog.getByLabel("Provider keys of the gateway").selectOption("true");
    await dialog.getByRole("button", { name: "Save" }).click();
    await page.getByText("can use keys of the gateway").waitFor();
    await page.getByLabel("State").selectOption("expired");
    await page.getByText("No key matches these filters").waitFor();
    ui.watched.assertClean(ui.running.admin);
  });

  it("shows keys of the configuration, and says where to change them instead of offering actions that cannot work", async () => {
    const page = await ui.start({
      keys: [{ id: "own", name: "A", key: OWN_KEY, limits: { budget: "5M/month" } }],
    });
    assert.equal(await ui.callGateway(OWN_KEY), 200);
    await signIn(page, ui.running.admin);
    await open(page, "Keys");
    const row = page.getByRole("row", { name: "own" });
    await row.getByText("2 of 5M tokens this month").waitFor();
    await row.getByText(/^renews in \d+ (?:day|hour|minute)s?$/).waitFor();
    await page.getByText("These keys are in the configuration").waitFor();
    assert.equal(await page.locator("main").getByRole("button").count(), 0);
    await page.getByLabel("Search").fill("nothing-has-this");
    await page.getByText("No key has this").waitFor();
    ui.watched.assertClean(ui.running.admin);
  });
});
