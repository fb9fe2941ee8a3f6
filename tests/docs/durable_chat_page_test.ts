/**
 * The chat page from `docs/durable.md`, with `useChat` of the AI SDK, in Chromium: it is reloaded
 * in the middle of an answer.
 */
// runtimes: once
import assert from "node:assert/strict";
import { createServer, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { getRequestListener } from "@hono/node-server";
import { afterAll, beforeAll } from "@std/testing/bdd";
import { build } from "esbuild";
import { openPage } from "../support/browser.ts";
import { startUnderTest, type UnderTest } from "../support/gateway.ts";
import { chunk, type Provider, startProvider } from "../support/provider.ts";
import { needs } from "../support/requires.ts";
import { PAGES, readBlocks } from "./blocks.ts";
import { importChatServer } from "./chat_server.ts";

const HTML = '<!doctype html><html lang="en"><title>A chat</title><link rel="icon" href="data:,">' +
  '<div id="chat"></div><script type="module" src="/page.js"></script></html>';

/** Bundles the page from the documentation, unchanged. */
async function bundlePage(): Promise<string> {
  const blocks = PAGES.flatMap((page) => readBlocks(page)).filter(({ language }) =>
    language === "tsx"
  );
  const [page, ...others] = blocks;
  assert.deepEqual(others, [], "each page for browsers needs its own test");
  const { outputFiles: [file] } = await build({
    stdin: {
      contents: page?.text ?? assert.fail("no page of a chat"),
      loader: "tsx",
      resolveDir: ".",
    },
    bundle: true,
    format: "esm",
    platform: "browser",
    jsx: "automatic",
    tsconfigRaw: { compilerOptions: { jsxImportSource: "react" } },
    define: { "process.env.NODE_ENV": '"production"' },
    minify: true,
    write: false,
    logLevel: "warning",
  });
  return file?.text ?? assert.fail("no script");
}

/** Serves the page, and runs the chat's server. */
async function startSite(under: UnderTest) {
  const [script, answer] = [await bundlePage(), await importChatServer(under)];
  const listener = getRequestListener((request) => {
    const { pathname } = new URL(request.url);
    if (pathname === "/page.js") {
      return new Response(script, { headers: { "content-type": "text/javascript" } });
    }
    if (!pathname.startsWith("/api/")) {
      return new Response(HTML, { headers: { "content-type": "text/html" } });
    }
    return answer(request);
  });
  const server = createServer(listener);
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    origin: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    close: () =>
      new Promise<void>((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}

needs(["chromium-headless-shell"]).describe("useChat in a browser", () => {
  let provider: Provider;
  let under: UnderTest;
  let site: Awaited<ReturnType<typeof startSite>>;
  let held: ServerResponse | undefined;
  beforeAll(async () => {
    provider = await startProvider((response) => {
      held = response;
      response.writeHead(200, { "content-type": "text/event-stream" });
      response.write(chunk("One, "));
    });
    under = await startUnderTest({ upstreams: { a: provider.url }, provider: { durable: {} } });
    site = await startSite(under);
  });
  afterAll(async () => {
    held?.end();
    await site.close();
    await under.close();
    await provider.close();
  });

  needs(["chromium-headless-shell"]).it(
    "resumes an answer after a reload: all of it is there, and the provider was called once",
    async () => {
      const watched = await openPage();
      const { page } = watched;
      const shows = (...texts: string[]) =>
        page.waitForFunction(
          (wanted) =>
            JSON.stringify(Array.from(document.querySelectorAll("p"), (p) => p.textContent)) ===
              wanted,
          JSON.stringify(texts),
        );
      await page.goto(site.origin);
      await page.getByLabel("Message").fill("Count");
      await page.getByLabel("Message").press("Enter");
      await shows("user: Count", "assistant: One, ");
      await page.reload();
      await shows("user: Count", "assistant: One, ");
      held?.write(chunk("two, "));
      await shows("user: Count", "assistant: One, two, ");
      await page.reload();
      await shows("user: Count", "assistant: One, two, ");
      held?.end(`${chunk("three.")}${chunk(null, "stop")}data: [DONE]\n\n`);
      await shows("user: Count", "assistant: One, two, three.");
      await page.reload();
      await shows("user: Count", "assistant: One, two, three.");
      watched.assertClean(site.origin);
      assert.equal(provider.calls.length, 1);
      await watched.close();
    },
  );
});
