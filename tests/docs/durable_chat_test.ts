/** The server of a chat in `docs/durable.md`, with the AI SDK's own transport of `useChat`: a chat that is resumed. */
// runtimes: once
import assert from "node:assert/strict";
import { mkdirSync, rmSync, writeFileSync } from "node:fs";
import type { ServerResponse } from "node:http";
import { join, resolve } from "node:path";
import process from "node:process";
import { pathToFileURL } from "node:url";
import { DefaultChatTransport, type UIMessage, type UIMessageChunk } from "ai";
import { it } from "@std/testing/bdd";
import { startUnderTest, UPSTREAM_KEY } from "../support/gateway.ts";
import { chunk, startProvider } from "../support/provider.ts";
import { until } from "../support/until.ts";
import { readBlocks } from "./blocks.ts";

type Handler = (request: Request) => Promise<Response>;

/** Reads the text of a stream, all of it or until there is some. */
async function readText(stream: ReadableStream<UIMessageChunk>, isAll: boolean): Promise<string> {
  const reader = stream.getReader();
  let text = "";
  while (isAll || text === "") {
    const { value, done } = await reader.read();
    if (done) break;
    if (value.type === "text-delta") text += value.delta;
  }
  await reader.cancel();
  return text;
}

it("a chat of docs/durable.md goes on where it was, and the provider is called once", async () => {
  let held: ServerResponse | undefined;
  const provider = await startProvider((response) => {
    held = response;
    response.writeHead(200, { "content-type": "text/event-stream" });
    response.write(chunk("Hel"));
  });
  const under = await startUnderTest({ upstreams: { a: provider.url }, provider: { durable: {} } });
  const folder = resolve(".cache", `chat-${process.pid}`); // from there, packages are found
  try {
    const block = readBlocks("docs/durable.md").find(({ text }) => text.includes("toUIMessageStreamResponse"));
    const text = block?.text.replace("http://localhost:8787", under.a).replace("a-gateway-key-of-mine", under.key)
      .replace("process.env.OPENAI_API_KEY", JSON.stringify(UPSTREAM_KEY));
    mkdirSync(folder, { recursive: true });
    writeFileSync(join(folder, "chat.ts"), text ?? assert.fail("the page shows no server of a chat"));
    const { GET, POST }: Record<"GET" | "POST", Handler> = await import(
      pathToFileURL(join(folder, "chat.ts")).href
    );
    const transport = new DefaultChatTransport<UIMessage>({
      api: "http://app.test/api/chat",
      fetch: (input, init) => {
        const request = new Request(input, init);
        return request.method === "POST" ? POST(request) : GET(request);
      },
    });
    const reconnect = () => transport.reconnectToStream({ chatId: "chat-1" });
    assert.equal(await reconnect(), null, "nothing runs");
    const messages: UIMessage[] = [{ id: "m1", role: "user", parts: [{ type: "text", text: "Hello" }] }];
    const leave = new AbortController();
    const first = await transport.sendMessages({
      ...{ chatId: "chat-1", trigger: "submit-message", messageId: undefined, messages, abortSignal: leave.signal },
    });
    assert.equal(await readText(first, false), "Hel");
    leave.abort();
    const resumed = await reconnect() ?? assert.fail("it runs");
    held?.end(`${chunk("lo")}${chunk(null, "stop")}data: [DONE]\n\n`);
    assert.equal(await readText(resumed, true), "Hello");
    await until(async () => await reconnect() === null, "the end of the chat");
    assert.equal(provider.calls.length, 1);
  } finally {
    rmSync(folder, { recursive: true, force: true });
    held?.end();
    await under.close();
    await provider.close();
  }
});
