/** Bodies of unusual but legal JSON, which cross the gateway unchanged at the addresses of each shape. */
// runtimes: all, workers, old node
import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { afterEach, describe, it } from "@std/testing/bdd";
import type { ShapeName } from "../../src/config/shape.ts";
import { closeAll } from "../support/aimock.ts";
import type { UnderTest } from "../support/gateway.ts";
import { PACKERS } from "../support/packers.ts";
import { startShaped } from "../support/shapes.ts";

/** Members that a parser and a writer would change: spaces, escapes, numbers, order, repetition. */
const ODD = String.raw`"z" : 1.0 ,"1":1e400,"0":-0.0, "long":12345678901234567890.10,` +
  String.raw`"e":1E+2,"text":"\u0048i \/ \ud83d\ude00 é\u00e9 \u2028","z" : [ ],"__proto__":{}`;
const END = "\r\n}\t\n\n";
const MESSAGES = String.raw`"messages":[ { "content" :"\u0048i \"é\"" , "role":"user" } ]`;
const MODEL = String.raw`"model" : "m"`;
const CONTENTS = String.raw`"contents":[{ "parts" :[{"text":"\u0048i"} ]}]`;

/** A call of a shape: its path, and the members of its body that the interface needs. */
interface ShapedCall {
  readonly shape: ShapeName;
  readonly path: string;
  readonly members: string;
}

const CALLS: readonly ShapedCall[] = [
  { shape: "v1", path: "/v1/chat/completions", members: `${MODEL},${MESSAGES}` },
  { shape: "v1", path: "/v1/responses", members: String.raw`${MODEL} , "input":"\u0048i"` },
  { shape: "v1", path: "/v1/messages", members: `${MODEL},"max_tokens":1.0,${MESSAGES}` },
  { shape: "gemini", path: "/v1beta/models/m:generateContent", members: CONTENTS },
  {
    shape: "azure",
    path: "/openai/deployments/m/chat/completions?api-version=2024-10-21",
    members: MESSAGES,
  },
  { shape: "cohere", path: "/v2/chat", members: `${MODEL},${MESSAGES}` },
  { shape: "cohere", path: "/v2/rerank", members: `${MODEL},"query":"a","documents":[ "b" ]` },
  { shape: "ollama", path: "/api/chat", members: `${MODEL}, "stream" : false ,${MESSAGES}` },
  {
    shape: "bedrock",
    path: "/model/m/converse",
    members: String.raw`"messages":[ {"role":"user","content":[{"text" : "\u0048i"}]} ]`,
  },
  { shape: "bedrock", path: "/model/m/invoke", members: `"max_tokens":5,${MESSAGES}` },
];

const ANSWER = Buffer.from(`\n\t{ "usage" : { "other":1.0 }, ${ODD}${END}`);
const CODINGS = ["gzip", "br", "zstd"];

describe("the bytes of", () => {
  afterEach(closeAll);

  async function start(shape: ShapeName) {
    return await startShaped(shape, (response) => {
      response.writeHead(200, { "content-type": "application/json" });
      response.end(ANSWER);
    });
  }
  function send({ a, headers }: UnderTest, path: string, body: Buffer, coding?: string) {
    return fetch(new URL(path, a), {
      method: "POST",
      headers: coding === undefined ? headers : { ...headers, "content-encoding": coding },
      body: new Uint8Array(body),
    });
  }

  for (const { shape, path, members } of CALLS) {
    const body = Buffer.from(` \r\n{\t${members}, ${ODD}${END}`);

    it(`${path} of ${shape} and of its answer cross unchanged`, async () => {
      const { provider, under } = await start(shape);
      const response = await send(under, path, body);
      const answer = Buffer.from(await response.arrayBuffer());
      assert.deepEqual([response.status, answer.toString()], [200, ANSWER.toString()]);
      assert.ok(answer.equals(ANSWER));
      const { body: arrived } = provider.calls[0] ?? assert.fail("no call");
      assert.equal(arrived.toString(), body.toString());
      assert.ok(arrived.equals(body));
    });

    it(`${path} of ${shape} cross packed, or a refusal names the codings`, async () => {
      const { provider, under } = await start(shape);
      for (const coding of CODINGS) {
        const packed = PACKERS[coding]?.(body);
        const response = await send(under, path, packed ?? body, coding);
        const text = await response.text();
        if (packed === undefined) {
          assert.equal(response.status, 415, coding);
          for (const known of Object.keys(PACKERS)) assert.match(text, new RegExp(known));
          continue;
        }
        assert.equal(response.status, 200, text);
        const call = provider.calls.at(-1) ?? assert.fail("no call");
        assert.ok(call.body.equals(packed), coding);
        assert.equal(call.headers["content-encoding"], coding);
      }
      const unpackable = CODINGS.filter((coding) => PACKERS[coding] !== undefined);
      assert.equal(provider.calls.length, unpackable.length);
    });
  }
});
