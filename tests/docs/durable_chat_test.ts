/**
 * The server of a chat in `docs/durable.md`, with the AI SDK's own transport of `useChat`: a chat
 * that is resumed.
 */
// runtimes: once
import assert from "node:assert/strict";
import type { ServerResponse } from "node:http";
import { DefaultChatTransport, type UIMessage, type UIMessageChunk } from "ai";
import { it } from "@std/testing/bdd";
import { startUnderTest } from "../support/gateway.ts";
import { chunk, startProvider } from "../support/provider.ts";
import { until } from "../support/until.ts";
import { importChatServer } from "./chat_server.ts";

/** Reads the text of a stream: all of it, or until the first text. */
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

it("a chat of docs/durable.md continues where it was, and the provider is called once", async () => {
  let held: ServerResponse | undefined;
  const provider = await startProvider((response) => {
    held = response;
    response.writeHead(200, { "content-type": "text/event-stream" });
    response.write(chunk("Hel"));
  });
  const under = await startUnderTest({ upstreams: { a: provider.url }, provider: { durable: {} } });
  try {
    const answer = await importChatServer(under);
    const transport = new DefaultChatTransport<UIMessage>({
      api: "http://app.test/api/chat",
      fetch: (input, init) => answer(new Request(input, init)),
    });
    const reconnect = () => transport.reconnectToStream({ chatId: "chat-1" });
    assert.equal(await reconnect(), null, "nothing runs");
    const messages: UIMessage[] = [{
      id: "m1",
      role: "user",
      parts: [{ type: "text", text: "Hello" }],
    }];
    const leave = new AbortController();
    const first = await transport.sendMessages({
      ...{
        chatId: "chat-1",
        trigger: "submit-message",
        messageId: undefined,
        messages,
        abortSignal: leave.signal,
      },
    });
    assert.equal(await readText(first, false), "Hel");
    leave.abort();
    const resumed = await reconnect() ?? assert.fail("it runs");
    held?.end(`${chunk("lo")}${chunk(null, "stop")}data: [DONE]\n\n`);
    assert.equal(await readText(resumed, true), "Hello");
    await until(async () => await reconnect() === null, "the end of the chat");
    assert.equal(provider.calls.length, 1);
  } finally {
    held?.end();
    await under.close();
    await provider.close();
  }
});
