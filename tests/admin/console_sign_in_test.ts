/**
 * Sign-in to the console in Chromium at a real identity provider: there, back to the same view, and
 * everything that can go wrong in the browser.
 */
// runtimes: once
import assert from "node:assert/strict";
import { afterEach, beforeEach, it } from "@std/testing/bdd";
import type { Page } from "playwright-core";
import { findBarriers, findViolations } from "../support/browser.ts";
import { useConsole } from "../support/console.ts";
import { freePort } from "../support/free_port.ts";
import { CLIENT_ID, type IdentityProvider, startIdentityProvider } from "../support/oidc.ts";
import { needs } from "../support/requires.ts";

needs(["chromium-headless-shell"]).describe("sign-in to the console", () => {
  const ui = useConsole();
  let provider: IdentityProvider;
  let address: string;
  beforeEach(async () => {
    address = `http://127.0.0.1:${await freePort()}/`;
    provider = await startIdentityProvider(address);
  });
  afterEach(() => provider.stop());

  const start = () =>
    ui.start({
      admin: { port: Number(new URL(address).port), token: "an-admin-token-of-32-characters!" },
      identity: [{
        issuer: provider.url,
        audience: CLIENT_ID,
        name: "corp",
        callers: false,
        admin: {
          role: { claim: "roles", map: { "gw-admins": "admin", "gw-readers": "viewer" } },
          signIn: { clientId: CLIENT_ID, url: address, scopes: [] },
        },
      }],
    });
  const begin = (page: Page) => page.getByRole("button", { name: "Sign in with corp" }).click();
  async function signInThere(page: Page, name: string): Promise<void> {
    await begin(page);
    await page.getByPlaceholder("Enter any login").fill(name);
    await page.getByPlaceholder("and password").fill("any");
    await page.getByRole("button", { name: "Sign-in" }).click();
    await page.getByRole("button", { name: "Continue" }).click();
  }

  it("leads back to the same view, keeps no code in the address, and survives a reload", async () => {
    const page = await start();
    await page.goto(`${address}#changes?team=search`);
    await page.getByRole("button", { name: "Sign in with corp" }).waitFor();
    assert.deepEqual(await findViolations(page), []);
    assert.deepEqual(await findBarriers(page), []);
    await signInThere(page, "ada");
    await page.getByRole("link", { name: "Changes", exact: true }).waitFor();
    assert.equal(page.url(), `${address}#changes?team=search`);
    await page.reload();
    await page.getByRole("link", { name: "Changes", exact: true }).waitFor();
    await page.getByRole("button", { name: "Sign out" }).click();
    await page.getByRole("button", { name: "Sign in with corp" }).waitFor();
  });

  it("tells an operator without a role, and lets another one sign in", async () => {
    const page = await start();
    await page.goto(address);
    await signInThere(page, "eve");
    await page.getByRole("alert").getByText("have no role at this gateway").waitFor();
    assert.equal(page.url(), address);
  });

  it("does not use an answer that this tab has not asked for", async () => {
    const page = await start();
    for (
      const query of [
        "code=stolen&state=made-up",
        "error=access_denied&state=made-up",
        "error=access_denied",
      ]
    ) {
      await page.goto(`${address}?${query}`);
      await page.getByRole("alert").getByText("it was not begun in this tab").waitFor();
      assert.equal(page.url(), address);
    }
    await begin(page);
    await page.getByPlaceholder("Enter any login").waitFor();
    await page.goto(`${address}?code=stolen&state=made-up`);
    await page.getByRole("alert").getByText("it was not begun in this tab").waitFor();
  });

  it("keeps the session if a link brings an answer to no sign-in", async () => {
    const page = await start();
    await page.goto(`${address}#changes`);
    await signInThere(page, "ada");
    await page.getByRole("link", { name: "Changes", exact: true }).waitFor();
    for (const query of ["code=stolen&state=made-up", "error=access_denied"]) {
      await page.goto(`${address}?${query}`);
      await page.getByRole("link", { name: "Changes", exact: true }).waitFor();
      assert.equal(page.url().split("#")[0], address);
    }
  });

  it("shows a refusal of the identity provider as text", async () => {
    const page = await start();
    await page.goto(address);
    await begin(page);
    await page.getByPlaceholder("Enter any login").waitFor();
    await page.goto(address);
    const state = await page.evaluate(() => {
      const begun = sessionStorage.getItem("sallyport-sign-in") ?? "{}";
      return String(JSON.parse(begun).state);
    });
    const why = encodeURIComponent("<img src=x onerror=alert(1)>");
    await page.goto(`${address}?error=access_denied&error_description=${why}&state=${state}`);
    await page.getByRole("alert").getByText("<img src=x onerror=alert(1)>").waitFor();
    assert.equal(await page.locator("img[src=x]").count(), 0);
  });
});
