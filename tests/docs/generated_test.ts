/**
 * The pages contain the output of `npm run docs -- tables`, and its content about settings and
 * errors is true.
 */
// runtimes: once
import assert from "node:assert/strict";
import { existsSync, globSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import process from "node:process";
import { afterEach, describe, it } from "@std/testing/bdd";
import { writeApi } from "../../scripts/docs/api.ts";
import { IN_STREAM } from "../../scripts/docs/errors.ts";
import { makeMeasurements } from "../../scripts/docs/measurements.ts";
import { makePeers } from "../../scripts/docs/performance.ts";
import { unpadTables } from "../../scripts/docs/page_format.ts";
import { readPart, toTable } from "../../scripts/docs/parts.ts";
import { listSettings } from "../../scripts/docs/settings.ts";
import { TABLES } from "../../scripts/docs/tables.ts";
import { ROWS as FAULTS } from "../../scripts/docs/faults.ts";
import { toSlug } from "../../scripts/site/links.ts";
import { ConfigError } from "../../src/config/config.ts";
import { VARIABLES } from "../../src/config/environment.ts";
import { loadConfig } from "../../src/serve/load_config.ts";
import { CASES, IN_STREAM as PROVOKED_IN_STREAM } from "../support/error_cases.ts";
import { makeFolder } from "../support/program.ts";
import { PAGES } from "./blocks.ts";

/** Pages with one further part, which is made from the reports of a test run. */
const WITHOUT_TABLES = ["faults", "behaviours"];
/**
 * Variables that are not settings: the file, the key of `doctor`, and data from a supervisor to its
 * workers.
 */
const OTHERS = ["SALLYPORT_CONFIG", "SALLYPORT_UPSTREAM_KEY", "SALLYPORT_WORKER"];
/** A wrong value for each kind of setting that accepts "short". */
const MISTAKES: Readonly<Record<string, string>> = {
  SALLYPORT_INSTANCE: "a name",
  SALLYPORT_LISTEN: "127.0.0.1:99999",
  SALLYPORT_ADMIN: "127.0.0.1:99999",
  SALLYPORT_HOSTS_A: "no host",
  SALLYPORT_DEADLINES_A: "idle=long",
  SALLYPORT_SHARED_LIMITS_A: "requests=many",
  SALLYPORT_DURABLE_A: "keep=long",
};

describe("the pages", () => {
  for (const { name, files, make } of TABLES) {
    it(`contain the current ${name}: otherwise run npm run docs -- tables`, () => {
      for (const file of files) assert.equal(readPart(file, name), make(), `${file} is stale`);
    });
  }

  it("list only faults that are named in the title of a test", () => {
    const tests = globSync("tests/**/*_test.ts").map((file) => readFileSync(file, "utf8"));
    for (const name of Object.keys(FAULTS)) {
      assert.ok(tests.some((text) => text.includes(` [${name}]`)), `no test proves "${name}"`);
    }
  });

  it("contain no markers of unknown parts", () => {
    const names = [...TABLES.map(({ name }) => name), ...WITHOUT_TABLES];
    for (const page of PAGES) {
      const marked = readFileSync(page, "utf8").matchAll(
        /<!-- (.+): written by `npm run docs` -->/g,
      );
      for (const [, name = ""] of marked) {
        assert.ok(names.includes(name), `${page} has a part ${name}`);
      }
    }
  });

  it("have only links whose targets exist", () => {
    const anchorsOf = (file: string) =>
      Array.from(
        readFileSync(file, "utf8").matchAll(/^#+ (.+)$/gm),
        ([, title = ""]) => toSlug(title),
      );
    for (const page of PAGES) {
      const text = readFileSync(page, "utf8").replace(/```[^]*?```/g, "");
      const links = text.matchAll(
        /\]\((?!https?:)([^)\s#]*)(?:#([^)\s]+))?\)|(?:src|srcset)="([^"]+)"/g,
      );
      for (const [whole, path = "", anchor, picture] of links) {
        const target = picture ?? path;
        const file = target === "" ? page : join(dirname(page), target);
        assert.ok(existsSync(file), `${page}: ${whole} leads nowhere`);
        if (anchor !== undefined) {
          assert.ok(anchorsOf(file).includes(anchor), `${page}: ${whole}: no such heading`);
        }
      }
    }
  });

  it("name only existing files", () => {
    for (const page of PAGES) {
      const named = readFileSync(page, "utf8").matchAll(
        /`((?:tests|scripts|ops|examples|src)\/[\w./-]+)`/g,
      );
      for (const [, file = ""] of named) assert.ok(existsSync(file), `${page} names ${file}`);
    }
  });
});

describe("the table of settings", () => {
  const before = { ...process.env };
  afterEach(() => {
    for (const name of Object.keys(process.env)) {
      if (name.startsWith("SALLYPORT_")) delete process.env[name];
    }
    Object.assign(process.env, before);
  });

  /**
   * The setting and the place of the complaint about a configuration that is made of variables
   * only.
   */
  const complain = (variables: Record<string, string>): readonly (string | undefined)[] => {
    for (const name of Object.keys(process.env)) {
      if (name.startsWith("SALLYPORT_")) delete process.env[name];
    }
    Object.assign(process.env, { SALLYPORT_PROVIDER_A: "openai", ...variables });
    try {
      loadConfig();
    } catch (error) {
      if (error instanceof ConfigError) return [error.issues[0]?.path, error.issues[0]?.source];
      throw error;
    }
    return [];
  };

  /** Names of files, hosts, users, regions and tiers, and passwords, which accept any text. */
  const ANY_TEXT =
    /^(?:keys\.(?:file|snapshot)|redis\.(?:sentinel|tls)\..*|redis\.(?:username|password)|providers\.NAME\.(?:region|tiers)|(?:.*\.)?egress\.(?:ca|cert|key|credentials))$/;

  it("describes every setting of the schema", () => {
    const settings = listSettings();
    const paths = settings.map(({ path }) => path);
    for (
      const path of [
        "log",
        "listen[].port",
        "keys[].limits.budget",
        "prices.MODEL.input",
        "admin.token",
      ]
    ) {
      assert.ok(paths.includes(path), path);
    }
    assert.equal(new Set(paths).size, paths.length);
    const wordless = settings.filter(({ description, isGroup }) => description === "" && !isGroup);
    assert.deepEqual(wordless.map(({ path }) => path), [], "say a word by about()");
  });

  for (const { name: stem, path } of VARIABLES) {
    if (ANY_TEXT.test(path)) continue;
    const name = stem.replace(/_$/, "_A");
    it(`${name} sets ${path}`, () => {
      const [at = "", source] = complain({
        SALLYPORT_ADMIN: "127.0.0.1:1",
        SALLYPORT_CORS_ORIGINS: "*",
        SALLYPORT_ALERTS_URL: "https://ops.example",
        SALLYPORT_ALERTS_SECRET: `whsec_${"A".repeat(32)}`,
        [name]: MISTAKES[name] ?? "short",
      });
      assert.ok(at.startsWith(path.replace("NAME", "a")), `${at} instead of ${path}`);
      assert.equal(source, name);
    });
  }

  it("names every variable", () => {
    const sources = readdirSync("src", { recursive: true, withFileTypes: true }).filter((
      { name },
    ) => name.endsWith(".ts")).map(({ parentPath, name }) =>
      readFileSync(join(parentPath, name), "utf8")
    );
    const named = new Set(sources.join("\n").match(/SALLYPORT_[A-Z_]*[A-Z]/g));
    const known = [...OTHERS, ...VARIABLES.map(({ name }) => name.replace(/_$/, ""))];
    assert.deepEqual(Array.from(named).filter((name) => !known.includes(name)), []);
  });

  it("is right that the admin listener needs a token if other machines can reach it", () => {
    assert.deepEqual(complain({ SALLYPORT_ADMIN: "0.0.0.0:1" })[0], "admin.token");
  });
});

describe("the table of errors", () => {
  it("separates errors that end a stream from errors before an answer", () => {
    const page = readFileSync("docs/streaming.md", "utf8");
    assert.deepEqual(PROVOKED_IN_STREAM.filter((code) => !IN_STREAM.includes(code)), []);
    for (const code of IN_STREAM) {
      assert.ok(page.includes(`\`${code}\``), `docs/streaming.md does not name ${code}`);
    }
    for (const code of Object.keys(CASES)) {
      assert.ok(
        readFileSync("docs/errors.md", "utf8").includes(`\`${code}\``),
        `docs/errors.md does not name ${code}`,
      );
    }
  });
});

describe("the table of peers", () => {
  const row = (subject: string, median: number, objections: string[] = []) => ({
    subject,
    spread: { median },
    objections,
  });
  const session = (...rows: unknown[]) =>
    JSON.stringify({
      measuredAt: "2026-11-21T00:00:00Z",
      machine: { cpu: "a machine" },
      versions: { node: "26.0.0" },
      effort: { rounds: 3 },
      results: ["plain", "streamed"].map((name) => ({ name, rows, comparisons: [] })),
    });

  it("includes separate measurements, says so, and leaves out results that must not be quoted", () => {
    const folder = makeFolder();
    const [main, peers] = [join(folder.path, "main.json"), join(folder.path, "peers.json")];
    writeFileSync(
      main,
      session(row("gateway node 26", 12_345), row("nginx", 50_000, ["the load was the limit"])),
    );
    const alone = makePeers(main, peers);
    assert.match(alone, /\| \*\*Sallyport\*\* on Node 26 \| 12,300 /);
    assert.match(alone, /\| nginx +\| – /);
    assert.doesNotMatch(alone, /measured apart/);
    writeFileSync(peers, session(row("gateway node 26", 9_999), row("portkey 1.2.3", 1_234)));
    const both = makePeers(main, peers);
    folder.remove();
    assert.match(both, /\| Portkey 1\.2\.3 +\| 1,200 /);
    assert.match(both, /\| \*\*Sallyport\*\* on Node 26 \| 12,300 /);
    assert.match(both, /Portkey 1\.2\.3: measured apart.* on Node 26 10,000 and 10,000 a second/);
  });
});

describe("the measurements that are not on a page", () => {
  it("are printed from the last results, each with its title and a table", () => {
    const text = makeMeasurements();
    const titles = [
      "Cost compared with ten bare lines",
      "Paced streams",
      "Goals",
      "Log and metrics",
    ];
    for (const title of titles) assert.match(text, new RegExp(`## ${title}\\n\\n\\| `));
    assert.match(text, /\| processor time of an event, 500 streams \| \d/);
  });
});

describe("the reference of the library", () => {
  it("is made from the docstrings of the exports of mod.ts", () => {
    const folder = makeFolder();
    writeApi(folder.path);
    const pages = readdirSync(folder.path, { recursive: true }).map(String);
    const page = readFileSync(
      join(folder.path, pages.find((name) => name.endsWith("createGateway.html")) ?? ""),
      "utf8",
    );
    folder.remove();
    assert.match(page, /Makes a gateway\./);
  });
});

describe("a table", () => {
  it("is not padded, and keeps escaped bars", () => {
    assert.equal(
      toTable(["a", "", "µ"], [["1|2", "", "–"]]),
      "| a | | µ |\n| --- | --- | --- |\n| 1\\|2 | | – |",
    );
  });

  it("loses the formatter's padding, but code keeps its spaces", () => {
    assert.equal(
      unpadTables("| a   |  b |\n| :--- | --: |\n\n```text\n|  a  |\n```\n"),
      "| a | b |\n| :--- | ---: |\n\n```text\n|  a  |\n```\n",
    );
  });
});
