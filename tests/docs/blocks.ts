/** The code blocks of a page, and what is to be done with each. */
import { globSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";

/** A fenced block. */
export interface Block {
  readonly page: string;
  /** Of its fence, from 1 on. */
  readonly line: number;
  /** Such as `ts`; empty where the fence names none. */
  readonly language: string;
  /** Further words behind the language: `continued`, or a runtime. */
  readonly words: readonly string[];
  readonly text: string;
  /** The last line of text before it. */
  readonly before: string;
}

/** What is done with a block. */
export type Fate =
  /** Output: nothing. */
  | "shown"
  /** It says why it can't be run here. */
  | "not tested"
  /**
   * It stands so in `examples/` or `ops/`, whose own tests run it; or it is the page of
   * `durable_chat_page_test.ts`.
   */
  | "tested elsewhere"
  /** A configuration, whole or in part: `sallyport check`. */
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

/** The pages by task, each performed from its first command to its last. */
export const TASKS: readonly string[] = readdirSync(join("docs", "tasks"))
  .filter((name) => name.endsWith(".md")).sort()
  .map((name) => join("docs", "tasks", name));

/** The sources with an `@example`: each is a page too, whose blocks are those of its docstrings. */
export const EXAMPLES: readonly string[] = ["mod.ts", ...globSync("src/**/*.ts").sort()]
  .filter((file) => / \* @example\b/.test(readFileSync(file, "utf8")));

/** The text of a page; of a source, its docstrings, each line where it stands. */
function readPage(page: string): string {
  const text = readFileSync(page, "utf8");
  if (!page.endsWith(".ts")) return text;
  return text.split("\n").map((line) => /^ *\*(?: (.*))?$/.exec(line)?.[1] ?? "").join("\n");
}

/**
 * What a machine that tests does not have, or must not do. Who marks a block as not tested names
 * one of them.
 */
const OUT_OF_REACH =
  /\b(?:docker|podman|kubectl|helm|systemctl|systemd-\w+|journalctl|wrangler|ssh|apt-get|deno (?:add|compile|publish)|npm publish|npx jsr)\b/;
/** Less than this may stand in a file of `examples/` by chance. */
const MIN_SHARED_LINES = 3;
/** Languages of files, not of programs. */
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
 * @param content Its text, if it is not what stands there
 * @returns Its fenced blocks in their order
 * @throws Where a block is written in a way that nobody would look into
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

/** Folders of examples in which their own tests build meanwhile: they are none of the checkout. */
const BUILT = ["node_modules", "dist", ".next", ".astro"];

/** Whether a file or a folder of examples is made by a build. */
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

/** All that stands in the folders that have tests of their own. */
function readTested(): string {
  return known ??= ["examples", "ops"].flatMap(readAll).join("\n\0\n");
}

/**
 * @param block A block
 * @returns What is done with it
 * @throws Where there is no rule for it
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
  if (language === "tsx") return "tested elsewhere"; // durable_chat_page_test.ts holds that there is no other one
  if (language === "jsonc" || language === "json") return "checked";
  if (language === "sh") return "run by a shell";
  if (["js", "ts"].includes(language)) return "run as a module";
  throw new Error(
    `${where}: nobody runs a block in ${
      language || "no language"
    }. Output is \`text\`; a file stands in examples/ or ` +
      `ops/ as it stands here; and what can't be run says "not tested" in its first line or in the line before it`,
  );
}
