/** Signing in to the console. */
// runtimes: once
import assert from "node:assert/strict";
import { it } from "@std/testing/bdd";
import { TOKEN } from "../support/admin.ts";
import { signIn, useConsole } from "../support/console.ts";
import { needs } from "../support/requires.ts";

needs(["chromium-headless-shell"]).describe("the console's sign-in", () => {
  const ui = useConsole();

  it("signs in with the token, refuses a wrong one, and keeps it for this tab until it signs out", async () => {
    const page = await ui.start();
    await signIn(page, ui.running.admin, "not-the-token-at-all");
    await page.getByRole("alert").getByText("This is not the admin token").waitFor();
    await signIn(page, ui.running.admin);
    await page.getByText("Ready").waitFor();
    const shared = () => page.evaluate(() => JSON.stringify({ ...localStorage }) + document.cookie);
    assert.ok(!(await shared()).includes(TOKEN));
    await page.reload();
    await page.getByText("Ready").waitFor();
    const other = await page.context().newPage();
    await other.goto(ui.running.admin);
    await other.getByLabel("Admin token").waitFor();
    await other.close();
    await page.getByRole("button", { name: "Sign out" }).click();
    await page.getByLabel("Admin token").waitFor();
    assert.deepEqual(await page.evaluate(() => ({ ...sessionStorage })), {});
    await page.reload();
    await page.getByLabel("Admin token").waitFor();
    ui.watched.assertClean(ui.running.admin, { status: 401, times: 1 });
    assert.ok(ui.watched.requests.every((url) => !url.includes(TOKEN)));
  });

  it("forgets the token of a tab once it is no longer accepted, and says why", async () => {
    const page = await ui.start();
    await signIn(page, ui.running.admin);
    await page.getByText("Ready").waitFor();
    await page.evaluate(() => {
      for (const name of Object.keys(sessionStorage)) sessionStorage.setItem(name, "another-token");
    });
    await page.reload();
    await page.getByRole("alert").getByText("admin token").waitFor();
    assert.deepEqual(await page.evaluate(() => ({ ...sessionStorage })), {});
    ui.watched.assertClean(ui.running.admin, { status: 401, times: 1 });
  });

  it("says what to do if keys cannot be managed", async () => {
    const page = await ui.start({ admin: { port: 0 } });
    await signIn(page, ui.running.admin);
    await page.getByRole("alert").getByText("set admin.token in the configuration").waitFor();
    ui.watched.assertClean(ui.running.admin, { status: 403, times: 1 });
  });
});
