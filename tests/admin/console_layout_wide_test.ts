/** The layout of the console at 1280 pixels: each view and dialog, in light and dark. */
// runtimes: once
import { it } from "@std/testing/bdd";
import { useConsole } from "../support/console.ts";
import { assertAllSound } from "../support/console_layout.ts";
import { needs } from "../support/requires.ts";

needs(["chromium-headless-shell"]).describe("the console's layout", () => {
  const ui = useConsole();

  it("has no fault and no barrier at 1280 pixels, in light and dark", () =>
    assertAllSound(ui, 1280));
});
