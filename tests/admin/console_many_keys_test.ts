/** The console's views of teams and keys with a thousand keys and long names, at three widths. */
// runtimes: once
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { it } from "@std/testing/bdd";
import type { GatewayKey } from "../../src/keys/key_store.ts";
import { lookAgain, open, PATIENCE_MS, signIn, useConsole } from "../support/console.ts";
import { assertSound, LONG_NAME } from "../support/console_layout.ts";
import { needs } from "../support/requires.ts";
import { until } from "../support/until.ts";

const WIDTHS = [390, 800, 1440] as const;
const COUNT = 1000;
const TEAMS = Array.from({ length: 20 }, (_, index) => `team-${index}`);

/** Every third key has limits, every seventh a long name, every hundredth is revoked. */
function toKey(index: number): GatewayKey {
  const isLimited = index % 3 === 0;
  return {
    id: `key-${index}`,
    name: index % 7 === 0 ? `${LONG_NAME}-${index}` : `service-${index}`,
    digest: createHash("sha256").update(String(index)).digest("hex"),
    team: TEAMS[index % TEAMS.length],
    createdAt: 1_700_000_000_000 + index,
    ...(index % 100 === 0 && { revokedAt: 1_700_000_000_000 }),
    ...(isLimited && {
      limits: {
        requests: { limit: 600, windowMs: 60_000 },
        budget: { limit: 2e6, period: "month" },
      },
    }),
  };
}

needs(["chromium-headless-shell"]).describe("the console with a thousand keys", () => {
  const ui = useConsole();

  it("has no fault and no barrier in the views of teams and keys, and finds the keys of one state", async () => {
    const limits = { requests: "600/min", budget: "5M/month" };
    const page = await ui.start({
      teams: Object.fromEntries(
        [...TEAMS, LONG_NAME.slice(0, 63)].map((name) => [name, { limits }]),
      ),
    }, { viewport: { width: 1440, height: 900 } });
    await ui.running.at.fill(Array.from({ length: COUNT }, (_, index) => toKey(index)));
    await signIn(page, ui.running.admin);
    await open(page, "Keys");
    const rows = page.locator("table.keys tbody tr");
    await until(
      async () => await lookAgain(page) && await rows.count() === 50,
      "the newest 50",
      PATIENCE_MS,
    );
    for (const view of ["Keys", "Teams"]) {
      await open(page, view);
      const count = view === "Keys" ? 50 : 21;
      await until(async () => await rows.count() === count, `${count} rows`, PATIENCE_MS);
      for (const width of WIDTHS) {
        await page.setViewportSize({ width, height: 900 });
        await assertSound(page, `${view} at ${width}`);
        const table = await page.locator("main table").first().boundingBox();
        assert.ok(table !== null && table.y < 420, `the table begins at ${table?.y} px`);
      }
    }
    await open(page, "Keys");
    await page.getByLabel("State").selectOption("revoked");
    await until(async () => await rows.count() === 10, "the revoked ones", PATIENCE_MS);
    await page.getByLabel("Team", { exact: true }).selectOption("team-1");
    await page.getByText("No key matches these filters").waitFor();
    ui.watched.assertClean(ui.running.admin);
  });
});
