/** `sallyport reconcile`: equal exports are equal, and each kind of difference is named. */
// runtimes: once
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterEach, beforeEach, describe, it } from "@std/testing/bdd";
import { CLASS_COUNTS, DAY_MS, USAGE_COUNTS } from "../../src/usage/counts.ts";
import { type Ran, runCommand } from "../support/command.ts";
import { makePlace, type Place } from "../support/key_place.ts";
import { type Provider, startProvider } from "../support/provider.ts";
import {
  anthropicCost,
  type BilledDay,
  openaiCosts,
  page,
  toAnthropic,
  toOpenai,
} from "../support/provider_exports.ts";

const TODAY = Math.floor(Date.now() / DAY_MS) * DAY_MS;
const dayOf = (ago: number) => new Date(TODAY - ago * DAY_MS).toISOString().slice(0, 10);
const [FIRST, LAST, END] = [dayOf(2), dayOf(1), dayOf(0)];
/** A million tokens: 2 for input, 0.2 for reads, 10 for output. */
const PRICE = { input: 2, cacheRead: 0.2, output: 10 };
const M = 1_000_000;

const COUNTS = [...USAGE_COUNTS, ...CLASS_COUNTS];
type Counts = Partial<Record<typeof COUNTS[number], number>>;
/** Usage of the gateway: 2 M fresh and 1 M cached tokens, 1 M of output. It costs 14.2. */
const OURS: Counts = { requests: 9, input: 3 * M, cached: M, output: M, reasoning: 1000 };
const CLASSES = { input: 2 * M, cacheRead: M, output: M };
const COST = "14.2";
const LINES = { input: 4, "cached input": 0.2, output: 10 };

/** The days of an export that equals the usage of the gateway. */
const equalDays = (model: string): BilledDay[] =>
  [FIRST, LAST].map((day) => ({ day, model, classes: CLASSES, cost: COST }));

/** An export with one difference. */
interface Case {
  readonly name: string;
  /** The end of its title, if another case has the same name. */
  readonly about?: string;
  /** The provider's side. Default: equal to the gateway's. */
  readonly openai?: (days: BilledDay[]) => unknown[];
  readonly anthropic?: (days: BilledDay[]) => unknown[];
  /** The gateway's counts of the first day, and of the last one. */
  readonly first?: Counts;
  readonly last?: Counts;
  readonly prices?: object;
  readonly args?: readonly string[];
  /** Text of the row with the difference. */
  readonly row: RegExp;
  readonly status: 0 | 1;
}

const all = (days: readonly BilledDay[]) => days.flatMap(toOpenai);
/** OpenAI's usage of the first day that is not tokens. */
const ofUnits = (model: string) => ({
  start_time: Date.parse(FIRST) / 1000,
  results: [
    { object: "organization.usage.audio_transcriptions.result", model, seconds: 36_000 },
    { object: "organization.usage.images.result", model, images: 50 },
    { object: "organization.usage.audio_speeches.result", model, characters: M },
    { object: "organization.usage.vector_stores.result", usage_bytes: M },
  ],
});
const withFirst = (days: readonly BilledDay[], change: Partial<BilledDay>) =>
  days.map((each) => each.day === FIRST ? { ...each, ...change } : each);

const CASES: readonly Case[] = [
  {
    name: "elsewhere",
    openai: (days) => all([...days, { ...days[0] as BilledDay, key: "key_of_a_laptop" }]),
    args: ["--owners", "key_1"],
    row: new RegExp(`${FIRST} +m +\\+2000000 +\\+1000000 +\\+1000000 +0\\n.*m +0 .*\\+14\\.2`),
    status: 0,
  },
  {
    name: "surplus",
    openai: (days) => all([...days, { ...days[0] as BilledDay, key: "key_of_a_laptop" }]),
    row: new RegExp(`${FIRST} +m +\\+2000000 +\\+1000000 +\\+1000000 +\\+14\\.2`),
    status: 1,
  },
  {
    name: "surplus",
    about: "of seconds, images and characters",
    openai: (days) => [...all(days), ofUnits("whisper-1")],
    row: new RegExp(`${FIRST} +whisper-1 +\\+50 +\\+1000000 +\\+36000000 +0\n`),
    status: 1,
  },
  {
    name: "missing",
    openai: (days) => all(days.slice(1)),
    args: ["--from", FIRST],
    row: new RegExp(`${FIRST} +m +-2000000 +-1000000 +-1000000 +-14\\.2`),
    status: 1,
  },
  {
    name: "estimated",
    openai: (days) => all(withFirst(days, { classes: { ...CLASSES, output: M + 5 } })),
    first: { ...OURS, estimated: 1, estimatedInput: 10, estimatedOutput: 10 },
    row: new RegExp(`${FIRST} +m +\\+5 +0`),
    status: 1,
  },
  {
    name: "writes",
    anthropic: (days) =>
      withFirst(days, {
        classes: { ...CLASSES, input: M, cacheWrite: M / 2, cacheWriteLong: M / 2 },
        cost: "15.4",
      }).flatMap(toAnthropic),
    row: new RegExp(`${FIRST} +m +-1000000 +\\+500000 +\\+500000 +\\+1\\.2`),
    status: 1,
  },
  {
    name: "delay",
    openai: (days) =>
      all(
        days.map((each) =>
          each.day === LAST ? { ...each, classes: { output: M }, cost: "10" } : each
        ),
      ),
    row: new RegExp(`${LAST} +m +-2000000 +-1000000 +-4\\.2`),
    status: 0,
  },
  {
    name: "delay",
    about: "of costs alone",
    openai: (days) => days.map((each) => toOpenai({ ...each, cost: "10" })[1]).slice(1),
    args: ["--from", LAST],
    row: new RegExp(`${LAST} +m +-4\\.2`),
    status: 0,
  },
  {
    name: "prices",
    about: "of a lower bill of a day with equal counts",
    openai: (days) => all(days.map((each) => each.day === LAST ? { ...each, cost: "10" } : each)),
    row: new RegExp(`${LAST} +m +-4\\.2`),
    status: 1,
  },
  {
    name: "prices",
    about: "of a lower bill of a day that ended long ago",
    openai: (days) => [toOpenai({ ...days[0] as BilledDay, cost: "10" })[1]],
    args: ["--to", LAST],
    row: new RegExp(`${FIRST} +m +-4\\.2`),
    status: 1,
  },
  {
    name: "missing",
    about: "of a day that ended long ago",
    openai: (days) => toOpenai({ ...days[0] as BilledDay, classes: { output: M }, cost: "10" }),
    args: ["--to", LAST],
    row: new RegExp(`${FIRST} +m +-2000000 +-1000000 +-4\\.2`),
    status: 1,
  },
  {
    name: "priority",
    anthropic: (days) => withFirst(days, { tier: "priority" }).flatMap(toAnthropic),
    row: new RegExp(`${FIRST} +m +-14\\.2`),
    status: 0,
  },
  {
    name: "storage",
    openai: (days) => [...all(days), openaiCosts(FIRST, [["vector stores, storage", 0.4]])],
    row: new RegExp(`${FIRST} +vector stores, storage +\\+0\\.4`),
    status: 0,
  },
  {
    name: "containers",
    anthropic: (days) => [
      ...days.flatMap(toAnthropic),
      anthropicCost(FIRST, { model: null, cost_type: "code_execution" }, "35.5"),
    ],
    row: new RegExp(`${FIRST} +code_execution +\\+0\\.355`),
    status: 0,
  },
  {
    name: "tools",
    openai: (days) => [...all(days), openaiCosts(FIRST, [["web search tool calls", 0.03]])],
    row: new RegExp(`${FIRST} +web search tool calls +\\+0\\.03`),
    status: 1,
  },
  {
    name: "tax",
    openai: (days) => [...all(days), openaiCosts(FIRST, [["VAT 19%", 5.396]])],
    row: new RegExp(`${FIRST} +VAT 19% +\\+5\\.396`),
    status: 0,
  },
  {
    name: "credits",
    anthropic: (days) => [
      ...days.slice(1).flatMap(toAnthropic),
      ...toAnthropic(days[0] as BilledDay).slice(0, 1),
      anthropicCost(FIRST, { model: "m", api_key_id: "key_1", cost_type: "tokens" }, "1420", "994"),
    ],
    row: new RegExp(`${FIRST} +m +-4\\.26`),
    status: 0,
  },
  {
    name: "rounding",
    openai: (days) => all(withFirst(days, { cost: "14.20004" })),
    row: new RegExp(`${FIRST} +m +\\+0\\.00004`),
    status: 0,
  },
  {
    name: "prices",
    openai: (days) => all(withFirst(days, { cost: "28.4" })),
    row: new RegExp(`${FIRST} +m +\\+14\\.2`),
    status: 1,
  },
  {
    name: "prices",
    about: "of classes whose sum is equal",
    openai: (days) =>
      all(withFirst(days, { lines: { input: 10, "cached input": 0.2, output: 4 } })),
    row: new RegExp(`${FIRST} +m +input \\+6, output -6\n`),
    status: 1,
  },
  {
    name: "prices",
    about: "of a class, where all classes have lines",
    openai: (days) => all(days.map((each) => ({ ...each, lines: { ...LINES, output: 11 } }))),
    args: ["--to", LAST],
    row: new RegExp(`${FIRST} +m +\\+1\n`),
    status: 1,
  },
  {
    name: "prices",
    about: "of classes in lines of Anthropic",
    anthropic: (days) => [
      ...days.slice(1).flatMap(toAnthropic),
      ...toAnthropic(days[0] as BilledDay).slice(0, 1),
      ...Object.entries({ uncached_input_tokens: "1000", output_tokens: "420" }).map(
        ([token_type, cents]) => {
          const group = { model: "m", api_key_id: "key_1", cost_type: "tokens", token_type };
          return anthropicCost(FIRST, group, cents);
        },
      ),
    ],
    row: new RegExp(`${FIRST} +m +input \\+5\\.8, output -5\\.8\n`),
    status: 1,
  },
  {
    name: "classes",
    openai: (days) => all(withFirst(days, { more: { input_audio_tokens: 400_000 } })),
    row: new RegExp(`${FIRST} +m +-400000 +\\+400000 +0\n`),
    status: 1,
  },
  {
    name: "unpriced",
    prices: {},
    row: new RegExp(`${FIRST} +m +\\+14\\.2`),
    status: 1,
  },
  {
    name: "other",
    openai: (days) => [...all(days), openaiCosts(FIRST, [["moon dust", 1]])],
    row: new RegExp(`${FIRST} +moon dust +\\+1\\n`),
    status: 1,
  },
];

describe("sallyport reconcile", () => {
  let at: Place;
  let provider: Provider;
  let answers: (path: string) => unknown;
  beforeEach(async () => {
    answers = () => page([]);
    provider = await startProvider((response, { path }) => {
      const answer = answers(path);
      response.writeHead(answer === undefined ? 401 : 200, { "content-type": "application/json" });
      response.end(JSON.stringify(answer ?? { error: { message: "sk-admin-secret is wrong" } }));
    });
    at = makePlace("https://api.openai.com/v1");
    await at.fill([]);
  });
  afterEach(async () => {
    await at.remove();
    await provider.close();
  });

  /** Stores the usage of the gateway: two days of a model of provider a. */
  const keep = (first: Counts = OURS, last: Counts = OURS) => {
    const rows = [[FIRST, first], [LAST, last]] as const;
    const lines = rows.map(([day, counts]) =>
      JSON.stringify([
        "day",
        Date.parse(day),
        "k1",
        "a",
        "m",
        COUNTS.map((name) => counts[name] ?? 0),
      ])
    );
    writeFileSync(join(at.path, "keys.usage.jsonl"), `${lines.join("\n")}\n`);
  };
  const write = (content: unknown, name: string) => {
    writeFileSync(join(at.path, name), JSON.stringify(content));
    return name;
  };
  const run = (args: readonly string[], env: Record<string, string> = {}): Promise<Ran> =>
    runCommand(["reconcile", ...args], { cwd: at.path, env });

  it("finds no difference where there is none, over pages and files", async () => {
    at.configure({ prices: { m: PRICE } });
    keep();
    const [first, second] = equalDays("m").map((day) => toOpenai(day));
    const usage = write([page([first?.[0]], true), page([second?.[0]])], "usage.json");
    const costs = write(page([first?.[1], second?.[1]]), "costs.json");
    const files = ["--openai", usage, "--openai", costs, "--provider", "a"];
    const { status, stdout, stderr } = await run(files);
    assert.equal(stderr, "");
    assert.equal(
      stdout,
      `${FIRST} to ${END} UTC, the last day excluded
counts: 2 of 2 days and models are equal

cost: gateway 28.4, provider 28.4 by its list, 28.4 billed (USD)
within the tolerance
`,
    );
    assert.equal(status, 0);
  });

  it("finds no difference in classes that the export does not state, and in stated audio", async () => {
    at.configure({ prices: { m: { ...PRICE, inputAudio: 40, outputAudio: 80 } } });
    const audio = { inputAudio: M, outputAudio: M / 2 };
    keep({ ...OURS, ...audio });
    const [first, last] = equalDays("m") as [BilledDay, BilledDay];
    const more = {
      input_audio_tokens: M,
      input_cached_audio_tokens: 0,
      output_audio_tokens: M / 2,
    };
    const lines = { ...LINES, input: 2, output: 5, "audio input": 40, "audio output": 40 };
    const rest = { ...last, lines: LINES };
    const ofAudio = await run([
      "--openai",
      write(page(all([{ ...first, lines, more }, rest])), "a"),
    ]);
    assert.match(ofAudio.stdout, /2 of 2 .*\n\ncost: gateway 101\.4, .*\nwithin/, ofAudio.stderr);
    const sums = { ...first, lines: { input: 42.2, output: 45 } };
    const ofSums = await run(["--openai", write(page(all([sums])), "b"), "--to", LAST]);
    assert.match(ofSums.stdout, /1 of 1 .*\n\ncost: gateway 87\.2, .*\nwithin/, ofSums.stderr);
  });

  it("finds no difference in seconds, images and characters, next to tokens and without them", async () => {
    at.configure({ prices: { m: PRICE } });
    const units = { images: 50, characters: M, audioMs: 36_000_000 };
    const usage = [...equalDays("m").map((day) => toOpenai(day)[0]), ofUnits("m")];
    const file = write(page(usage), "usage.json");
    for (const first of [{ ...OURS, ...units }, OURS]) {
      keep(first);
      const { stdout } = await run(["--openai", file]);
      assert.match(stdout, /2 of 2 [^]*\nwithin/);
    }
    keep({ requests: 3, ...units });
    const { stdout } = await run(["--openai", write(page([ofUnits("m")]), "u"), "--to", LAST]);
    assert.match(stdout, /1 of 1 [^]*\nwithin/);
    keep({ requests: 3, ...units, images: 49 });
    const less = await run(["--openai", "u", "--to", LAST]);
    assert.match(
      less.stdout,
      /surplus: [^]*differences marked \(!\) are 0 and 0 tokens, 1 images\n/,
    );
  });

  it("compares counts alone if the export has no costs", async () => {
    at.configure({ prices: { m: PRICE } });
    keep();
    const days = equalDays("m").map((day) => toAnthropic(day)[0]);
    const equal = await run(["--anthropic", write(page(days), "u.json"), "--provider", "a"]);
    assert.match(equal.stdout, /2 of 2 days[^]*no costs: the export has only usage\nwithin/);
    const less = write(page(days.slice(0, 1)), "u.json");
    const args = ["--anthropic", less, "--provider", "a"];
    const { status, stdout } = await run([...args, "--to", END]);
    assert.equal(status, 1);
    assert.match(stdout, /\nmissing: .* \(!\)\n/);
  });

  for (
    const { name, about = "by day and model", openai, anthropic, row, status, ...given } of CASES
  ) {
    const { first, last, prices = { m: PRICE }, args = [] } = given;
    it(`names the difference ${name} ${about}`, async () => {
      at.configure({ prices });
      keep(first, last);
      const entries = anthropic?.(equalDays("m")) ?? (openai ?? all)(equalDays("m"));
      const file = write(page(entries), "export.json");
      const which = anthropic === undefined ? "--openai" : "--anthropic";
      const ran = await run([which, file, "--provider", "a", ...args]);
      assert.equal(ran.stderr, "");
      const names = Array.from(ran.stdout.matchAll(/^(\w+): .*\n {2}DAY/gm), ([, found]) => found);
      assert.deepEqual(names, [name], ran.stdout);
      assert.match(ran.stdout, row);
      assert.equal(ran.status, status, ran.stdout);
    });
  }

  it("accepts differences within the tolerance: an amount, or a part", async () => {
    at.configure({ prices: { m: PRICE } });
    keep();
    const file = write(page(all(withFirst(equalDays("m"), { cost: "14.3" }))), "export.json");
    const statusWith = async (tolerance: string) =>
      (await run(["--openai", file, "--provider", "a", "--tolerance", tolerance])).status;
    const tolerances = ["0", "0.09", "0.1", "0.3%", "0.4%", "much"];
    assert.deepEqual(await Promise.all(tolerances.map(statusWith)), [1, 1, 0, 1, 0, 2]);
  });

  it("asks the provider, page by page, with a key that no output contains", async () => {
    at.configure({ prices: { m: PRICE } });
    keep();
    const [first, second] = equalDays("m").map((day) => toOpenai(day));
    answers = (path) => {
      if (path.includes("/costs")) return page([first?.[1], second?.[1]]);
      if (!path.includes("/completions")) return page([]);
      return path.includes("page=next") ? page([second?.[0]]) : page([first?.[0]], true);
    };
    const origin = new URL(provider.url).origin;
    const args = ["--fetch", "openai", "--base-url", origin, "--provider", "a"];
    const period = ["--from", FIRST, "--to", END];
    const env = { OPENAI_ADMIN_KEY: "sk-admin-secret" };
    const { status, stdout, stderr } = await run([...args, ...period], env);
    assert.equal(status, 0, stdout + stderr);
    assert.match(stdout, /2 of 2 days and models are equal/);
    assert.equal(provider.calls.length, 10);
    for (const { headers, path } of provider.calls) {
      assert.equal(headers.authorization, "Bearer sk-admin-secret");
      assert.match(path, new RegExp(`start_time=${Date.parse(FIRST) / 1000}&`));
    }
    answers = () => undefined;
    const refused = await run([...args, ...period], env);
    assert.equal(refused.status, 2);
    assert.match(refused.stderr, /\/v1\/organization\/costs answers 401/);
    const outputs = [stdout, stderr, refused.stdout, refused.stderr].join("");
    assert.doesNotMatch(outputs, /secret/);
  });

  it("asks Anthropic for its usage and costs", async () => {
    at.configure({ prices: { m: PRICE } });
    keep();
    const items = equalDays("m").flatMap((day) => toAnthropic(day));
    answers = (path) => page(items.filter((item) => path.includes("/cost?") === "cost" in item));
    const origin = new URL(provider.url).origin;
    const args = ["--fetch", "anthropic", "--base-url", origin, "--provider", "a"];
    const ran = await run([...args, "--from", FIRST, "--to", END], {
      ANTHROPIC_ADMIN_KEY: "sk-ant-admin",
    });
    assert.equal(ran.status, 0, ran.stdout + ran.stderr);
    assert.equal(provider.calls[0]?.headers["x-api-key"], "sk-ant-admin");
  });

  it("refuses mistakes of the command and incomplete exports", async () => {
    at.configure({ prices: { m: PRICE } });
    keep();
    const euro = { amount: { value: 1, currency: "eur" }, object: "organization.costs.result" };
    const cut = write(page([], true), "cut.json");
    const smell = { object: "organization.usage.smells.result", smells: 3 };
    const unknown = write(page([{ start_time: 0, results: [smell] }]), "smell.json");
    const foreign = write(page([{ start_time: 0, results: [euro] }]), "eur.json");
    const dear = { ...euro, amount: { value: "1e999999999", currency: "usd" } };
    const huge = write(page([{ start_time: 0, results: [dear] }]), "huge.json");
    const cases: [args: string[], says: RegExp][] = [
      [
        ["--openai", huge],
        /huge\.json: data\[0\]\.results\[0\]: it has an amount that is no number/,
      ],
      [
        ["--openai", write(page([{ start_time: 0 }]), "bare.json")],
        /data\[0\]\.results: expected an/,
      ],
      [["--openai", huge, "--to", "2026-02-31"], /--to takes a day/],
      [[], /takes one of --openai FILE/],
      [
        ["--openai", write({ data: [3] }, "three.json")],
        /three\.json: data\[0\]: expected an object/,
      ],
      [["--openai", "x.json", "--fetch", "openai"], /takes one of --openai FILE/],
      [["--openai", "none.json"], /cannot read the export none\.json \(ENOENT\)/],
      [
        ["--openai", "gateway.jsonc"],
        /gateway\.jsonc: data: expected an array, as in an answer of a usage/,
      ],
      [["--openai", cut], /its last page says that more follow/],
      [["--openai", unknown], /a result of an unknown object: organization\.usage\.smells\.result/],
      [
        ["--openai", foreign],
        /eur\.json: data\[0\]\.results\[0\]: it has an amount in another currency than USD/,
      ],
      [["--openai", write(page([]), "empty.json")], /no usage and no costs/],
      [["--anthropic", cut], /no provider calls api\.anthropic\.com: name it with --provider/],
      [["--anthropic", cut, "--provider", "c"], /--provider takes one of a, b/],
      [["--openai", cut, "--from", "yesterday"], /--from takes a day/],
      [["--fetch", "openai"], /OPENAI_ADMIN_KEY is not set/],
      [["--fetch", "openai", "--base-url", "http://far.example"], /--base-url takes an https URL/],
    ];
    const noTimes = [
      [1e20, "openai"],
      [-1, "openai"],
      ["1795564800", "openai"],
      [undefined, "openai"],
      ["yesterday", "anthropic"],
      ["2026-02-31T00:00:00Z", "anthropic"],
      [undefined, "anthropic"],
    ] as const;
    for (const [index, [time, name]] of noTimes.entries()) {
      const file = `time${index}.json`;
      const right = { start_time: 0, starting_at: "2026-11-25T00:00:00Z", results: [] };
      const wrong = { ...right, start_time: time, starting_at: time };
      write([page([right], true), page([right, wrong])], file);
      const place = name === "openai" ? "start_time: expected seconds" : "starting_at: expected a";
      const says = new RegExp(`the export ${file}: \\[1\\]\\.data\\[1\\]\\.${place}`);
      cases.push([[`--${name}`, file, "--provider", "a"], says]);
    }
    for (const [args, says] of cases) {
      const { status, stderr } = await run(args);
      assert.equal(status, 2, stderr);
      assert.match(stderr, says);
    }
  });
});
