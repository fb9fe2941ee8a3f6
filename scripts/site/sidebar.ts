/**
 * The order of the site's pages. It is written once, in the tables of `docs/README.md`: one table
 * for each group.
 */
import type { DefaultTheme } from "vitepress";
import { toSlug } from "./links.ts";

/** A part of the front page under a heading of the second level. */
interface Section {
  /** Its heading; empty before the first heading. */
  readonly title: string;
  readonly text: string;
}

function splitSections(frontPage: string): Section[] {
  return frontPage.split(/^## /m).map((part, index) => {
    const [title = "", ...lines] = part.split("\n");
    return index === 0 ? { title: "", text: part } : { title, text: lines.join("\n") };
  });
}

/** The pages to which a text links, in its order. */
function listPages(text: string): DefaultTheme.SidebarItem[] {
  return Array.from(text.matchAll(/\[([^\]]+)\]\(([\w/-]+)\.md\)/g), ([, name = "", path]) => ({
    text: name.charAt(0).toUpperCase() + name.slice(1),
    link: `/${path}`,
  }));
}

/**
 * Makes the groups of the sidebar.
 *
 * @param frontPage The text of `docs/README.md`
 * @returns The pages before the first heading, and a group for each section with pages
 */
export function makeSidebar(frontPage: string): DefaultTheme.SidebarItem[] {
  return splitSections(frontPage).flatMap(({ title, text }) => {
    const items = listPages(text);
    if (items.length === 0) return [];
    return title === "" ? [{ items }] : [{ text: title, items }];
  });
}

/** Makes the menu at the top: a link for each section of the front page. */
export function makeMenu(frontPage: string): DefaultTheme.NavItemWithLink[] {
  return splitSections(frontPage).filter(({ title }) => title !== "").map(({ title }) => ({
    text: title,
    link: `/#${toSlug(title)}`,
  }));
}
