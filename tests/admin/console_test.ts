/** The console in Chromium, on a gateway that runs as a program of its own on the runtime that runs the test. */
// runtimes: once
import assert from "node:assert/strict";
import { afterAll, afterEach, beforeAll, it } from "@std/testing/bdd";
import type { Browser, BrowserContextOptions, Page } from "playwright-core";
import { type AdminOptions, type Running, startAdmin, TOKEN } from "../support/admin.ts";
import { findBarriers, openPage, overflowOf, startBrowser, type Watched } from "../support/browser.ts";
import { GOOD_BODY, STREAM_BODY } from "../support/gateway.ts";
import { answerPlain, chunk } from "../support/provider.ts";
import { needs } from "../support/requires.ts";
import { until } from "../support/until.ts";

const VIEWS = ["Traffic", "Exchanges", "Providers", "Keys", "Playground"];
const OWN_KEY = "0123456789-own-key";
const MARK = "a-mark-that-only-the-content-holds";
const PIECES = ["Two ", "doors, ", "one ", "shut."];
const USAGE = { prompt_tokens: 8, completion_tokens: 4, total_tokens: 12 };
const PATIENCE_MS = 15_000;

/** A stream in pieces, with its tokens at the end. */
const answering: AdminOptions["answering"] = (response, { body }) => {
  if (!body.toString().includes('"stream":true')) return answerPlain(response);
  response.writeHead(200, { "content-type": "text/event-stream" });
  const pieces = [...PIECES];
  const timer = setInterval(() => {
    const piece = pieces.shift();
    if (piece !== undefined) return response.write(chunk(piece));
    clearInterval(timer);
    response.write(chunk(null, "stop"));
    response.end(`data: ${JSON.stringify({ choices: [], usage: USAGE })}\n\ndata: [DONE]\n\n`);
  }, 30);
};

async function signIn(page: Page, admin: string, token = TOKEN): Promise<void> {
  await page.goto(admin);
  await page.getByLabel("Admin token").fill(token);
  await page.getByRole("button", { name: "Sign in" }).click();
}

const open = (page: Page, view: string): Promise<void> => page.getByRole("link", { name: view, exact: true }).click();

needs(["chromium"]).describe("the console", () => {
  let browser: Browser;
  let running: Running;
  let watched: Watched;
  beforeAll(async () => {
    browser = await startBrowser();
  });
  afterAll(() => browser.close());
  afterEach(async () => {
    await watched.close();
    await running.stop();
  });

  const start = async (
    { args = [], ...more }: { args?: readonly string[]; [name: string]: unknown } = {},
    options: BrowserContextOptions = {},
  ): Promise<Page> => {
    running = await startAdmin(more, undefined, { answering, args });
    watched = await openPage(browser, options);
    return watched.page;
  };
  const callGateway = async (key: string, body = GOOD_BODY) => {
    const response = await fetch(`${running.url}/v1/chat/completions`, {
      method: "POST",
      headers: { authorization: "Bearer sk-1", "gateway-auth": `Bearer ${key}`, "content-type": "application/json" },
      body,
    });
    await response.text();
    return response.status;
  };
  const playOut = async (page: Page, key: string) => {
    await open(page, "Playground");
    await page.getByLabel("Model", { exact: true }).fill("test-1");
    await page.getByLabel("Provider's key").fill("sk-1");
    await page.getByLabel("Gateway key").fill(key);
    await page.getByRole("button", { name: "Send" }).click();
  };
  const tile = (page: Page, name: string) => page.locator(".tile:visible", { hasText: name }).locator("dd").first();

  it("signs in with the token, says when it is the wrong one, and keeps it nowhere", async () => {
    const page = await start();
    await signIn(page, running.admin, "not-the-token-at-all");
    await page.getByRole("alert").getByText("This is not the admin token").waitFor();
    await signIn(page, running.admin);
    await page.getByText("Ready").waitFor();
    const kept = await page.evaluate(() =>
      JSON.stringify([{ ...localStorage }, { ...sessionStorage }]) + document.cookie
    );
    assert.ok(!kept.includes(TOKEN));
    await page.reload();
    await page.getByLabel("Admin token").waitFor();
    watched.assertClean(running.admin, { status: 401, times: 1 });
    assert.ok(watched.requests.every((url) => !url.includes(TOKEN)));
  });

  it("says what to do where nobody may manage keys", async () => {
    const page = await start({ admin: { port: 0 } });
    await signIn(page, running.admin);
    await page.getByRole("alert").getByText("set admin.token in the configuration").waitFor();
    watched.assertClean(running.admin, { status: 403, times: 1 });
  });

  it("is of use when it is empty, and then shows the traffic of a running load, without its content", async () => {
    const page = await start({ keys: [{ id: "own", key: OWN_KEY }] });
    await signIn(page, running.admin);
    await page.getByText("Nothing has come through yet").waitFor();
    let isOn = true;
    const load = (async () => {
      for (let count = 0; isOn && count < 400; count++) {
        await callGateway(
          count % 5 === 4 ? "a-wrong-key-of-some-length" : OWN_KEY,
          count % 2 ? GOOD_BODY : STREAM_BODY,
        );
      }
    })();
    await page.getByRole("heading", { name: "Exchanges a second" }).waitFor();
    await until(async () => Number.parseFloat(await tile(page, "Exchanges").innerText()) > 0, "a rate", PATIENCE_MS);
    for (const name of ["Latency p95", "First token p95", "Gateway's own time"]) {
      await until(async () => /^[\d.]+ (?:µs|ms|s)$/.test(await tile(page, name).innerText()), name, PATIENCE_MS);
    }
    await until(async () => Number.parseFloat(await tile(page, "Tokens").innerText()) > 0, "tokens", PATIENCE_MS);
    await page.getByText("invalid gateway key").waitFor();
    assert.equal(await page.locator(".plot canvas").count(), 5);
    await open(page, "Exchanges");
    await page.getByRole("button", { name: "Errors" }).click();
    await page.getByText("None of those that are kept").waitFor(); // a refusal is no error
    await page.getByRole("button", { name: "Refused" }).click();
    await page.getByRole("cell", { name: "401" }).first().waitFor();
    assert.equal(await page.getByRole("cell", { name: "200" }).count(), 0);
    await page.getByRole("button", { name: "All", exact: true }).click();
    await page.getByRole("button", { name: "More filters" }).click();
    await page.getByLabel("Streams").selectOption("true");
    await page.getByRole("cell", { name: "401" }).first().waitFor({ state: "detached" });
    await page.locator("tbody button").first().click();
    await page.locator("dd", { hasText: "chat.completions" }).waitFor();
    assert.equal(await page.locator(".details .phases li", { hasText: "until the last byte" }).count(), 1);
    isOn = false;
    await load;
    await callGateway(OWN_KEY, GOOD_BODY.replace("Hi", MARK));
    await page.getByRole("button", { name: "Resume" }).click();
    await page.getByLabel("Filter", { exact: true }).fill("nothing-has-this");
    await page.getByText("None of those that are kept").waitFor();
    assert.ok(!(await page.content()).includes(MARK));
    await open(page, "Providers");
    await page.getByText("in service").first().waitFor();
    watched.assertClean(running.admin);
  });

  it("makes a key that works, shows its use, gives it a new secret, and ends it", async () => {
    const page = await start();
    await signIn(page, running.admin);
    await open(page, "Keys");
    await page.getByText("No keys yet").waitFor();
    await page.getByRole("button", { name: "Make a key" }).click();
    const dialog = page.getByRole("dialog");
    await dialog.getByLabel("Name").fill("team-x");
    await dialog.getByLabel("Requests").fill("six");
    await dialog.getByRole("button", { name: "Make the key" }).click();
    await dialog.getByRole("alert").getByText("limits.requests").waitFor();
    await dialog.getByLabel("Requests").fill("600/min");
    await dialog.getByLabel("b", { exact: true }).check();
    await dialog.getByLabel("a", { exact: true }).check();
    await dialog.getByRole("button", { name: "Make the key" }).click();
    const key = await dialog.getByLabel("The whole key").innerText();
    assert.match(key, /^gk_/);
    assert.equal(await callGateway(key), 200);
    await dialog.getByRole("button", { name: "I have it" }).click();
    const row = page.getByRole("row", { name: "team-x" });
    await row.getByText("requests 1 of 600/min").waitFor();
    assert.ok(!(await page.content()).includes(key.slice(16)), "the whole key is gone from the page");
    await row.getByRole("button", { name: "Rotate" }).click();
    await dialog.getByLabel("The old secret").selectOption("0s");
    await dialog.getByRole("button", { name: "Rotate" }).click();
    const rotated = await dialog.getByLabel("The whole key").innerText();
    assert.deepEqual([await callGateway(key), await callGateway(rotated)], [401, 200]);
    await page.keyboard.press("Escape");
    await row.getByRole("button", { name: "Change" }).click();
    await dialog.getByLabel("At once").fill("3");
    await dialog.getByRole("button", { name: "Save" }).click();
    await row.getByText("concurrency 0 of 3").waitFor();
    await row.getByRole("button", { name: "Revoke" }).click();
    await dialog.getByRole("button", { name: "Cancel" }).click();
    assert.equal(await callGateway(rotated), 200);
    await row.getByRole("button", { name: "Revoke" }).click();
    await dialog.getByRole("button", { name: "Revoke for good" }).click();
    await row.getByText("revoked").waitFor();
    assert.equal(await callGateway(rotated), 401);
    await open(page, "Exchanges");
    await page.getByText("invalid gateway key").first().waitFor();
    watched.assertClean(running.admin, { status: 400, times: 1 });
  });

  it("puts a key into a team, with budgets of tokens and money, and shows money as money", async () => {
    const page = await start({
      prices: { "*": { input: 1000, output: 1000 } },
      teams: { search: { limits: { budget: "50 USD/month" } }, ads: { limits: { requests: "5/s", mode: "observe" } } },
    });
    await signIn(page, running.admin);
    await open(page, "Keys");
    await page.getByRole("group", { name: "Team ads" }).getByText("only observed").waitFor();
    await page.getByRole("button", { name: "Make a key" }).click();
    const dialog = page.getByRole("dialog");
    await dialog.getByLabel("Name").fill("team-x");
    await dialog.getByLabel("Team").selectOption("search");
    await dialog.getByLabel("Budget of tokens").fill("5M/month");
    await dialog.getByLabel("Budget of money").fill("20 EUR/day");
    await dialog.getByRole("button", { name: "Make the key" }).click();
    await dialog.getByRole("alert").getByText("expected a budget in USD").waitFor();
    await dialog.getByLabel("Budget of money").fill("20 USD/day");
    await dialog.getByLabel("When one is reached").selectOption("strict");
    await dialog.getByRole("button", { name: "Make the key" }).click();
    await dialog.getByRole("alert").getByText("maxOutput").waitFor();
    await dialog.getByLabel("When one is reached").selectOption("enforce");
    await dialog.getByRole("button", { name: "Make the key" }).click();
    const key = await dialog.getByLabel("The whole key").innerText();
    assert.equal(await callGateway(key, JSON.stringify({ ...JSON.parse(GOOD_BODY), max_tokens: 1 })), 200);
    await dialog.getByRole("button", { name: "I have it" }).click();
    const row = page.getByRole("row", { name: "team-x" });
    await row.getByText("team search").waitFor();
    await row.getByText("budget 2 of 5M/month").waitFor(); // two tokens at 1000 USD for a million
    await row.getByText("0.0020 of 20 USD today").waitFor();
    await page.getByRole("group", { name: "Team search" }).getByText("0.0020 of 50 USD this month").waitFor();
    await row.getByRole("button", { name: "Change" }).click();
    assert.deepEqual(
      [await dialog.getByLabel("Team").inputValue(), await dialog.getByLabel("Budget of money").inputValue()],
      ["search", "20 USD/day"],
    );
    await dialog.getByLabel("Team").selectOption("");
    await dialog.getByLabel("Budget of tokens").fill("");
    await dialog.getByLabel("When one is reached").selectOption("observe");
    await dialog.getByRole("button", { name: "Save" }).click();
    await row.getByText("only observed").waitFor();
    await row.getByText("team search").waitFor({ state: "detached" });
    await row.getByText("0.0020 of 20 USD today").waitFor();
    assert.equal(await row.getByText("of 5M/month").count(), 0);
    watched.assertClean(running.admin, { status: 409, times: 2 });
  });

  for (const args of [[], ["--workers", "2"]]) {
    const where = args.length > 0 ? ", with workers" : "";
    it(`plays a streamed call out with its timing, and tells of a refusal in the gateway's words${where}`, async () => {
      const page = await start({ args, keys: [{ id: "own", key: OWN_KEY }] });
      await signIn(page, running.admin);
      await playOut(page, OWN_KEY);
      await page.locator(".said").getByText(PIECES.join("")).waitFor();
      await until(async () => await tile(page, "Output tokens").innerText() === "4", "the tokens", PATIENCE_MS);
      for (const name of ["Headers", "First token", "Last byte"]) {
        assert.match(await tile(page, name).innerText(), /^[\d.]+ (?:ms|s)$/, name);
      }
      await page.getByLabel("Gateway key").fill("a-wrong-key-of-some-length");
      await page.getByRole("button", { name: "Send" }).click();
      await page.getByRole("alert").getByText("gateway key").waitFor();
      await open(page, "Exchanges");
      await page.getByRole("cell", { name: "200" }).waitFor();
      await page.getByRole("cell", { name: "401" }).waitFor();
      await open(page, "Playground");
      assert.equal(await page.getByLabel("Provider's key").inputValue(), "sk-1", "looking elsewhere forgets nothing");
      watched.assertClean(running.admin, { status: 401, times: 1 });
    });
  }

  it("drains, says so, and takes it back", async () => {
    const page = await start();
    const readiness = async () => (await running.call("GET", "/readyz")).status;
    await signIn(page, running.admin);
    await page.getByRole("button", { name: "Drain" }).click();
    await page.getByRole("dialog").getByText("/readyz answers 503").waitFor();
    assert.equal(await readiness(), 200, "nothing was done before it was confirmed");
    await page.getByRole("dialog").getByRole("button", { name: "Drain" }).click();
    await page.getByText("Load balancers are told to turn elsewhere").waitFor();
    assert.equal(await readiness(), 503);
    await page.getByRole("button", { name: "Resume" }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Resume" }).click();
    await page.getByText("Ready").waitFor();
    assert.equal(await readiness(), 200);
    watched.assertClean(running.admin);
  });

  it("says when the gateway is gone", async () => {
    const page = await start();
    await signIn(page, running.admin);
    await page.getByText("Ready").waitFor();
    running.program.kill("SIGKILL");
    await page.getByText("Connecting").waitFor();
  });

  it("goes by keyboard, and remembers its colours only", async () => {
    const page = await start({}, { colorScheme: "light" });
    await signIn(page, running.admin);
    await page.getByText("Ready").waitFor();
    const focused = () => page.evaluate(() => document.activeElement?.textContent ?? "");
    await page.evaluate(() => (document.activeElement as HTMLElement | null)?.blur());
    const reached: string[] = [];
    for (let presses = 0; presses < 9; presses++) {
      await page.keyboard.press("Tab");
      reached.push(await focused());
    }
    assert.deepEqual(reached, ["Skip to the content", "System", "Drain", "Sign out", ...VIEWS]);
    await page.keyboard.press("Shift+Tab");
    await page.keyboard.press("Enter");
    await page.getByRole("button", { name: "Make a key" }).focus();
    await page.keyboard.press("Enter");
    await page.getByRole("dialog").waitFor();
    await page.keyboard.press("Escape");
    await page.getByRole("dialog").waitFor({ state: "detached" });
    const ground = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
    const light = await ground();
    const colours = page.getByRole("button", { name: "Colours" });
    await colours.click();
    await colours.click();
    await until(async () => await ground() !== light, "it is dark");
    assert.deepEqual(await page.evaluate(() => ({ ...localStorage })), { "sallyport-theme": "dark" });
    await page.getByRole("button", { name: "Sign out" }).click();
    await page.getByLabel("Admin token").waitFor();
    watched.assertClean(running.admin);
  });

  for (const colorScheme of ["light", "dark"] as const) {
    it(`puts up no barrier that axe-core calls serious, in ${colorScheme}, and fits on 380 pixels`, async () => {
      const teams = { search: { limits: { budget: ["5M/month", "50 USD/month"], requests: "600/min" } } };
      const prices = { "*": { input: 1, output: 1 } };
      const page = await start({ teams, prices }, { colorScheme, reducedMotion: "reduce" });
      await page.goto(running.admin);
      assert.deepEqual(await findBarriers(page), [], "sign-in");
      await signIn(page, running.admin);
      await page.getByText("Nothing has come through yet").waitFor();
      assert.deepEqual(await findBarriers(page), [], "empty");
      const long = "a-name-of-a-key-that-is-much-longer-than-a-telephone-is-wide";
      const limits = { requests: "600/min", tokens: "2M/min", budget: "5M/month", concurrency: 4 };
      const { json } = await running.call("POST", "/v1/keys", {
        body: { name: long, team: "search", limits, models: ["test-*", "a-*"] },
      });
      for (const body of [GOOD_BODY, STREAM_BODY, GOOD_BODY.replace("test-1", long)]) await callGateway(json.key, body);
      await callGateway("a-wrong-key-of-some-length");
      await page.getByText("invalid gateway key").waitFor();
      await page.evaluate(() => document.getAnimations().forEach((animation) => animation.finish()));
      for (const width of [1200, 380]) {
        await page.setViewportSize({ width, height: 800 });
        for (const view of VIEWS) {
          await open(page, view);
          if (view === "Exchanges") await page.locator("tbody button").first().click();
          if (view === "Keys") await page.getByText(long).waitFor();
          assert.deepEqual(await findBarriers(page), [], `${view} at ${width}`);
          assert.equal(await overflowOf(page), 0, `${view} at ${width}`);
        }
        await playOut(page, json.key);
        await page.locator(".said").getByText(PIECES.join("")).waitFor();
        assert.deepEqual(await findBarriers(page), [], `an answer at ${width}`);
        await open(page, "Keys");
        for (const name of ["Make a key", `Change ${long}`, `Rotate ${long}`, `Revoke ${long}`]) {
          await page.getByRole("button", { name }).first().click();
          assert.deepEqual(await findBarriers(page), [], `${name} at ${width}`);
          const box = await page.getByRole("dialog").boundingBox();
          assert.ok(box !== null && box.x >= 0 && box.x + box.width <= width, `${name} fits ${width}`);
          await page.keyboard.press("Escape");
        }
      }
      watched.assertClean(running.admin);
    });
  }
});
