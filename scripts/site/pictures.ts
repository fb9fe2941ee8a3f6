/** Pictures of the site in three widths, light and dark, for people that change its style. */
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { chromium } from "playwright-core";
import { findBrowser } from "../browser.ts";
import { serveSite } from "./serve.ts";

/** The widths of a phone, a tablet and a laptop. Pixels. */
export const WIDTHS = [390, 800, 1280] as const;
export const SCHEMES = ["light", "dark"] as const;
/** A page of each kind: an index, a task, wide tables, and pictures. */
const PATHS = [
  "/",
  "/tasks/rotate-a-key.html",
  "/configuration.html#settings",
  "/observability.html#the-console",
];

/**
 * Takes pictures of a built site.
 *
 * @param site The folder of the site
 * @param target The folder of the pictures
 */
export async function takePictures(site: string, target: string): Promise<void> {
  mkdirSync(target, { recursive: true });
  const server = await serveSite(site);
  const executablePath = findBrowser();
  if (executablePath === undefined) {
    throw new Error("Cannot take pictures: no Chromium is installed");
  }
  const args = process.getuid?.() === 0 ? ["--no-sandbox"] : [];
  const browser = await chromium.launch({ executablePath, args });
  try {
    for (const colorScheme of SCHEMES) {
      for (const width of WIDTHS) {
        const page = await browser.newPage({ colorScheme, viewport: { width, height: 900 } });
        for (const path of PATHS) {
          await page.goto(server.url + path, { waitUntil: "networkidle" });
          const [, name = ""] = /(\w[\w-]*)?\.html/.exec(path) ?? [];
          const file = `${name === "" ? "index" : name}-${width}-${colorScheme}.png`;
          await page.screenshot({ path: join(target, file) });
        }
        await page.getByRole("button", { name: "Search" }).first().click();
        await page.getByRole("searchbox").fill("budget");
        await page.locator("#localsearch-list li").first().waitFor();
        await page.screenshot({ path: join(target, `search-${width}-${colorScheme}.png`) });
        await page.close();
      }
    }
  } finally {
    await browser.close();
    server.close();
  }
}
