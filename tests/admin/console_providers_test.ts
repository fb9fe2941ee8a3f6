/** The console's view of providers: figures, limits and their use, replicas. */
// runtimes: once
import assert from "node:assert/strict";
import { it } from "@std/testing/bdd";
import { lookAgain, open, OWN_KEY, PATIENCE_MS, signIn, useConsole } from "../support/console.ts";
import { GOOD_BODY, STREAM_BODY } from "../support/gateway.ts";
import { needs } from "../support/requires.ts";
import { until } from "../support/until.ts";

needs(["chromium-headless-shell"]).describe("the console's view of providers", () => {
  const ui = useConsole();

  it("shows the figures of each provider, and the use of its limits", async () => {
    const page = await ui.start({
      keys: [{ id: "own", key: OWN_KEY }],
      providers: (upstream) => ({
        a: {
          hosts: ["*"],
          upstream,
          limits: { requests: "600/min", concurrency: 4, mode: "observe" },
        },
        b: { hosts: ["b.example"], upstream: [upstream, "http://127.0.0.1:1/v1"] },
      }),
    });
    await signIn(page, ui.running.admin);
    await open(page, "Providers");
    const [a, b] = ["a", "b"].map((name) => page.getByRole("region", { name: `Provider ${name}` }));
    assert.ok(a !== undefined && b !== undefined);
    const figure = async (label: string) =>
      await a.locator(".figures > div", { hasText: label }).locator("dd").allInnerTexts();
    assert.deepEqual(await figure("Errors"), ["–", "0 in all"], "nothing is known yet");
    for (const body of [GOOD_BODY, STREAM_BODY, GOOD_BODY]) {
      assert.equal(await ui.callGateway(OWN_KEY, body), 200);
    }
    await until(
      async () => (await figure("Exchanges"))[1] === "3 in all",
      "three exchanges",
      PATIENCE_MS,
    );
    assert.deepEqual(await figure("Errors"), ["0 %", "0 in all"]);
    for (const label of ["Latency p95", "First token p95"]) {
      const [p95 = "", p50 = ""] = await figure(label);
      assert.match(p95, /^[\d.]+ (?:µs|ms|s)$/, label);
      assert.match(p50, /^p50 [\d.]+ (?:µs|ms|s)$/, label);
    }
    await lookAgain(page);
    await a.getByText("3 of 600 per minute").waitFor();
    await a.getByText(/^renews in \d+ seconds?$/).waitFor();
    await a.getByText("0 of 4").waitFor();
    await a.getByText("only observed").waitFor();
    assert.equal(await b.getByText("Limits").count(), 0);
    await b.getByText("http://127.0.0.1:1/v1").waitFor();
    assert.equal(await b.getByText("in service").count(), 2);
    ui.watched.assertClean(ui.running.admin);
  });
});
