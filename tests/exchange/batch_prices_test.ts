/** The charge for a batch: the input of each result selects its price. */
// runtimes: bun, node
import assert from "node:assert/strict";
import { afterEach, describe, it } from "@std/testing/bdd";
import { startUnderTest, type UnderTest } from "../support/gateway.ts";
import { type Provider, startProvider } from "../support/provider.ts";
import { callRaw } from "../support/tcp_peer.ts";
import { until } from "../support/until.ts";

const KEY = "a-gateway-key-with-a-budget";
/** A budget that no test reaches. It shows the charge, in 10^-9 USD. */
const BUDGET = 1000e9;
/** Price of the call that makes a batch, in 10^-9 USD. Its usage replaces it. */
const FEE = 3e9;
const ROW = { rates: { input: 2, output: 6 } };
const DEARER = { input: 4, output: 12 };
const factors = [{ when: { tier: "batch" }, times: "0.5" }];
const PRICES = {
  "from": { rows: [ROW, { when: { from: 200_000 }, rates: DEARER }], factors },
  "over": { rows: [ROW, { when: { over: 200_000 }, rates: DEARER }], factors },
  "low": { rows: [ROW, { when: { over: 32_000 }, rates: DEARER }], factors },
};

type Counts = readonly [input: number, output: number];

/** A batch by interface: its address and the address of its results, its object and its results. */
const INTERFACES = {
  "OpenAI": {
    path: "/v1/batches",
    results: "/v1/files/file-out/content",
    batch: { object: "batch", status: "completed", output_file_id: "file-out" },
    toResult: (model: string, [input, output]: Counts) => {
      const usage = { prompt_tokens: input, completion_tokens: output };
      return { response: { body: { object: "chat.completion", model, choices: [], usage } } };
    },
  },
  "Anthropic": {
    path: "/v1/messages/batches",
    results: "/v1/messages/batches/batch_1/results",
    batch: { type: "message_batch", processing_status: "ended" },
    toResult: (model: string, [input, output]: Counts) => {
      const usage = { input_tokens: input, output_tokens: output };
      return { result: { type: "succeeded", message: { type: "message", model, usage } } };
    },
  },
};

interface Case {
  readonly model: keyof typeof PRICES;
  /** Results at the lower price, and at the dearer one. */
  readonly cheap: readonly Counts[];
  readonly dear: readonly Counts[];
}
const CASES: Readonly<Record<string, Case>> = {
  "a price from a number of tokens": {
    model: "from",
    cheap: [[150_000, 10], [199_999, 10]],
    dear: [[200_000, 10], [200_001, 10]],
  },
  "a price over a number of tokens": {
    model: "over",
    cheap: [[150_000, 10], [200_000, 10]],
    dear: [[200_001, 10], [300_000, 10]],
  },
  "a price over a number that only this model has": {
    model: "low",
    cheap: [[1000, 100], [32_000, 10]],
    dear: [[32_001, 10], [40_000, 0]],
  },
};

/** Cost of results in a batch, in 10^-9 USD. */
const costOf = (results: readonly Counts[], rates: { input: number; output: number }): number =>
  results.reduce((sum, [input, output]) => {
    return sum + (input * rates.input + output * rates.output) * 1000 / 2;
  }, 0);

describe("the results of a batch", () => {
  let provider: Provider | undefined;
  let under: UnderTest | undefined;
  afterEach(async () => {
    await under?.close();
    await provider?.close();
  });

  /** Makes a batch and reads its results. @returns The charge, in 10^-9 USD */
  async function chargeOf(maker: keyof typeof INTERFACES, { model, cheap, dear }: Case) {
    const { path, results, batch, toResult } = INTERFACES[maker];
    const mixed = [...dear.slice(0, 1), ...cheap, ...dear.slice(1)];
    const lines = mixed.map((counts) => `${JSON.stringify(toResult(model, counts))}\n`).join("");
    provider = await startProvider((response, call) => {
      const isResults = call.path === results;
      response.writeHead(200, { "content-type": isResults ? "text/plain" : "application/json" });
      if (isResults) response.end(lines);
      else response.end(call.path === "/v1/models" ? "{}" : JSON.stringify(toBatch(call.method)));
    });
    const toBatch = (method: string) =>
      method === "POST" ? { id: "batch_1", status: "validating" } : { id: "batch_1", ...batch };
    const gateway = under = await startUnderTest({
      upstreams: { a: provider.url },
      provider: { operations: ["all"], prices: PRICES, callPrices: { batches: FEE / 1e9 } },
      config: { keys: [{ id: "one", key: KEY, limits: { budget: "1000 USD/month" } }] },
    });
    const headers = { ...gateway.headers, "gateway-auth": `Bearer ${KEY}` };
    const read = (at: string) => callRaw(gateway.a, { method: "GET", path: at, headers });
    await callRaw(gateway.a, { path, headers, body: "{}" });
    await read(`${path}/batch_1`);
    await read(results);
    const spent = async (): Promise<number> => {
      const { ratelimit } = (await read("/v1/models")).headers;
      return BUDGET - Number(/"spend";r=(\d+)/.exec(ratelimit ?? "")?.[1] ?? NaN);
    };
    await until(async () => await spent() !== FEE, "the results are counted");
    return await spent();
  }

  for (const maker of ["OpenAI", "Anthropic"] as const) {
    for (const [name, each] of Object.entries(CASES)) {
      it(`of ${maker} are charged by ${name}, each by its input`, async () => {
        const expected = costOf(each.cheap, ROW.rates) + costOf(each.dear, DEARER);
        assert.equal(await chargeOf(maker, each), expected);
      });
    }
  }
});
