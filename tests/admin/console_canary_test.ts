/** Canaries in the console: no view shows a text of a caller, or a secret of the gateway. */
// runtimes: once
import assert from "node:assert/strict";
import { afterEach, it } from "@std/testing/bdd";
import type { Request } from "playwright-core";
import { TOKEN } from "../support/admin.ts";
import { signIn, useConsole, viewsOf } from "../support/console.ts";
import { findMarks, secretOf, sendMarked, startMarkedProvider } from "../support/marks.ts";
import type { Provider } from "../support/provider.ts";
import { needs } from "../support/requires.ts";
import { until } from "../support/until.ts";

const SIGNING = btoa("canary-signing-secret-of-alerts");

needs(["chromium-headless-shell"]).describe("the console after calls with secrets", () => {
  const ui = useConsole();
  let provider: Provider;
  afterEach(() => provider.close());

  it("shows none of them in a view, a field, an address, or the storage of the browser", async () => {
    provider = await startMarkedProvider();
    const deadlines = { idle: "2s" };
    const page = await ui.start({
      providers: () => ({
        a: { upstream: provider.url, hosts: ["a.localhost"], deadlines, durable: {} },
        own: { upstream: provider.url, hosts: ["own.localhost"], credential: "x-api-key" },
      }),
      attribution: { user: "x-user", session: "x-session", usage: ["user", "session"] },
      alerts: { url: "http://127.0.0.1:9/canary-address", secret: `whsec_${SIGNING}` },
      limits: { body: "2MB", bodyTime: "2s" },
      teams: { ads: { limits: { budget: "10/month", mode: "observe" } } },
    });
    const { admin, url, call } = ui.running;
    const { json } = await call("POST", "/v1/keys", { body: { name: "member", team: "ads" } });
    assert.ok((await sendMarked(url, json.key)).includes(200));
    const { exchanges } = (await call("GET", "/v1/exchanges?limit=500")).json;
    await signIn(page, admin);
    await page.locator("nav").waitFor();
    const views = (await viewsOf(page)).map((name) => name.toLowerCase());
    assert.ok(views.includes("exchanges"));
    const shown: string[] = [];
    const open = new Set<Request>();
    page.on("request", (each) => each.url().includes("/live") || open.add(each));
    for (const end of ["requestfinished", "requestfailed"] as const) {
      page.on(end as "requestfinished", (each) => open.delete(each));
    }
    const take = async (view: string) => {
      await page.goto("about:blank");
      await page.goto(`${admin}/#${view}`);
      await page.locator("nav").waitFor();
      await until(() => open.size === 0, `what ${view} loads`);
      await page.evaluate(() => new Promise(requestAnimationFrame));
      shown.push(
        page.url(),
        await page.content(),
        ...await page.locator("input, textarea, select").evaluateAll((fields) =>
          fields.map((field) => (field as HTMLInputElement).value)
        ),
      );
    };
    for (const view of [...views, "team?id=ads", `key?id=${json.id}`, "provider?id=a"]) {
      await take(view);
    }
    for (const code of [undefined, "body_timeout", "invalid_gateway_key", "unknown_host"]) {
      const found = exchanges.find((each: { code?: string }) => each.code === code);
      await take(`exchanges?id=${found.id}`);
    }
    const kept = await page.evaluate(() => {
      sessionStorage.removeItem("sallyport-token");
      return JSON.stringify([localStorage, sessionStorage, document.cookie]);
    });
    const all = [...shown, kept].join("\n");
    for (const real of ["ads", json.id, "body_timeout", "unknown_host"]) {
      assert.ok(all.includes(real), `what is looked through is the real thing: ${real}`);
    }
    const secrets = [json.key, secretOf(json.key), TOKEN, SIGNING, "canary-address"];
    assert.deepEqual(findMarks(all, secrets), []);
  });
});
