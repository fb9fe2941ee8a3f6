/**
 * The site's configuration: VitePress turns the pages of `docs/` into a static site with a search
 * that needs no server. The pages stay as they are on disk, so that they can be read there too.
 *
 * Overrides in `package.json` make VitePress small: it uses the Vite and the Shiki of Astro, and its
 * other search, which asks a service, is replaced by the style of that search. 30 MB instead of 92.
 */
import { readFileSync } from "node:fs";
import type { DefaultTheme, UserConfig } from "vitepress";
import { INDEX, PAGES_FOLDER, toSlug, writeCopies } from "./links.ts";
import { renderPlain, usePages } from "./markdown.ts";
import { makeMenu, makeSidebar } from "./sidebar.ts";

const { description } = JSON.parse(readFileSync("package.json", "utf8"));
const frontPage = readFileSync(`${PAGES_FOLDER}/README.md`, "utf8");
const icon = `data:image/svg+xml,${
  encodeURIComponent(readFileSync("src/admin/console/icon.svg", "utf8").trim())
}`;

/** The configuration. Its paths are relative to the folder `scripts/site/`. */
export const CONFIG: UserConfig<DefaultTheme.Config> = {
  title: "Sallyport",
  description,
  lang: "en",
  srcDir: `../../${PAGES_FOLDER}`,
  srcExclude: ["api/**"],
  outDir: "../../dist/site",
  cacheDir: "../../.cache/site",
  rewrites: { "README.md": INDEX },
  head: [["link", { rel: "icon", href: icon }]],
  // Pages name addresses of a running gateway, such as http://localhost:8789/.
  ignoreDeadLinks: "localhostLinks",
  markdown: {
    config: usePages,
    anchor: { slugify: toSlug },
    attrs: { disable: true },
    // The colours of `github-light` are too pale on grey (WCAG 2.2, 1.4.3).
    theme: { light: "github-light-high-contrast", dark: "github-dark" },
  },
  buildEnd: ({ outDir }) => writeCopies(outDir),
  themeConfig: {
    logo: { src: icon, alt: "" },
    nav: makeMenu(frontPage),
    sidebar: makeSidebar(frontPage),
    outline: [2, 3],
    search: { provider: "local", options: { _render: renderPlain } },
  },
};
