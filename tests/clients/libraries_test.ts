/**
 * Client libraries that are built on others, as published on npm: plain, streamed, with tools,
 * aborted.
 */
// runtimes: all
import assert from "node:assert/strict";
import { afterEach, describe, it } from "@std/testing/bdd";
import { assertJournal, closeAll, startWith, startWithMock } from "../support/aimock.ts";
import { type At, embedWithLangChain, LIBRARIES } from "../support/client_libraries.ts";
import type { UnderTest } from "../support/gateway.ts";
import { toStream } from "../support/stand_in_answers.ts";
import { until } from "../support/until.ts";

const at = ({ a, key }: UnderTest): At => ({
  url: a,
  defaultHeaders: { "Gateway-Auth": `Bearer ${key}`, "Cookie": "session=1" },
});

/** The stream of an operation without its last events. */
function beginningOf(path: string): string {
  const events = toStream(path.replace("/v1", "")).split("\n\n");
  return `${events.slice(0, Math.ceil(events.length / 2)).join("\n\n")}\n\n`;
}

for (const library of LIBRARIES) {
  const only = library.provider ?? {};

  describe(library.name, () => {
    afterEach(closeAll);

    it("gets a plain answer and a stream; the provider sees no gateway key and no cookie", async () => {
      const { mock, under, tale } = await startWithMock({ only });
      assert.equal(await library.plain(at(under), "Tell me"), tale);
      const heard: string[] = [];
      assert.equal(await library.stream(at(under), "Tell me", (word) => heard.push(word)), tale);
      assert.ok(heard.length > 10);
      await under.settled(2);
      assert.deepEqual(under.records.map(({ outcome }) => outcome), ["ok", "ok"]);
      assertJournal(mock, under, 2, library.path);
    });

    it("runs tools", async () => {
      const { mock, under, toolArguments } = await startWithMock({ only });
      const asked: unknown[] = [];
      assert.equal(
        await library.useTool(at(under), "What is the weather?", (input) => asked.push(input)),
        "Sunny.",
      );
      assert.deepEqual(asked, [JSON.parse(toolArguments)]);
      assertJournal(mock, under, 2, library.path);
    });

    it("aborts mid-stream, and the provider sees the connection close", async () => {
      const { provider, under } = await startWith((response) => {
        response.writeHead(200, { "content-type": "text/event-stream" });
        response.write(beginningOf(library.path));
      }, { only });
      const aborting = new AbortController();
      const heard: string[] = [];
      const reading = library.stream(at(under), "Hi", (word) => {
        heard.push(word);
        aborting.abort();
      }, aborting.signal);
      // Some libraries throw, others just end.
      await reading.catch(() => {});
      assert.ok(heard.length > 0);
      await until(() => provider.calls[0]?.isCut === true, "the provider seeing the close");
      assert.equal((await under.settled()).outcome, "client_closed");
    });
  });
}

describe("@langchain/openai, embeddings", () => {
  afterEach(closeAll);

  it("gets vectors", async () => {
    const { mock, under } = await startWithMock();
    mock.onEmbedding(/./, { embedding: [0.5, -1, 2] });
    assert.deepEqual(
      await embedWithLangChain(at(under), ["Grüße", "你好"]),
      Array(2).fill([0.5, -1, 2]),
    );
    assertJournal(mock, under, 1, "/v1/embeddings");
  });
});
