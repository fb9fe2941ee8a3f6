/**
 * Addresses in the site: of pages, of headings, and of files outside `docs/`.
 *
 * The package names no repository, so a link to a file outside `docs/` cannot lead to a host that
 * shows it. Such a file is copied: the site has a page at `files/` with the text of the file, or of
 * all files of the folder.
 */
import { mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { dirname, join, posix } from "node:path";

/** The folder of the pages. */
export const PAGES_FOLDER = "docs";
/** The front page's file in the site. `docs/README.md` is its source. */
export const INDEX = "index.md";
/** The folder of copies in the site. */
const COPIES_FOLDER = "files";

/** Files and folders outside `docs/` to which a page links. */
const copied = new Set<string>();

/** The anchor of a heading, the same as on GitHub. */
export function toSlug(title: string): string {
  return title.toLowerCase().replace(/[^\w\- ]/g, "").replaceAll(" ", "-");
}

/** A link in the site. */
export interface SiteLink {
  readonly href: string;
  /** True if VitePress has not made the target, so that the browser must load it. */
  readonly isCopy: boolean;
}

/**
 * Converts a link of a page.
 *
 * @param page Path of the page in `docs/`
 * @param href The link, relative to the page
 */
export function toSiteLink(page: string, href: string): SiteLink {
  const [, path = "", anchor = ""] = /^([^#]*)(.*)$/.exec(href) ?? [];
  if (path === "" || /^[a-z]+:/.test(path)) return { href, isCopy: false };
  const folder = posix.dirname(page);
  const target = posix.join(PAGES_FOLDER, folder, path).replace(/\/$/, "");
  if (target.startsWith(`${PAGES_FOLDER}/`)) {
    return { href: path.replace(/(?<=^|\/)README\.md$/, INDEX) + anchor, isCopy: false };
  }
  copied.add(target);
  return { href: posix.relative(folder, toCopy(target)), isCopy: true };
}

function toCopy(file: string): string {
  return `${COPIES_FOLDER}/${file}.html`;
}

const escape = (text: string) =>
  text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll('"', "&quot;");

const STYLE = `:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; }
body { max-width: 60rem; margin: 0 auto; padding: 1rem; }
pre { overflow-x: auto; font: 14px/1.5 ui-monospace, monospace; white-space: pre-wrap; }`;

function makeCopy(path: string): string {
  const files = statSync(path).isDirectory()
    ? readdirSync(path).sort().map((name) => posix.join(path, name))
    : [path];
  const parts = files.map((file) =>
    `<h2>${escape(file)}</h2>\n<pre>${escape(readFileSync(file, "utf8"))}</pre>`
  );
  return `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${escape(path)} | Sallyport</title>
<link rel="icon" href="data:,">
<style>${STYLE}</style>
<p><a href="${posix.relative(posix.dirname(toCopy(path)), "index.html")}">Documentation</a></p>
<h1>${escape(path)}</h1>
${parts.join("\n")}
</html>
`;
}

/**
 * Writes the copies of all files to which the pages have linked so far.
 *
 * @param folder The folder of the site
 */
export function writeCopies(folder: string): void {
  for (const path of copied) {
    const file = join(folder, toCopy(path));
    mkdirSync(dirname(file), { recursive: true });
    writeFileSync(file, makeCopy(path));
  }
}
