/** The console's view of changes of keys and teams. */
// runtimes: once
import assert from "node:assert/strict";
import { it } from "@std/testing/bdd";
import { open, signIn, useConsole } from "../support/console.ts";
import { needs } from "../support/requires.ts";

needs(["chromium-headless-shell"]).describe("the console's view of changes", () => {
  const ui = useConsole();

  it("shows who changed what and why, and narrows it to a team by its address", async () => {
    const page = await ui.start();
    const { call } = ui.running;
    await signIn(page, ui.running.admin);
    await open(page, "Changes");
    await page.getByText("No changes yet.").waitFor();
    const team = { name: "search", limits: { requests: "5/min" } };
    await call("POST", "/v1/teams?reason=launch", { body: team });
    const { json } = await call("POST", "/v1/keys", { body: { name: "stray" } });
    await call("PATCH", "/v1/teams/search", { body: { limits: { requests: "7/min" } } });
    await page.reload();
    const items = page.locator(".changes > li");
    await items.nth(2).waitFor();
    const texts = await items.allInnerTexts();
    assert.match(
      texts[0] ?? "",
      /update\s+team\s+search[^]*just now by admin token[^]*5\/min → 7\/min/,
    );
    assert.match(texts[1] ?? "", /create\s+key\s+stray/);
    assert.match(texts[2] ?? "", /create\s+team\s+search[^]*“launch”/);
    await page.getByLabel("Team", { exact: true }).fill("search");
    // The field keeps its text while the view is loaded again.
    await page.waitForResponse(/v1\/changes/);
    await page.evaluate(() => new Promise(requestAnimationFrame));
    await page.keyboard.press("Enter");
    await page.waitForURL(/#changes\?team=search$/);
    await page.waitForFunction(() => document.querySelectorAll(".changes > li").length === 2);
    await page.goBack();
    await items.nth(2).waitFor();
    await page.getByLabel("Id of a key or caller").fill(json.id);
    await page.keyboard.press("Enter");
    await page.waitForFunction(() => document.querySelectorAll(".changes > li").length === 1);
    ui.watched.assertClean(ui.running.admin);
  });
});
