/** The console's view of runs. */
// runtimes: once
import assert from "node:assert/strict";
import { it } from "@std/testing/bdd";
import { findViolations } from "../support/browser.ts";
import { open, signIn, useConsole } from "../support/console.ts";
import { assertSound } from "../support/console_layout.ts";
import { needs } from "../support/requires.ts";
import { callInRun } from "../support/runs.ts";

const LONG_ID = `${"a-run-with-a-long-id/".repeat(5)}end`;

needs(["chromium-headless-shell"]).describe("the console's view of runs", () => {
  const ui = useConsole();
  async function call(key: string, run: string): Promise<number> {
    const response = await callInRun(ui.running.url, key, run);
    await response.text();
    return response.status;
  }

  it("lists runs with their use, leads to their exchanges, and stops one", async () => {
    const page = await ui.start();
    await signIn(page, ui.running.admin);
    await open(page, "Runs");
    await page.getByText("No runs.").waitFor();
    const { key, id } = (await ui.running.call("POST", "/v1/keys", { body: {} })).json;
    assert.equal(await call(key, "nightly; calls=200"), 200);
    assert.equal(await call(key, `"${LONG_ID}"; parent=nightly`), 200);
    const row = page.getByRole("row", { name: "nightly", exact: false }).filter({ hasText: "200" });
    await row.getByText("2 of 200").waitFor();
    assert.deepEqual(await findViolations(page), []);
    for (const width of [1280, 800, 390]) {
      await page.setViewportSize({ width, height: 640 });
      await assertSound(page, `runs at ${width}`);
    }
    await page.setViewportSize({ width: 1280, height: 640 });
    await row.getByRole("button", { name: "Stop nightly" }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Stop it" }).click();
    await row.getByText("stopped").waitFor();
    assert.equal(await call(key, "nightly"), 410);
    await row.getByRole("link", { name: "nightly" }).click();
    await page.waitForURL(/#exchanges\?run=nightly&key=/);
    await page.locator(".exchanges, table").getByText("run stopped").first().waitFor();
    await page.goto(`${ui.running.admin}/#runs?key=${id}`);
    await page.getByText("below nightly").waitFor();
    await page.goto(`${ui.running.admin}/#runs?key=other`);
    await page.getByText("This key has no runs.").waitFor();
    ui.watched.assertClean(ui.running.admin);
  });

  it("shows the last used 200 of 1,000 runs, and says so", async () => {
    const page = await ui.start();
    const { key } = (await ui.running.call("POST", "/v1/keys", { body: {} })).json;
    const numbers = Array.from({ length: 1000 }, (_, number) => number);
    const work = async () => {
      for (let number = numbers.pop(); number !== undefined; number = numbers.pop()) {
        assert.equal(await call(key, `run-${number}`), 200);
      }
    };
    await Promise.all(Array.from({ length: 20 }, work));
    await signIn(page, ui.running.admin);
    await open(page, "Runs");
    await page.getByText("The last used 200").waitFor();
    assert.equal(await page.locator("tbody tr").count(), 200);
    await page.getByRole("row", { name: "run-0 " }).waitFor();
    assert.deepEqual(await findViolations(page), []);
    ui.watched.assertClean(ui.running.admin);
  });

  it("marks a run that has sent its last body too many times in a row", async () => {
    const page = await ui.start({ runs: { repeats: 2 } });
    await signIn(page, ui.running.admin);
    const { key } = (await ui.running.call("POST", "/v1/keys", { body: {} })).json;
    for (const run of ["loop", "loop", "loop", "twice", "twice", "once"]) await call(key, run);
    await open(page, "Runs");
    const rowOf = (id: string) =>
      page.getByRole("row").filter({ has: page.getByRole("link", { name: id, exact: true }) });
    await rowOf("loop").getByText("repeats itself").waitFor();
    await rowOf("loop").getByText("the last body 3 times in a row").waitFor();
    await rowOf("twice").getByText("the last body 2 times in a row").waitFor();
    assert.equal(await page.getByText("repeats itself").count(), 1);
    assert.equal(await rowOf("once").getByText("in a row").count(), 0);
    assert.deepEqual(await findViolations(page), []);
    for (const width of [1280, 800, 390]) {
      await page.setViewportSize({ width, height: 640 });
      await assertSound(page, `repeats at ${width}`);
    }
    await page.setViewportSize({ width: 1280, height: 640 });
    await rowOf("loop").getByRole("link", { name: "loop", exact: true }).click();
    await page.waitForURL(/#exchanges\?run=loop&key=/);
    await page.locator("summary, tr, button").filter({ hasText: "test-1" }).first().click();
    await page.getByText("3 times in a row").waitFor();
    ui.watched.assertClean(ui.running.admin);
  });
});
