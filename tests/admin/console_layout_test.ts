/**
 * The layout of the console in its rarer states, in light and dark: signed out, empty, refused,
 * drained, disconnected.
 */
// runtimes: once
import assert from "node:assert/strict";
import { it } from "@std/testing/bdd";
import type { Page } from "playwright-core";
import { type Console, open, OWN_KEY, signIn, useConsole } from "../support/console.ts";
import { assertSound, FULL, LONG_NAME } from "../support/console_layout.ts";
import { findFaults } from "../support/layout.ts";
import { needs } from "../support/requires.ts";

const WIDTHS = [1280, 800, 390] as const;

async function assertSoundAtAll(page: Page, what: string): Promise<void> {
  for (const width of WIDTHS) {
    await page.setViewportSize({ width, height: 640 });
    await assertSound(page, `${what} at ${width}`);
  }
  await page.setViewportSize({ width: WIDTHS[0], height: 640 });
}

const startAt = (ui: Console, more: Parameters<Console["start"]>[0]) =>
  ui.start(more, { viewport: { width: WIDTHS[0], height: 640 } });

needs(["chromium-headless-shell"]).describe("the console's layout", () => {
  const ui = useConsole();

  it("is checked by code that finds faults", async () => {
    const page = await startAt(ui, {});
    const long = "https://a.example/that/can/be/broken";
    const faulty: readonly [html: string, fault: string][] = [
      ['<p style="width: 2000px">x</p>', "wider than its window"],
      ['<button style="position: absolute; left: -9px">x</button>', "sticks out"],
      [
        '<button style="width: 40px; white-space: nowrap">much to say</button>',
        "its text is cut off",
      ],
      [`<p style="width: 20px; overflow-wrap: anywhere">${long}</p>`, "is squeezed"],
      ["<p>one</p><p style='margin-top: -2em'>other</p>", "lies on"],
      [
        "<dialog open><div class='actions' style='padding-top: 700px'><button>x</button></div></dialog>",
        "the fold",
      ],
    ];
    for (const [html, fault] of faulty) {
      await page.setContent(`<!doctype html>${html}`);
      const found = await findFaults(page);
      assert.ok(found.some((text) => text.includes(fault)), `${fault}: ${found}`);
    }
    await page.setContent(
      `<!doctype html><p>one</p><p>other</p><p>${long}</p><button>much to say</button>`,
    );
    assert.deepEqual(await findFaults(page), []);
  });

  it("has no fault before the first call and the first key, and at sign-in", async () => {
    const page = await startAt(ui, {});
    await page.goto(ui.running.admin);
    await assertSoundAtAll(page, "sign-in");
    await signIn(page, ui.running.admin, "a-wrong-token");
    await page.getByRole("alert").waitFor();
    await assertSoundAtAll(page, "a wrong token");
    await signIn(page, ui.running.admin);
    await page.getByText("No exchange yet").waitFor();
    await assertSoundAtAll(page, "no traffic");
    await open(page, "Exchanges");
    await assertSoundAtAll(page, "no exchanges");
    await open(page, "Keys");
    await page.getByText("No keys yet").waitFor();
    await assertSoundAtAll(page, "no keys");
  });

  it("has no fault in a form that was refused, and with a new key", async () => {
    const page = await startAt(ui, FULL);
    await signIn(page, ui.running.admin);
    await open(page, "Keys");
    await page.getByRole("button", { name: "Make a key" }).click();
    const dialog = page.getByRole("dialog");
    await dialog.getByLabel("Name", { exact: true }).fill(LONG_NAME);
    await dialog.getByLabel("Requests").fill("six");
    await dialog.getByRole("button", { name: "Make the key" }).click();
    await dialog.getByRole("alert").waitFor();
    await assertSoundAtAll(page, "refused");
    await dialog.getByLabel("Requests").fill("6/min");
    await dialog.getByRole("button", { name: "Make the key" }).click();
    await dialog.getByLabel("The whole key").waitFor();
    await assertSoundAtAll(page, "a new key");
  });

  it("has no fault with keys of the configuration, drained, and when the gateway is unreachable", async () => {
    const page = await startAt(ui, { keys: [{ id: "own", name: LONG_NAME, key: OWN_KEY }] });
    await signIn(page, ui.running.admin);
    await open(page, "Keys");
    await page.getByText("are in the configuration").waitFor();
    await assertSoundAtAll(page, "keys of the configuration");
    await page.getByRole("button", { name: "Drain" }).click();
    await assertSoundAtAll(page, "the question before a drain");
    await page.getByRole("dialog").getByRole("button", { name: "Drain" }).click();
    await page.getByText("told to turn elsewhere").waitFor();
    await assertSoundAtAll(page, "drained");
    ui.running.program.kill("SIGKILL");
    await page.getByText("The gateway cannot be reached").waitFor();
    await assertSoundAtAll(page, "out of reach");
  });
});
