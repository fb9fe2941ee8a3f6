/** Calls whose answers state other amounts than tokens, under a budget of money. */
// runtimes: bun, node
import assert from "node:assert/strict";
import { afterEach, describe, it } from "@std/testing/bdd";
import type { ShapeName } from "../../src/config/shape.ts";
import { closeAll } from "../support/aimock.ts";
import type { UnderTest } from "../support/gateway.ts";
import type { Provider } from "../support/provider.ts";
import { startShaped } from "../support/shapes.ts";
import { callRaw, type RawAnswer } from "../support/tcp_peer.ts";

const KEY = "own-key-with-a-budget";
/** Nano-USD. */
const BUDGET = 5_000_000_000;
const JSON_TYPE = "application/json";
const FORM_TYPE = "multipart/form-data; boundary=b";
const RECORDING = '--b\r\nContent-Disposition: form-data; name="model"\r\n\r\nm\r\n' +
  '--b\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n\r\nRIFF\r\n--b--\r\n';

/** A call, and the answer of its provider. */
interface UnitCall {
  readonly shape?: ShapeName;
  readonly path: string;
  readonly type?: string;
  readonly body: string;
  readonly answer: unknown;
  /** Price that its model needs, and the cost of the answer by it. Nano-USD. */
  readonly price: Record<string, number>;
  readonly cost: number;
  /** Cost that its request bounds, so that it is reserved. Nano-USD. Default: 0 */
  readonly reserved?: number;
}

/** Writes a body in ASCII. */
const toBody = (more: object): string =>
  JSON.stringify({ model: "m", ...more }).replaceAll("é", "\\u00e9");
const recording = {
  type: FORM_TYPE,
  body: RECORDING,
  answer: { text: "Hello", usage: { type: "duration", seconds: 36 } },
  price: { audioMs: 1 },
  cost: 10_000_000,
};
const picture = { data: [{ url: "https://a.example/1" }] };
const drawn = {
  answer: picture,
  price: { images: 40 },
  cost: 40_000_000,
  reserved: 40_000_000,
};
const embedded = {
  shape: "cohere",
  answer: { embeddings: [], meta: { billed_units: { images: 2 } } },
  price: { images: 0.5 },
  cost: 1_000_000,
} as const;

const CALLS: Readonly<Record<string, UnitCall>> = {
  "a transcription": { path: "/v1/audio/transcriptions", ...recording },
  "a translation": { path: "/v1/audio/translations", ...recording },
  "a picture": { path: "/v1/images/generations", body: toBody({ prompt: "A cat" }), ...drawn },
  "a document that is read": {
    path: "/v1/ocr",
    body: toBody({ document: { type: "document_url", document_url: "https://a.example/1" } }),
    answer: { pages: [], usage_info: { pages_processed: 3 } },
    price: { pages: 1 },
    cost: 3_000_000,
  },
  "a video": {
    path: "/v1/videos",
    body: toBody({ prompt: "A cat", seconds: "4" }),
    answer: { id: "1", object: "video", status: "queued", seconds: "4" },
    price: { videoMs: 360 },
    cost: 400_000_000,
  },
  "an embedding of images": {
    path: "/v2/embed",
    body: toBody({ input_type: "image", images: ["data:image/png;base64,AAAA"] }),
    ...embedded,
  },
  "an embedding of mixed inputs": {
    path: "/v2/embed",
    body: toBody({ inputs: [{ content: [{ type: "image_url", image_url: { url: "data:," } }] }] }),
    ...embedded,
  },
};

interface Started {
  readonly provider: Provider;
  readonly under: UnderTest;
}

function start(
  shape: ShapeName,
  answer: unknown,
  price: object,
  limits: object = { budget: "5 USD/day" },
  teams?: object,
): Promise<Started> {
  return startShaped(shape, (response) => {
    response.writeHead(200, { "content-type": JSON_TYPE });
    response.end(JSON.stringify(answer));
  }, {
    provider: { operations: ["all"], maxOutput: 1000 },
    config: {
      prices: { m: price },
      keys: [{ id: "one", key: KEY, limits, ...(teams && { team: "own" }) }],
      ...(teams && { teams }),
    },
  });
}

async function send(
  { under }: Started,
  { path, body, type = JSON_TYPE, headers: more }: UnitCall & { headers?: Record<string, string> },
) {
  const before = under.records.length;
  const own = { "gateway-auth": `Bearer ${KEY}`, "content-type": type };
  const headers = { ...under.headers, ...own, ...more };
  const origin = new URL(under.a).origin;
  const answer = await callRaw(origin, { path, headers, body });
  await under.settled(before + 1);
  return answer;
}
const codeOf = ({ status, body }: RawAnswer): string =>
  status < 400 ? "ok" : JSON.parse(body).error?.code ?? JSON.parse(body).code;
const leftOf = ({ headers }: RawAnswer): number =>
  Number(/"spend";r=(\d+)/.exec(headers.ratelimit ?? "")?.[1] ?? NaN);

describe("under a budget of money", () => {
  afterEach(closeAll);

  for (const [name, call] of Object.entries(CALLS)) {
    const { shape = "v1", answer, price, cost, reserved = 0 } = call;
    const [unit = ""] = Object.keys(price);

    it(`${name} is refused without a price of ${unit}`, async () => {
      const started = await start(shape, answer, { input: 1, output: 1 });
      const refused = await send(started, call);
      assert.deepEqual([refused.status, codeOf(refused)], [403, "model_not_priced"]);
      assert.match(refused.body, new RegExp(`its price has no ${unit}`));
      assert.equal(started.provider.calls.length, 0);
    });

    it(`${name} is charged its ${unit}`, async () => {
      const started = await start(shape, answer, price);
      assert.equal(codeOf(await send(started, call)), "ok");
      // Its price has no tokens, so the second call reserves only units
      assert.equal(leftOf(await send(started, call)), BUDGET - cost - reserved);
    });
  }

  it("texts are embedded with a price of tokens only", async () => {
    const answer = { embeddings: [], meta: { billed_units: { input_tokens: 2 } } };
    const started = await start("cohere", answer, { input: 1 });
    const body = toBody({ input_type: "search_query", texts: ["Hi"] });
    assert.equal(codeOf(await send(started, { ...embedded, path: "/v2/embed", body })), "ok");
  });

  it("a video is read without a price of its length, because that costs nothing", async () => {
    const started = await start("v1", CALLS["a video"]?.answer, { input: 1 });
    const headers = { ...started.under.headers, "gateway-auth": `Bearer ${KEY}` };
    const origin = new URL(started.under.a).origin;
    const path = "/v1/videos/1";
    assert.equal(codeOf(await callRaw(origin, { method: "GET", path, headers, body: "" })), "ok");
  });

  /** Nano-USD of an hour. */
  const HOUR = 3_600_000_000;
  const toRecording = (bytes: number) => RECORDING.replace("RIFF", "R".repeat(bytes));
  for (
    const [name, bytes, seconds] of [["a short one", 4, 10], ["a long one", 400_000, 100]] as const
  ) {
    it(`a recording whose length is not stated is estimated by its size: ${name}`, async () => {
      const started = await start("v1", { text: "Hello" }, { audioMs: 3.6 });
      const call = {
        path: "/v1/audio/transcriptions",
        ...recording,
        body: toRecording(bytes),
      };
      assert.equal(codeOf(await send(started, call)), "ok");
      const used = BUDGET - leftOf(await send(started, call));
      const least = HOUR * seconds / 3600;
      assert.ok(used >= least && used < least * 1.01, `${used} used`);
    });
  }

  it("a recording whose tokens are not stated has tokens of sound", async () => {
    const started = await start("v1", { text: "Hello" }, { inputAudio: 6, output: 10 });
    await send(started, { path: "/v1/audio/transcriptions", ...recording });
    const { usage } = await started.under.settled();
    assert.deepEqual(Object.keys(usage?.parts?.[0]?.classes ?? {}), ["inputAudio", "output"]);
  });

  it("a recording is transcribed with a price of tokens of sound", async () => {
    const usage = { type: "tokens", input_tokens: 4, output_tokens: 2, total_tokens: 6 };
    const started = await start("v1", { text: "Hello", usage }, { inputAudio: 6, output: 10 });
    const call = { ...recording, path: "/v1/audio/transcriptions" };
    assert.equal(codeOf(await send(started, call)), "ok");
  });
});

/** Nano-USD: a thousand units cost 2 USD. */
const UNIT_COST = 2_000_000;
const texts = (count: number, length: number) => Array(count).fill("x".repeat(length));

/** Requests to rank documents, and the search units that are reserved for them. */
const RANKED: readonly (readonly [name: string, request: object, units: number])[] = [
  ["one document", { query: "Hi", documents: ["Hello"] }, 1],
  ["100 documents", { query: "Hi", documents: texts(100, 100) }, 1],
  ["101 documents", { query: "Hi", documents: texts(101, 100) }, 2],
  ["100 documents that have 500 bytes with the query", {
    query: "Hi",
    documents: texts(100, 498),
  }, 1],
  ["100 documents that have 501 bytes with the query", {
    query: "Hi",
    documents: texts(100, 499),
  }, 3],
  ["a document of 25 kB", { query: "Hi", documents: texts(1, 25_000) }, 2],
  ["100 documents with a query of 1 kB", { query: "x".repeat(1000), documents: texts(100, 10) }, 5],
  ["a query that is cut", { query: "x".repeat(100_000), documents: texts(100, 10) }, 9],
  ["a document that looks like a picture", {
    query: "Hi",
    documents: [{ data: "A".repeat(100_000) }],
  }, 5],
  [
    "a document with characters of several bytes",
    { query: "Hi", documents: ["é".repeat(25_000)] },
    3,
  ],
];

describe("a rerank reserves the most search units of", () => {
  afterEach(closeAll);

  for (const [name, request, units] of RANKED) {
    it(`${name}, and is charged those of its answer`, async () => {
      const answer = { results: [], meta: { billed_units: { search_units: 1 } } };
      const started = await start("cohere", answer, { searchUnits: 2 });
      const call = { ...embedded, path: "/v2/rerank", body: toBody(request) };
      const reserved = units * UNIT_COST;
      assert.equal(leftOf(await send(started, call)), BUDGET - reserved);
      assert.equal(leftOf(await send(started, call)), BUDGET - UNIT_COST - reserved);
    });
  }
});

const drawing = { path: "/v1/images/generations", body: toBody({ prompt: "A cat", n: 10 }) };
const speaking = { path: "/v1/audio/speech", body: toBody({ input: "Hi".repeat(500) }) };
const filming = { path: "/v1/videos", body: toBody({ prompt: "A cat" }) };

/** Calls under a strict budget: the price of their model, and the cost that they can have. USD. */
const STRICT: Readonly<
  Record<
    string,
    [call: Pick<UnitCall, "path" | "body">, price: Record<string, number>, most: number]
  >
> = {
  "ten pictures with a price of each": [drawing, { images: 80 }, 0.8],
  "ten pictures with a price of each and of tokens": [
    drawing,
    { input: 0, output: 0, images: 80 },
    0.8,
  ],
  // Ten answers of 1,000 tokens, and at most 1,100 tokens of input
  "ten pictures by tokens": [drawing, { input: 5, inputImage: 10, outputImage: 40 }, 0.411],
  "ten pictures by tokens, with a price of text": [
    { ...drawing, body: toBody({ prompt: "A cat", n: 10, max_tokens: 1 }) },
    { input: 5, output: 10, outputImage: 40 },
    0.411,
  ],
  // 10 tokens of pictures, and at most 1,124 tokens of input
  "a chat with a model that can answer with pictures": [
    {
      path: "/v1/chat/completions",
      body: toBody({ messages: [{ role: "user", content: "Hi" }], max_tokens: 10 }),
    },
    { input: 1, output: 10, outputImage: 1000 },
    0.011124,
  ],
  "speech by characters": [speaking, { characters: 15 }, 0.015],
  // A body of 1,000 bytes
  "speech by characters, with its text in another field": [
    { ...speaking, body: toBody({ text: "a".repeat(977) }) },
    { characters: 15 },
    0.015,
  ],
  // 1,000 tokens of sound, and at most 2,100 tokens of input
  "speech by tokens": [speaking, { input: 1, outputAudio: 12 }, 0.0141],
};

describe("a strict budget of money", () => {
  afterEach(closeAll);

  for (const [name, [call, price, most]] of Object.entries(STRICT)) {
    it(`reserves the most that a call can cost: ${name}`, async () => {
      const startWith = (budget: number) =>
        start("v1", picture, price, { budget: `${budget.toFixed(4)} USD/day`, mode: "strict" });
      const started = await startWith(most * 0.9);
      const asked = { ...drawn, ...call };
      assert.equal(codeOf(await send(started, asked)), "request_exceeds_limit");
      assert.equal(started.provider.calls.length, 0);
      assert.equal(codeOf(await send(await startWith(most), asked)), "ok");
    });
  }

  it("reserves the dearest choices that a request leaves open", async () => {
    const rows = [
      { rates: { images: 40 } },
      { when: { asked: { quality: "high", size: "big" } }, rates: { images: 170 } },
    ];
    const ask = async (choices: object) => {
      const started = await start("v1", picture, { rows }, {
        budget: "0.1 USD/day",
        mode: "strict",
      });
      return codeOf(await send(started, { ...drawn, ...drawing, body: toBody(choices) }));
    };
    for (const open of [{}, { quality: "high" }, { quality: "auto", size: "big" }]) {
      assert.equal(await ask(open), "request_exceeds_limit", JSON.stringify(open));
    }
    for (const made of [{ quality: "low" }, { quality: "high", size: "small" }]) {
      assert.equal(await ask(made), "ok", JSON.stringify(made));
    }
  });

  it("refuses a call if nothing in the request limits the units that have a price", async () => {
    const answer = CALLS["a video"]?.answer;
    const strict = { budget: "5 USD/day", mode: "strict" };
    const started = await start("v1", answer, { input: 0, output: 0, videoMs: 360 }, strict);
    const refused = await send(started, { ...drawn, ...filming });
    assert.equal(codeOf(refused), "request_exceeds_limit");
    assert.match(refused.body, /nothing in the request limits its videoMs/);
    assert.equal(started.provider.calls.length, 0);
  });

  const CHAT = { messages: [{ role: "user", content: "Hi" }], max_tokens: 10 };
  const UNLIMITED: Readonly<Record<string, [path: string, price: object, detail: RegExp]>> = {
    "an operation that is not in the table": [
      "/v1/other",
      { input: 1, output: 1 },
      /an answer of this operation can state any amount/,
    ],
    "a model whose citations have a price": [
      "/v1/chat/completions",
      { input: 1, output: 1, citation: 2 },
      /nothing in the request limits its citation/,
    ],
  };
  for (const [name, [path, price, detail]] of Object.entries(UNLIMITED)) {
    it(`refuses ${name}, because nothing limits what is stated`, async () => {
      const strict = { budget: "5 USD/day", mode: "strict" };
      const started = await start("v1", {}, price, strict);
      const refused = await send(started, { ...drawn, path, body: toBody(CHAT) });
      assert.equal(codeOf(refused), "request_exceeds_limit");
      assert.match(refused.body, detail);
      assert.match(refused.body, /operator can allow such calls with the mode enforce/);
      assert.equal(started.provider.calls.length, 0);
    });

    it(`of tokens alone serves ${name}, also with other limits of money`, async () => {
      const strict = { tokens: "1M/day", mode: "strict" };
      const asked = { ...drawn, path, body: toBody(CHAT) };
      const teams = { own: { limits: { budget: "5 USD/day" } } };
      assert.equal(codeOf(await send(await start("v1", {}, price, strict, teams), asked)), "ok");
      const started = await start("v1", {}, price, strict);
      const inRun = { ...asked, headers: { "gateway-run": '"run-1"' } };
      assert.equal(codeOf(await send(started, inRun)), "ok");
      const limited = { "gateway-run": '"run-2"; budget="4 USD"' };
      const refused = await send(started, { ...asked, headers: limited });
      assert.equal(codeOf(refused), "request_exceeds_limit");
      assert.match(refused.body, /the run has a budget of money, and nothing limits the cost/);
    });
  }
});

describe("pictures", () => {
  afterEach(closeAll);

  it("that are priced by tokens reserve tokens of pictures", async () => {
    const started = await start("v1", picture, { input: 0, output: 1, outputImage: 40 });
    assert.equal(leftOf(await send(started, { ...drawn, ...drawing })), BUDGET - 40_000_000);
  });

  it("reserve no more of the budget of a team than the budget of their key", async () => {
    const teams = { own: { limits: { budget: "5 USD/day" } } };
    const started = await start("v1", picture, { images: 80 }, { budget: "0.1 USD/day" }, teams);
    const { headers } = await send(started, { ...drawn, ...drawing });
    assert.match(headers.ratelimit ?? "", /"team-spend";r=4900000000/);
  });
});
