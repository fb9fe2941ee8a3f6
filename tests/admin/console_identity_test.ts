/**
 * The console in Chromium for operators with tokens of an identity provider: a viewer reads, an
 * admin changes things.
 */
// runtimes: once
import assert from "node:assert/strict";
import { afterEach, beforeEach, it } from "@std/testing/bdd";
import type { Page } from "playwright-core";
import { findBarriers } from "../support/browser.ts";
import { open, signIn, useConsole, viewsOf } from "../support/console.ts";
import { AUDIENCE, startIssuer, type TestIssuer } from "../support/issuer.ts";
import { needs } from "../support/requires.ts";

/** Buttons that make changes. */
const CHANGING = /^(?:Drain|Resume|Make a key|Change|Rotate|Revoke)/;

needs(["chromium-headless-shell"]).describe("the console's operators", () => {
  const ui = useConsole();
  let issuer: TestIssuer;
  beforeEach(async () => {
    issuer = await startIssuer();
  });
  afterEach(() => issuer.stop());

  const start = () =>
    ui.start({
      identity: [{
        issuer: issuer.url,
        audience: AUDIENCE,
        name: "corp",
        admin: { role: { claim: "roles", map: { "gw-admins": "admin", "gw-readers": "viewer" } } },
      }],
    });
  const signInAs = async (page: Page, sub: string, ...roles: string[]) =>
    await signIn(page, ui.running.admin, await issuer.token({ claims: { sub, roles } }));
  const makeKey = async (body: { name: string }) =>
    (await ui.running.call("POST", "/v1/keys", { body })).json.id;

  it("a viewer sees everything, but no button that makes changes", async () => {
    const page = await start();
    const id = await makeKey({ name: "search-team" });
    await signInAs(page, "vera", "gw-readers");
    await page.getByRole("banner").getByText("viewer").waitFor();
    for (const view of await viewsOf(page)) {
      await open(page, view);
      if (view === "Keys") await page.getByText(id).waitFor();
      assert.equal(await page.getByRole("button", { name: CHANGING }).count(), 0, view);
      assert.deepEqual(await findBarriers(page), [], view);
    }
    await open(page, "Playground");
    assert.ok(await page.getByRole("button", { name: "Send" }).isDisabled());
    ui.watched.assertClean(ui.running.admin);
  });

  it("an admin can make changes, and the log names the admin", async () => {
    const page = await start();
    await makeKey({ name: "search-team" });
    await signInAs(page, "ada", "gw-admins");
    await open(page, "Keys");
    await page.getByRole("button", { name: "Revoke search-team" }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Revoke" }).click();
    const keys = page.getByRole("region", { name: "Gateway keys" });
    await keys.getByText("revoked", { exact: true }).waitFor();
    await ui.running.program.waitFor(/("audit":"revokeKey","who":"jwt:corp:ada")/);
    ui.watched.assertClean(ui.running.admin);
  });

  it("a token without a role cannot sign in", async () => {
    const page = await start();
    await signInAs(page, "eve", "other");
    await page.getByRole("alert").getByText("nor a token with a role here").waitFor();
  });
});
