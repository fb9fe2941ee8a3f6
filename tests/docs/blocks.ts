/** The code blocks of a page, and the treatment of each by the tests. */
import { globSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";

/** A fenced block. */
export interface Block {
  readonly page: string;
  /** Line of its opening fence, from 1 on. */
  readonly line: number;
  /** The language, such as `ts`; empty if the fence has none. */
  readonly language: string;
  /** Further words after the language: `continued`, or a runtime. */
  readonly words: readonly string[];
  readonly text: string;
  /** The last line of text before it. */
  readonly before: string;
}

/** The treatment of a block. */
export type Fate =
  /** Output, which is not run. */
  | "shown"
  /** The block says why it cannot run here. */
  | "not tested"
  /**
   * A copy of it is in `examples/` or `ops/`, whose own tests run it; or it is the page of
   * `durable_chat_page_test.ts`.
   */
  | "tested elsewhere"
  /** A configuration, complete or partial, for `sallyport check`. */
  | "checked"
  | "run by a shell"
  | "run as a module";

/** The pages whose blocks are run. */
export const PAGES: readonly string[] = [
  "README.md",
  ...readdirSync("docs").filter((name) => name.endsWith(".md")).sort().map((name) =>
    join("docs", name)
  ),
];

/** The task pages, each performed from its first command to its last. */
export const TASKS: readonly string[] = readdirSync(join("docs", "tasks"))
  .filter((name) => name.endsWith(".md")).sort()
  .map((name) => join("docs", "tasks", name));

/** The sources with an `@example`: each counts as a page, whose blocks are in its docstrings. */
export const EXAMPLES: readonly string[] = ["mod.ts", ...globSync("src/**/*.ts").sort()]
  .filter((file) => / \* @example\b/.test(readFileSync(file, "utf8")));

/**
 * The text of a page. For a source, only its docstrings, with each line at its original line
 * number.
 */
function readPage(page: string): string {
  const text = readFileSync(page, "utf8");
  if (!page.endsWith(".ts")) return text;
  return text.split("\n").map((line) => /^ *\*(?: (.*))?$/.exec(line)?.[1] ?? "").join("\n");
}

/**
 * Things that a test machine does not have, or must not do. A block marked as not tested must name
 * one of them.
 */
const OUT_OF_REACH =
  /\b(?:docker|podman|kubectl|helm|systemctl|systemd-\w+|journalctl|wrangler|ssh|apt-get|deno (?:add|compile|publish)|npm publish|npx jsr)\b/;
/** Fewer equal lines can be in a file of `examples/` by chance. */
const MIN_SHARED_LINES = 3;
/** Languages of files, as opposed to programs. */
const FILES = [
  "caddyfile",
  "dockerfile",
  "haproxy",
  "ini",
  "json",
  "jsonc",
  "nginx",
  "toml",
  "yaml",
  "yml",
];

/**
 * @param page Its path
 * @param content Its text, if it differs from the file
 * @returns Its fenced blocks in their order
 * @throws If a block is written in a form that the tests would overlook
 */
export function readBlocks(page: string, content: string = readPage(page)): Block[] {
  const lines = content.split("\n");
  const blocks: Block[] = [];
  for (let index = 0; index < lines.length; index++) {
    const line = lines[index] ?? "";
    const [fence, indent = "", info = ""] = /^( *)```(.*)$/.exec(line) ?? [];
    if (fence === undefined) {
      assertNoOtherCode(page, index, lines);
      continue;
    }
    const end = lines.indexOf(`${indent}\`\`\``, index + 1);
    if (end === -1) throw new Error(`${page}:${index + 1}: this block has no end`);
    const [language = "", ...words] = info.trim().split(/\s+/);
    const before = lines.slice(0, index).findLast((each) => each.trim() !== "") ?? "";
    const text = lines.slice(index + 1, end).map((each) => each.slice(indent.length)).join("\n");
    blocks.push({ page, line: index + 1, language, words, text: `${text}\n`, before });
    index = end;
  }
  return blocks;
}

function assertNoOtherCode(page: string, index: number, lines: readonly string[]): void {
  const [line = "", last = ""] = [lines[index], lines[index - 1]];
  const isInList =
    lines.slice(0, index).findLast((each) => /^\S/.test(each))?.match(/^(?:[-*]|\d+\.) /) !== null;
  const isIndented = /^ {4}\S/.test(line) && last.trim() === "" && !isInList;
  if (isIndented || /^~~~/.test(line)) {
    throw new Error(
      `${page}:${index + 1}: write code as a block between \`\`\`, with its language`,
    );
  }
}

/** Folders that the tests of examples build: they are not part of the checkout. */
const BUILT = ["node_modules", "dist", ".next", ".astro"];

/** True if a build makes a file or a folder of examples. */
export function isBuilt(path: string): boolean {
  return path.startsWith("examples") && path.split(/[/\\]/).some((name) => BUILT.includes(name));
}

function readAll(folder: string): string[] {
  return readdirSync(folder, { withFileTypes: true }).flatMap((entry) => {
    const path = join(folder, entry.name);
    if (isBuilt(path)) return [];
    return entry.isDirectory() ? readAll(path) : [readFileSync(path, "utf8")];
  });
}

let known: string | undefined;

/** The text of all folders that have their own tests. */
function readTested(): string {
  return known ??= ["examples", "ops"].flatMap(readAll).join("\n\0\n");
}

/**
 * @param block A block
 * @returns Its treatment
 * @throws If there is no rule for it
 */
export function fateOf({ page, line, language, text, before }: Block): Fate {
  const where = `${page}:${line}`;
  const isMarked = /\bnot tested\b/i.test(text.split("\n")[0] ?? "") ||
    /\bnot tested\b/i.test(before);
  if (language === "text") return "shown";
  if (isMarked) {
    if (FILES.includes(language) || OUT_OF_REACH.test(text)) return "not tested";
    throw new Error(
      `${where}: it is marked as not tested, and nothing in it is out of reach of a test`,
    );
  }
  const isLong = text.trim().split("\n").length >= MIN_SHARED_LINES;
  if (isLong && readTested().includes(text.trim())) return "tested elsewhere";
  // durable_chat_page_test.ts asserts that there is no other block of this language
  if (language === "tsx") return "tested elsewhere";
  if (language === "jsonc" || language === "json") return "checked";
  if (language === "sh") return "run by a shell";
  if (["js", "ts"].includes(language)) return "run as a module";
  throw new Error(
    `${where}: no command runs a block in ${
      language || "no language"
    }. Output is \`text\`; a file stands in examples/ or ` +
      `ops/ as it stands here; and what can't be run says "not tested" in its first line or in the line before it`,
  );
}
