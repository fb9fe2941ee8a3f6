/** The console's views of traffic, exchanges and providers, during traffic. */
// runtimes: once
import assert from "node:assert/strict";
import { it } from "@std/testing/bdd";
import { open, OWN_KEY, PATIENCE_MS, signIn, tile, useConsole } from "../support/console.ts";
import { GOOD_BODY, STREAM_BODY } from "../support/gateway.ts";
import { needs } from "../support/requires.ts";
import { until } from "../support/until.ts";

const MARK = "a-mark-that-only-the-content-holds";

needs(["chromium-headless-shell"]).describe("the console's view of traffic", () => {
  const ui = useConsole();

  it("has whole minutes on the time axis of five minutes", async () => {
    const page = await ui.start({ keys: [{ id: "own", key: OWN_KEY }] });
    await page.addInitScript(() => {
      const drawn: string[] = [];
      Object.assign(globalThis, { drawn });
      const { fillText } = CanvasRenderingContext2D.prototype;
      CanvasRenderingContext2D.prototype.fillText = function (text, ...rest) {
        drawn.push(text);
        fillText.call(this, text, ...rest);
      };
    });
    await ui.callGateway(OWN_KEY);
    await signIn(page, ui.running.admin);
    await page.locator(".plot canvas").first().waitFor();
    const times = () =>
      page.evaluate(() =>
        Reflect.get(globalThis, "drawn").filter((text: string) => /^\d\d:\d\d:\d\d$/.test(text))
      );
    await until(async () => (await times()).length > 0, "times on the axis", PATIENCE_MS);
    assert.deepEqual((await times()).filter((text: string) => !text.endsWith(":00")), []);
  });

  it("names the host of a provider in the first call, if the listener's address leads to none", async () => {
    const page = await ui.start({
      providers: (upstream) => ({ a: { hosts: ["models.example/groq"], upstream } }),
    });
    await signIn(page, ui.running.admin);
    const example = page.getByLabel("A first call");
    await example.getByText(`curl ${ui.running.url}/groq/v1/chat/completions`).waitFor();
    await example.getByText('-H "Host: models.example"').waitFor();
  });

  it("is useful while empty, and then shows the traffic of a load, without its content", async () => {
    const page = await ui.start({ keys: [{ id: "own", key: OWN_KEY }] });
    await signIn(page, ui.running.admin);
    await page.getByText("No exchange yet").waitFor();
    const example = page.getByLabel("A first call");
    await example.getByText(`curl ${ui.running.url}/v1/chat/completions`).waitFor();
    let isOn = true;
    const load = (async () => {
      for (let count = 0; isOn && count < 400; count++) {
        await ui.callGateway(
          count % 5 === 4 ? "a-wrong-key-of-some-length" : OWN_KEY,
          count % 2 ? GOOD_BODY : STREAM_BODY,
        );
      }
    })();
    await page.getByRole("heading", { name: "Exchanges per second" }).waitFor();
    await until(
      async () => Number.parseFloat(await tile(page, "Exchanges").innerText()) > 0,
      "a rate",
      PATIENCE_MS,
    );
    for (const name of ["Latency p95", "First token p95", "Gateway's own time"]) {
      await until(
        async () => /^[\d.]+ (?:µs|ms|s)$/.test(await tile(page, name).innerText()),
        name,
        PATIENCE_MS,
      );
    }
    await until(
      async () => Number.parseFloat(await tile(page, "Tokens").innerText()) > 0,
      "tokens",
      PATIENCE_MS,
    );
    await page.getByText("invalid gateway key").waitFor();
    assert.equal(await page.locator(".plot canvas").count(), 5);
    await open(page, "Exchanges");
    await page.getByRole("button", { name: "Errors" }).click();
    await page.getByText("No kept exchange matches").waitFor(); // a refusal is not an error
    await page.getByRole("button", { name: "Refused" }).click();
    await page.getByRole("cell", { name: /^401(?! ms)/ }).first().waitFor();
    assert.equal(await page.getByRole("cell", { name: "200", exact: true }).count(), 0);
    await page.getByRole("button", { name: "All", exact: true }).click();
    await page.getByRole("button", { name: "More filters" }).click();
    await page.getByLabel("Streams").selectOption("true");
    await page.getByRole("cell", { name: /^401(?! ms)/ }).first().waitFor({ state: "detached" });
    await page.locator("tbody button").first().click();
    await page.locator("dd", { hasText: "chat.completions" }).waitFor();
    assert.equal(
      await page.locator(".details .phases li", { hasText: "until the last byte" }).count(),
      1,
    );
    isOn = false;
    await load;
    await ui.callGateway(OWN_KEY, GOOD_BODY.replace("Hi", MARK));
    await page.getByRole("button", { name: "Resume" }).click();
    await page.getByLabel("Filter", { exact: true }).fill("nothing-has-this");
    await page.getByText("No kept exchange matches").waitFor();
    assert.ok(!(await page.content()).includes(MARK));
    await open(page, "Providers");
    await page.getByText("in service").first().waitFor();
    ui.watched.assertClean(ui.running.admin);
  });
});
