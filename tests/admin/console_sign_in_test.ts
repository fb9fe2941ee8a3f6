/** Signing in to the console. */
// runtimes: once
import assert from "node:assert/strict";
import { it } from "@std/testing/bdd";
import { TOKEN } from "../support/admin.ts";
import { signIn, useConsole } from "../support/console.ts";
import { needs } from "../support/requires.ts";

needs(["chromium-headless-shell"]).describe("the console's sign-in", () => {
  const ui = useConsole();

  it("signs in with the token, refuses a wrong one, and stores it nowhere", async () => {
    const page = await ui.start();
    await signIn(page, ui.running.admin, "not-the-token-at-all");
    await page.getByRole("alert").getByText("This is not the admin token").waitFor();
    await signIn(page, ui.running.admin);
    await page.getByText("Ready").waitFor();
    const kept = await page.evaluate(() =>
      JSON.stringify([{ ...localStorage }, { ...sessionStorage }]) + document.cookie
    );
    assert.ok(!kept.includes(TOKEN));
    await page.reload();
    await page.getByLabel("Admin token").waitFor();
    ui.watched.assertClean(ui.running.admin, { status: 401, times: 1 });
    assert.ok(ui.watched.requests.every((url) => !url.includes(TOKEN)));
  });

  it("says what to do if keys cannot be managed", async () => {
    const page = await ui.start({ admin: { port: 0 } });
    await signIn(page, ui.running.admin);
    await page.getByRole("alert").getByText("set admin.token in the configuration").waitFor();
    ui.watched.assertClean(ui.running.admin, { status: 403, times: 1 });
  });
});
