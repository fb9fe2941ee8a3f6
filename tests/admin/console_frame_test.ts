/** The console's frame: draining, an unreachable gateway, keyboard and colours. */
// runtimes: once
import assert from "node:assert/strict";
import { it } from "@std/testing/bdd";
import { open, signIn, useConsole, viewsOf } from "../support/console.ts";
import { needs } from "../support/requires.ts";
import { until } from "../support/until.ts";

needs(["chromium-headless-shell"]).describe("the console's frame", () => {
  const ui = useConsole();

  it("drains, shows it, and resumes", async () => {
    const page = await ui.start();
    const readiness = async () => (await ui.running.call("GET", "/readyz")).status;
    await signIn(page, ui.running.admin);
    await page.getByRole("button", { name: "Drain" }).click();
    await page.getByRole("dialog").getByText("/readyz answers 503").waitFor();
    assert.equal(await readiness(), 200, "nothing was done before it was confirmed");
    await page.getByRole("dialog").getByRole("button", { name: "Drain" }).click();
    await page.getByText("Load balancers are told to turn elsewhere").waitFor();
    assert.equal(await readiness(), 503);
    await page.getByRole("button", { name: "Resume" }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Resume" }).click();
    await page.getByText("Ready", { exact: true }).waitFor();
    assert.equal(await readiness(), 200);
    ui.watched.assertClean(ui.running.admin);
  });

  it("reports that the gateway is unreachable", async () => {
    const page = await ui.start();
    await signIn(page, ui.running.admin);
    await page.getByText("Ready").waitFor();
    ui.running.program.kill("SIGKILL");
    await page.getByText("Connecting").waitFor();
    await page.getByText("The gateway cannot be reached").waitFor();
    assert.ok(await page.getByRole("button", { name: "Drain" }).isDisabled());
  });

  it("reopens a dialog in the same turn of the event loop in which Escape closes it", async () => {
    const page = await ui.start();
    await signIn(page, ui.running.admin);
    await open(page, "Keys");
    await page.getByRole("button", { name: "Make a key" }).click();
    await page.getByRole("dialog").waitFor();
    await page.getByRole("button", { name: "Make a key", includeHidden: true }).evaluate(
      (button: HTMLElement) => {
        document.querySelector("dialog")?.requestClose(); // Escape does the same
        button.click();
      },
    );
    // The browser's `close` event has been delivered.
    await page.evaluate(() => new Promise((resolve) => setTimeout(resolve)));
    await page.getByRole("button", { name: "Cancel" }).click();
    await page.getByRole("dialog").waitFor({ state: "detached" });
    ui.watched.assertClean(ui.running.admin);
  });

  it("works with the keyboard, and stores only its colours", async () => {
    const page = await ui.start({}, { colorScheme: "light" });
    await signIn(page, ui.running.admin);
    await page.getByText("Ready").waitFor();
    const focused = () => page.evaluate(() => document.activeElement?.textContent ?? "");
    await page.evaluate(() => (document.activeElement as HTMLElement | null)?.blur());
    const reached: string[] = [];
    const views = await viewsOf(page);
    assert.deepEqual([views.at(0), views.at(-2), views.at(-1)], [
      "Traffic",
      "Changes",
      "Playground",
    ]);
    for (let presses = 0; presses < 4 + views.length; presses++) {
      await page.keyboard.press("Tab");
      reached.push(await focused());
    }
    assert.deepEqual(reached, ["Skip to the content", "System", "Drain", "Sign out", ...views]);
    const behindKeys = views.length - 1 - views.indexOf("Keys");
    for (let back = 0; back < behindKeys; back++) await page.keyboard.press("Shift+Tab");
    await page.keyboard.press("Enter");
    await page.getByRole("button", { name: "Make a key" }).focus();
    await page.keyboard.press("Enter");
    await page.getByRole("dialog").waitFor();
    await page.keyboard.press("Escape");
    await page.getByRole("dialog").waitFor({ state: "detached" });
    assert.equal(await focused(), "Make a key", "the focus is back where it was");
    await page.keyboard.press("Enter");
    await page.getByRole("button", { name: "Cancel" }).click();
    await until(async () => await focused() === "Make a key", "the focus is back after Cancel too");
    const ground = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
    const light = await ground();
    const colours = page.getByRole("button", { name: "Colours" });
    await colours.click();
    await colours.click();
    await until(async () => await ground() !== light, "it is dark");
    assert.deepEqual(await page.evaluate(() => ({ ...localStorage })), {
      "sallyport-theme": "dark",
    });
    await page.getByRole("button", { name: "Sign out" }).click();
    await page.getByLabel("Admin token").waitFor();
    ui.watched.assertClean(ui.running.admin);
  });
});
