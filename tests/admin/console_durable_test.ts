/** The console's view of durable exchanges, and the settings of a key. */
// runtimes: once
import assert from "node:assert/strict";
import { afterEach, beforeEach, it } from "@std/testing/bdd";
import { open, signIn, useConsole } from "../support/console.ts";
import { assertSound, LONG_NAME } from "../support/console_layout.ts";
import { STREAM_BODY } from "../support/gateway.ts";
import { chunk, type Provider, startProvider } from "../support/provider.ts";
import { needs } from "../support/requires.ts";

needs(["chromium-headless-shell"]).describe("the console's view of durable exchanges", () => {
  const ui = useConsole();
  let held: Provider;
  beforeEach(async () => {
    held = await startProvider((response) => {
      response.writeHead(200, { "content-type": "text/event-stream" });
      response.write(chunk("word"));
    });
  });
  afterEach(() => held.close());

  it("lists the exchanges of a durable key, and stops an open one", async () => {
    const providers = () => ({ a: { upstream: held.url } });
    const page = await ui.start({ providers }, { viewport: { width: 1280, height: 640 } });
    await signIn(page, ui.running.admin);
    await open(page, "Durable");
    await page.getByText("Nothing is recorded").waitFor();
    await open(page, "Keys");
    await page.getByRole("button", { name: "Make a key" }).click();
    const dialog = page.getByRole("dialog");
    await dialog.getByLabel("Name", { exact: true }).fill(LONG_NAME);
    assert.equal(await dialog.getByLabel("Largest answer").count(), 0);
    await dialog.getByLabel("Its answers are").selectOption("own");
    await dialog.getByLabel("Kept after its end").fill("long");
    await dialog.getByRole("button", { name: "Make the key" }).click();
    const kept = dialog.locator(".field", { hasText: "Kept after its end" });
    await kept.getByRole("alert").getByText("Expected a duration").waitFor();
    await dialog.getByLabel("Kept after its end").fill("1h");
    await dialog.getByLabel("Retries of client libraries").selectOption("true");
    await assertSound(page, "the settings of a key");
    await dialog.getByRole("button", { name: "Make the key" }).click();
    const key = await dialog.getByLabel("The whole key").innerText();
    await dialog.getByRole("button", { name: "I have it" }).click();
    const { json } = await ui.running.call("GET", "/v1/keys");
    assert.deepEqual(json.keys[0].durable, {
      keep: "1h",
      linger: "1m",
      size: "8MB",
      retries: true,
    });
    const called = await fetch(`${ui.running.url}/v1/chat/completions`, {
      method: "POST",
      headers: {
        "authorization": "Bearer sk-1",
        "gateway-auth": `Bearer ${key}`,
        "content-type": "application/json",
        "sallyport-durable": "?1",
      },
      body: STREAM_BODY,
    });
    await open(page, "Durable");
    const row = page.getByRole("row", { name: LONG_NAME });
    await row.getByText("running").waitFor();
    for (const width of [1280, 800, 390]) {
      await page.setViewportSize({ width, height: 640 });
      await assertSound(page, `durable exchanges at ${width}`);
      await row.getByRole("button", { name: "Stop" }).click();
      await assertSound(page, `a stop at ${width}`);
      await page.keyboard.press("Escape");
    }
    const filter = page.getByLabel("Filter by name");
    await filter.fill("another");
    await page.getByText("No exchange matches.").waitFor();
    await filter.fill(LONG_NAME.slice(0, 10).toUpperCase());
    await page.getByLabel("State").selectOption("running");
    await row.waitFor();
    await page.reload();
    await row.waitFor();
    assert.equal(await filter.inputValue(), LONG_NAME.slice(0, 10).toUpperCase());
    assert.equal(await page.getByLabel("State").inputValue(), "running");
    await page.evaluate(() => location.hash = "#durable?state=complete");
    await page.getByText("No exchange matches.").waitFor();
    await page.evaluate(() => location.hash = "#durable");
    await row.getByRole("button", { name: "Stop" }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Stop it" }).click();
    assert.match(await called.text(), /exchange_stopped/);
    await row.getByText("broken").waitFor();
    assert.equal(
      await page.evaluate(() => document.activeElement?.id),
      "content",
      "the focus is not lost",
    );
    assert.equal(await row.getByRole("button").count(), 0);
    ui.watched.assertClean(ui.running.admin, { status: 400, times: 1 });
  });
});
