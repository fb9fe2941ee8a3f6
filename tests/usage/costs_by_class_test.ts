/**
 * Calls with cache reads, cache writes and tools through a gateway: the log, the metrics, the
 * reports, the budgets and `sallyport reconcile` state the same costs by class.
 */
// runtimes: once
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, it } from "@std/testing/bdd";
import { runCommand } from "../support/command.ts";
import { type Running, startAdmin, TOKEN } from "../support/admin.ts";
import { freePort } from "../support/free_port.ts";
import { type Answering, startProvider } from "../support/provider.ts";
import { openaiCosts, page, toAnthropic, toOpenai } from "../support/provider_exports.ts";
import { callRaw } from "../support/tcp_peer.ts";
import { until } from "../support/until.ts";

const CLAUDE = "claude-opus-5-5";
const GPT = "gpt-6.2-sol";
const SILENT = "silent-1";
const PRICES = {
  // The longer time of the cache has no price, so the cost is a lower bound.
  [CLAUDE]: { input: 4, cacheRead: 0.2, cacheWrite: 5, output: 20, webSearches: 10 },
  [GPT]: {
    input: 2,
    cacheRead: 0.1,
    cacheWrite: 2.5,
    output: 10,
    webSearches: 10,
    fileSearches: 2.5,
    codeSessions: 30,
  },
  [SILENT]: { input: 1, output: 1 },
};

const MESSAGE = {
  type: "message",
  role: "assistant",
  model: CLAUDE,
  content: [],
  stop_reason: "end_turn",
  usage: {
    input_tokens: 100,
    cache_read_input_tokens: 1000,
    cache_creation_input_tokens: 500,
    cache_creation: { ephemeral_5m_input_tokens: 200, ephemeral_1h_input_tokens: 300 },
    output_tokens: 50,
    server_tool_use: { web_search_requests: 2 },
  },
};
const RESPONSE = {
  id: "resp_1",
  object: "response",
  status: "completed",
  model: GPT,
  output: [
    { type: "file_search_call", status: "completed" },
    { type: "file_search_call", status: "completed" },
    { type: "code_interpreter_call", status: "completed", container_id: "cntr_1" },
  ],
  tool_usage: { web_search: { num_requests: 1 } },
  usage: {
    input_tokens: 1000,
    input_tokens_details: { cached_tokens: 400, cache_write_tokens: 100 },
    output_tokens: 30,
    output_tokens_details: { reasoning_tokens: 10 },
    total_tokens: 1030,
  },
};
const SILENT_ANSWER = {
  id: "c",
  object: "chat.completion",
  model: SILENT,
  choices: [{ index: 0, message: { role: "assistant", content: "Hi" }, finish_reason: "stop" }],
};

const answering: Answering = (response, { path }) => {
  const answer = path.endsWith("/messages") ? MESSAGE : RESPONSE;
  response.setHeader("content-type", "application/json");
  response.end(JSON.stringify(path.endsWith("/completions") ? SILENT_ANSWER : answer));
};

/** The costs of the calls by class. */
const CLAUDE_COSTS = {
  input: "0.0004",
  cacheRead: "0.0002",
  cacheWrite: "0.001",
  output: "0.001",
  webSearches: "0.02",
};
const GPT_COSTS = {
  input: "0.001",
  cacheRead: "0.00004",
  cacheWrite: "0.00025",
  output: "0.0002",
  reasoning: "0.0001",
  webSearches: "0.01",
  fileSearches: "0.005",
  codeSessions: "0.03",
};
const toNumbers = (costs: Readonly<Record<string, string>>) =>
  Object.fromEntries(Object.entries(costs).map(([name, cost]) => [name, Number(cost)]));

describe("the costs of calls with caches and tools", () => {
  let running: Running;
  let key: { id: string; key: string };
  beforeAll(async () => {
    running = await startAdmin(
      { prices: PRICES, admin: { port: await freePort(), token: TOKEN } },
      undefined,
      {
        answering,
        args: ["--log", "json"],
        providers: (upstream) => ({
          a: { upstream, hosts: ["*"], operations: ["all"] },
          b: { upstream, hosts: ["b.example"], operations: ["all"] },
        }),
      },
    );
    const body = { name: "one", limits: { budget: ["1M/month", "100 USD/month"] } };
    key = (await running.call("POST", "/v1/keys", { body })).json;
    const messages = [{ role: "user", content: "Hi, canary" }];
    await send("messages", { model: CLAUDE, max_tokens: 100, messages });
    await send("responses", { model: GPT, input: "Hi, canary", max_output_tokens: 100 });
    await send("chat/completions", { model: SILENT, messages });
    await until(async () => (await report("by=model")).totals.requests === 3, "all are counted");
  });
  afterAll(() => running.stop());

  /** Calls OpenAI's stand-in for responses, and else the other one. */
  async function send(path: string, body: object): Promise<void> {
    const { status, body: answer } = await callRaw(running.url, {
      path: `/v1/${path}`,
      headers: {
        ...(path !== "responses" && { host: "b.example" }),
        "authorization": "Bearer sk-1",
        "x-api-key": "sk-1",
        "anthropic-version": "2023-06-01",
        "gateway-auth": `Bearer ${key.key}`,
        "content-type": "application/json",
      },
      body: JSON.stringify(body),
    });
    assert.equal(status, 200, answer);
  }
  const report = async (query: string) => (await running.call("GET", `/v1/usage?${query}`)).json;
  const run = (...args: string[]) => runCommand(args, { cwd: running.at.path });

  it("are in the log, in total and by class", async () => {
    await until(() => running.program.stdout().includes(SILENT), "the last line is written");
    const lines = running.program.stdout().split("\n").filter((line) => line.startsWith("{"))
      .map((line) => JSON.parse(line));
    const lineOf = (model: string) => lines.find((line) => line.model === model);
    assert.deepEqual(lineOf(CLAUDE).costs, toNumbers(CLAUDE_COSTS));
    assert.deepEqual(lineOf(CLAUDE).unpriced, { cacheWriteLong: 300 });
    assert.equal(lineOf(CLAUDE).cost, 0.0226);
    assert.deepEqual(lineOf(GPT).costs, toNumbers(GPT_COSTS));
    assert.deepEqual([lineOf(GPT).cost, lineOf(GPT).currency], [0.04659, "USD"]);
    assert.equal("unpriced" in lineOf(GPT), false);
  });

  it("are in the list of exchanges", async () => {
    const { exchanges } = (await running.call("GET", "/v1/exchanges")).json;
    const costOf = (wanted: string) =>
      exchanges.find(({ model }: { model: string }) => model === wanted).cost;
    assert.deepEqual(costOf(CLAUDE), {
      total: "0.0226",
      currency: "USD",
      classes: CLAUDE_COSTS,
      unpriced: { cacheWriteLong: 300 },
    });
    assert.deepEqual(costOf(GPT), { total: "0.04659", currency: "USD", classes: GPT_COSTS });
  });

  it("are counted by the metrics", async () => {
    const headers = { authorization: `Bearer ${TOKEN}` };
    const text = await (await fetch(`${running.admin}/metrics`, { headers })).text();
    for (const [name, cost] of Object.entries(GPT_COSTS)) {
      const labels = `provider="a",model="${GPT}",class="${name}",currency="USD"`;
      assert.ok(text.includes(`sallyport_cost_total{${labels}} ${Number(cost)}\n`), name);
    }
    const written = `provider="b",model="${CLAUDE}",class="cacheWriteLong"`;
    assert.ok(text.includes(`sallyport_billed_total{${written}} 300\n`));
    assert.ok(text.includes(`sallyport_unpriced_total{${written}} 300\n`));
  });

  it("are in reports and exports, in columns of their own", async () => {
    const { rows } = await report("by=model");
    const { classes } = rows.find(({ model }: { model: string }) => model === CLAUDE);
    assert.deepEqual(classes, {
      requests: { amount: 1, cost: "0" },
      input: { amount: 100, cost: "0.0004" },
      cacheRead: { amount: 1000, cost: "0.0002" },
      cacheWrite: { amount: 200, cost: "0.001" },
      cacheWriteLong: { amount: 300, cost: null },
      output: { amount: 50, cost: "0.001" },
      webSearches: { amount: 2, cost: "0.02" },
    });
    const commands = [["usage", "--by", "model", "--csv"], ["usage", "export", "--csv"]];
    for (const command of commands) {
      const { stdout, stderr } = await run(...command, "--model", CLAUDE);
      const [head = "", line = ""] = stdout.split("\r\n");
      const values = line.split(",");
      const valueOf = (name: string) => values[head.split(",").indexOf(name)];
      const names = ["cacheWrite", "cacheWriteLong", "webSearches", "images"];
      assert.deepEqual(
        names.map((name) => [valueOf(`${name}.amount`), valueOf(`${name}.cost`)]),
        [["200", "0.001"], ["300", ""], ["2", "0.02"], ["0", ""]],
        stderr,
      );
      assert.equal(valueOf("costIsPartial"), "true");
    }
  });

  it("are divided for budgets into stated, estimated and unpriced", async () => {
    const { budgets } = (await running.call("GET", `/v1/budgets?key=${key.id}`)).json;
    const [tokens, money] = ["tokens", "USD"].map((wanted) =>
      budgets.find(({ unit }: { unit: string }) => unit === wanted)
    );
    const start = `${new Date().toISOString().slice(0, 8)}01T00:00:00.000Z`;
    const { totals } = await report("by=model&last=31d");
    const estimated = totals.estimatedInput + totals.estimatedOutput;
    assert.ok(estimated > 0, "one answer states no usage");
    const { from, rest, ...parts } = tokens.parts;
    assert.deepEqual([from, rest, parts], [start, 0, { stated: 1650 + 1030, estimated }]);
    assert.equal(tokens.used, 1650 + 1030 + estimated);
    assert.deepEqual(money.parts.unpriced, { cacheWriteLong: 300 });
    assert.ok(Math.abs(money.parts.stated - 0.06919) < 1e-6, String(money.parts.stated));
    assert.ok(Math.abs(money.parts.estimated - Number(totals.estimatedCost)) < 1e-6);
    const all = money.parts.stated + money.parts.estimated + money.parts.rest;
    assert.ok(Math.abs(money.used - all) < 1e-6, "the parts are the whole");
    assert.ok(money.parts.rest > 0, "the unpriced class is charged too");
  });

  describe("compared with the provider's export", () => {
    const day = new Date().toISOString().slice(0, 10);
    const from = ["--from", day];
    const classes = { input: 500, cacheRead: 400, cacheWrite: 100, output: 30 };
    const lines = { input: 0.001, "cached input": 0.00004, "cache write": 0.00025, output: 0.0003 };
    const [usage, costs] = toOpenai({ day, model: GPT, classes, cost: "0.00159", lines });
    const bucketOf = (result: object) => ({
      object: "bucket",
      start_time: Date.parse(day) / 1000,
      results: [{ project_id: "proj_1", ...result }],
    });
    const searches = (count: number) =>
      bucketOf({ object: "organization.usage.file_searches.result", num_requests: count });
    const tools = (count: number) => [
      bucketOf({
        object: "organization.usage.web_searches.result",
        model: GPT,
        num_requests: 1,
        num_model_requests: 1,
      }),
      searches(count),
      bucketOf({ object: "organization.usage.code_interpreter_sessions.result", num_sessions: 1 }),
    ];
    const bill = openaiCosts(day, [
      ["web search tool calls", 0.01],
      ["file search tool calls", 0.005],
      ["code interpreter sessions", 0.03],
    ]);
    const compare = (content: object, name: "--openai" | "--anthropic") => {
      writeFileSync(join(running.at.path, "export.json"), JSON.stringify(content));
      const provider = name === "--openai" ? "a" : "b";
      return run("reconcile", name, "export.json", "--provider", provider, ...from);
    };

    it("have equal counts and costs of a model with tools", async () => {
      const { stdout } = await compare(page([usage, costs, ...tools(2), bill]), "--openai");
      for (const name of [GPT, "\\(tools\\)", "\\(containers\\)"]) {
        assert.doesNotMatch(stdout, new RegExp(`${day} +${name}`), stdout);
      }
    });

    it("show each difference of a tool by itself", async () => {
      const { stdout } = await compare(page([usage, costs, ...tools(5), bill]), "--openai");
      assert.match(stdout, new RegExp(`surplus: [^]*${day} +\\(tools\\) +\\+3 +0\\n`), stdout);
      const dear = openaiCosts(day, [["web search tool calls", 1]]);
      const ran = await compare(page([usage, costs, ...tools(2), dear]), "--openai");
      assert.match(ran.stdout, new RegExp(`tools: [^]*${day} +\\(tools\\) +\\+0\\.985\\n`));
      assert.doesNotMatch(ran.stdout, new RegExp(`${day} +${GPT}`));
    });

    it("leave counts out that the export does not have", async () => {
      const { stdout } = await compare(page([usage]), "--openai");
      assert.doesNotMatch(stdout, /\(tools\)|\(containers\)/);
      assert.doesNotMatch(stdout, new RegExp(`${day} +${GPT}`));
    });

    it("have equal classes at Anthropic, with both times of the cache", async () => {
      const all = { input: 100, cacheRead: 1000, cacheWrite: 200, cacheWriteLong: 300, output: 50 };
      const [counted] = toAnthropic({ day, model: CLAUDE, classes: all, cost: "0" });
      const { stdout } = await compare(page([counted]), "--anthropic");
      // The export states no searches, and the gateway has counted two.
      assert.match(stdout, new RegExp(`${day} +${CLAUDE}( +0)+ +-2\\n`), stdout);
    });

    it("are fetched with the counts of tools", async () => {
      const openai = await startProvider((response, { path }) => {
        const [web, files, sessions] = tools(2);
        const answers: [string, unknown][] = [
          ["/costs?", page([costs, bill])],
          ["/completions?", page([usage])],
          ["/web_search_calls?", page([web])],
          ["/file_search_calls?", page([files])],
          ["/code_interpreter_sessions?", page([sessions])],
        ];
        const [, answer] = answers.find(([part]) => path.includes(part)) ?? ["", page([])];
        response.setHeader("content-type", "application/json").end(JSON.stringify(answer));
      });
      try {
        const tomorrow = new Date(Date.parse(day) + 86_400_000).toISOString().slice(0, 10);
        const { stdout, stderr } = await runCommand([
          ...["reconcile", "--fetch", "openai", "--provider", "a", ...from, "--to", tomorrow],
          ...["--base-url", new URL(openai.url).origin],
        ], { cwd: running.at.path, env: { OPENAI_ADMIN_KEY: "sk-admin" } });
        assert.equal(stderr, "");
        assert.doesNotMatch(stdout, new RegExp(`${day} +(?:${GPT}|\\()`), stdout);
      } finally {
        await openai.close();
      }
    });
  });
});
