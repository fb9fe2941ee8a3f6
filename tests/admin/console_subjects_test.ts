/** The console's pages of teams and keys: which team, since when, why. */
// runtimes: once
import assert from "node:assert/strict";
import { it } from "@std/testing/bdd";
import { open, signIn, tile, useConsole } from "../support/console.ts";
import { assertSound } from "../support/console_layout.ts";
import { GOOD_BODY } from "../support/gateway.ts";
import { needs } from "../support/requires.ts";
import { until } from "../support/until.ts";

const SETTINGS = { prices: { "*": { input: 1e6, output: 1e6 } } }; // one unit for each token

needs(["chromium-headless-shell"]).describe("the console's pages of teams and keys", () => {
  const ui = useConsole();

  async function make(): Promise<{ id: string }> {
    const { call } = ui.running;
    const team = {
      name: "search",
      limits: { requests: "2/h", budget: ["5M/month", "50 USD/month"] },
    };
    await call("POST", "/v1/teams?reason=launch", { body: team });
    const policy = { name: "web", team: "search", limits: { budget: "1M/day" } };
    const { json } = await call("POST", "/v1/keys", { body: policy });
    for (const status of [200, 200, 429]) assert.equal(await ui.callGateway(json.key), status);
    const isCounted = async () =>
      (await call("GET", "/v1/history?team=search")).json.totals.calls === 3;
    await until(isCounted, "all are counted");
    return json;
  }

  it("say which team fails, since when and why, with budgets, keys and changes", async () => {
    const page = await ui.start(SETTINGS);
    const { id } = await make();
    await signIn(page, ui.running.admin);
    await open(page, "Teams");
    const teams = page.getByRole("region", { name: "Calls by team", exact: true });
    assert.match(await teams.innerText(), /search\s+3\s+1\s+4\.00/);
    await open(page, "Keys");
    await page.getByRole("link", { name: "search", exact: true }).first().waitFor();
    await open(page, "Teams");
    await teams.getByRole("link", { name: "search", exact: true }).click();
    await page.waitForURL(/#team\?id=search$/);
    await page.getByRole("heading", { name: "Team search" }).waitFor();
    await page.waitForFunction(() => document.title === "Team · Sallyport");
    const causes = page.getByRole("region", { name: "Failed calls by cause" });
    await causes.getByText("rate limit exceeded").waitFor();
    assert.match(await causes.innerText(), /refused[^]*rate limit exceeded[^]*1[^]*since[^]*UTC/);
    assert.equal(await tile(page, "Calls").innerText(), "3");
    assert.equal(await tile(page, "Spend").innerText(), "4.00");
    const budgets = page.getByRole("region", { name: "Budgets" });
    assert.match(await budgets.innerText(), /4[^]*of 50[^]*USD this month/);
    const keys = page.getByRole("region", { name: "Keys", exact: true });
    assert.match(await keys.innerText(), /web\s+3\s+1\s+4\.00/);
    const changes = page.getByRole("region", { name: "Last changes" });
    assert.match(await changes.innerText(), /create[^]*web[^]*create[^]*search[^]*“launch”/);
    await keys.getByRole("link", { name: "web" }).click();
    await page.getByRole("heading", { name: "Key web" }).waitFor();
    await page.waitForURL(new RegExp(`#key\\?id=${id}$`));
    await causes.getByText("rate limit exceeded").waitFor();
    await page.getByRole("link", { name: "team search", exact: true }).click();
    await page.getByRole("heading", { name: "Team search" }).waitFor();
    await causes.getByRole("link", { name: "rate limit exceeded" }).click();
    await page.waitForURL(/#exchanges\?team=search&code=rate_limit_exceeded$/);
    await page.getByText("rate limit exceeded").first().waitFor();
    ui.watched.assertClean(ui.running.admin);
  });

  it("have a range in their address: an hour, a day or 30 days", async () => {
    const page = await ui.start(SETTINGS);
    await make();
    const asked: string[] = [];
    page.on("request", (request) => {
      const { pathname, searchParams } = new URL(request.url());
      if (pathname === "/v1/history") asked.push(String(searchParams.get("last")));
    });
    await signIn(page, `${ui.running.admin}#team?id=search&last=1h`);
    const charts = page.locator(".chart canvas");
    await charts.nth(3).waitFor();
    await page.getByRole("button", { name: "30 days" }).click();
    await page.waitForURL(/#team\?id=search&last=30d$/);
    await charts.nth(3).waitFor();
    await until(() => asked.includes("30d"), "30 days are asked for");
    assert.equal(asked[0], "1h");
    await page.getByText("All changes").waitFor();
    await page.goBack();
    await page.locator("button[aria-pressed=true]", { hasText: "1 h" }).waitFor();
    ui.watched.assertClean(ui.running.admin);
  });

  it("of a provider say why and for whom its calls fail, with its limits and last exchanges", async () => {
    const page = await ui.start({
      ...SETTINGS,
      providers: (upstream: string) => ({
        a: { hosts: ["localhost"], upstream, limits: { requests: "100/h" } },
      }),
    });
    await make();
    await signIn(page, ui.running.admin);
    await open(page, "Providers");
    await page.getByRole("link", { name: "a", exact: true }).click();
    await page.waitForURL(/#provider\?id=a$/);
    await page.getByRole("heading", { name: "Provider a", exact: true }).waitFor();
    await page.locator(".chart canvas").nth(3).waitFor();
    assert.equal(await tile(page, "Calls").innerText(), "3");
    assert.equal(await tile(page, "Spend").innerText(), "4.00");
    const section = (name: string) => page.getByRole("region", { name, exact: true });
    await section("Failed calls by cause").getByText("rate limit exceeded").waitFor();
    assert.match(await section("Calls by team").innerText(), /search\s+3\s+1\s+4\.00/);
    assert.match(await section("Limits").innerText(), /Requests[^]*of 100/);
    assert.equal(await section("Budgets").count() + await section("Last changes").count(), 0);
    const last = section("Last exchanges");
    await last.getByRole("listitem").nth(2).waitFor();
    assert.match(await last.innerText(), /rate limit exceeded[^]*ok\s+test-1\s+web[^]*2\.00/);
    await page.setViewportSize({ width: 390, height: 844 });
    await assertSound(page, "the page of a provider");
    await page.reload();
    await last.getByRole("link", { name: "web" }).first().click();
    await page.getByRole("heading", { name: "Key web" }).waitFor();
    // As soon as the page of the provider is there, before the next frame.
    await page.evaluate(() => {
      const observer = new MutationObserver(() => {
        if (document.querySelector("h1")?.textContent !== "Provider a") return;
        observer.disconnect();
        location.hash = "#provider?id=gone";
      });
      observer.observe(document.body, { childList: true, subtree: true, characterData: true });
    });
    await section("Providers").getByRole("link", { name: "a", exact: true }).click();
    await page.getByText("no such provider any more").waitFor();
    ui.watched.assertClean(ui.running.admin);
  });

  it("show the history of a team that was deleted", async () => {
    const page = await ui.start(SETTINGS);
    await make();
    await ui.running.call("DELETE", "/v1/teams/search?force=true&reason=merged");
    await signIn(page, `${ui.running.admin}#team?id=search`);
    await page.getByText("no such team any more").waitFor();
    assert.equal(await tile(page, "Calls").innerText(), "3");
    await page.getByText("“merged”").waitFor();
  });

  it("and the view of usage group usage by the dimensions of attribution that are counted", async () => {
    const page = await ui.start({
      ...SETTINGS,
      attribution: { user: "x-user", session: "x-session", usage: ["user"] },
    });
    const { call } = ui.running;
    await call("POST", "/v1/teams", { body: { name: "search", limits: {} } });
    const { json } = await call("POST", "/v1/keys", { body: { name: "web", team: "search" } });
    for (const user of ["ann", "bob", "bob"]) {
      assert.equal(await ui.callGateway(json.key, GOOD_BODY, { "x-user": user }), 200);
    }
    const usage = async () => (await call("GET", "/v1/usage?by=user")).json;
    await until(async () => (await usage()).totals.requests === 3, "all are counted");
    assert.deepEqual((await usage()).counted, ["user"]);
    await signIn(page, `${ui.running.admin}#team?id=search`);
    const section = page.getByRole("region", { name: "Usage", exact: true });
    await section.getByText("test-1").waitFor();
    const offered = await section.getByLabel("Usage by").locator("option").allInnerTexts();
    assert.deepEqual(
      offered,
      [
        "by key",
        "by model",
        "by provider",
        "by operation",
        "by billing class",
        "by payer",
        "by user",
      ],
    );
    await section.getByLabel("Usage by").selectOption("user");
    await section.getByRole("link", { name: "bob" }).waitFor();
    assert.match(await section.innerText(), /bob\s+2\s+0\s+4\s+4\.00\s+ann\s+1\s+0\s+2\s+2\.00/);
    await page.reload();
    await section.getByRole("link", { name: "bob" }).waitFor();
    await page.evaluate((id) => location.hash = `#key?id=${id}&by=user`, json.id);
    await page.getByRole("heading", { name: "Key web" }).waitFor();
    await section.getByRole("link", { name: "bob" }).click();
    await page.waitForURL(new RegExp(`#usage\\?key=${json.id}&range=24h&by=model&user=bob$`));
    await page.getByRole("button", { name: "not only user bob" }).click();
    await page.getByTitle("Open user ann").waitFor();
    const by = page.getByLabel("By", { exact: true });
    assert.equal(await by.inputValue(), "user");
    await by.selectOption("model");
    const then = page.getByLabel("Then by");
    assert.equal(await then.locator("option[value=session]").count(), 0, "it is not counted");
    await then.selectOption("user");
    await page.getByTitle("Open user bob").waitFor();
    ui.watched.assertClean(ui.running.admin);
  });
});
