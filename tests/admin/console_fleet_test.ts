/**
 * The view of the fleet in Chromium: gateways of three runtimes next to each other, drained and
 * resumed, lost and stale.
 */
// runtimes: once
// long: gateways come and go, and the page follows
import assert from "node:assert/strict";
import process from "node:process";
import { afterAll, afterEach, beforeAll, it } from "@std/testing/bdd";
import type { BrowserContextOptions, Page } from "playwright-core";
import { TOKEN } from "../support/admin.ts";
import { findBarriers, openPage, overflowOf, type Watched } from "../support/browser.ts";
import { agree, AGREE_MS, type Member, startMember } from "../support/fleet.ts";
import { endPrograms } from "../support/program.ts";
import { answerPlain, type Provider, startProvider } from "../support/provider.ts";
import { type RedisServer, startRedis } from "../support/redis.ts";
import { needs } from "../support/requires.ts";
import { until } from "../support/until.ts";

/** Widths of a desktop, a tablet and a telephone. */
const WIDTHS = [1280, 800, 390];

async function signIn(page: Page, { admin }: Member): Promise<void> {
  await page.goto(admin);
  await page.getByLabel("Admin token").fill(TOKEN);
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByText("Ready").waitFor();
}

const open = (page: Page, view: string): Promise<void> =>
  page.getByRole("link", { name: view, exact: true }).click();

needs(["chromium-headless-shell", "redis-server"]).describe(
  "the console's view of the fleet",
  () => {
    let redis: RedisServer;
    let provider: Provider;
    let watched: Watched;
    beforeAll(async () => {
      [redis, provider] = await Promise.all([startRedis(), startProvider(answerPlain)]);
    });
    afterAll(async () => {
      await provider.close();
      await redis.stop();
    });
    afterEach(async () => {
      await watched.close();
      await endPrograms();
      await redis.restart();
    });

    const startFleet = async (
      last: Readonly<Record<string, string>> = {},
      name = "oslo-1",
    ): Promise<[Member, Member, Member]> => {
      const env = { SALLYPORT_REDIS: redis.url, SALLYPORT_REDIS_TIMEOUT: "5s" };
      const [one, two, three] = await Promise.all([
        startMember({ name: "berlin-1", on: "node", upstream: provider.url, env }),
        startMember({ name: "berlin-2", on: "bun", upstream: provider.url, env }),
        startMember({ name, on: "deno", upstream: provider.url, env: { ...env, ...last } }),
      ]);
      await agree([one, two, three]);
      return [one, two, three];
    };
    const openFleet = async (
      member: Member,
      options: BrowserContextOptions = {},
    ): Promise<Page> => {
      watched = await openPage(options);
      await signIn(watched.page, member);
      await open(watched.page, "Fleet");
      return watched.page;
    };
    const rowOf = (page: Page, name: string) => page.getByRole("row", { name });

    it("shows every gateway with its figures, the differences, and lost gateways", async () => {
      const [one, two, three] = await startFleet({ SALLYPORT_CURRENCY: "EUR" });
      for (let count = 0; count < 5; count++) assert.equal(await two.chat(), 200);
      const page = await openFleet(one);
      await page.getByText("3 gateways serve, with different configurations").waitFor();
      await rowOf(page, "berlin-2").getByText(/\d+(?:\.\d+)? (?:ms|s)/).first().waitFor();
      await rowOf(page, "berlin-2").getByText(/^bun \d/).waitFor();
      await rowOf(page, "berlin-1").getByText("this one").waitFor();
      await rowOf(page, "oslo-1").getByText("differs").waitFor();
      assert.equal(await page.getByText("differs").count(), 1);
      const filter = page.getByLabel("Filter gateways");
      await filter.fill("BERLIN");
      await rowOf(page, "oslo-1").waitFor({ state: "detached" });
      await page.reload();
      await rowOf(page, "berlin-2").waitFor();
      assert.equal(await page.locator("table.fleet tbody tr").count(), 2, "the address has it");
      await filter.fill("madrid");
      await page.getByText("No gateway matches.").waitFor();
      await filter.fill("");
      three.program.kill("SIGKILL");
      await rowOf(page, "oslo-1").getByText("lost").waitFor();
      two.program.kill("SIGTERM");
      await rowOf(page, "berlin-2").getByText("left", { exact: true }).waitFor();
      await page.getByText("1 gateway serves, 2 gone").waitFor();
      watched.assertClean(one.admin);
    });

    it("drains one and resumes all, with the keyboard", async () => {
      const [one, two] = await startFleet();
      const page = await openFleet(one);
      await page.getByRole("button", { name: "Drain berlin-2" }).focus();
      await page.keyboard.press("Enter");
      const dialog = page.getByRole("dialog");
      await dialog.getByText("Drain berlin-2?").waitFor();
      assert.equal(await two.isReady(), true, "nothing was done before it was confirmed");
      await dialog.getByRole("button", { name: "Drain" }).focus();
      await page.keyboard.press("Enter");
      await dialog.waitFor({ state: "detached" });
      await rowOf(page, "berlin-2").getByText("draining").waitFor();
      assert.deepEqual([await one.isReady(), await two.isReady()], [true, false]);
      await page.getByRole("button", { name: "Resume all" }).click();
      await dialog.getByRole("button", { name: "Resume" }).click();
      await rowOf(page, "berlin-2").getByText("ready").waitFor();
      assert.equal(await two.isReady(), true);
      watched.assertClean(one.admin);
    });

    it("shows traffic of this gateway, of another one or of all, and reports when Redis is down", async () => {
      const [one, two, three] = await startFleet();
      for (const member of [two, two, three]) assert.equal(await member.chat(), 200);
      const page = await openFleet(one);
      await open(page, "Exchanges");
      await page.getByText("None yet").waitFor();
      const scope = page.getByLabel("Gateway", { exact: true });
      const rows = page.locator("tbody tr");
      await scope.selectOption("all");
      await until(async () => await rows.count() === 3, "those of all", AGREE_MS);
      await page.getByText("3 of them, 3 s behind").waitFor();
      await scope.selectOption("berlin-2");
      await until(async () => await rows.count() === 2, "those of one", AGREE_MS);
      assert.equal(await page.evaluate(() => location.hash), "#exchanges?gateway=berlin-2");
      await page.reload();
      await until(async () => await rows.count() === 2, "those of one again", AGREE_MS);
      assert.equal(await scope.inputValue(), "berlin-2");
      await open(page, "Traffic");
      await page.getByRole("heading", { name: "Exchanges per second" }).waitFor();
      await scope.selectOption("all");
      await open(page, "Providers");
      await page.getByText("in service", { exact: true }).waitFor();
      redis.pause();
      await page.getByText("Redis does not answer: other gateways are missing here").waitFor();
      await open(page, "Fleet");
      await page.getByText("stale", { exact: true }).waitFor();
      assert.equal(await rowOf(page, "oslo-1").count(), 1, "as it was");
      redis.resume();
      await page.getByText("stale", { exact: true }).waitFor({ state: "detached" });
    });

    /**
     * Waits for a text. A gateway that is too busy to answer within three seconds is asked again,
     * as its operator would do.
     */
    const settled = (page: Page, text: string) => {
      const again = page.getByRole("button", { name: "Try again" });
      return until(
        async () => {
          if (await again.isVisible()) await again.click();
          return await page.getByText(text, { exact: true }).isVisible();
        },
        text,
        3 * AGREE_MS,
      );
    };

    it("fetches older exchanges of another gateway, and names the gateway that did not answer", async () => {
      const [one, two, three] = await startFleet();
      const count = 320; // more than a gateway publishes for a new reader
      for (let sent = 0; sent < count; sent++) assert.equal(await two.chat(), 200);
      const page = await openFleet(one);
      await open(page, "Exchanges");
      await page.getByLabel("Gateway", { exact: true }).selectOption("berlin-2");
      for (const shown of [100, 300]) {
        await settled(page, `${shown} shown`);
        await page.getByRole("button", { name: "Show older" }).click();
      }
      await settled(page, `${count} shown, all that are kept`);
      assert.equal(await page.locator("tbody tr").count(), count, "each once");
      process.kill(three.program.pid, "SIGSTOP");
      await page.getByLabel("Gateway", { exact: true }).selectOption("all");
      await page.getByText("older ones of oslo-1 are missing: no answer").waitFor();
      process.kill(three.program.pid, "SIGCONT");
      watched.assertClean(one.admin);
    });

    it("without Redis shows this gateway and its workers", async () => {
      const alone = await startMember({
        name: "alone",
        upstream: provider.url,
        args: ["--workers", "2"],
      });
      const page = await openFleet(alone);
      await page.getByText("This gateway alone").waitFor();
      await rowOf(page, "alone").getByText("2 of 2 workers").waitFor();
      assert.equal(await page.getByRole("button", { name: "Drain all" }).count(), 0);
      await open(page, "Traffic");
      await page.getByText("No exchange yet").waitFor();
      assert.equal(
        await page.getByLabel("Gateway", { exact: true }).count(),
        0,
        "there is nothing to switch to",
      );
      watched.assertClean(alone.admin);
    });

    for (const colorScheme of ["light", "dark"] as const) {
      it(`has no barrier and fits at three widths, in ${colorScheme}`, async () => {
        const [one, two, three] = await startFleet({ SALLYPORT_CURRENCY: "EUR" }, "o".repeat(60));
        assert.equal(await two.chat(), 200);
        const page = await openFleet(one, { colorScheme, reducedMotion: "reduce" });
        three.program.kill("SIGKILL");
        await page.getByText("lost", { exact: true }).waitFor();
        for (const width of WIDTHS) {
          await page.setViewportSize({ width, height: 900 });
          assert.deepEqual(await findBarriers(page), [], `at ${width}`);
          assert.equal(await overflowOf(page), 0, `at ${width}`);
          const table = page.getByRole("region", { name: "Gateways, by name" });
          const cut = await table.evaluate((element) => element.scrollWidth - element.clientWidth);
          assert.equal(cut, 0, `the whole table at ${width}`);
          await page.getByRole("button", { name: "Drain berlin-2" }).click();
          assert.deepEqual(await findBarriers(page), [], `the question at ${width}`);
          await page.keyboard.press("Escape");
          await open(page, "Traffic");
          await page.getByLabel("Gateway", { exact: true }).waitFor();
          assert.deepEqual(await findBarriers(page), [], `the switch at ${width}`);
          assert.equal(await overflowOf(page), 0, `the switch at ${width}`);
          await open(page, "Fleet");
          await page.getByText("berlin-2").waitFor();
          if (process.env.SALLYPORT_PICTURES !== undefined) {
            await page.screenshot({
              path: `${process.env.SALLYPORT_PICTURES}/fleet-${width}-${colorScheme}.png`,
              fullPage: true,
            });
          }
        }
        watched.assertClean(one.admin);
      });
    }
  },
);
