/**
 * The sources of the product, read with the TypeScript parser and measured: tokens of code,
 * functions, and destructuring inside a destructured parameter.
 *
 * @module
 */
import { readdirSync } from "node:fs";
import { join, resolve } from "node:path";
import process from "node:process";
import { type Node, type SourceFile, SyntaxKind } from "typescript/unstable/ast";
import { createScanner } from "typescript/unstable/ast/scanner";
import { API } from "typescript/unstable/sync";

/** The running parser; `undefined` before its first use, and after its end. */
let parser: ReturnType<typeof startParser> | undefined;

function startParser() {
  const api = new API({ cwd: process.cwd() });
  const [project] = api.updateSnapshot({ openProject: resolve("tsconfig.json") }).getProjects();
  return { api, project };
}

/** Stops the parser. It starts again if it is used again: test files can share a process. */
export function closeSources(): void {
  parser?.api.close();
  parser = undefined;
}

/** Lists the TypeScript files of a folder and of those within. */
export function listSources(folder: string): string[] {
  return readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile() && /\.tsx?$/.test(entry.name))
    .map((entry) => join(entry.parentPath, entry.name)).sort();
}

/** Parses a file. @throws {Error} If it is not part of `tsconfig.json` */
export function parseSource(file: string): SourceFile {
  parser ??= startParser();
  const source = parser.project?.program.getSourceFile(resolve(file));
  if (source === undefined) {
    throw new Error(`Cannot parse ${file}: it is not part of tsconfig.json`);
  }
  return source;
}

function childrenOf(node: Node): Node[] {
  const children: Node[] = [];
  node.forEachChild((child) => void children.push(child));
  return children;
}

/** Every node of a file, outer nodes first. */
export function* nodesOf(node: Node): Generator<Node> {
  yield node;
  for (const child of childrenOf(node)) yield* nodesOf(child);
}

/** The start of each token of a file, in order. Comments are not tokens. */
export function tokenStarts(source: SourceFile): number[] {
  const scanner = createScanner(true);
  const starts: number[] = [];
  const scanBetween = (from: number, to: number): void => {
    scanner.setText(source.text, from, to - from);
    while (scanner.scan() !== SyntaxKind.EndOfFile) starts.push(scanner.getTokenStart());
  };
  // The scanner alone would misread a `/` or a `}` in a template, so each leaf of the tree is a
  // token.
  const visit = (node: Node): void => {
    const children = childrenOf(node);
    if (children.length === 0) {
      if (node.kind !== SyntaxKind.EndOfFile) starts.push(node.getStart(source));
      return;
    }
    let end = node.getStart(source);
    for (const child of children) {
      scanBetween(end, child.getStart(source));
      visit(child);
      end = child.end;
    }
    scanBetween(end, node.end);
  };
  visit(source);
  return starts;
}

const FUNCTIONS: ReadonlySet<SyntaxKind> = new Set([
  SyntaxKind.FunctionDeclaration,
  SyntaxKind.FunctionExpression,
  SyntaxKind.ArrowFunction,
  SyntaxKind.MethodDeclaration,
  SyntaxKind.Constructor,
  SyntaxKind.GetAccessor,
  SyntaxKind.SetAccessor,
]);

/** The text of each function of a file. */
export function functionsOf(source: SourceFile): string[] {
  return Array.from(nodesOf(source)).filter(({ kind }) => FUNCTIONS.has(kind))
    .map((node) => source.text.slice(node.getStart(source), node.end));
}

const isPattern = ({ kind }: Node): boolean =>
  kind === SyntaxKind.ObjectBindingPattern || kind === SyntaxKind.ArrayBindingPattern;

function countPatterns(node: Node): number {
  return Array.from(nodesOf(node)).filter(isPattern).length;
}

/** The number of parameters of a file with nested destructuring. */
export function countNestedParameters(source: SourceFile): number {
  return Array.from(nodesOf(source)).filter((node) => {
    if (node.kind !== SyntaxKind.Parameter) return false;
    const pattern = childrenOf(node).find(isPattern);
    return pattern !== undefined && countPatterns(pattern) > 1;
  }).length;
}
