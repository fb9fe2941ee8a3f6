/**
 * The exchanges view of the console in Chromium: rows, filters in the URL, older exchanges, and
 * pausing.
 */
// runtimes: once
import assert from "node:assert/strict";
import { afterEach, it } from "@std/testing/bdd";
import type { BrowserContextOptions, Page } from "playwright-core";
import { type Running, startAdmin, TOKEN } from "../support/admin.ts";
import { findBarriers, openPage, overflowOf, type Watched } from "../support/browser.ts";
import { freePort } from "../support/free_port.ts";
import { GOOD_BODY, STREAM_BODY } from "../support/gateway.ts";
import { answerPlain, answerStream, stream } from "../support/provider.ts";
import { needs } from "../support/requires.ts";
import { until } from "../support/until.ts";

const MARK = "a-mark-that-only-the-content-holds";

needs(["chromium-headless-shell"]).describe("the exchanges view", () => {
  let running: Running;
  let watched: Watched;
  afterEach(async () => {
    await watched.close();
    await running.stop();
  });

  const start = async (
    more: Record<string, unknown> = {},
    options: BrowserContextOptions = {},
  ): Promise<Page> => {
    running = await startAdmin(more, undefined, {
      answering: (response, { body }) =>
        body.toString().includes('"stream":true')
          ? answerStream(response, stream("Hello"))
          : answerPlain(response),
    });
    watched = await openPage(options);
    return watched.page;
  };
  const signIn = async (page: Page, hash = "#exchanges") => {
    await page.goto(`${running.admin}/${hash}`);
    await page.getByLabel("Admin token").fill(TOKEN);
    await page.getByRole("button", { name: "Sign in" }).click();
    await page.getByLabel("Filter", { exact: true }).waitFor();
  };
  const makeKey = async (name: string): Promise<{ key: string; id: string }> =>
    (await running.call("POST", "/v1/keys", { body: { name } })).json;
  const callGateway = async (key: string, body = GOOD_BODY, more = {}): Promise<string> => {
    const response = await fetch(`${running.url}/v1/chat/completions`, {
      method: "POST",
      headers: {
        authorization: "Bearer sk-1",
        "gateway-auth": `Bearer ${key}`,
        "content-type": "application/json",
        ...more,
      },
      body,
    });
    await response.text();
    return response.headers.get("x-request-id") ?? "";
  };
  const rows = (page: Page) => page.locator("tbody tr.row");
  const untilRows = (page: Page, count: number) =>
    until(async () => await rows(page).count() === count, `${count} rows`);
  const hash = (page: Page) => page.evaluate(() => location.hash);

  it("opens a row with a click anywhere on it and with keys, and moves between rows with the arrow keys", async () => {
    const page = await start();
    const { key } = await makeKey("search-team");
    for (const model of ["m-1", "m-2", "m-3"]) {
      await callGateway(key, GOOD_BODY.replace("test-1", model));
    }
    await signIn(page);
    await untilRows(page, 3);
    await rows(page).nth(1).getByRole("cell", { name: "m-2" }).click();
    const button = (index: number) => rows(page).nth(index).getByRole("button");
    const focused = async () =>
      await page.evaluate(() => document.activeElement?.closest("tr")?.innerText ?? "");
    assert.equal(await button(1).getAttribute("aria-expanded"), "true");
    await page.locator(".details", { hasText: "search-team (" }).waitFor();
    assert.match(await focused(), /m-2/, "the keys go on from the row that was clicked");
    await page.keyboard.press("ArrowUp");
    assert.match(await focused(), /m-3/);
    for (const [press, open] of [["Enter", true], ["Space", false], ["Enter", true]] as const) {
      await page.keyboard.press(press);
      assert.equal(await button(0).getAttribute("aria-expanded"), String(open), press);
    }
    assert.equal(await button(1).getAttribute("aria-expanded"), "false", "one at a time");
    await page.keyboard.press("End");
    assert.match(await focused(), /m-1/);
    await page.keyboard.press("Home");
    assert.match(await focused(), /m-3/);
    assert.equal(
      await page.locator("tbody button[tabindex='0']").count(),
      1,
      "one stop of the Tab key",
    );
    watched.assertClean(running.admin);
  });

  it("names keys, explains a failure, and links to the exchanges that share a value", async () => {
    const nobody = `http://127.0.0.1:${await freePort()}/v1`;
    const page = await start({ providers: { a: { hosts: ["*"], upstream: nobody } } });
    const { key, id } = await makeKey("search-team");
    await callGateway(key, GOOD_BODY.replace("Hi", MARK));
    await callGateway("a-wrong-key-of-some-length");
    await signIn(page);
    await untilRows(page, 2);
    await rows(page).filter({ hasText: "search-team" }).filter({ hasText: id }).click();
    const failure = page.locator(".failure");
    for (
      const text of [
        "Cause: refused",
        "Nothing listens",
        "The way to the provider",
        "Check the port",
      ]
    ) {
      await failure.getByText(text).waitFor();
    }
    const failures = page.getByRole("region", { name: "Failures among these exchanges" });
    await failures.getByText(/^refused, since \d\d:\d\d:\d\d: without a team 1$/).waitFor();
    const open = new URLSearchParams((await hash(page)).split("?")[1]).get("open");
    assert.match(open ?? "", /^[\w-]+$/, "the open exchange is in the address");
    await page.reload();
    await failure.getByText("Cause: refused").waitFor();
    await page.getByRole("link", { name: "upstream_unreachable" }).click();
    await untilRows(page, 1);
    assert.equal(await hash(page), "#exchanges?code=upstream_unreachable");
    await page.getByRole("button", { name: "Clear" }).click();
    await untilRows(page, 2);
    await rows(page).filter({ hasText: "401" }).click();
    await failure.getByText("The caller's request").waitFor();
    assert.ok(!(await page.content()).includes(MARK));
    watched.assertClean(running.admin);
  });

  it("shows the attribution of a call, and links to the exchanges of the same user", async () => {
    const page = await start({ attribution: { user: "x-user", client: "user-agent family" } });
    const { key } = await makeKey("team");
    for (const user of ["ann", "bob", "ann"]) {
      await callGateway(key, GOOD_BODY, { "x-user": user, "user-agent": "opencode/1.18.0" });
    }
    await signIn(page);
    await untilRows(page, 3);
    await rows(page).first().click();
    await page.getByRole("link", { name: "opencode" }).waitFor();
    await page.getByRole("link", { name: "ann" }).click();
    await untilRows(page, 2);
    assert.equal(await hash(page), "#exchanges?user=ann");
    watched.assertClean(running.admin);
  });

  it("applies all filters together, and keeps them in the URL", async () => {
    const page = await start();
    const [search, ads] = [await makeKey("search-team"), await makeKey("ads-team")];
    const wanted = await callGateway(ads.key, STREAM_BODY);
    await callGateway(ads.key, GOOD_BODY);
    await callGateway(search.key, STREAM_BODY);
    await callGateway("a-wrong-key-of-some-length");
    await signIn(page);
    await untilRows(page, 4);
    await page.getByRole("button", { name: "More filters" }).click();
    await page.getByLabel("Key", { exact: true }).fill("ADS");
    await untilRows(page, 2);
    await page.getByLabel("First token after").fill("0ms");
    await untilRows(page, 1);
    const fields = page.locator("#exchange-filters");
    await fields.getByLabel("Provider").selectOption("a");
    await fields.getByLabel("Model").fill("test");
    await fields.getByLabel("Operation").fill("chat");
    await page.getByLabel("Took at least").fill("0");
    await page.getByRole("button", { name: "OK", exact: true }).click();
    await untilRows(page, 1);
    const query = new URLSearchParams((await hash(page)).split("?")[1]);
    assert.deepEqual(Object.fromEntries(query), {
      key: "ADS",
      minFirstToken: "0ms",
      provider: "a",
      model: "test",
      operation: "chat",
      minDuration: "0",
      outcome: "ok",
    });
    await page.getByLabel("Took at least").fill("2 hou");
    assert.equal(await page.getByLabel("Took at least").getAttribute("aria-invalid"), "true");
    await untilRows(page, 1);
    await page.getByLabel("Took at least").fill("2h");
    await page.getByText("No kept exchange matches. Change the filter").waitFor();
    await page.getByLabel("Took at least").fill("0");
    const shared = await hash(page);
    await page.goto("about:blank");
    await page.goto(`${running.admin}/${shared}`); // this tab is signed in
    await untilRows(page, 1);
    assert.equal(await page.getByLabel("Key", { exact: true }).inputValue(), "ADS");
    await rows(page).first().click();
    await page.getByRole("link", { name: wanted }).waitFor();
    await page.getByRole("button", { name: "Refused" }).click();
    await page.getByText("No kept exchange matches").waitFor();
    watched.assertClean(running.admin);
  });

  it("loads older exchanges, and finds the only failure far back", async () => {
    const page = await start();
    const { key } = await makeKey("x");
    await callGateway(key, GOOD_BODY.replace("test-1", "the-first-one"));
    await callGateway("a-wrong-key-of-some-length");
    for (let count = 0; count < 60; count++) {
      await Promise.all(Array.from({ length: 8 }, () => callGateway(key)));
    }
    // Exchanges of the current second arrive with the next report, which a paused list does not
    // show.
    const settledBy = Date.now();
    await until(
      () => Math.floor(Date.now() / 1000) > Math.floor(settledBy / 1000),
      "the second is over",
    );
    await signIn(page);
    await untilRows(page, 100);
    await page.getByRole("button", { name: "Show older" }).click();
    await untilRows(page, 300);
    await page.getByRole("button", { name: "Show older" }).click();
    await page.getByText("482 shown, all that are kept").waitFor();
    await page.getByRole("button", { name: "Refused" }).click();
    await untilRows(page, 1);
    await page.getByRole("button", { name: "All", exact: true }).click();
    await page.getByLabel("Filter", { exact: true }).fill("the-first");
    await untilRows(page, 1);
    watched.assertClean(running.admin);
  });

  it("streams, pauses on request or while the user reads, and does not jump", async () => {
    const page = await start();
    const { key } = await makeKey("x");
    for (let count = 0; count < 60; count++) await callGateway(key);
    await signIn(page);
    await untilRows(page, 60);
    await callGateway(key);
    await untilRows(page, 61);
    await page.getByRole("button", { name: "Pause" }).click();
    await callGateway(key);
    await page.getByRole("button", { name: "Resume (1 new)" }).waitFor();
    assert.equal(await rows(page).count(), 61);
    await page.getByRole("button", { name: "Resume" }).click();
    await untilRows(page, 62);
    const row = rows(page).nth(40);
    await row.scrollIntoViewIfNeeded();
    await page.getByRole("button", { name: "Resume" }).waitFor();
    const text = await row.innerText();
    const before = (await row.boundingBox())?.y;
    await callGateway(key);
    await page.getByRole("button", { name: "Resume (1 new)" }).waitFor();
    assert.deepEqual([(await row.boundingBox())?.y, await row.innerText()], [before, text]);
    await page.evaluate(() => scrollTo(0, 0));
    await untilRows(page, 63);
    await rows(page).nth(2).getByRole("button").focus();
    await callGateway(key);
    await page.getByRole("button", { name: "Resume (1 new)" }).waitFor();
    await page.getByLabel("Filter", { exact: true }).focus();
    await untilRows(page, 64);
    watched.assertClean(running.admin);
  });

  for (const colorScheme of ["light", "dark"] as const) {
    it(`has no barrier that axe-core rates serious, in ${colorScheme}, at three widths`, async () => {
      const page = await start({}, { colorScheme, reducedMotion: "reduce" });
      const long = "a-name-of-a-key-that-is-much-longer-than-a-telephone-is-wide";
      const { key } = await makeKey(long);
      for (const body of [GOOD_BODY, STREAM_BODY, GOOD_BODY.replace("test-1", long)]) {
        await callGateway(key, body);
      }
      await callGateway("a-wrong-key-of-some-length");
      await signIn(page, "#exchanges?minDuration=0");
      await untilRows(page, 4);
      for (const width of [1280, 800, 390]) {
        await page.setViewportSize({ width, height: 800 });
        for (const index of [0, 1]) {
          await rows(page).nth(index).getByRole("button").click();
          await page.locator(".details").waitFor();
          assert.deepEqual(await findBarriers(page), [], `row ${index} at ${width}`);
          assert.equal(await overflowOf(page), 0, `row ${index} at ${width}`);
        }
      }
      watched.assertClean(running.admin);
    });
  }
});
