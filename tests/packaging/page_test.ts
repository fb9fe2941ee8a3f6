/** The console's page, as it ships. */
// runtimes: once
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { describe, it } from "@std/testing/bdd";
import { buildPage, PAGE_MODULE } from "../../scripts/page.ts";
import { PAGE_ASSETS } from "../../src/admin/page_assets.ts";

/** Of the whole page: a third of it are the charts, a sixth the view of usage. */
const MAX_BYTES = 145_000;

describe("the console's page", () => {
  it("is what its sources make: else run npm run build and commit what it wrote", async () => {
    assert.ok(await buildPage() === readFileSync(PAGE_MODULE, "utf8"), `${PAGE_MODULE} is not what the sources make`);
  });

  it("stays small", () => {
    const bytes = Object.values(PAGE_ASSETS).reduce((sum, text) => sum + new TextEncoder().encode(text).length, 0);
    assert.ok(bytes < MAX_BYTES, `${bytes} bytes`);
  });

  it("names no other origin, evaluates nothing, and writes no markup from texts", () => {
    const { html, script, style, icon } = PAGE_ASSETS;
    const addresses = [html, script, style, icon].flatMap((text) => text.match(/(?:https?:)?\/\/[\w.-]+/g) ?? []);
    assert.deepEqual(addresses.filter((address) => !address.includes("www.w3.org")), []);
    assert.doesNotMatch(script, /\beval\(|new Function\b|document\.write/);
    assert.doesNotMatch(style, /@import|url\(/);
  });
});
