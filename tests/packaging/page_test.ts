/** The console's page in the build. */
// runtimes: once
import assert from "node:assert/strict";
import { isDeepStrictEqual } from "node:util";
import { describe, it } from "@std/testing/bdd";
import { buildPage, PAGE_MODULE, unpackPage } from "../../scripts/page.ts";
import { PAGE_ASSETS } from "../../src/admin/page_assets.ts";

/** Bytes of the whole page: a third of them are the charts, a sixth the view of usage. */
const MAX_BYTES = 243_000;
/** Bytes of the page in the one file, compressed and in base64. */
const MAX_PACKED_BYTES = 118_500;

const page = unpackPage(PAGE_ASSETS);
const sizeOf = (files: object) =>
  Object.values(files).reduce(
    (sum, text: string) => sum + new TextEncoder().encode(text).length,
    0,
  );

describe("the console's page", () => {
  it("is built from its sources: otherwise run npm run build and commit the result", async () => {
    assert.ok(
      isDeepStrictEqual(page, await buildPage()),
      `${PAGE_MODULE} is not what the sources make`,
    );
  });

  it("stays small", () => {
    assert.ok(sizeOf(page) < MAX_BYTES, `${sizeOf(page)} bytes`);
    assert.ok(sizeOf(PAGE_ASSETS) < MAX_PACKED_BYTES, `${sizeOf(PAGE_ASSETS)} bytes, packed`);
  });

  it("names no other origin, evaluates nothing, and writes no markup from texts", () => {
    const { html, script, style, icon } = page;
    const addresses = [html, script, style, icon].flatMap((text) =>
      text.match(/(?:https?:)?\/\/[\w.-]+/g) ?? []
    );
    assert.deepEqual(addresses.filter((address) => !address.includes("www.w3.org")), []);
    assert.doesNotMatch(script, /\beval\(|new Function\b|document\.write/);
    assert.doesNotMatch(style, /@import|url\(/);
  });
});
