/** The rules of the house: who imports whom, how large things may be, what may be called where. */
import assert from "node:assert/strict";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { dirname, join, normalize } from "node:path";
import { describe, it } from "@std/testing/bdd";

const MAX_FILE_LINES = 400;
const MAX_FUNCTION_LINES = 60;

const all = ["mod.ts", ...list("src")];
/** The console's page runs in a browser; what is built from it is a text. */
const isPage = (file: string) => file.startsWith("src/admin/console/");
const sources = all.filter((file) => !isPage(file) && file !== "src/admin/page_assets.ts");

function list(directory: string): string[] {
  return readdirSync(directory, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile() && /\.tsx?$/.test(entry.name))
    .map((entry) => join(entry.parentPath, entry.name)).sort();
}

const read = (file: string): string => readFileSync(file, "utf8");

interface Import {
  readonly from: string;
  readonly to: string;
  readonly isType: boolean;
  readonly isDynamic: boolean;
}

/** Every import of a file; a relative one as the path of what it names. */
function importsOf(file: string): Import[] {
  const text = read(file).replace(/^\s*\*.*$|\/\/.*$/gm, "");
  const statements = text.matchAll(
    /^(?:import|export)\s+(type\s)?(?:[^"';]*?\sfrom\s+)?"([^"]+)"|import\("([^"]+)"\)/gm,
  );
  return Array.from(statements, ([, type, named, dynamic]) => {
    const target = named ?? dynamic ?? "";
    const to = target.startsWith(".") ? normalize(join(dirname(file), target)) : target;
    return { from: file, to, isType: type !== undefined, isDynamic: dynamic !== undefined };
  });
}

const edges = sources.flatMap(importsOf);

/** A room of the house: a folder of `src`, or a file at its top. */
function roomOf(file: string): string {
  return file.startsWith("src/") ? file.split("/")[1]?.replace(/\.ts$/, "") ?? "" : file;
}

const FLOORS: Readonly<Record<string, number>> = {
  errors: 0,
  error_table: 0,
  outcomes: 0,
  units: 0,
  presets: 0,
  byte_source: 0,
  timers: 0,
  exchange: 1,
  settlement: 1,
  open_exchanges: 1,
  patience: 1,
  usage_counts: 1,
  key_config: 1,
  price_config: 1,
  setting_forms: 1,
  provider_config: 1,
  config: 1,
  fetch_handler: 1,
  storage: 1,
  inbound: 2,
  observe: 2,
  access: 2,
  upstream: 2,
  pipeline: 3,
  gateway: 3,
  admin: 3,
  serve: 4,
  cloudflare: 4,
  cli: 5,
  "mod.ts": 6,
};

/** Bound: may name a runtime or an engine. */
const isBound = (file: string) =>
  /_(?:file|redis|node|bun)\.ts$|^src\/(?:observe|serve|storage|cloudflare|cli)\//.test(file);

/** A call that has one home. The pattern must not stand elsewhere in `src`. */
const BANNED: readonly { pattern: RegExp; home: RegExp; reason: string }[] = [
  {
    pattern: /\bconsole\./,
    home: /serve\/deno|cloudflare\/entry/,
    reason: "a log line has one way out; cli/ writes to process.stdout",
  },
  { pattern: /(?:await|return|=>|=) fetch\(/, home: /upstream\/transport\.ts/, reason: "only a transport calls out" },
  {
    pattern: /\bsetTimeout\(/,
    home: /timers\.ts|transport_node|serve\/(?:lifecycle|deno|workers|log_output)|cloudflare\/entry|cli\//,
    reason: "times come from the Clock, so that tests can pass their own",
  },
  { pattern: /\.tee\(\)/, home: /^$/, reason: "tee() buffers without bound when one side is slow" },
  { pattern: /request\.url/, home: /cli\//, reason: "a URL built from Host must not be looked at early" },
];

/** Top-level functions and methods with the number of their lines, by the indentation that the formatter guarantees. */
function* functionsOf(file: string): Generator<[name: string, lines: number]> {
  const lines = read(file).split("\n");
  for (let start = 0; start < lines.length; start++) {
    const head = /^( {0,4})(?:export )?(?:async )?(?:function\*? (\w+)|(?:get |static |override )*(#?\w+)\()[^;]*\{$/
      .exec(lines[start] ?? "");
    if (head === null || /^(?:if|for|while|switch)$/.test(head[3] ?? "")) continue;
    const end = lines.findIndex((line, index) => index > start && line.startsWith(`${head[1]}}`));
    yield [head[2] ?? head[3] ?? "", end - start + 1];
  }
}

describe("the house", () => {
  it("data flows one way: a lower floor never looks up", () => {
    for (const { from, to } of edges.filter((edge) => edge.to.startsWith("src/"))) {
      const [lower, upper] = [FLOORS[roomOf(from)], FLOORS[roomOf(to)]];
      assert.ok(
        lower !== undefined,
        `${from} is in no room of the house: add it to FLOORS and say why in CONTRIBUTING`,
      );
      assert.ok(upper !== undefined && upper <= lower, `${from} imports ${to}, which is on a higher floor`);
    }
  });

  it("wings on one floor never import each other: what they share goes down, or up to the pipeline", () => {
    const wings = edges.filter(({ from, to }) => FLOORS[roomOf(from)] === 2 && FLOORS[roomOf(to)] === 2);
    assert.deepEqual(wings.filter(({ from, to }) => roomOf(from) !== roomOf(to)), []);
  });

  it("only bound files name a runtime or an engine, and only serve/ and cli/ import bound files", () => {
    for (const { from, to } of edges) {
      if (to.startsWith("node:")) assert.ok(isBound(from), `${from} imports ${to}: the core must run anywhere`);
      if (to.startsWith("src/") && isBound(to) && from !== "mod.ts") {
        assert.ok(isBound(from), `${from} imports ${to}, which is bound to a runtime`);
      }
    }
  });

  it("mod.ts reaches the command line only by a dynamic import", () => {
    const bound = edges.filter(({ from, to }) => from === "mod.ts" && isBound(to));
    assert.deepEqual(bound.filter(({ isDynamic }) => !isDynamic), []);
  });

  it("the console's page is a world of its own: it takes one module along, and nobody imports it", () => {
    for (const { from, to } of all.flatMap(importsOf).filter(({ to }) => to.startsWith("src/"))) {
      const isInside = isPage(to) || to === "src/observe/live/live_report.ts";
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

  it("no file and no function grows beyond what is read in one go", () => {
    for (const file of all) {
      const { length } = read(file).split("\n");
      assert.ok(length <= MAX_FILE_LINES, `${file} has ${length} lines: is it still one room?`);
      for (const [name, lines] of functionsOf(file)) {
        assert.ok(
          lines <= MAX_FUNCTION_LINES,
          `${name} in ${file} has ${lines} lines: which part has a name of its own?`,
        );
      }
    }
  });

  it("a call that has one home stands nowhere else", () => {
    for (const file of sources) {
      const code = read(file).replace(/\/\*[\s\S]*?\*\/|\/\/.*$/gm, "");
      for (const { pattern, home, reason } of BANNED) {
        assert.ok(home.test(file) || !pattern.test(code), `${file} has ${pattern.source}: ${reason}`);
      }
    }
  });

  it("every error code is thrown somewhere", () => {
    const rest = sources.filter((file) => file !== "src/errors/codes.ts").map(read).join("\n");
    const codes = Array.from(read("src/errors/codes.ts").matchAll(/^ {2}\| "(\w+)"/gm), ([, code = ""]) => code);
    assert.deepEqual(codes.filter((code) => !rest.includes(`"${code}"`)), []);
  });

  it("the map in CONTRIBUTING lists every file", () => {
    const map = read("CONTRIBUTING.md");
    for (const file of all) {
      assert.ok(map.includes(file.split("/").at(-1) ?? ""), `${file} is missing in CONTRIBUTING.md`);
    }
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
    assert.equal(npm.dependencies, undefined, "what runs is bundled: an installed package brings nothing else along");
  });

  it("no lockfile names an address to download from", () => {
    assert.doesNotMatch(read("package-lock.json"), /"resolved": "https?:/);
    assert.equal(existsSync("deno.lock"), false);
  });
});
