/**
 * The files of the console's page at the admin listener: compressed for clients that accept it, and
 * the same bytes for others.
 */
// runtimes: bun, node
import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { get, type IncomingHttpHeaders } from "node:http";
import { gunzipSync } from "node:zlib";
import { afterAll, beforeAll, describe, it } from "@std/testing/bdd";
import { PAGE_ASSETS } from "../../src/admin/page_assets.ts";
import { type Running, startAdmin } from "../support/admin.ts";

const PATHS = {
  "/": "html",
  "/page.js": "script",
  "/page.css": "style",
  "/page.svg": "icon",
} as const;
const ACCEPTING = ["gzip", "deflate, gzip;q=0.5, br", "br,GZIP ; q=1"];
const REFUSING = ["", "identity", "br", "gzip;q=0", "deflate, gzip; q=0.0", "x-gzip-not"];

/** Makes a request whose answer is not decompressed automatically. */
function ask(
  url: string,
  coding: string,
): Promise<{ headers: IncomingHttpHeaders; bytes: Buffer }> {
  return new Promise((resolve, reject) => {
    const headers = coding === "" ? {} : { "accept-encoding": coding };
    get(url, { headers, agent: false }, async (response) => {
      const chunks: Buffer[] = [];
      for await (const chunk of response) chunks.push(chunk);
      resolve({ headers: response.headers, bytes: Buffer.concat(chunks) });
    }).on("error", reject);
  });
}

describe("the console's page, at the admin listener", () => {
  let running: Running;
  beforeAll(async () => {
    running = await startAdmin();
  });
  afterAll(() => running.stop());

  for (const [path, name] of Object.entries(PATHS)) {
    it(`${path} is the same, compressed and uncompressed`, async () => {
      const wanted = gunzipSync(Buffer.from(PAGE_ASSETS[name], "base64"));
      for (const coding of ACCEPTING) {
        const { headers, bytes } = await ask(`${running.admin}${path}`, coding);
        assert.deepEqual(
          [headers["content-encoding"], headers.vary],
          ["gzip", "accept-encoding"],
          coding,
        );
        assert.ok(gunzipSync(bytes).equals(wanted), coding);
      }
      for (const coding of REFUSING) {
        const { headers, bytes } = await ask(`${running.admin}${path}`, coding);
        assert.deepEqual([headers["content-encoding"], headers.vary], [
          undefined,
          "accept-encoding",
        ], coding);
        assert.ok(bytes.equals(wanted), coding);
      }
    });
  }
});
