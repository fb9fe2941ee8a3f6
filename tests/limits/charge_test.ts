/**
 * The charge of a call at its end, in requests to the gateway: for each way in which it can end.
 */
// runtimes: bun, node
import assert from "node:assert/strict";
import { setImmediate } from "node:timers";
import { afterEach, beforeEach, describe, it } from "@std/testing/bdd";
import { startUnderTest, type UnderTest } from "../support/gateway.ts";
import { type Answering, chunk, type Provider, startProvider } from "../support/provider.ts";
import { callRaw, openRaw, toRawRequest } from "../support/tcp_peer.ts";
import { until } from "../support/until.ts";

const KEY = "a-gateway-key-of-a-team";
/** A budget that no test reaches. It shows the charge. Tokens. */
const BUDGET = 1_000_000_000;
const MESSAGES = [{ role: "user", content: "Hi" }];
const toUsage = (input: number, output: number) => ({
  prompt_tokens: input,
  completion_tokens: output,
  total_tokens: input + output,
});
const usageChunk = (input: number, output: number) =>
  `data: ${JSON.stringify({ choices: [], usage: toUsage(input, output) })}\n\n`;
const DONE = "data: [DONE]\n\n";
const plain = (usage?: unknown) =>
  JSON.stringify({
    choices: [{ index: 0, message: { content: "Hello" }, finish_reason: "stop" }],
    usage,
  });

describe("the charge of a call", () => {
  let provider: Provider;
  let under: UnderTest | undefined;
  let answering: Answering;
  beforeEach(async () =>
    void (provider = await startProvider((response, call) => answering(response, call)))
  );
  afterEach(async () => {
    await under?.close();
    under = undefined;
    await provider.close();
  });

  const start = async (
    key: Record<string, unknown>,
    more: Record<string, unknown> = {},
    config = {},
  ) =>
    under = await startUnderTest({
      upstreams: { a: provider.url },
      provider: more,
      config: { keys: [{ id: "caller", key: KEY, ...key }], ...config },
    });
  const toCall = (
    gateway: UnderTest,
    fields: Record<string, unknown>,
    path = "/v1/chat/completions",
  ) => ({
    path,
    headers: { ...gateway.headers, "gateway-auth": `Bearer ${KEY}` },
    body: JSON.stringify({ model: "test-1", ...fields }),
  });
  /** The charge of a limit, from the headers of a call without costs. */
  const charged = async (gateway: UnderTest, limit = "budget", most = BUDGET): Promise<number> => {
    const headers = { ...gateway.headers, "gateway-auth": `Bearer ${KEY}` };
    const answer = await callRaw(gateway.a, { method: "GET", path: "/v1/models", headers });
    return most -
      Number(new RegExp(`"${limit}";r=(\\d+)`).exec(answer.headers.ratelimit ?? "")?.[1] ?? NaN);
  };
  /** Makes a call and leaves it at a given moment. Resolves once its exchange is settled. */
  async function leave(
    gateway: UnderTest,
    call: ReturnType<typeof toCall>,
    isTime: (received: string) => boolean = () => provider.calls.length > 0,
  ): Promise<void> {
    const settled = gateway.records.length;
    const { socket, received, closed } = openRaw(gateway.a, toRawRequest(gateway.a, call));
    await until(() => isTime(received()), "the moment to leave");
    socket.destroy();
    await closed;
    await gateway.settled(settled + 1);
  }

  describe("that is left early", () => {
    const asked = { messages: MESSAGES, stream: true, max_tokens: 99_000_000 };
    const teams = { own: { limits: { budget: ["1000M/month", "1000 USD/month"] } } };
    const prices = { "test-*": { input: 1, output: 1 } };
    const limits = { budget: ["1000M/month", "1000 USD/month"] };
    beforeEach(() => {
      answering = (response, { path }) => {
        if (path === "/v1/models") response.end("{}"); // any other call waits for its answer
      };
    });
    const shared = async (gateway: UnderTest) => {
      const all = ["team-budget", "provider-budget"].map((limit) => charged(gateway, limit));
      const money = ["team-spend", "provider-spend"].map((limit) =>
        charged(gateway, limit, 1000e9)
      );
      return { tokens: await Promise.all(all), money: await Promise.all(money) };
    };

    const CAPS: Readonly<Record<string, [key: object, provider: object, most: number]>> = {
      "the limit of its key": [{ limits: { tokens: "100k/min" } }, {}, 100_000],
      "the money of its key": [{ limits: { budget: "0.05 USD/day" } }, {}, 50_000],
      "the longest answer of its provider": [{}, { maxOutput: 16_384 }, 16_500],
      "the longest answer of any model": [{}, {}, 300_000],
    };
    for (const [name, [key, more, most]] of Object.entries(CAPS)) {
      it(`uses no more of the budgets of its team and its provider than ${name} allows`, async () => {
        const gateway = await start({ team: "own", ...key }, { limits, ...more }, {
          teams,
          prices,
          currency: "USD",
        });
        await leave(gateway, toCall(gateway, asked));
        const { tokens, money } = await shared(gateway);
        for (const amount of tokens) assert.ok(amount > 0 && amount <= most, `${amount} tokens`);
        for (const amount of money) {
          assert.ok(amount > 0 && amount <= most * 1000, `${amount} of 10^-9 USD`);
        }
      });
    }

    it("costs the pictures that it asked for", async () => {
      const gateway = await start({ limits: { budget: "1000 USD/month" } }, {}, {
        prices: { "test-*": { images: 80 } },
        currency: "USD",
      });
      await leave(gateway, toCall(gateway, { prompt: "A cat", n: 10 }, "/v1/images/generations"));
      assert.equal(await charged(gateway, "spend", 1000e9), 800_000_000);
    });

    const QUALITIES: Readonly<Record<string, [fields: object, cost: number]>> = {
      "the dearest quality, if it leaves that open": [{}, 1_700_000_000],
      "the dearest quality, if its provider chooses": [{ quality: "auto" }, 1_700_000_000],
      "the quality that it asked for": [{ quality: "low" }, 400_000_000],
    };
    for (const [name, [fields, cost]] of Object.entries(QUALITIES)) {
      it(`costs pictures of ${name}`, async () => {
        const rows = [
          { rates: { images: 40 } },
          { when: { asked: { quality: "high" } }, rates: { images: 170 } },
          { when: { asked: { quality: "medium" } }, rates: { images: 90 } },
        ];
        const gateway = await start({ limits: { budget: "1000 USD/month" } }, {}, {
          prices: { "test-*": { rows } },
          currency: "USD",
        });
        const asked = { prompt: "A cat", n: 10, ...fields };
        await leave(gateway, toCall(gateway, asked, "/v1/images/generations"));
        assert.equal(await charged(gateway, "spend", 1000e9), cost);
      });
    }

    type Fields = Record<string, unknown>;
    const CONTEXTS: Readonly<
      Record<string, [provider: object, path: string, body: Fields, least: number, most: number]>
    > = {
      "the context of its provider": [
        { maxInput: 100_000 },
        "/v1/chat/completions",
        { messages: [{ role: "user", content: "word ".repeat(200_000) }] },
        100_000,
        102_000,
      ],
      "the largest context of any model": [
        {},
        "/v1/chat/completions",
        { messages: [{ role: "user", content: "word ".repeat(2_000_000) }] },
        2_000_000,
        2_002_000,
      ],
      "one context for each text of a list": [
        { maxInput: 100_000 },
        "/v1/embeddings",
        { input: Array(2).fill("word ".repeat(200_000)) },
        200_000,
        202_000,
      ],
    };
    for (const [name, [more, path, body, least, most]] of Object.entries(CONTEXTS)) {
      it(`uses no more input of the budgets of its team and its provider than ${name}`, async () => {
        const gateway = await start({ team: "own" }, { limits, ...more }, {
          teams,
          prices,
          currency: "USD",
        });
        await leave(gateway, toCall(gateway, body, path));
        const { tokens } = await shared(gateway);
        for (const amount of tokens) {
          assert.ok(amount >= least && amount <= most, `${amount} tokens`);
        }
      });
    }
  });

  it("is the whole reservation of a strict limit for a call that is left, regardless of earlier calls", async () => {
    let isAnswered = true;
    answering = (response, { path }) => {
      if (path === "/v1/models" || isAnswered) response.end(plain(toUsage(30, 1)));
    };
    const gateway = await start({ limits: { budget: "1000M/month", mode: "strict" } }, {
      maxOutput: 5000,
    });
    const asked = toCall(gateway, { messages: MESSAGES });
    for (let call = 0; call < 5; call++) await callRaw(gateway.a, asked);
    await gateway.settled(5);
    isAnswered = false;
    const before = await charged(gateway);
    const seen = provider.calls.length;
    await leave(gateway, asked, () => provider.calls.length > seen);
    const { usage } = gateway.records.at(-1) ?? {};
    assert.equal(usage?.output, 5000);
    assert.ok((usage?.input ?? 0) >= asked.body.length, `${usage?.input} tokens of input`);
    assert.equal(await charged(gateway), before + (usage?.total ?? 0));
  });

  for (const stream of [false, true]) {
    it(`is the whole reservation of a strict limit if no tokens are stated, as reasoning is not relayed [${stream ? "stream" : "plain"}]`, async () => {
      answering = (response) => {
        if (!stream) return void response.end(plain());
        response.writeHead(200, { "content-type": "text/event-stream" });
        response.end(
          'data: {"choices":[{"index":0,"delta":{"content":"Hi"},"finish_reason":"stop"}]}\n\n' +
            "data: [DONE]\n\n",
        );
      };
      const gateway = await start({ limits: { budget: "1000M/month", mode: "strict" } }, {
        maxOutput: 5000,
      });
      const asked = toCall(gateway, { messages: MESSAGES, stream });
      assert.equal((await callRaw(gateway.a, asked)).status, 200);
      const { usage, isEstimated, outcome } = await gateway.settled();
      assert.deepEqual([usage?.output, isEstimated, outcome], [5000, true, "ok"]);
      assert.equal(await charged(gateway), usage?.total);
    });
  }

  for (const status of [201, 202, 203, 206]) {
    it(`is the usage that a plain answer with the status ${status} states`, async () => {
      answering = (response) =>
        void response.writeHead(status, { "content-type": "application/json" }).end(
          plain(toUsage(30, 40)),
        );
      const gateway = await start({ limits: { budget: "1000M/month" } });
      assert.equal(
        (await callRaw(gateway.a, toCall(gateway, { messages: MESSAGES }))).status,
        status,
      );
      const { usage, isEstimated } = await gateway.settled();
      assert.deepEqual([usage, isEstimated], [{ total: 70, input: 30, output: 40 }, undefined]);
      assert.equal(await charged(gateway), 70);
    });

    it(`is the usage that a stream with the status ${status} states, which ends in an error if it breaks off`, async () => {
      let isWhole = true;
      answering = (response, { path }) => {
        if (path === "/v1/models") return response.end("{}");
        response.writeHead(status, { "content-type": "text/event-stream" });
        response.end(isWhole ? chunk("a", "stop") + usageChunk(30, 40) + DONE : chunk("Hello"));
      };
      const gateway = await start({ limits: { budget: "1000M/month" } });
      const asked = toCall(gateway, { messages: MESSAGES, stream: true });
      await callRaw(gateway.a, asked);
      await gateway.settled(1);
      assert.equal(await charged(gateway), 70);
      isWhole = false;
      const { body } = await callRaw(gateway.a, asked);
      assert.match(body, /"code":"upstream_stream_truncated"/);
      const { outcome, usage } = gateway.records.at(-1) ?? {};
      assert.deepEqual([outcome, (usage?.total ?? 0) > 0], ["upstream_cut", true]);
    });
  }

  for (const status of [204, 205]) {
    it(`is the input of a call that was answered ${status}, without a body`, async () => {
      answering = (response, { path }) =>
        void response.writeHead(path === "/v1/models" ? 200 : status).end();
      const gateway = await start({ limits: { budget: "1000M/month" } });
      const answer = await callRaw(gateway.a, toCall(gateway, { messages: MESSAGES }));
      assert.ok([status, 204].includes(answer.status), "Deno writes 204 in place of 205");
      const { usage, isEstimated } = await gateway.settled();
      assert.deepEqual([usage?.output, isEstimated], [0, true]);
      assert.equal(await charged(gateway), usage?.total);
    });
  }

  for (
    const [name, status, code, shape, isCharged] of [
      ["a refusal of Azure's content filter", 400, "content_filter", "azure", true],
      ["a refusal of a content filter at Azure's new addresses", 400, "content_filter", "v1", true],
      ["a timeout at Azure", 408, "Timeout", "azure", true],
      ["another 400", 400, "invalid_value", "azure", false],
      ["a timeout elsewhere", 408, "Timeout", "v1", false],
      ["a 429 of Azure", 429, "content_filter", "azure", false],
    ] as const
  ) {
    for (const padding of [0, 1_000_000]) {
      it(`is ${isCharged ? "the input" : "nothing"} for ${name}, in a body of ${padding} bytes or more`, async () => {
        answering = (response) => {
          response.writeHead(status, { "content-type": "application/json" });
          response.write(`{"error":{"code":"${code}","param":"prompt"`);
          response.end(`,"message":"${"x".repeat(padding)}"}}`);
        };
        const isAzure = shape === "azure";
        const gateway = under = await startUnderTest({
          upstreams: { a: isAzure ? new URL(provider.url).origin : provider.url },
          provider: { shape },
          config: { keys: [{ id: "caller", key: KEY, limits: { budget: "1000M/month" } }] },
        });
        const path = isAzure
          ? "/openai/deployments/m/chat/completions?api-version=2024-10-21"
          : "/v1/chat/completions";
        const call = toCall(gateway, { messages: MESSAGES, max_tokens: 500 }, path);
        assert.equal((await callRaw(gateway.a, call)).status, status);
        const { usage, isEstimated } = await gateway.settled();
        assert.deepEqual(
          [usage?.output, isEstimated],
          isCharged ? [0, true] : [undefined, undefined],
        );
        assert.equal((usage?.input ?? 0) > 0, isCharged);
      });
    }
  }

  it("is the most input for a refusal under a strict budget, and no output", async () => {
    answering = (response) =>
      void response.writeHead(400, { "content-type": "application/json" })
        .end('{"error":{"code":"content_filter"}}');
    const gateway = await start({ limits: { budget: "1M/month", mode: "strict" } }, {
      maxOutput: 1000,
    });
    const call = toCall(gateway, { messages: MESSAGES, max_tokens: 500 });
    await callRaw(gateway.a, call);
    const { usage } = await gateway.settled();
    assert.deepEqual([usage?.input, usage?.output], [call.body.length + 1024, 0]);
  });

  for (
    const [name, type, path, fields, expected] of [
      ["speech", "audio/mpeg", "/v1/audio/speech", { input: "Hello" }, 5 * 1000],
      ["a small answer", "application/json", "/v1/chat/completions", {
        messages: MESSAGES,
        max_tokens: 500,
      }, undefined],
    ] as const
  ) {
    it(`is the reservation if the connection breaks within ${name}`, async () => {
      answering = (response, call) => {
        if (call.path === "/v1/models") return response.end("{}");
        response.writeHead(200, { "content-type": type, "content-length": 3000 });
        response.write("{", () => response.destroy());
      };
      const gateway = await start({ limits: { budget: "1000 USD/month" } }, {}, {
        prices: { "test-*": { input: 1, output: 1, characters: 1 } },
        currency: "USD",
      });
      await callRaw(gateway.a, toCall(gateway, fields, path));
      const { usage, isEstimated } = await gateway.settled();
      assert.equal(isEstimated, true);
      const tokens = (usage?.total ?? 0) * 1000;
      assert.equal(await charged(gateway, "spend", 1000e9), expected ?? tokens);
      if (expected === undefined) assert.equal(usage?.output, 500);
    });
  }

  it("is no picture for a refusal", async () => {
    answering = (response, { path }) => {
      response.writeHead(path === "/v1/models" ? 200 : 400, { "content-type": "application/json" });
      response.end('{"error":{"code":"content_filter"}}');
    };
    const gateway = await start({ limits: { budget: "1000 USD/month" } }, {}, {
      prices: { "test-*": { images: 80 } },
      currency: "USD",
    });
    await callRaw(gateway.a, toCall(gateway, { prompt: "A cat", n: 10 }, "/v1/images/generations"));
    await gateway.settled();
    assert.equal(await charged(gateway, "spend", 1000e9), 0);
  });

  it("is the input for a timeout of Azure without a body", async () => {
    answering = (response) => void response.writeHead(408, { "content-length": 0 }).end();
    const gateway = under = await startUnderTest({
      upstreams: { a: new URL(provider.url).origin },
      provider: { shape: "azure" },
      config: { keys: [{ id: "caller", key: KEY, limits: { budget: "1000M/month" } }] },
    });
    const path = "/openai/deployments/m/chat/completions?api-version=2024-10-21";
    await callRaw(gateway.a, toCall(gateway, { messages: MESSAGES }, path));
    const { usage } = await gateway.settled();
    assert.deepEqual([(usage?.input ?? 0) > 0, usage?.output], [true, 0]);
  });

  it("is the reservation if the provider accepts the call and does the work later", async () => {
    answering = (response) =>
      void response.writeHead(202, { "content-type": "application/json" }).end('{"id":"job-1"}');
    const gateway = await start({ limits: { budget: "1000M/month" } });
    await callRaw(gateway.a, toCall(gateway, { messages: MESSAGES, max_tokens: 500 }));
    const { usage, isEstimated } = await gateway.settled();
    assert.deepEqual([usage?.output, isEstimated], [500, true]);
  });

  it("is not affected by usage stated for calls of another key", async () => {
    const others = "a-gateway-key-of-another-team";
    const keys = [{ id: "caller", key: KEY, limits: { budget: "1000M/month" } }, {
      id: "other",
      key: others,
    }];
    const gateway = await start({}, {}, { keys });
    const asked = toCall(gateway, { messages: MESSAGES, stream: true });
    let statement = "";
    answering = (response, { path }) => {
      response.writeHead(200, {
        "content-type": path === "/v1/models" ? "application/json" : "text/event-stream",
      });
      response.end(
        path === "/v1/models" ? "{}" : chunk("word ".repeat(40), "stop") + statement + DONE,
      );
    };
    await callRaw(gateway.a, asked);
    const { usage: before } = await gateway.settled(1);
    statement = usageChunk(10_000, 10_000);
    for (let call = 0; call < 40; call++) {
      await callRaw(gateway.a, {
        ...asked,
        headers: { ...asked.headers, "gateway-auth": `Bearer ${others}` },
      });
    }
    statement = "";
    await callRaw(gateway.a, asked);
    const { usage, isEstimated } = await gateway.settled(42);
    assert.deepEqual([usage, isEstimated], [before, true]);
    statement = usageChunk(100, 100);
    for (let call = 0; call < 40; call++) await callRaw(gateway.a, asked);
    statement = "";
    await callRaw(gateway.a, asked);
    const own = await gateway.settled(83);
    assert.ok(
      (own.usage?.total ?? 0) > 1.5 * (usage?.total ?? 0),
      "a key's own calls decide its estimates",
    );
  });

  const UNSTATED: Readonly<
    Record<string, [content: Record<string, string>, times: number, tokens: number]>
  > = {
    "in a field that is not known": [{ musings: "word " }, 1000, 1000],
    "in characters of four bytes": [{ content: "🦀🧬🪐🫠🧿🪬🫧🦩" }, 50, 1200],
  };
  for (const [name, [delta, times, tokens]] of Object.entries(UNSTATED)) {
    it(`counts output ${name}`, async () => {
      const event = `data: ${
        JSON.stringify({ id: "x", model: "test-1", choices: [{ index: 0, delta }] })
      }\n\n`;
      answering = (response) => {
        response.writeHead(200, { "content-type": "text/event-stream" });
        response.end(event.repeat(times) + chunk(null, "stop") + DONE);
      };
      const gateway = await start({ limits: { budget: "1000M/month" } });
      await callRaw(gateway.a, toCall(gateway, { messages: MESSAGES, stream: true }));
      const { usage: { output = 0 } = {}, isEstimated } = await gateway.settled();
      assert.ok(
        isEstimated && output >= 0.6 * tokens && output <= 1.5 * tokens,
        `${output} of ${tokens}`,
      );
    });
  }

  describe("with input outside the body", () => {
    const INPUT = 100_000;
    const delta = { type: "response.output_text.delta", delta: "Hello" };
    const completed = {
      type: "response.completed",
      response: {
        status: "completed",
        usage: { input_tokens: INPUT, output_tokens: 50, total_tokens: INPUT + 50 },
      },
    };
    const event = (data: { type: string }) =>
      `event: ${data.type}\ndata: ${JSON.stringify(data)}\n\n`;
    const earlier = { input: "And then?", previous_response_id: "resp_1" };
    const picture = [{
      role: "user",
      content: [{ type: "image_url", image_url: { url: "https://example.com/a.png" } }],
    }];
    /** True if the provider continues: it does so after the caller has left. */
    let hasLeft: Promise<unknown>;
    let left: (value?: unknown) => void;
    beforeEach(() => void (hasLeft = new Promise((resolve) => left = resolve)));

    interface Way {
      readonly path?: string;
      readonly asked: Record<string, unknown>;
      readonly type: string;
      /** Parts of the answer before and after the caller leaves. */
      readonly before?: string;
      readonly after: string;
    }
    const responses = "/v1/responses";
    const WAYS: Readonly<Record<string, Way>> = {
      "a stream that is left after its first event": {
        path: responses,
        asked: { ...earlier, stream: true },
        type: "text/event-stream",
        before: event(delta),
        after: event(delta).repeat(50) + event(completed),
      },
      "a stream that is left before it begins": {
        path: responses,
        asked: { input: "Hi", conversation: "conv_1", stream: true },
        type: "text/event-stream",
        after: event(delta) + event(completed),
      },
      "a plain answer that is left before it begins": {
        path: responses,
        asked: { prompt: { id: "pmpt_1" } },
        type: "application/json",
        after: JSON.stringify(completed.response),
      },
      "a long plain answer that is left": {
        path: responses,
        asked: { input: [{ role: "user", content: [{ type: "input_file", file_id: "file-1" }] }] },
        type: "application/json",
        before: `{"output":[{"content":[{"type":"output_text","text":"${"x".repeat(100_000)}"}]}],`,
        after: JSON.stringify(completed.response).slice(1),
      },
      "a stream that is left between its last word and its tokens": {
        asked: { messages: picture, stream: true },
        type: "text/event-stream",
        before: chunk("Hello", "stop"),
        after: usageChunk(INPUT, 50) + DONE,
      },
      "a stream of a model that reads web pages": {
        asked: { model: "perplexity/sonar-pro", messages: MESSAGES, stream: true },
        type: "text/event-stream",
        before: chunk("Hello"),
        after: chunk("Hello", "stop") + usageChunk(INPUT, 50) + DONE,
      },
    };
    for (const [name, { path, asked, type, before = "", after }] of Object.entries(WAYS)) {
      it(`is the usage that the provider states at the end, in ${name}`, async () => {
        answering = async (response, call) => {
          if (call.path === "/v1/models") return response.end("{}");
          if (before !== "") response.writeHead(200, { "content-type": type }).write(before);
          await hasLeft;
          if (before === "") response.writeHead(200, { "content-type": type });
          for (const part of after.split(/(?<=\n\n)/)) {
            await new Promise((resolve) => response.write(part, resolve));
          }
          response.end();
        };
        const gateway = await start({ limits: { budget: "1000M/month" } });
        const call = toCall(gateway, asked, path);
        const { socket, received, closed } = openRaw(gateway.a, toRawRequest(gateway.a, call));
        await until(
          () =>
            before === ""
              ? provider.calls.length > 0
              : received().includes("ello") || received().length > 50_000,
          "the moment to leave",
        );
        socket.destroy();
        await closed;
        left();
        const { usage, isEstimated } = await gateway.settled();
        assert.deepEqual([usage?.total, isEstimated], [INPUT + 50, undefined]);
        assert.equal(await charged(gateway), INPUT + 50);
      });
    }

    it("is the same for a whole answer without stated usage, whether or not its caller has left", async () => {
      answering = async (response, { path }) => {
        if (path === "/v1/models") return response.end("{}");
        await hasLeft;
        response.writeHead(200, { "content-type": "application/json" }).end(plain());
      };
      const gateway = await start({ limits: { budget: "1000M/month" } });
      const call = toCall(gateway, { ...earlier, max_output_tokens: 100_000 }, responses);
      const { socket, closed } = openRaw(gateway.a, toRawRequest(gateway.a, call));
      await until(() => provider.calls.length > 0, "the moment to leave");
      socket.destroy();
      await closed;
      left();
      const { usage, isEstimated } = await gateway.settled();
      await callRaw(gateway.a, call);
      await gateway.settled(2);
      assert.deepEqual([usage, isEstimated], [gateway.records[1]?.usage, true]);
    });

    it("is as much as for recent calls if the provider never states usage", async () => {
      let isSilent = false;
      answering = (response, { path }) => {
        if (path === "/v1/models") return response.end("{}");
        response.writeHead(200, { "content-type": "text/event-stream" });
        response.write(event(delta));
        if (!isSilent) response.end(event(completed));
      };
      const deadlines = { idle: "2s", firstEvent: "2s" };
      const gateway = await start({ limits: { budget: "1000M/month" } }, { deadlines });
      const call = toCall(gateway, { ...earlier, stream: true }, responses);
      await callRaw(gateway.a, call);
      await gateway.settled(1);
      isSilent = true;
      await leave(gateway, call, (received) => received.includes("Hello"));
      const { usage, isEstimated, outcome } = gateway.records.at(-1) ?? {};
      assert.deepEqual([usage?.input, isEstimated, outcome], [INPUT, true, "client_closed"]);
    });

    it("is estimated if the answer has no end: at most 32 MiB are read for a caller that left", async () => {
      const flood = `:${"x".repeat(1_048_576)}\n`;
      answering = async (response, call) => {
        if (call.path === "/v1/models") return response.end("{}");
        response.writeHead(200, { "content-type": "text/event-stream" });
        response.write(event(delta));
        await hasLeft;
        while (!call.isCut) {
          await new Promise((resolve) => response.write(flood, () => setImmediate(resolve)));
        }
      };
      const gateway = await start({ limits: { budget: "1000M/month" } });
      const call = toCall(gateway, { ...earlier, stream: true }, responses);
      const { socket, received, closed } = openRaw(gateway.a, toRawRequest(gateway.a, call));
      await until(() => received().includes("Hello"), "the moment to leave");
      socket.destroy();
      await closed;
      left();
      const { outcome, isEstimated, bytesOut } = await gateway.settled();
      assert.deepEqual([outcome, isEstimated], ["client_closed", true]);
      assert.ok(bytesOut < 33_554_432);
    });

    for (const how of ["stopped", "left for longer than it lingers"]) {
      it(`is the usage that the provider states at the end, in a recorded call that is ${how}`, async () => {
        answering = async (response, call) => {
          if (call.path === "/v1/models") return response.end("{}");
          response.writeHead(200, { "content-type": "text/event-stream" });
          response.write(event(delta));
          await hasLeft;
          response.end(event(delta) + event(completed));
        };
        const durable = { keep: "10m", linger: how === "stopped" ? "60s" : "1ms" };
        const gateway = await start({ limits: { budget: "1000M/month" } }, { durable });
        const { path, headers, body } = toCall(gateway, { ...earlier, stream: true }, responses);
        const caller = new AbortController();
        const answer = await fetch(gateway.a + path, {
          method: "POST",
          headers: { ...headers, "content-type": "application/json", "sallyport-durable": "?1" },
          body,
          signal: caller.signal,
        });
        const url = gateway.a + answer.headers.get("location");
        if (how === "stopped") {
          assert.equal((await fetch(url, { method: "DELETE", headers })).status, 204);
          assert.match(await answer.text(), /exchange_stopped/);
        } else {
          await answer.body?.getReader().read();
          caller.abort();
          await until(async () => {
            const head = await fetch(url, { method: "HEAD", headers });
            return head.headers.get("stream-closed") === "true";
          }, "the end of its recording");
        }
        left();
        const isCall = ({ operation }: { operation?: string | undefined }) =>
          operation === "responses";
        await until(() => gateway.records.some(isCall), "the end of the call");
        const { usage, isEstimated, code } = gateway.records.find(isCall) ?? {};
        assert.deepEqual([usage?.total, isEstimated, code], [
          INPUT + 50,
          undefined,
          "exchange_stopped",
        ]);
      });
    }

    it("is the usage that the provider states at the end, if the caller does not read until the deadline", async () => {
      answering = (response, { path }) => {
        if (path === "/v1/models") return response.end("{}");
        response.writeHead(200, { "content-type": "text/event-stream" });
        response.write(event(delta));
        // Comments do not count as output, and they are too large for the buffers on the way.
        for (let count = 0; count < 60; count++) response.write(`: ${"x".repeat(200_000)}\n\n`);
        response.end(event(completed));
      };
      const gateway = await start({ limits: { budget: "1000M/month" } }, {
        deadlines: { total: "4s" },
      });
      const call = toCall(gateway, { ...earlier, stream: true }, responses);
      const { socket } = openRaw(gateway.a, toRawRequest(gateway.a, call));
      socket.pause();
      const { usage, isEstimated, code } = await gateway.settled();
      socket.destroy();
      assert.deepEqual([usage?.total, isEstimated, code], [
        INPUT + 50,
        undefined,
        "upstream_timeout",
      ]);
    });

    it("is at least 1,000 tokens if the provider never states usage", async () => {
      answering = (response) => {
        response.writeHead(200, { "content-type": "text/event-stream" });
        response.write(event(delta), () => response.destroy());
      };
      const gateway = await start({ limits: { budget: "1000M/month" } });
      await callRaw(
        gateway.a,
        toCall(gateway, { ...earlier, stream: true, max_output_tokens: 1 }, responses),
      );
      const { usage, isEstimated } = await gateway.settled();
      assert.deepEqual([usage?.input, isEstimated], [1000, true]);
    });

    const ENDING: Readonly<Record<string, [status: number, type: string]>> = {
      "a refusal": [400, "text/plain"],
      "sound": [200, "audio/mpeg"],
    };
    for (const [name, [status, type]] of Object.entries(ENDING)) {
      it(`does not keep a call open whose answer is ${name}`, async () => {
        answering = (response) =>
          void response.writeHead(status, { "content-type": type }).write("x".repeat(100_000));
        const gateway = await start({ limits: { budget: "1000M/month" } });
        await leave(
          gateway,
          toCall(gateway, earlier, responses),
          (received) => received.length > 50_000,
        );
        await until(() => provider.calls[0]?.isCut === true, "the provider's call is ended");
      });
    }

    it("does not apply to calls with input in the body: they end when they are left", async () => {
      answering = (response, { path }) => {
        if (path === "/v1/models") return response.end("{}");
        response.writeHead(200, { "content-type": "text/event-stream" });
        response.write(event(delta));
      };
      const gateway = await start({ limits: { budget: "1000M/month" } });
      await leave(
        gateway,
        toCall(gateway, { input: "Hi", stream: true }, responses),
        (received) => received.includes("Hello"),
      );
      await until(() => provider.calls[0]?.isCut === true, "the provider's call is ended");
      assert.ok((gateway.records[0]?.usage?.total ?? 0) < 100);
    });
  });
});
