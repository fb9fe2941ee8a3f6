/**
 * The site that `npm run docs -- site` builds from the pages: its links, its search, its text, and
 * its look in Chromium at three widths, light and dark.
 */
// runtimes: once
// long: it builds the site and opens each page
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { existsSync, globSync, readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import process from "node:process";
import { pathToFileURL } from "node:url";
import { afterAll, beforeAll, describe, it } from "@std/testing/bdd";
import { fromMarkdown } from "mdast-util-from-markdown";
import { gfmFromMarkdown } from "mdast-util-gfm";
import { gfm } from "micromark-extension-gfm";
import { SCHEMES, WIDTHS } from "../../scripts/site/pictures.ts";
import { serveSite, type SiteServer } from "../../scripts/site/serve.ts";
import { findBarriers, openPage, overflowOf } from "../support/browser.ts";
import { needs } from "../support/requires.ts";

const SITE = "dist/site";
/** The origin against which links are resolved. */
const ORIGIN = "http://site.example";
/** Paths of the pages in `docs/`, without `.md`. */
const PAGES = globSync(["docs/*.md", "docs/tasks/*.md"]).sort()
  .map((file) => file.replace(/^docs\//, "").replace(/\.md$/, ""));

const toAddress = (page: string) => page === "README" ? "/index.html" : `/${page}.html`;
const read = (file: string) => readFileSync(join(SITE, file), "utf8");

/** The values of an attribute in a file of HTML. */
function attributesOf(html: string, name: string): string[] {
  return Array.from(
    html.matchAll(new RegExp(` ${name}="([^"]*)"`, "g")),
    ([, value = ""]) => value.replaceAll("&amp;", "&"),
  );
}

/** The anchors of each file that has been read. */
const anchors = new Map<string, ReadonlySet<string>>();

/** Asserts that an address of the site leads to an existing file, and to an existing anchor in it. */
function assertTarget(address: string, from: string): void {
  const { pathname, hash } = new URL(address, ORIGIN + from);
  const file = decodeURIComponent(pathname).replace(/\/$/, "/index.html");
  assert.ok(existsSync(join(SITE, file)), `${from} links to ${address}: there is no ${file}`);
  if (hash === "") return;
  const known = anchors.get(file) ?? new Set(attributesOf(read(file), "id"));
  anchors.set(file, known);
  const anchor = decodeURIComponent(hash.slice(1));
  assert.ok(known.has(anchor), `${from} links to ${address}: there is no such anchor`);
}

/** A node of Markdown. */
interface Node {
  readonly type: string;
  readonly value?: string;
  readonly children?: readonly Node[];
}

/** The text of a page without its spaces. Comments and elements of HTML are not text. */
function textOf({ type, value = "", children = [] }: Node): string {
  return type === "html" ? "" : value.replace(/\s/g, "") + children.map(textOf).join("");
}

function readText(page: string): string {
  return textOf(
    fromMarkdown(readFileSync(`docs/${page}.md`, "utf8"), {
      extensions: [gfm()],
      mdastExtensions: [gfmFromMarkdown()],
    }),
  );
}

beforeAll(() => {
  execFileSync(process.execPath, ["scripts/docs.ts", "site"], { stdio: "pipe" });
});

describe("the site", () => {
  it("has each page, in the sidebar too, with tasks before guides and reference", () => {
    const front = read("index.html");
    const sidebar = attributesOf(front.slice(front.indexOf("VPSidebar")), "href");
    for (const page of PAGES) {
      assert.ok(existsSync(join(SITE, toAddress(page))), page);
      if (page !== "README") assert.ok(sidebar.includes(toAddress(page)), `the sidebar: ${page}`);
    }
    const places = ["Tasks", "Guides", "Reference"].map((title) => front.indexOf(`>${title}</h2>`));
    assert.ok(places[0] !== -1);
    assert.deepEqual(places.toSorted((one, other) => one - other), places);
  });

  it("has only links whose targets exist", () => {
    const files = globSync("**/*.html", { cwd: SITE });
    assert.ok(files.length > PAGES.length);
    for (const file of files) {
      const html = read(file);
      for (const link of [...attributesOf(html, "href"), ...attributesOf(html, "src")]) {
        if (!/^(?:https?|data):/.test(link)) assertTarget(link, `/${file}`);
      }
    }
  });

  it("shows files outside docs/ to which a page links", () => {
    assert.match(read("files/ops/workers.html"), /<h2>ops\/workers\/wrangler\.jsonc<\/h2>/);
    assert.match(read("files/SECURITY.md.html"), /Report a vulnerability privately/);
  });

  it("loads nothing from another host", () => {
    for (const file of globSync("**/*.html", { cwd: SITE })) {
      const tags = read(file).match(
        /<(?!a )[a-z]+ [^>]*(?:src|href|srcset)="(?:https?:)?\/\/[^>]*>/g,
      );
      assert.deepEqual(tags ?? [], [], file);
    }
    for (const file of globSync("**/*.css", { cwd: SITE })) {
      assert.doesNotMatch(read(file), /url\(["']?(?:https?:)?\/\/|@import/, file);
    }
  });

  it("has a search index with words of the pages, whose entries exist", async () => {
    const [file = ""] = globSync("assets/chunks/@localSearchIndex*.js", { cwd: SITE });
    const { default: text } = await import(pathToFileURL(resolve(SITE, file)).href);
    const { documentIds, index } = JSON.parse(text);
    const words = new Set(index.map(([word]: [string]) => word));
    for (const word of ["reservation", "buffering", "eventsource"]) {
      assert.ok(words.has(word), word);
    }
    const entries: string[] = Object.values(documentIds);
    assert.ok(entries.length > PAGES.length);
    for (const entry of entries) assertTarget(entry, "/the search index");
  });
});

needs(["chromium-headless-shell"]).describe("the site in a browser", () => {
  let server: SiteServer;
  beforeAll(async () => {
    server = await serveSite(SITE);
  });
  afterAll(() => server.close());

  it("shows the text of each page unchanged", async () => {
    const { page, close } = await openPage();
    await page.goto(server.url);
    const texts = await page.evaluate(async (addresses) => {
      const parser = new DOMParser();
      const read = async (address: string) => {
        const answer = await fetch(address);
        const content = parser.parseFromString(await answer.text(), "text/html");
        const added = ".vp-doc :is(.header-anchor, button.copy, span.lang)";
        for (const each of content.querySelectorAll(added)) each.remove();
        return content.querySelector(".vp-doc")?.textContent.replace(/\s/g, "");
      };
      return await Promise.all(addresses.map(read));
    }, PAGES.map(toAddress));
    for (const [index, name] of PAGES.entries()) assert.equal(texts[index], readText(name), name);
    await close();
  });

  it("needs no scrolling to the side", async () => {
    // Without scripts it needs less time, and the pages are complete.
    const { page, assertClean, close } = await openPage({ javaScriptEnabled: false });
    for (const name of PAGES) {
      await page.goto(server.url + toAddress(name));
      for (const width of WIDTHS) {
        await page.setViewportSize({ width, height: 800 });
        assert.equal(await overflowOf(page), 0, `${name} at ${width} pixels`);
      }
    }
    assertClean(server.url);
    await close();
  });

  for (const width of WIDTHS) {
    for (const colorScheme of SCHEMES) {
      it(`has a menu and a search at ${width} pixels, ${colorScheme}`, async () => {
        const { page, assertClean, close } = await openPage({
          viewport: { width, height: 800 },
          colorScheme,
        });
        await page.goto(server.url);
        const isDark = await page.evaluate(() => document.documentElement.matches(".dark"));
        assert.equal(isDark, colorScheme === "dark");
        const menu = page.getByRole("button", { name: "Menu", exact: true });
        if (await menu.isVisible()) await menu.click();
        const sidebar = page.getByRole("navigation", { name: "Sidebar Navigation" });
        await sidebar.getByRole("link", { name: "Rotate a key" }).click();
        await page.locator("h1", { hasText: "Rotate a key" }).waitFor();
        await page.getByRole("button", { name: "Search" }).first().click();
        await page.getByRole("searchbox").pressSequentially("idempotency");
        await page.getByRole("listbox").getByRole("link").first().waitFor();
        await page.keyboard.press("Enter");
        await page.locator("h1", { hasText: "Durable exchanges" }).waitFor();
        assertClean(server.url);
        await close();
      });
    }
  }

  for (const colorScheme of SCHEMES) {
    it(`can be read by everyone, ${colorScheme}`, async () => {
      const { page, close } = await openPage({ colorScheme });
      await page.goto(`${server.url}/tasks/rotate-a-key.html`);
      const barriers = await findBarriers(page);
      // The search button shows its key too: its name is "Search", and its text is "Search K".
      const isKnown = (text: string) => text.includes("label-content-name-mismatch");
      assert.deepEqual(barriers.filter((text) => !isKnown(text)), []);
      await close();
    });
  }

  it("shows the pictures of the theme that the reader chooses", async () => {
    const { page, close } = await openPage({ viewport: { width: 1280, height: 800 } });
    await page.goto(`${server.url}/observability.html`);
    const seen = () =>
      page.locator(".vp-doc img").evaluateAll((images) =>
        images.filter((image) => image.checkVisibility())
          .map((image) => /light|dark/.exec(image.getAttribute("src") ?? "")?.[0])
      );
    assert.deepEqual(await seen(), ["light", "light"]);
    await page.getByRole("switch").first().click();
    assert.deepEqual(await seen(), ["dark", "dark"]);
    await close();
  });
});
