/**
 * The console in Chromium, on a gateway in a separate process, on the runtime that runs the test.
 */
import { afterEach } from "@std/testing/bdd";
import type { BrowserContextOptions, Page } from "playwright-core";
import { type AdminOptions, type Running, startAdmin, TOKEN } from "./admin.ts";
import { openPage, type Watched } from "./browser.ts";
import { GOOD_BODY } from "./gateway.ts";
import { answerPlain, chunk } from "./provider.ts";

/** A key from the configuration. */
export const OWN_KEY = "0123456789-own-key";
/** The provider's answer, in pieces. */
export const PIECES: readonly string[] = ["Two ", "doors, ", "one ", "shut."];
const USAGE = { prompt_tokens: 8, completion_tokens: 4, total_tokens: 12 };
/** The longest wait for something to appear. Milliseconds. */
export const PATIENCE_MS = 15_000;

/** A stream in pieces, with its usage at the end. */
const answerInPieces: NonNullable<AdminOptions["answering"]> = (response, { body }) => {
  if (!body.toString().includes('"stream":true')) return answerPlain(response);
  response.writeHead(200, { "content-type": "text/event-stream" });
  const pieces = [...PIECES];
  const timer = setInterval(() => {
    const piece = pieces.shift();
    if (piece !== undefined) return response.write(chunk(piece));
    clearInterval(timer);
    response.write(chunk(null, "stop"));
    response.end(`data: ${JSON.stringify({ choices: [], usage: USAGE })}\n\ndata: [DONE]\n\n`);
  }, 30);
};

/** Signs in. */
export async function signIn(page: Page, admin: string, token: string = TOKEN): Promise<void> {
  await page.goto(admin);
  await page.getByLabel("Admin token").fill(token);
  await page.getByRole("button", { name: "Sign in" }).click();
}

/** Opens a view by its link. */
export const open = (page: Page, view: string): Promise<void> =>
  page.getByRole("link", { name: view, exact: true }).click();

/** The names of the views in the navigation, so that tests cover a new view automatically. */
export const viewsOf = (page: Page): Promise<string[]> => page.locator("nav a").allInnerTexts();

/**
 * Has the same effect as switching to another tab and back: the page immediately loads everything
 * that it loads every few seconds.
 */
export const lookAgain = (page: Page): Promise<boolean> =>
  page.evaluate(() => document.dispatchEvent(new Event("visibilitychange")));

/** The value of a tile. */
export const tile = (page: Page, name: string): ReturnType<Page["locator"]> =>
  page.locator(".tile:visible", { hasText: name }).locator("dd").first();

/** Sends a call from the playground. */
export async function playOut(page: Page, key: string): Promise<void> {
  await open(page, "Playground");
  const send = page.getByRole("button", { name: "Send" });
  // The previous view also has a field of that name, while it is still visible.
  const form = page.locator("form", { has: send });
  await form.getByLabel("Model", { exact: true }).fill("test-1");
  await form.getByLabel("Provider's key").fill("sk-1");
  await form.getByLabel("Gateway key").fill(key);
  await send.click();
}

/** A gateway with its console, and a page that shows it. */
export interface Console {
  readonly running: Running;
  readonly watched: Watched;
  /**
   * Starts both. The options are additional configuration and arguments, and options of the
   * browser's page.
   */
  start(
    more?: Pick<AdminOptions, "answering" | "args" | "providers"> & {
      readonly [name: string]: unknown;
    },
    options?: BrowserContextOptions,
  ): Promise<Page>;
  /** Calls the gateway as a caller would. Returns its status. */
  callGateway(
    key: string,
    body?: string,
    headers?: Readonly<Record<string, string>>,
  ): Promise<number>;
}

/** Prepares the browser for the cases of a block. Everything that a case starts ends with it. */
export function useConsole(): Console {
  let running: Running | undefined;
  let watched: Watched | undefined;
  const isThere = <T>(value: T | undefined): T => {
    if (value === undefined) throw new Error("nothing was started");
    return value;
  };
  afterEach(async () => {
    await watched?.close();
    await running?.stop();
    running = watched = undefined;
  });
  return {
    get running() {
      return isThere(running);
    },
    get watched() {
      return isThere(watched);
    },
    async start({ answering = answerInPieces, args = [], providers, ...more } = {}, options = {}) {
      [running, watched] = await Promise.all([
        startAdmin(more, undefined, { answering, args, providers }),
        openPage(options),
      ]);
      return watched.page;
    },
    async callGateway(key, body = GOOD_BODY, headers = {}) {
      const response = await fetch(`${isThere(running).url}/v1/chat/completions`, {
        method: "POST",
        headers: {
          authorization: "Bearer sk-1",
          "gateway-auth": `Bearer ${key}`,
          "content-type": "application/json",
          ...headers,
        },
        body,
      });
      await response.text();
      return response.status;
    },
  };
}
