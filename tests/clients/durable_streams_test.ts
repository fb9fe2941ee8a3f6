/**
 * Recorded answers with the libraries of the durable-streams protocol, and with an EventSource that
 * reconnects.
 */
// runtimes: all
import assert from "node:assert/strict";
import { stream as readStream } from "@durable-streams/client";
import { EventSource } from "eventsource";
import { afterEach, describe } from "@std/testing/bdd";
import { it } from "../support/cases.ts";
import { type DurableStage, startDurableStage } from "../support/held_exchange.ts";
import { chunk } from "../support/provider.ts";

const WORDS = ["one", "\u{1f600}", "three"];
const END = `${chunk(null, "stop")}data: [DONE]\n\n`;

describe("libraries that read recorded answers", () => {
  let stage: DurableStage;

  afterEach(() => stage.close());

  for (const live of ["long-poll", "sse"] as const) {
    it(`@durable-streams/client reads a running exchange by ${live}`, async () => {
      stage = await startDurableStage();
      const { under } = stage;
      const { url, upstream, answer } = await stage.begin("text/event-stream", chunk("zero"));
      const { authorization = "", "gateway-auth": gatewayAuth = "" } = under.headers;
      const response = await readStream({
        url,
        live,
        headers: { authorization, "gateway-auth": gatewayAuth },
        warnOnHttp: false,
      });
      let text = "";
      const waiting = WORDS.slice();
      for await (const part of response.textStream()) {
        text += part;
        // The provider sends the next word when the client has received the previous one.
        const next = text.endsWith("\n\n") && !text.includes("[DONE]")
          ? waiting.shift() ?? END
          : undefined;
        if (next === END) upstream.end(next);
        else if (next !== undefined) upstream.write(chunk(next));
      }
      assert.equal(text, chunk("zero") + WORDS.map((word) => chunk(word)).join("") + END);
      assert.equal(await answer.text(), text);
      assert.equal(stage.provider.calls.length, 1);
    });
  }

  it("an EventSource whose connection breaks repeatedly gets each event once, and stops at the end", async () => {
    stage = await startDurableStage();
    const { under } = stage;
    const { url, upstream, answer } = await stage.begin(
      "text/event-stream",
      `retry: 1\n\n${chunk("zero")}`,
    );
    const asked: (string | undefined)[] = [];
    const source = new EventSource(`${url}?ids=1`, {
      fetch: async (input, init) => {
        asked.push(init.headers["Last-Event-ID"]);
        const signal = init.signal as AbortSignal;
        const response = await fetch(input, {
          headers: { ...under.headers, ...init.headers },
          signal,
        });
        // Each connection breaks after one event, at any position.
        const breaking = new TransformStream<Uint8Array<ArrayBuffer>, Uint8Array<ArrayBuffer>>({
          transform(bytes, controller) {
            controller.enqueue(bytes);
            if (new TextDecoder().decode(bytes).includes("data:")) controller.terminate();
          },
        });
        const body = response.body?.pipeThrough(breaking) ?? null;
        return { ...responseOf(response), body };
      },
    });
    const got: string[] = [];
    const waiting = WORDS.map((word) => chunk(word));
    await new Promise<void>((resolve) => {
      source.onmessage = ({ data }) => {
        got.push(`data: ${data}\n\n`);
        const next = waiting.shift();
        if (next !== undefined) upstream.write(next);
        else if (!upstream.writableEnded) upstream.end(END);
      };
      source.onerror = () => source.readyState === EventSource.CLOSED && resolve();
    });
    assert.deepEqual(got.join(""), chunk("zero") + WORDS.map((word) => chunk(word)).join("") + END);
    assert.equal(asked[0], undefined);
    assert.ok(asked.length > 3, "it connected again");
    assert.equal(Number(asked.at(-1)), new TextEncoder().encode(await answer.text()).length);
  });
});

/** The parts of a response that an EventSource checks. */
function responseOf({ url, status, redirected, headers }: Response) {
  return { url, status, redirected, headers };
}
