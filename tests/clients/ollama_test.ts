/** The `ollama` client, as published on npm, at its natural addresses. */
// runtimes: bun, node
import assert from "node:assert/strict";
import { afterEach, describe, it } from "@std/testing/bdd";
import { Ollama } from "ollama";
import { closeAll } from "../support/aimock.ts";
import { type UnderTest, UPSTREAM_KEY } from "../support/gateway.ts";
import type { Answering } from "../support/provider.ts";
import { cutAfter, failureOf, QUESTION, startShaped } from "../support/shapes.ts";

const MODEL = "llama3.2";
const LINES = "application/x-ndjson";
const COUNTS = { done: true, done_reason: "stop", prompt_eval_count: 11, eval_count: 5 };
const word = (content: string, more: object = { done: false }) =>
  `${JSON.stringify({ model: MODEL, message: { role: "assistant", content }, ...more })}\n`;
const STREAM = word("Hel") + word("lo") + word("", COUNTS);

const answerAsOllama: Answering = (response, { path, body }) => {
  if (path === "/api/tags") {
    response.writeHead(200, { "content-type": "application/json" });
    return response.end(JSON.stringify({ models: [{ name: MODEL, model: MODEL }] }));
  }
  const isStream = path === "/api/chat" && JSON.parse(body.toString()).stream !== false;
  response.writeHead(200, { "content-type": isStream ? LINES : "application/json" });
  if (path === "/api/embed") {
    return response.end('{"model":"e","embeddings":[[0.5]],"prompt_eval_count":4}');
  }
  response.end(isStream ? STREAM : word("Hello", COUNTS));
};

const clientOf = ({ a, key }: UnderTest) =>
  new Ollama({
    host: a,
    headers: { "Gateway-Auth": `Bearer ${key}`, "Authorization": `Bearer ${UPSTREAM_KEY}` },
  });
/** A new object, because the client changes it. */
const hello = () => ({ model: MODEL, messages: [{ role: "user", content: QUESTION }] });

async function textOf(client: Ollama): Promise<string> {
  let text = "";
  for await (const { message } of await client.chat({ ...hello(), stream: true })) {
    text += message.content;
  }
  return text;
}

describe("ollama", () => {
  afterEach(closeAll);

  it("gets a plain answer and a stream of lines, and their tokens are counted", async () => {
    const { provider, under } = await startShaped("ollama", answerAsOllama);
    const client = clientOf(under);
    assert.equal((await client.chat(hello())).message.content, "Hello");
    assert.equal(await textOf(client), "Hello");
    await under.settled(2);
    for (const [index, { operation, model, usage, outcome, stream }] of under.records.entries()) {
      assert.deepEqual([operation, model, outcome], ["ollama.chat", MODEL, "ok"]);
      assert.deepEqual([usage?.total, usage?.input, usage?.output], [16, 11, 5]);
      assert.equal(stream, index === 1);
    }
    assert.deepEqual(provider.calls.map(({ path }) => path), ["/api/chat", "/api/chat"]);
    assert.equal(provider.calls[0]?.headers["gateway-auth"], undefined);
  });

  it("embeds and lists models", async () => {
    const { under } = await startShaped("ollama", answerAsOllama);
    const client = clientOf(under);
    assert.deepEqual((await client.embed({ model: MODEL, input: "Hi" })).embeddings, [[0.5]]);
    assert.equal((await client.list()).models[0]?.name, MODEL);
    await under.settled(2);
    assert.equal(under.records[0]?.usage?.input, 4);
  });

  it("streams if the body does not say otherwise, which is Ollama's default", async () => {
    const { under } = await startShaped("ollama", answerAsOllama);
    const answer = await fetch(`${under.a}/api/chat`, {
      method: "POST",
      headers: under.headers,
      body: JSON.stringify(hello()),
    });
    assert.equal(await answer.text(), STREAM);
    const { stream, usage } = await under.settled();
    assert.deepEqual([stream, usage?.output], [true, 5]);
  });

  for (const how of ["break", "end"] as const) {
    for (
      const [where, beginning] of [
        ["between lines", word("Hel") + word("lo")],
        ["within a line", (word("Hel") + word("lo")).slice(0, -10)],
      ] as const
    ) {
      it(`throws on a stream that is cut ${where} by a ${how}`, async () => {
        const { under } = await startShaped("ollama", cutAfter(LINES, beginning, how));
        const { message } = await failureOf(textOf(clientOf(under)));
        assert.match(message, /^Cannot complete the (?:stream|answer): /);
        const { code, isEstimated } = await under.settled();
        assert.deepEqual([code, isEstimated], [
          how === "end" ? "upstream_stream_truncated" : "upstream_disconnected",
          true,
        ]);
      });
    }
  }

  // The last line of `generate` has the tokens of the whole conversation.
  it("reads a stream to its end whose last line is long, and throws if it is cut", async () => {
    const context = Array.from({ length: 30_000 }, (_, token) => token);
    const last = JSON.stringify({ model: MODEL, response: "", context, ...COUNTS });
    const whole = `{"model":"${MODEL}","response":"Hello","done":false}\n${last}\n`;
    for (const length of [whole.length, whole.length - 2, 100_000]) {
      const { under } = await startShaped("ollama", cutAfter(LINES, whole.slice(0, length), "end"));
      const answer = await fetch(`${under.a}/api/generate`, {
        method: "POST",
        headers: under.headers,
        body: JSON.stringify({ model: MODEL, prompt: QUESTION }),
      });
      const isWhole = length === whole.length;
      assert.equal(await answer.text() === whole, isWhole, String(length));
      const { outcome, usage } = await under.settled();
      assert.equal(outcome, isWhole ? "ok" : "upstream_cut");
      if (isWhole) assert.deepEqual([usage?.input, usage?.output], [11, 5]);
    }
  });

  it("gets no comments in a silent stream, because they would be no JSON", async () => {
    const { under } = await startShaped("ollama", (response) => {
      response.writeHead(200, { "content-type": LINES });
      response.write(word("Hel"));
      setTimeout(() => response.end(word("lo", COUNTS)), 300);
    }, { provider: { keepAlive: "50ms" } });
    const answer = await fetch(`${under.a}/api/chat`, {
      method: "POST",
      headers: under.headers,
      body: JSON.stringify(hello()),
    });
    assert.equal(await answer.text(), word("Hel") + word("lo", COUNTS));
  });

  it("throws on an error line of Ollama's, and on a refusal", async () => {
    const { under } = await startShaped("ollama", (response) => {
      response.writeHead(200, { "content-type": LINES });
      response.end(`${word("Hel")}{"error":"out of memory"}\n`);
    });
    assert.equal((await failureOf(textOf(clientOf(under)))).message, "out of memory");
    assert.equal((await under.settled()).outcome, "upstream_error");
    const refused = await failureOf(textOf(clientOf({ ...under, key: "wrong" })));
    assert.match(refused.message, /gateway key/);
  });
});
