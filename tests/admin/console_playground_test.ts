/** The console's playground. */
// runtimes: once
import assert from "node:assert/strict";
import { it } from "@std/testing/bdd";
import {
  open,
  OWN_KEY,
  PATIENCE_MS,
  PIECES,
  playOut,
  signIn,
  tile,
  useConsole,
} from "../support/console.ts";
import { needs } from "../support/requires.ts";
import { until } from "../support/until.ts";

needs(["chromium-headless-shell"]).describe("the console's playground", () => {
  const ui = useConsole();

  for (const args of [[], ["--workers", "2"]]) {
    const where = args.length > 0 ? ", with workers" : "";
    it(`shows a streamed call with its timing, and a refusal with the gateway's message${where}`, async () => {
      const page = await ui.start({ args, keys: [{ id: "own", key: OWN_KEY }] });
      await signIn(page, ui.running.admin);
      await playOut(page, OWN_KEY);
      await page.locator(".said").getByText(PIECES.join("")).waitFor();
      await until(
        async () => await tile(page, "Output tokens").innerText() === "4",
        "the tokens",
        PATIENCE_MS,
      );
      for (const name of ["Headers", "First token", "Last byte"]) {
        assert.match(await tile(page, name).innerText(), /^[\d.]+ (?:ms|s)$/, name);
      }
      await page.getByLabel("Gateway key").fill("a-wrong-key-of-some-length");
      await page.getByRole("button", { name: "Send" }).click();
      await page.getByRole("alert").getByText("gateway key").waitFor();
      await open(page, "Exchanges");
      await page.getByRole("cell", { name: "200", exact: true }).waitFor();
      await page.getByRole("cell", { name: /^401(?! ms)/ }).waitFor();
      await open(page, "Playground");
      assert.equal(
        await page.getByLabel("Provider's key").inputValue(),
        "sk-1",
        "looking elsewhere forgets nothing",
      );
      ui.watched.assertClean(ui.running.admin, { status: 401, times: 1 });
    });
  }
});
