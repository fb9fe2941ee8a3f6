/**
 * JSON files that an operator writes, with comments and trailing commas. Each mistake is found by
 * its line.
 *
 * @module
 */
import { readFileSync } from "node:fs";
import {
  getNodeValue,
  type Node,
  type ParseError,
  parseTree,
  printParseErrorCode,
} from "jsonc-parser";
import { ConfigError } from "../config/config.ts";
import type { Json } from "../config/environment.ts";
import { codeOf } from "../errors/system_error.ts";

/** A parsed file. */
export interface JsonFile {
  readonly file: string;
  readonly input: Json;
  /** Returns the file and line of a value, or of its closest parent. */
  lineOf(path: string): string;
  /** Lists the file and line of each name that its object already has. */
  listRepeated(): string[];
}

/** Messages for syntax errors, by the parser's names for them. */
const SYNTAX_ERRORS: Readonly<Record<string, string>> = {
  InvalidSymbol: "expected a value: a string in double quotes, a number, true, false, null, { or [",
  InvalidNumberFormat: "expected a number as JSON has it, such as 0.5",
  PropertyNameExpected: "expected the name of a setting in double quotes",
  ValueExpected: "expected a value",
  ColonExpected: "expected a colon",
  CommaExpected: "expected a comma",
  CloseBraceExpected: "expected a closing brace",
  CloseBracketExpected: "expected a closing bracket",
  EndOfFileExpected: "expected the end of the file",
  InvalidCommentToken: "expected // or /* for a comment",
  UnexpectedEndOfComment: "expected */ at the end of a comment",
  UnexpectedEndOfString: "expected a double quote at the end of a string",
  UnexpectedEndOfNumber: "expected the rest of a number",
  InvalidUnicode: "expected four hexadecimal digits after \\u",
  InvalidEscapeCharacter: 'expected one of \\" \\\\ \\/ \\b \\f \\n \\r \\t \\u in a string',
  InvalidCharacter: "expected no control character in a string",
};

function lineAt(text: string, offset: number): number {
  return text.slice(0, offset).split("\n").length;
}

/** Returns the value of a member of an object. A member without one has only its name. */
const valueOf = (member: Node): Node => member.children?.[1] ?? member;
const nameOf = (member: Node): string => String(member.children?.[0]?.value);

/** Lists the values inside a value, each with the step of a path that leads to it. */
function stepsOf({ type, children = [] }: Node): (readonly [step: string, node: Node])[] {
  if (type === "array") return children.map((child, index) => [`[${index}]`, child]);
  if (type !== "object") return [];
  return children.map((member) => [`.${nameOf(member)}`, valueOf(member)]);
}

/** Finds a value by its path, or its closest parent. Names in a path can contain dots. */
function locate(node: Node, path: string): Node {
  const fits = stepsOf(node).filter(([step]) =>
    path.startsWith(step) && /^(?:$|[.[])/.test(path.slice(step.length))
  );
  const [longest] = fits.toSorted(([one], [other]) => other.length - one.length);
  if (longest === undefined) return node;
  const [step, next] = longest;
  return locate(next, path.slice(step.length));
}

/** Finds the line of a value, or of its closest parent. */
function findLine(root: Node, text: string, path: string): number {
  const node = locate(root, path.startsWith("[") ? path : `.${path}`);
  if (node === root) return 1;
  return lineAt(text, node.parent?.type === "property" ? node.parent.offset : node.offset);
}

/** Yields each member whose object has an earlier one of the same name. */
function* findRepeated(node: Node): Generator<Node> {
  const seen = new Set<string>();
  const { type, children = [] } = node;
  for (const member of type === "object" ? children : []) {
    const name = nameOf(member);
    if (seen.has(name)) yield member;
    seen.add(name);
  }
  for (const [, inner] of stepsOf(node)) yield* findRepeated(inner);
}

/**
 * Reads a file whose content is an object.
 *
 * @param path The setting that names the file, for errors
 * @throws {ConfigError} If it can't be read or parsed
 */
export function readJsonFile(file: string, path: string): JsonFile {
  let text: string;
  try {
    text = readFileSync(file, "utf8");
  } catch (error) {
    const code = codeOf(error);
    const isAbsent = code === "ENOENT" || code === "NotFound";
    const fix = isAbsent && path === "config"
      ? ": write it with sallyport init, or name another one with --config"
      : "";
    throw new ConfigError([{
      path,
      message: `cannot read the file (${code})${fix}`,
      source: file,
    }]);
  }
  const errors: ParseError[] = [];
  const root = parseTree(text, errors, { allowTrailingComma: true });
  const [error] = errors;
  if (error !== undefined || root?.type !== "object") {
    const what = error === undefined
      ? "expected an object"
      : SYNTAX_ERRORS[printParseErrorCode(error.error)] ?? "expected JSON";
    const offset = error?.offset ?? 0;
    const line = lineAt(text, offset);
    const position = `line ${line}, column ${offset - text.lastIndexOf("\n", offset - 1)}`;
    const message = `cannot parse the file: ${position}: ${what}`;
    throw new ConfigError([{ path, message, source: `${file}:${line}` }]);
  }
  return {
    file,
    input: getNodeValue(root),
    lineOf: (setting) => `${file}:${findLine(root, text, setting)}`,
    listRepeated: () =>
      Array.from(findRepeated(root), ({ offset }) => `${file}:${lineAt(text, offset)}`),
  };
}
