/** The console's view of teams: each dialog works, and each team links to what it concerns. */
// runtimes: once
import assert from "node:assert/strict";
import { it } from "@std/testing/bdd";
import { lookAgain, open, OWN_KEY, signIn, useConsole } from "../support/console.ts";
import { needs } from "../support/requires.ts";

needs(["chromium-headless-shell"]).describe("the console's view of teams", () => {
  const ui = useConsole();
  const table = () => ui.watched.page.getByRole("region", { name: "Teams", exact: true });
  const rowOf = (name: string) =>
    table().getByRole("row").filter({
      has: ui.watched.page.getByText(name, { exact: true }),
    });

  it("creates a team with limits and held keys, changes it, and deletes it once no key uses it", async () => {
    const page = await ui.start({ prices: { "*": { input: 1000, output: 1000 } } });
    await signIn(page, ui.running.admin);
    await open(page, "Teams");
    await page.getByText("No teams yet").waitFor();
    await page.getByRole("button", { name: "Make a team" }).click();
    const dialog = page.getByRole("dialog");
    const field = (label: string) => dialog.locator(".field", { hasText: label });
    await dialog.getByLabel("Name").fill("Ads");
    await dialog.getByLabel("Requests").fill("600rpm");
    await dialog.getByLabel("Budget of money").fill("$50/month");
    await dialog.getByLabel("Budget of tokens").fill("50/month");
    await field("Budget of tokens").getByText("counts 50 tokens").waitFor();
    await dialog.getByRole("button", { name: "Make the team" }).click();
    await field("Requests").getByRole("alert").getByText('the period is written "/min"').waitFor();
    await field("Budget of money").getByRole("alert").getByText('"50 USD/month"').waitFor();
    await dialog.getByLabel("Requests").fill("600/min");
    await dialog.getByLabel("Budget of money").fill("50/month");
    await dialog.getByRole("button", { name: "Make the team" }).click();
    await field("Budget of money").getByRole("alert").getByText("Expected money").waitFor();
    await dialog.getByLabel("Budget of money").fill("50 USD/month");
    await field("Name").getByRole("alert").getByText("lower-case letters").waitFor();
    await dialog.getByLabel("Name").fill("ads");
    await dialog.getByLabel("provider keys that the gateway holds").check();
    await dialog.getByRole("button", { name: "Make the team" }).click();
    await rowOf("ads").getByText("0 of 600 per minute").waitFor();
    const { json: made } = await ui.running.call("GET", "/v1/teams/ads");
    assert.deepEqual([made.heldKeys, made.limits.budget], [true, ["50/month", "50 USD/month"]]);

    const policy = { name: "banner", team: "ads" };
    const { json: { key } } = await ui.running.call("POST", "/v1/keys", { body: policy });
    assert.equal(await ui.callGateway(key), 200);
    await lookAgain(page);
    await rowOf("ads").getByText("1 of 600 per minute").waitFor();

    await page.getByRole("button", { name: "Change team ads" }).click();
    assert.equal(await dialog.getByLabel("Budget of money").inputValue(), "50 USD/month");
    await dialog.getByLabel("Budget of tokens").fill("");
    await dialog.getByLabel("provider keys that the gateway holds").uncheck();
    await dialog.getByRole("button", { name: "Save" }).click();
    await rowOf("ads").getByText("of 50 tokens").waitFor({ state: "detached" });
    const { json: changed } = await ui.running.call("GET", "/v1/teams/ads");
    assert.deepEqual([changed.heldKeys, changed.limits.budget], [undefined, "50 USD/month"]);

    await page.getByRole("button", { name: "Delete team ads" }).click();
    await dialog.getByRole("button", { name: "Delete" }).click();
    await dialog.getByRole("alert").getByText("1 key uses it: banner").waitFor();
    assert.equal(await ui.callGateway(key), 200);
    await dialog.getByRole("button", { name: "Delete and refuse its keys" }).click();
    await page.getByText("No teams yet").waitFor();
    assert.equal(await ui.callGateway(key), 403);
    ui.watched.assertClean(ui.running.admin, { status: 409, times: 1 });
  });

  it("says which team fails, since when and why, and links to its exchanges and keys", async () => {
    const page = await ui.start({
      teams: { ads: { limits: { requests: "1/day" } }, search: { limits: {} } },
    });
    const make = async (name: string, team: string) =>
      (await ui.running.call("POST", "/v1/keys", { body: { name, team } })).json.key;
    const [banner, finder] = [await make("banner", "ads"), await make("finder", "search")];
    assert.deepEqual(
      [await ui.callGateway(banner), await ui.callGateway(banner), await ui.callGateway(finder)],
      [200, 429, 200],
    );
    await signIn(page, ui.running.admin);
    await page.getByRole("link", { name: "rate limit exceeded" }).waitFor();
    await page.getByText(/^since \d\d:\d\d:\d\d: ads 1$/).waitFor();
    await open(page, "Teams");
    const none = rowOf("search").getByText("none", { exact: true });
    await none.waitFor();
    await page.setViewportSize({ width: 390, height: 800 });
    const before = await none.evaluate((each) => getComputedStyle(each, "::before").content);
    assert.equal(before, "none", "no comma before the only text");
    await page.setViewportSize({ width: 1000, height: 800 });
    const lines = await rowOf("ads").getByText("in the configuration").evaluate((hint) => {
      const word = document.createRange();
      word.setStart(hint.firstChild as Text, "in the ".length);
      word.setEnd(hint.firstChild as Text, "in the configuration".length);
      return word.getClientRects().length;
    });
    assert.equal(lines, 1, "the word is not broken");
    await page.setViewportSize({ width: 1280, height: 800 });
    await rowOf("ads").getByText(/^since \d\d:\d\d:\d\d$/).waitFor();
    await rowOf("ads").getByRole("link", { name: "rate limit exceeded" }).click();
    await page.locator("tbody tr.row").filter({ hasText: "banner" }).waitFor();
    assert.equal(await page.locator("tbody tr.row").count(), 1);
    assert.equal(
      await page.evaluate(() => location.hash),
      "#exchanges?team=ads&code=rate_limit_exceeded",
    );
    await open(page, "Teams");
    await page.getByRole("link", { name: "Keys of team search" }).click();
    await page.getByRole("row", { name: "finder" }).waitFor();
    await page.getByText("only the limits of team search").waitFor();
    assert.equal(await page.getByRole("row", { name: "banner" }).count(), 0);
    ui.watched.assertClean(ui.running.admin);
  });

  it("shows teams of the configuration, and says where to change them", async () => {
    const page = await ui.start({
      keys: [{ id: "own", key: OWN_KEY, team: "ads" }],
      teams: { ads: { limits: { requests: "9/s", mode: "observe" } }, other: { limits: {} } },
    });
    await signIn(page, ui.running.admin);
    await open(page, "Teams");
    await rowOf("ads").getByText("only observed").waitFor();
    await page.getByText("Keys are in the configuration, so teams are too").waitFor();
    assert.equal(await table().getByRole("button").count(), 0);
    await page.getByLabel("Search").fill("OTH");
    await rowOf("ads").waitFor({ state: "detached" });
    await page.reload();
    await rowOf("other").waitFor();
    assert.equal(await page.getByLabel("Search").inputValue(), "OTH");
    ui.watched.assertClean(ui.running.admin);
  });
});
