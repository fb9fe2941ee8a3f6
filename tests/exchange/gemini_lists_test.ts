/** Google's streams without `alt=sse`: a list of answers in JSON. */
// runtimes: bun, deno, node
import assert from "node:assert/strict";
import { afterEach, describe, it } from "@std/testing/bdd";
import { closeAll } from "../support/aimock.ts";
import type { UnderTest } from "../support/gateway.ts";
import { cutAfter, QUESTION, startShaped } from "../support/shapes.ts";

const JSON_TYPE = "application/json; charset=UTF-8";
/** Tokens of the prompt, which no estimate reaches. */
const INPUT = 1234;
const usageOf = (output: number) => ({
  usageMetadata: {
    promptTokenCount: INPUT,
    candidatesTokenCount: output,
    totalTokenCount: INPUT + output,
  },
});
const partOf = (text: string, more: object = {}) => ({
  candidates: [{ content: { parts: [{ text }], role: "model" }, ...more }],
});
const LIST = JSON.stringify(
  [
    { ...partOf('He said "[{\\"\n'), ...usageOf(50) },
    { ...partOf("]}".repeat(40), { finishReason: "STOP" }), ...usageOf(90) },
  ],
  null,
  2,
);

const callList = ({ a, headers }: UnderTest, fields: object = {}) =>
  fetch(`${a}/v1beta/models/gemini-3-pro:streamGenerateContent`, {
    method: "POST",
    headers,
    body: JSON.stringify({ contents: [{ role: "user", parts: [{ text: QUESTION }] }], ...fields }),
  });

describe("a list of answers", () => {
  afterEach(closeAll);

  for (const length of [0, 1, 100, LIST.length - 2, LIST.length - 1]) {
    it(`breaks if the provider ends it after ${length} of ${LIST.length} bytes`, async () => {
      const { under } = await startShaped("gemini", (response) => {
        response.writeHead(200, { "content-type": JSON_TYPE });
        response.flushHeaders();
        response.end(LIST.slice(0, length));
      });
      await assert.rejects(callList(under).then((answer) => answer.text()));
      const { outcome, code, usage } = await under.settled();
      assert.deepEqual([outcome, code], ["upstream_cut", "upstream_stream_truncated"]);
      assert.equal(usage?.input === INPUT, length > 300, "the usage before the cut");
    });
  }

  it("passes unchanged, in pieces of any size, and its last usage counts", async () => {
    const long = [
      { ...partOf("x".repeat(200_000)), ...usageOf(50) },
      { ...partOf('\\"'.repeat(50_000), { finishReason: "STOP" }), ...usageOf(900) },
    ];
    const cases = [
      [LIST, 1, 90],
      [LIST, 7, 90],
      [LIST.replaceAll("\n", "\r\n"), 64, 90],
      [`${LIST}\n`, 10_000, 90],
      [JSON.stringify(long), 5000, 900],
      [JSON.stringify(long[1]), 5000, 900],
      ["[]", 1, 0],
      ["[{}]", 1, 0],
    ] as const;
    const { under } = await startShaped("gemini", async (response, { body }) => {
      const [text, pieceBytes] = cases[Number(JSON.parse(String(body)).at)] ?? assert.fail();
      response.writeHead(200, { "content-type": JSON_TYPE });
      for (let at = 0; at < text.length; at += pieceBytes) {
        await new Promise((sent) => response.write(text.slice(at, at + pieceBytes), sent));
      }
      response.end();
    });
    for (const [at, [text, , output]] of cases.entries()) {
      const answer = await callList(under, { at });
      assert.ok(await answer.text() === text, `${at} differs`);
      await under.settled(at + 1);
      const { outcome, usage, stream } = under.records[at] ?? assert.fail();
      assert.deepEqual([outcome, stream], ["ok", true], `${at}`);
      if (output > 0) assert.deepEqual([usage?.input, usage?.output], [INPUT, output], `${at}`);
    }
  });

  it("with an error of the provider counts as such, and ends cleanly", async () => {
    const list = JSON.stringify([partOf("Hi"), { error: { code: 503, status: "UNAVAILABLE" } }]);
    const { under } = await startShaped("gemini", (response) => {
      response.writeHead(200, { "content-type": JSON_TYPE });
      response.end(list);
    });
    assert.equal(await (await callList(under)).text(), list);
    assert.equal((await under.settled()).outcome, "upstream_error");
  });

  it("is not expected in an answer with the status of an error", async () => {
    const body = '[{"error":{"code":400,"status":"INVALID_ARGUMENT"}}';
    const { under } = await startShaped("gemini", (response) => {
      response.writeHead(400, { "content-type": JSON_TYPE });
      response.end(body);
    });
    const answer = await callList(under);
    assert.deepEqual([answer.status, await answer.text()], [400, body]);
    assert.equal((await under.settled()).outcome, "upstream_error");
  });

  it("breaks if the provider's connection breaks", async () => {
    const { under } = await startShaped("gemini", cutAfter(JSON_TYPE, "[{}", "break"));
    await assert.rejects(callList(under).then((answer) => answer.text()));
    assert.equal((await under.settled()).code, "upstream_disconnected");
  });
});
