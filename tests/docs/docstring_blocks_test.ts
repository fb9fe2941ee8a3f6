/**
 * Every code block of a docstring runs unchanged. The modules of all pages and docstrings have valid
 * types, each port has an example, and each block has a rule.
 */
// runtimes: once
// long: it compiles the blocks of all pages
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { globSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import process from "node:process";
import { describe, it } from "@std/testing/bdd";
import { ONE_CHECKER } from "../../scripts/compiler.ts";
import { needs } from "../support/requires.ts";
import { EXAMPLES, fateOf, PAGES, readBlocks } from "./blocks.ts";
import { PageRun } from "./page_run.ts";
import { execute, testBlocks } from "./run_blocks.ts";

const DOCSTRINGS = EXAMPLES.flatMap((file) => readBlocks(file));
const { it: run } = needs(["curl"]);

testBlocks("docstrings", DOCSTRINGS);

describe("the modules of the pages", () => {
  run(`hold types under --strict`, () => {
    const folder = resolve(".cache", `pages-${process.pid}`); // packages are found from there
    mkdirSync(folder, { recursive: true });
    try {
      const names: string[] = [];
      for (const blocks of [...PAGES.map((page) => readBlocks(page)), DOCSTRINGS]) {
        let before = "";
        for (const block of blocks.filter(({ language }) => language === "ts")) {
          before = block.words.includes("continued") ? before + block.text : block.text;
          const isElsewhere = fateOf(block) !== "run as a module" ||
            /\b(?:Deno|Bun)\./.test(before);
          if (isElsewhere) continue; // the types of these runtimes are not installed
          const name = `${block.page.replaceAll(/\W/g, "_")}_${block.line}.ts`;
          writeFileSync(
            join(folder, name),
            `${before.replaceAll('"./src/', '"../../src/')}\nexport {};\n`,
          );
          names.push(name);
        }
      }
      assert.ok(names.length > 2);
      const asReaders = { declaration: false, isolatedDeclarations: false, noUnusedLocals: false };
      const compilerOptions = { ...asReaders, paths: { sallyport: [resolve("mod.ts")] } };
      const project = { extends: resolve("tsconfig.json"), compilerOptions, include: names };
      writeFileSync(join(folder, "tsconfig.json"), JSON.stringify(project));
      const tsc = resolve("node_modules", "typescript", "bin", "tsc");
      const { status, stdout } = spawnSync(process.execPath, [
        tsc,
        ...ONE_CHECKER,
        "-p",
        folder,
        "--noEmit",
      ], {
        encoding: "utf8",
      });
      assert.equal(stdout, "");
      assert.equal(status, 0);
    } finally {
      rmSync(folder, { recursive: true, force: true });
    }
  });
});

describe("the ports of the library", () => {
  it("each have an example", () => {
    const exported: readonly string[] = readFileSync("mod.ts", "utf8").match(/\b[A-Z]\w+/g) ?? [];
    const [, parts = ""] =
      /^export interface GatewayParts \{([^]*?)^\}/m.exec(readFileSync("src/gateway.ts", "utf8")) ??
        [];
    const ports = new Set(
      parts.replace(/\/\*\*[^]*?\*\//g, "").match(/\b[A-Z]\w+/g)?.filter((name) =>
        exported.includes(name)
      ),
    );
    assert.ok(ports.has("KeyStore"));
    const sources = globSync("src/**/*.ts").map((file) => readFileSync(file, "utf8")).join("\n");
    const bare = Array.from(ports).filter((name) => {
      const [docstring = ""] =
        new RegExp(`/\\*\\*(?:(?!\\*/)[^])*\\*/\\nexport (?:interface|type) ${name}\\b`).exec(
          sources,
        ) ?? [];
      return !docstring.includes("@example");
    });
    assert.deepEqual(bare, [], "show in an @example how a user makes one");
  });
});

describe("a code block", () => {
  const read = (language: string, text: string) =>
    readBlocks("x.md", `\n\`\`\`${language}\n${text}\n\`\`\`\n`);

  it("has a rule, or is refused", () => {
    const fate = (language: string, text: string) => read(language, text).map(fateOf)[0];
    assert.equal(fate("sh", "# not tested: it needs Docker\ndocker run sallyport"), "not tested");
    assert.equal(fate("text", "anything"), "shown");
    for (
      const [language, text] of [["", "x"], ["python", "x"], [
        "sh",
        "# not tested: no time\ncurl x",
      ]] as const
    ) {
      assert.throws(() => fate(language, text), /no command runs|out of reach/);
    }
    assert.throws(
      () => readBlocks("x.md", "Such as\n\n    curl x\n"),
      /x\.md:3: write code as a block/,
    );
    assert.throws(() => readBlocks("x.md", "```sh\ncurl x\n"), /x\.md:1: this block has no end/);
  });

  run(`that is wrong fails`, async () => {
    const page = await PageRun.open();
    try {
      const wrong: readonly (readonly [string, string, RegExp])[] = [
        [
          "jsonc",
          '{ "providers": { "a": { "upstream": "openai", "speed": 1 } } }',
          /unknown setting/,
        ],
        ["jsonc", '"limits": { "body": "huge" }', /limits\.body: expected a size/],
        ["sh", "false\ntrue", /1 !== 0/],
        ["sh", "curl http://localhost:8787/v1/models", /missing_gateway_key/],
        ["sh", "sallyport serve --config nowhere.jsonc", /cannot read the file/],
        ["ts", 'import "sallyport";\nthrow new Error("so");', /Error: so/],
        ["ts", "// left.mjs\nconst x = 1;", /left\.mjs is shown, and nothing uses it/],
      ];
      for (const [language, text, says] of wrong) {
        const [block] = read(language, text);
        await assert.rejects(
          async () => await execute(page, block ?? assert.fail("no block"), []),
          (error: Error) => {
            assert.match(error.message, says);
            return true;
          },
        );
      }
    } finally {
      await page.close();
    }
  });
});
