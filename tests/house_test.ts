/**
 * The rules of the house: allowed imports between rooms, maximum sizes of files and functions, and
 * calls that are allowed in only one place. The TypeScript parser reads the sources, so no rule
 * depends on line breaks.
 */
// runtimes: check
import assert from "node:assert/strict";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { dirname, join, normalize } from "node:path";
import { afterAll, describe, it } from "@std/testing/bdd";
import { SyntaxKind } from "typescript/unstable/ast";
import {
  isCallExpression,
  isExportDeclaration,
  isImportDeclaration,
  isStringLiteral,
} from "typescript/unstable/ast/is";
import { makeMap } from "../scripts/docs/map.ts";
import {
  closeSources,
  countNestedParameters,
  functionsOf,
  listSources,
  nodesOf,
  parseSource,
  tokenStarts,
} from "../scripts/sources.ts";
import { ERRORS } from "../src/errors/codes.ts";

const MAX_FILE_LINES = 500;
/** Tokens without comments. Longer lines do not help. */
const MAX_FILE_TOKENS = 3_000;
const MAX_FUNCTION_LINES = 60;

const read = (file: string): string => readFileSync(file, "utf8");

const all = ["mod.ts", ...listSources("src")];
/** The console's page runs in a browser; its build is a text. */
const isPage = (file: string) => file.startsWith("src/admin/console/");
/** Modules without a runtime that the page also imports. */
const SHARED_WITH_PAGE = [
  "src/config/dimensions.ts",
  "src/config/limit_forms.ts",
  "src/config/team_name.ts",
  "src/config/units.ts",
  "src/observe/live/live_report.ts",
  "src/observe/live/exchange_filter.ts",
  "src/errors/explanations.ts",
  "src/observe/fleet/fleet_report.ts",
  "src/usage/counts.ts",
  "src/usage/csv.ts",
  "src/usage/report_csv.ts",
];
const sources = all.filter((file) => !isPage(file) && file !== "src/admin/page_assets.ts");

interface Import {
  readonly from: string;
  /** For a relative import, the path of the imported module. */
  readonly to: string;
  readonly isDynamic: boolean;
  /** True for `import type`, which is removed by the compiler. */
  readonly isErased: boolean;
}

function importsOf(file: string): Import[] {
  const toImport = (target: string, isDynamic: boolean, isErased = false): Import => ({
    from: file,
    to: target.startsWith(".") ? normalize(join(dirname(file), target)) : target,
    isDynamic,
    isErased,
  });
  return Array.from(nodesOf(parseSource(file))).flatMap((node) => {
    if (isImportDeclaration(node) || isExportDeclaration(node)) {
      const { moduleSpecifier } = node;
      const isErased = isImportDeclaration(node) &&
        node.importClause?.phaseModifier === SyntaxKind.TypeKeyword;
      return moduleSpecifier !== undefined && isStringLiteral(moduleSpecifier)
        ? [toImport(moduleSpecifier.text, false, isErased)]
        : [];
    }
    if (!isCallExpression(node) || node.expression.kind !== SyntaxKind.ImportKeyword) return [];
    return node.arguments.filter(isStringLiteral).map(({ text }) => toImport(text, true));
  });
}

const edges = sources.flatMap(importsOf);

/** A room of the house: a folder of `src`, or a file directly in it. */
function roomOf(file: string): string {
  return file.startsWith("src/") ? file.split("/")[1] ?? "" : file;
}

const FLOORS: Readonly<Record<string, number>> = {
  "runtime.ts": 0,
  errors: 0,
  http: 0,
  exchange: 1,
  config: 1,
  dialects: 2,
  storage: 2,
  durable: 3,
  operations: 3,
  inbound: 3,
  keys: 3,
  limits: 3,
  usage: 3,
  upstream: 3,
  observe: 3,
  runs: 3,
  "pipeline.ts": 4,
  steps: 4,
  "gateway.ts": 4,
  admin: 4,
  serve: 5,
  cloudflare: 5,
  cli: 6,
  "mod.ts": 7,
};
/**
 * Floors whose rooms never import each other: shared code moves to a lower floor, or the pipeline
 * passes it.
 */
const WINGS: ReadonlySet<number> = new Set([2, 3]);

/** Bound files: they can name a runtime or an engine. */
const isBound = (file: string) =>
  /_(?:file|redis|kv)\.ts$|\/redis\/|^src\/(?:upstream\/http1|storage|serve|cloudflare|cli)\/|^src\/runtime\.ts$/
    .test(file);

/** A call that is allowed in one place. The pattern must not match elsewhere in `src`. */
const BANNED: readonly { pattern: RegExp; home: RegExp; reason: string }[] = [
  {
    pattern: /\bconsole\./,
    home: /serve\/deno|cloudflare\/worker\.ts/,
    reason: "a log line has one way out; cli/ writes to process.stdout",
  },
  {
    pattern: /(?:await|return|=>|=) fetch\(/,
    home: /upstream\/transport\.ts/,
    reason: "only a transport calls out",
  },
  {
    pattern: /\bsetTimeout\(/,
    home: /exchange\/clock|upstream\/http1|^src\/serve\/|cloudflare\/worker_clock|^src\/cli\//,
    reason: "times come from the Clock, so that tests can pass their own",
  },
  {
    pattern: /"(?:Bun|Deno)" in globalThis/,
    home: /^src\/runtime\.ts$/,
    reason: "the runtime is detected in one place",
  },
  {
    pattern: /\bcreateGateway\(/,
    home: /^src\/gateway|serve\/compose|cloudflare\/entry/,
    reason: "each root composes the gateway in one place",
  },
  { pattern: /\.tee\(\)/, home: /^$/, reason: "tee() buffers without bound when one side is slow" },
  {
    pattern: /request\.url/,
    home: /gateway\.ts|cli\//,
    reason: "a URL built from Host must not be looked at early",
  },
];

/**
 * Openings that hide the subject of a docstring: it must begin with a noun or a verb that names its
 * subject.
 */
const RIDDLE = /^(?:What|Who|Whose|Whom|How|Whether|So|As|Such)\b/;

/** The texts of a file's docstrings. */
function docstringsOf(file: string): string[] {
  return Array.from(
    read(file).matchAll(/\/\*\*\s*(?:\*\s*)?([\s\S]*?)\*\//g),
    ([, text = ""]) => text,
  );
}

describe("the house", () => {
  afterAll(closeSources);

  it("data flows one way: a lower floor never imports a higher one", () => {
    for (const { from, to } of edges.filter((edge) => edge.to.startsWith("src/"))) {
      const [lower, upper] = [FLOORS[roomOf(from)], FLOORS[roomOf(to)]];
      assert.ok(
        lower !== undefined,
        `${from} is in no room of the house: add it to FLOORS and say why in CONTRIBUTING`,
      );
      assert.ok(
        upper !== undefined && upper <= lower,
        `${from} imports ${to}, which is on a higher floor`,
      );
    }
  });

  it("rooms of one floor never import each other: shared code moves to a lower floor, or the pipeline passes it", () => {
    for (
      const { from, to } of edges.filter((edge) =>
        edge.to.startsWith("src/") && roomOf(edge.from) !== roomOf(edge.to)
      )
    ) {
      const floor = FLOORS[roomOf(from)] ?? 0;
      assert.ok(
        !WINGS.has(floor) || FLOORS[roomOf(to)] !== floor,
        `${from} imports ${to}: move what they share down`,
      );
    }
  });

  it("only bound files name a runtime or an engine, or import a bound file", () => {
    for (const { from, to } of edges) {
      if (to.startsWith("node:")) {
        assert.ok(isBound(from), `${from} imports ${to}: the core must run anywhere`);
      }
      if (to.startsWith("src/") && isBound(to) && from !== "mod.ts") {
        assert.ok(isBound(from), `${from} imports ${to}, which is bound to a runtime`);
      }
    }
  });

  it("mod.ts reaches the command line only by a dynamic import", () => {
    const bound = edges.filter(({ from, to }) => from === "mod.ts" && isBound(to));
    assert.deepEqual(bound.filter(({ isDynamic }) => !isDynamic), []);
  });

  it("the console's page is separate: it imports few modules, and no module imports it", () => {
    const imports = all.flatMap(importsOf).filter(({ to }) => to.startsWith("src/"));
    for (const { from, to, isErased } of imports) {
      const isInside = isErased || isPage(to) || SHARED_WITH_PAGE.includes(to);
      assert.ok(isPage(from) ? isInside : !isPage(to), `${from} imports ${to}`);
    }
  });

  it("there is no import cycle", () => {
    const visit = (file: string, path: readonly string[]): void => {
      assert.ok(!path.includes(file), `cycle: ${[...path, file].join(" -> ")}`);
      if (done.has(file)) return;
      for (const { to } of edges.filter(({ from }) => from === file)) {
        if (to.startsWith("src/")) visit(to, [...path, file]);
      }
      done.add(file);
    };
    const done = new Set<string>();
    for (const file of sources) visit(file, []);
  });

  it("no file and no function exceeds the size limit", () => {
    for (const file of all) {
      const { length } = read(file).trimEnd().split("\n");
      assert.ok(length <= MAX_FILE_LINES, `${file} has ${length} lines: is it still one subject?`);
      const source = parseSource(file);
      const tokens = tokenStarts(source).length;
      assert.ok(
        tokens <= MAX_FILE_TOKENS,
        `${file} has ${tokens} tokens: is it still one subject?`,
      );
      for (const text of functionsOf(source)) {
        const lines = text.split("\n").length;
        assert.ok(
          lines <= MAX_FUNCTION_LINES,
          `a function in ${file} has ${lines} lines (${
            text.slice(0, 40)
          }…): which part has its own name?`,
        );
      }
    }
  });

  it("no parameter has nested destructuring", () => {
    assert.deepEqual(all.filter((file) => countNestedParameters(parseSource(file)) > 0), []);
  });

  it("a call that is allowed in one place is nowhere else", () => {
    for (const file of sources) {
      const code = read(file).replace(/\/\*[\s\S]*?\*\/|\/\/.*$/gm, "");
      for (const { pattern, home, reason } of BANNED) {
        assert.ok(
          home.test(file) || !pattern.test(code),
          `${file} has ${pattern.source}: ${reason}`,
        );
      }
    }
  });

  it("a docstring opens with a noun or a verb", () => {
    const riddles = all.filter((file) => file !== "src/admin/page_assets.ts").flatMap((file) =>
      docstringsOf(file).filter((text) => RIDDLE.test(text)).map((text) =>
        `${file}: ${text.slice(0, 60)}`
      )
    );
    assert.deepEqual(riddles, [], "say what it is or does, not 'what', 'how' or 'whether'");
  });

  it("every error code is thrown somewhere", () => {
    const rest = sources.filter((file) => !file.startsWith("src/errors/")).map(read).join("\n");
    assert.deepEqual(Object.keys(ERRORS).filter((code) => !rest.includes(`"${code}"`)), []);
  });

  it("CONTRIBUTING names every room", () => {
    const page = read("CONTRIBUTING.md");
    const rooms = readdirSync("src", { withFileTypes: true }).filter((entry) =>
      entry.isDirectory()
    );
    for (const { name } of rooms) assert.ok(page.includes(`\`${name}/\``), name);
  });

  it("every file states its subject", () => {
    for (const line of makeMap().split("\n")) assert.match(line, /: \S/);
  });

  it("the manifests agree", () => {
    const [deno, npm] = [JSON.parse(read("deno.json")), JSON.parse(read("package.json"))];
    assert.equal(deno.version, npm.version);
    assert.equal(deno.license, npm.license);
    assert.deepEqual(deno.tasks, npm.scripts);
    assert.ok(read("src/cli/command.ts").includes(`VERSION = "${npm.version}"`));
    for (const [name, target] of Object.entries(deno.imports)) {
      if (!String(target).startsWith("npm:")) continue;
      assert.equal(String(target), `npm:${name}@${npm.devDependencies[name]}`);
    }
    assert.equal(
      npm.dependencies,
      undefined,
      "what runs is bundled: an installed package brings nothing else along",
    );
  });

  it("no lockfile names an address to download from", () => {
    assert.doesNotMatch(read("package-lock.json"), /"resolved": "https?:/);
    assert.equal(existsSync("deno.lock"), false);
  });
});
