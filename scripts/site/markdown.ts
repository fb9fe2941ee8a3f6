/** Changes to VitePress's Markdown, so that pages that were written for GitHub look as they do there. */
import type { DefaultTheme, MarkdownEnv, MarkdownRenderer } from "vitepress";
import { toSiteLink } from "./links.ts";

/**
 * Pictures with a form for light and one for dark. The browser would choose by the system's theme,
 * and a reader can choose another one in the site, so both are in the page and the style shows one.
 */
const PICTURE =
  /<picture>\s*<source media="\(prefers-color-scheme: dark\)" srcset="([^"]+)">\s*<img src="([^"]+)" alt="([^"]*)">\s*<\/picture>/g;

function replacePictures(html: string): string {
  return html.replace(
    PICTURE,
    (_, dark: string, light: string, alt: string) =>
      `<img class="in-light" src="./${light}" alt="${alt}" loading="lazy">` +
      `<img class="in-dark" src="./${dark}" alt="${alt}" loading="lazy">`,
  );
}

/**
 * Lets long names in code break after a dot, a slash or an underscore. Otherwise a table of settings
 * is too wide for its page.
 */
function breakNames(html: string): string {
  return html.replace(
    />[^<]+</g,
    (text) => text.replace(/(?<=[\w\])][./_])(?=\w)/g, "<wbr>"),
  );
}

/** Adapts VitePress's Markdown to the pages. */
export function usePages(md: MarkdownRenderer): void {
  // The text stays as it is written.
  md.core.ruler.disable("emoji");
  const { code_inline: renderCode } = md.renderer.rules;
  md.renderer.rules.code_inline = (...args) => breakNames(renderCode?.(...args) ?? "");
  md.core.ruler.push("site_links", ({ tokens, env }) => {
    for (const token of tokens) {
      if (token.type === "html_block") token.content = replacePictures(token.content);
      for (const child of token.children ?? []) {
        if (child.type !== "link_open") continue;
        const { href, isCopy } = toSiteLink(env.relativePath, child.attrGet("href") ?? "");
        child.attrSet("href", href);
        if (isCopy) child.attrSet("target", "_self");
      }
    }
  });
}

type RenderForSearch = NonNullable<DefaultTheme.LocalSearchOptions["_render"]>;

/** Renders a page for the search, which needs no colours in code. They need a second for all pages. */
export function renderPlain(
  text: string,
  env: MarkdownEnv,
  md: Parameters<RenderForSearch>[2],
): string {
  const { highlight } = md.options;
  md.set({ highlight: null });
  const html = md.render(text, env);
  md.set({ highlight: highlight ?? null });
  return html;
}
