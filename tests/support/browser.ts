/** The system's Chromium, driven by playwright-core, and the requirements on every page. */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { resolve } from "node:path";
import process from "node:process";
import { afterAll } from "@std/testing/bdd";
import type { Browser, BrowserContextOptions, Page } from "playwright-core";
import { findBrowser } from "../../scripts/browser.ts";

const executablePath = findBrowser();

/** The longest wait for something to appear. Milliseconds. */
const PATIENCE_MS = 15_000;

// Its entry for `import` requires names that Deno does not find in CommonJS.
const { chromium }: typeof import("playwright-core") = createRequire(resolve("package.json"))(
  "playwright-core",
);

/** Starts Chromium. As root, such as in a container, its sandbox does not work. */
async function startBrowser(): Promise<Browser> {
  if (executablePath === undefined) return assert.fail("no Chromium: install the package chromium");
  return await chromium.launch({
    executablePath,
    args: process.getuid?.() === 0 ? ["--no-sandbox"] : [],
  });
}

/** The browser of this process: it is started for the first page, and closed after all tests. */
let browser: Promise<Browser> | undefined;
afterAll(async () => await (await browser)?.close());

/** A page whose requests and errors are recorded. */
export interface Watched {
  readonly page: Page;
  /** Every URL that it requested. */
  readonly requests: string[];
  /** The errors on its console, and uncaught exceptions. */
  readonly errors: string[];
  /**
   * Asserts that only its origin was called, and that there were no errors except the expected
   * number of refusals with this status.
   */
  assertClean(origin: string, expected?: { readonly status: number; readonly times: number }): void;
  close(): Promise<void>;
}

/** Opens a page in a new context: no cookies, no storage. */
export async function openPage(options: BrowserContextOptions = {}): Promise<Watched> {
  browser ??= startBrowser();
  const context = await (await browser).newContext({
    viewport: { width: 1200, height: 800 },
    ...options,
  });
  context.setDefaultTimeout(PATIENCE_MS);
  const page = await context.newPage();
  const [requests, errors]: [string[], string[]] = [[], []];
  page.on("request", (request) => requests.push(request.url()));
  page.on("console", (message) => message.type() === "error" && errors.push(message.text()));
  page.on("pageerror", (error) => errors.push(`thrown: ${error.message}`));
  page.on("websocket", (socket) => requests.push(socket.url()));
  return {
    page,
    requests,
    errors,
    assertClean(origin, { status, times } = { status: 0, times: 0 }) {
      assert.ok(requests.length > 0);
      assert.deepEqual(
        requests.filter((url) => new URL(url).origin !== origin),
        [],
        "foreign requests",
      );
      // Chromium logs each answer with a status of 400 or more to its console.
      const isExpected = (text: string) => text.includes(`responded with a status of ${status} `);
      assert.deepEqual(errors.filter((text) => !isExpected(text)), []);
      assert.equal(errors.filter(isExpected).length, times, `answers with ${status}`);
    },
    close: () => context.close(),
  };
}

const axeSource = readFileSync("node_modules/axe-core/axe.min.js", "utf8");

/** The findings of axe-core on a page, as text; with `rules`, only for these rules. */
export async function findViolations(page: Page, rules?: readonly string[]): Promise<string[]> {
  if (!await page.evaluate(() => "axe" in globalThis)) await page.evaluate(axeSource);
  return await page.evaluate(async (runOnly) => {
    const options = { resultTypes: ["violations"], ...(runOnly !== undefined && { runOnly }) };
    // deno-lint-ignore no-explicit-any
    const { violations } = await (globalThis as any).axe.run(document, options);
    return violations.flatMap(({ id, impact, nodes }: Violation) =>
      nodes.map(({ html, failureSummary }) => `${impact}: ${id}: ${html} ${failureSummary}`)
    );
  }, rules);
}

interface Violation {
  readonly id: string;
  readonly impact: string;
  readonly nodes: readonly { readonly html: string; readonly failureSummary: string }[];
}

/** The serious and critical findings of axe-core on a page, as text. */
export async function findBarriers(page: Page): Promise<string[]> {
  return (await findViolations(page)).filter((text) => /^(?:serious|critical):/.test(text));
}

/** The width of a page in excess of its window, in pixels. */
export function overflowOf(page: Page): Promise<number> {
  return page.evaluate(() =>
    document.documentElement.scrollWidth - document.documentElement.clientWidth
  );
}
