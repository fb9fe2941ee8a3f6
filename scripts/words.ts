/**
 * `npm run words [-- PHRASE]`: counts phrases that make sentences hard to read, in comments,
 * messages, tests and pages. `npm run check` fails if a room has a forbidden phrase, or too many of a
 * limited one. With a phrase, such as `may`, it prints every place.
 */
import { globSync, readFileSync, statSync } from "node:fs";
import process from "node:process";
import { fromMarkdown } from "mdast-util-from-markdown";
import { gfmFromMarkdown } from "mdast-util-gfm";
import { gfm } from "micromark-extension-gfm";
import { SyntaxKind } from "typescript/unstable/ast";
import { closeSources, listSources, nodesOf, parseSource } from "./sources.ts";
import { LIMITS, type PhraseName, PHRASES, type RoomName } from "./words/phrases.ts";

/** A piece of text, with its place for people. */
interface Piece {
  readonly place: string;
  readonly text: string;
}

/** A literal with fewer words is a name, a header or a value. */
const MIN_MESSAGE_WORDS = 3;
/** The built module of the console's page. */
const BUILT = "src/admin/page_assets.ts";

const lineAt = (text: string, index: number) => text.slice(0, index).split("\n").length;
const withoutCode = (text: string) =>
  text.replace(/```[^]*?```/g, " ").replace(/`[^`]*`/g, " ").replace(/\{@link [^}]*\}/g, " ");

function* commentsOf(file: string): Generator<Piece> {
  const text = readFileSync(file, "utf8");
  // The lines of one comment are one piece: a phrase can continue on the next line.
  const comments = /^[ \t]*\/\*[^]*?\*\/|(?:(?:^|[ \t])\/\/ .*(?:\n[ \t]*(?=\/\/ ))?)+/gm;
  for (const { 0: comment, index } of text.matchAll(comments)) {
    const prose = comment.replace(/^\s*(?:\/\*\*?|\*\/|\*|\/\/)|\*\/$/gm, " ");
    yield { place: `${file}:${lineAt(text, index)}`, text: withoutCode(prose) };
  }
}

/** Comments after `#`, and the texts of alerts and dashboards. */
function* remarksOf(file: string): Generator<Piece> {
  const text = readFileSync(file, "utf8");
  const remarks = /(?:^[ \t]*# .*\n?)+|^\s*"?(?:summary|description|title)"?: .*/gm;
  for (const { 0: remark, index } of text.matchAll(remarks)) {
    yield {
      place: `${file}:${lineAt(text, index)}`,
      text: withoutCode(remark.replace(/^\s*# ?/gm, " ")),
    };
  }
}

const LITERALS: ReadonlySet<SyntaxKind> = new Set([
  SyntaxKind.StringLiteral,
  SyntaxKind.NoSubstitutionTemplateLiteral,
  SyntaxKind.TemplateHead,
  SyntaxKind.TemplateMiddle,
  SyntaxKind.TemplateTail,
  SyntaxKind.JsxText,
]);

function* messagesOf(file: string): Generator<Piece> {
  const source = parseSource(file);
  for (const node of nodesOf(source)) {
    if (!LITERALS.has(node.kind)) continue;
    const start = node.getStart(source);
    const text = source.text.slice(start, node.end);
    if (text.trim().split(/\s+/).length < MIN_MESSAGE_WORDS) continue;
    yield { place: `${file}:${lineAt(source.text, start)}`, text };
  }
}

function* titlesOf(file: string): Generator<Piece> {
  const text = readFileSync(file, "utf8");
  for (const match of text.matchAll(/\b(?:it|describe)(?:\.\w+)?\(\s*(["`])(.+?)\1/g)) {
    yield { place: `${file}:${lineAt(text, match.index)}`, text: match[2] ?? "" };
  }
}

interface MarkdownNode {
  readonly type: string;
  readonly value?: string;
  readonly position?: { readonly start: { readonly line: number } } | undefined;
  readonly children?: readonly MarkdownNode[];
}

/** Texts of a page, without code. Blocks are separate pieces. */
function* textsOf(file: string): Generator<Piece> {
  const root: MarkdownNode = fromMarkdown(readFileSync(file, "utf8"), {
    extensions: [gfm()],
    mdastExtensions: [gfmFromMarkdown()],
  });
  const proseOf = (node: MarkdownNode): string => {
    if (node.type === "text") return node.value ?? "";
    if (node.type === "inlineCode") return "\u00a0";
    return (node.children ?? []).map(proseOf).join("");
  };
  const visit = function* (node: MarkdownNode): Generator<Piece> {
    if (["paragraph", "heading", "tableCell"].includes(node.type)) {
      yield { place: `${file}:${node.position?.start.line ?? 0}`, text: proseOf(node) };
    } else for (const child of node.children ?? []) yield* visit(child);
  };
  yield* visit(root);
}

const code = (folder: string) => listSources(folder).filter((file) => file !== BUILT);
const ROOMS: Readonly<Record<RoomName, () => Iterable<Piece>>> = {
  "comments of src": () => ["mod.ts", ...code("src")].flatMap((file) => [...commentsOf(file)]),
  "messages": () => code("src").flatMap((file) => [...messagesOf(file)]),
  "tests": () => code("tests").flatMap((file) => [...commentsOf(file), ...titlesOf(file)]),
  "scripts": () => code("scripts").flatMap((file) => [...commentsOf(file)]),
  "literals of tests": () => code("tests").flatMap((file) => [...messagesOf(file)]),
  "examples and ops": () => [
    ...globSync("examples/**/*.{js,mjs}", { exclude: ["**/node_modules/**"] })
      .flatMap((file) => [...commentsOf(file)]),
    ...globSync("ops/**/*").filter((file) => statSync(file).isFile())
      .flatMap((file) => [...commentsOf(file), ...remarksOf(file)]),
  ],
  "pages": () =>
    globSync(["*.md", "docs/**/*.md", "src/**/README.md", "scripts/**/README.md", "tests/*.md"])
      .flatMap((file) => [...textsOf(file), ...commentsOf(file)]),
};

const normalize = (text: string) => text.replace(/\s+/g, " ");
const countWords = (text: string) => text.match(/[A-Za-z]['\w-]*/g)?.length ?? 0;
const per10000 = (count: number, words: number) => Math.round((count / words) * 100_000) / 10;

const wanted = process.argv[2];
let isGood = true;
for (const [room, pieces] of Object.entries(ROOMS) as [RoomName, () => Iterable<Piece>][]) {
  let words = 0;
  const counts = new Map<PhraseName, number>();
  for (const { place, text } of pieces()) {
    const prose = normalize(text);
    words += countWords(prose);
    for (const [name, pattern] of Object.entries(PHRASES) as [PhraseName, RegExp][]) {
      const found = Array.from(prose.matchAll(pattern));
      counts.set(name, (counts.get(name) ?? 0) + found.length);
      if (name !== wanted) continue;
      for (const { index } of found) {
        console.log(`${place}  …${prose.slice(Math.max(0, index - 30), index + 50)}…`);
      }
    }
  }
  const cells = Array.from(counts, ([name, count]) => {
    const rate = name === "forbidden" ? count : per10000(count, words);
    // Literals of tests are also the content of calls, in any language and style.
    const isLimited = name === "forbidden" || room !== "literals of tests";
    const isOver = isLimited && rate > LIMITS[name];
    isGood &&= !isOver;
    return `${name} ${rate}${isOver ? ` (OVER ${LIMITS[name]})` : ""}`;
  });
  console.log(`${room}, ${words} words: ${cells.join(", ")}`);
}
closeSources();
process.exit(isGood ? 0 : 1);
