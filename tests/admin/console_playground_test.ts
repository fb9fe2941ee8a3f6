/** The console's playground. */
// runtimes: once
import assert from "node:assert/strict";
import { it } from "@std/testing/bdd";
import {
  open,
  OWN_KEY,
  PATIENCE_MS,
  PIECES,
  playOut,
  signIn,
  tile,
  useConsole,
} from "../support/console.ts";
import { frame, FRAMES, join } from "../support/aws_frames.ts";
import { chunk } from "../support/provider.ts";
import { needs } from "../support/requires.ts";
import { until } from "../support/until.ts";

const MODEL = "a-model:v1";
const answer = (type: string, body: string | Uint8Array) => ({ type, body });
const JSON_TYPE = "application/json";
const EVENTS = "text/event-stream";
const eventOf = (data: unknown) => `data: ${JSON.stringify(data)}\r\n\r\n`;
const partOf = (text: string, more: object = {}) => ({
  candidates: [{ content: { parts: [{ text }] }, ...more }],
  usageMetadata: { promptTokenCount: 1, candidatesTokenCount: 7, totalTokenCount: 8 },
});
const lineOf = (content: string, more: object = {}) =>
  `${JSON.stringify({ message: { role: "assistant", content }, done: false, ...more })}\n`;
const messageOf = (text: string) => ({
  output: { message: { role: "assistant", content: [{ text }] } },
  usage: { inputTokens: 1, outputTokens: 7, totalTokens: 8 },
});

/** A call at a shape: its path, fields of its body, and the provider's answer. */
interface ShapedCall {
  readonly path: string;
  readonly body: object;
  readonly answer: { readonly type: string; readonly body: string | Uint8Array };
}

const asUser = (content: string) => [{ role: "user", content }];
const inPath = encodeURIComponent(MODEL);
/** By shape: the plain call, then the streamed one. */
const SHAPED_CALLS: Readonly<Record<string, (question: string) => readonly ShapedCall[]>> = {
  gemini: (text) => {
    const body = { contents: [{ role: "user", parts: [{ text }] }] };
    const path = `/v1beta/models/${inPath}`;
    const end = partOf("bye", { finishReason: "STOP" });
    return [
      { path: `${path}:generateContent`, body, answer: answer(JSON_TYPE, JSON.stringify(end)) },
      {
        path: `${path}:streamGenerateContent?alt=sse`,
        body,
        answer: answer(EVENTS, eventOf(partOf("good")) + eventOf(end)),
      },
    ];
  },
  azure: (text) => {
    const path = `/openai/deployments/${inPath}/chat/completions?api-version=2024-10-21`;
    const body = { model: MODEL, messages: asUser(text) };
    const usage = { prompt_tokens: 1, completion_tokens: 7, total_tokens: 8 };
    const message = { role: "assistant", content: "bye" };
    const plain = { choices: [{ index: 0, message, finish_reason: "stop" }], usage };
    const stream = chunk("good") + chunk("bye") + chunk(null, "stop") +
      eventOf({ choices: [], usage }) + "data: [DONE]\n\n";
    return [
      { path, body, answer: answer(JSON_TYPE, JSON.stringify(plain)) },
      { path, body: { ...body, stream: true }, answer: answer(EVENTS, stream) },
    ];
  },
  cohere: (text) => {
    const body = { model: MODEL, messages: asUser(text) };
    const usage = { tokens: { input_tokens: 1, output_tokens: 7 } };
    const plain = { message: { role: "assistant", content: [{ type: "text", text: "bye" }] } };
    const delta = (text: string) => ({
      type: "content-delta",
      delta: { message: { content: { text } } },
    });
    const end = { type: "message-end", delta: { finish_reason: "COMPLETE", usage } };
    const stream = [delta("good"), delta("bye"), end].map(eventOf).join("");
    return [
      { path: "/v2/chat", body, answer: answer(JSON_TYPE, JSON.stringify({ ...plain, usage })) },
      { path: "/v2/chat", body: { ...body, stream: true }, answer: answer(EVENTS, stream) },
    ];
  },
  ollama: (text) => {
    const body = { model: MODEL, messages: asUser(text) };
    const counts = { done: true, prompt_eval_count: 1, eval_count: 7 };
    const stream = lineOf("good") + lineOf("bye") + lineOf("", counts);
    return [
      {
        path: "/api/chat",
        body: { ...body, stream: false },
        answer: answer(JSON_TYPE, lineOf("bye", counts)),
      },
      {
        path: "/api/chat",
        body: { ...body, stream: true },
        answer: answer("application/x-ndjson", stream),
      },
    ];
  },
  bedrock: (text) => {
    const body = { messages: [{ role: "user", content: [{ text }] }] };
    const { usage } = messageOf("");
    const stream = join(
      frame("contentBlockDelta", { contentBlockIndex: 0, delta: { text: "goodbye" } }),
      frame("messageStop", { stopReason: "end_turn" }),
      frame("metadata", { usage, metrics: {} }),
    );
    return [
      {
        path: `/model/${inPath}/converse`,
        body,
        answer: answer(JSON_TYPE, JSON.stringify(messageOf("bye"))),
      },
      { path: `/model/${inPath}/converse-stream`, body, answer: answer(FRAMES, stream) },
    ];
  },
};

needs(["chromium-headless-shell"]).describe("the console's playground", () => {
  const ui = useConsole();

  for (const args of [[], ["--workers", "2"]]) {
    const where = args.length > 0 ? ", with workers" : "";
    it(`shows a streamed call with its timing, and a refusal with the gateway's message${where}`, async () => {
      const page = await ui.start({ args, keys: [{ id: "own", key: OWN_KEY }] });
      await signIn(page, ui.running.admin);
      await playOut(page, OWN_KEY);
      await page.locator(".said").getByText(PIECES.join("")).waitFor();
      await until(
        async () => await tile(page, "Output tokens").innerText() === "4",
        "the tokens",
        PATIENCE_MS,
      );
      for (const name of ["Headers", "First token", "Last byte"]) {
        assert.match(await tile(page, name).innerText(), /^[\d.]+ (?:ms|s)$/, name);
      }
      await page.getByLabel("Gateway key").fill("a-wrong-key-of-some-length");
      await page.getByRole("button", { name: "Send" }).click();
      await page.getByRole("alert").getByText("gateway key").waitFor();
      await open(page, "Exchanges");
      await page.getByRole("cell", { name: "200", exact: true }).waitFor();
      await page.getByRole("cell", { name: /^401(?! ms)/ }).waitFor();
      await open(page, "Playground");
      assert.equal(
        await page.getByLabel("Provider's key").inputValue(),
        "sk-1",
        "looking elsewhere forgets nothing",
      );
      ui.watched.assertClean(ui.running.admin, { status: 401, times: 1 });
    });
  }

  for (const [shape, toCalls] of Object.entries(SHAPED_CALLS)) {
    it(`calls a provider with the shape of ${shape}, plain and streamed, at its own paths, and shows its errors`, async () => {
      const calls = toCalls("Hello");
      const answers = calls.map(({ answer }) => answer);
      const page = await ui.start({
        keys: [{ id: "own", key: OWN_KEY }],
        answering: (response) => {
          const { type, body } = answers.shift() ?? assert.fail("too many calls");
          response.writeHead(200, { "content-type": type });
          response.end(body);
        },
        providers: (upstream) => ({
          a: { shape, upstream: new URL(upstream).origin, hosts: ["*"] },
        }),
      });
      await signIn(page, ui.running.admin);
      await open(page, "Playground");
      const send = page.getByRole("button", { name: "Send" });
      const form = page.locator("form", { has: send });
      await form.getByLabel("Model", { exact: true }).fill(MODEL);
      await form.getByLabel("Provider's key").fill("sk-1");
      await form.getByLabel("Gateway key").fill(OWN_KEY);
      await form.getByLabel("Message").fill("Hello");
      for (const [index, { path, body }] of calls.entries()) {
        await form.getByLabel("Stream the answer").setChecked(index === 1);
        await send.click();
        const isFrames = shape === "bedrock" && index === 1;
        const said = page.locator(".said");
        await said.getByText(index === 0 ? /^bye$/ : isFrames ? /goodbye/ : /^goodbye$/).waitFor();
        await send.waitFor();
        await tile(page, "Output tokens").getByText(isFrames ? "–" : "7").waitFor();
        assert.equal(await page.getByRole("alert").count(), 0);
        const arrived = ui.running.provider.calls[index] ?? assert.fail("no call");
        assert.equal(arrived.path, path);
        const { stream_options: _, ...sent } = JSON.parse(arrived.body.toString());
        assert.deepEqual(sent, body);
      }
      await form.getByLabel("Gateway key").fill("a-wrong-key-of-some-length");
      await send.click();
      await page.getByRole("alert").getByText("Cannot accept the gateway key").waitFor();
      ui.watched.assertClean(ui.running.admin, { status: 401, times: 1 });
    });
  }

  it("has the provider, model and stream in its address, which survive a reload, and no secret", async () => {
    const providers = (upstream: string) => ({
      a: { hosts: ["localhost"], upstream },
      b: { hosts: ["b.example.com"], upstream },
    });
    const page = await ui.start({ providers });
    await signIn(page, ui.running.admin);
    await open(page, "Playground");
    const form = page.locator("form", { has: page.getByRole("button", { name: "Send" }) });
    const fields = async () => [
      await form.getByLabel("Provider", { exact: true }).inputValue(),
      await form.getByLabel("Model", { exact: true }).inputValue(),
      await form.getByLabel("Stream the answer").isChecked(),
    ];
    const hash = () => page.evaluate(() => location.hash);
    await form.getByLabel("Provider", { exact: true }).selectOption("b");
    await form.getByLabel("Model", { exact: true }).fill(MODEL);
    await form.getByLabel("Provider's key").fill("sk-secret");
    await form.getByLabel("Gateway key").fill(OWN_KEY);
    await form.getByLabel("Message").fill("a secret question");
    await form.getByLabel("Stream the answer").uncheck();
    const address = `#playground?provider=b&model=${encodeURIComponent(MODEL)}&stream=false`;
    assert.equal(await hash(), address);
    await open(page, "Keys");
    await open(page, "Playground");
    assert.deepEqual(await fields(), ["b", MODEL, false]);
    assert.equal(await hash(), address, "the link of the navigation has no parts");
    assert.equal(await form.getByLabel("Provider's key").inputValue(), "sk-secret");
    await page.reload();
    await until(async () => (await fields())[0] === "b", "the providers are there");
    assert.deepEqual(await fields(), ["b", MODEL, false]);
    await page.evaluate(() => location.hash = "#playground?model=other");
    await until(async () => (await fields())[1] === "other", "it follows the address");
    assert.deepEqual(await fields(), ["a", "other", true]);
    ui.watched.assertClean(ui.running.admin);
  });
});
