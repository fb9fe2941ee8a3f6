/** Plain answers through the gateway: requests and answers pass unchanged. */
// runtimes: all, old node, workers
import assert from "node:assert/strict";
import { afterEach, beforeEach, describe, it } from "@std/testing/bdd";
import { COMPLETION, type Provider, startProvider } from "../support/provider.ts";
import { GOOD_BODY, startUnderTest, type UnderTest, UPSTREAM_KEY } from "../support/gateway.ts";
import { callRaw } from "../support/tcp_peer.ts";

describe("a small plain answer", () => {
  it("that breaks off is an error answer, because its header was not sent yet", async () => {
    const provider = await startProvider((response) => {
      response.writeHead(200, { "content-type": "application/json", "content-length": "1000" });
      response.write("{", () => response.destroy());
    });
    const under = await startUnderTest({ upstreams: { a: provider.url } });
    const { status, headers } = await callRaw(under.a, { headers: under.headers, body: GOOD_BODY });
    assert.deepEqual([status, headers["sallyport-error"]], [502, "upstream_disconnected"]);
    const { status: noted, outcome } = await under.settled();
    assert.deepEqual([noted, outcome], [502, "upstream_cut"]);
    await under.close();
    await provider.close();
  });

  it("that stops is one too", async () => {
    const provider = await startProvider((response) => {
      response.writeHead(200, { "content-type": "application/json", "content-length": "1000" });
      response.write("{");
    });
    const under = await startUnderTest({
      upstreams: { a: provider.url },
      provider: { deadlines: { idle: "200ms" } },
    });
    const { status, headers } = await callRaw(under.a, { headers: under.headers, body: GOOD_BODY });
    assert.deepEqual([status, headers["sallyport-error"]], [504, "upstream_idle_timeout"]);
    await under.close();
    await provider.close();
  });
});

describe("a plain answer", () => {
  it("keeps all its bytes, for any values and any length", async () => {
    let bytes = new Uint8Array();
    const provider = await startProvider((response) => {
      response.writeHead(200, { "content-type": "audio/mpeg", "content-length": bytes.length });
      response.end(bytes);
    });
    const under = await startUnderTest({ upstreams: { a: provider.url } });
    for (const length of [256, 65_535, 65_536, 65_537, 300_000]) {
      bytes = Uint8Array.from({ length }, (_, index) => index % 257);
      const { headers } = under;
      const body = '{"model":"tts-1","input":"Hi","voice":"x"}';
      const answer = await fetch(`${under.a}/v1/audio/speech`, { method: "POST", headers, body });
      assert.deepEqual(new Uint8Array(await answer.arrayBuffer()), bytes);
    }
    await under.close();
    await provider.close();
  });
});

describe("an answer in text", () => {
  const SAID =
    '{"usage":{"type":"tokens","input_tokens":0,"output_tokens":0,"total_tokens":0},"embedding":[]}';
  for (const text of [SAID, "word ".repeat(40_000) + SAID]) {
    it(`states no tokens for any ${text.length} characters say: they can be the caller's words`, async () => {
      const provider = await startProvider((response) => {
        response.writeHead(200, { "content-type": "Text/Plain; charset=utf-8" });
        response.end(text);
      });
      const under = await startUnderTest({ upstreams: { a: provider.url } });
      try {
        const body = new FormData();
        body.set("model", "whisper-1");
        body.set("response_format", "text");
        body.set("file", new Blob(["RIFF"]), "a.wav");
        const { "content-type": _, ...headers } = under.headers;
        const answer = await fetch(`${under.a}/v1/audio/transcriptions`, {
          method: "POST",
          headers,
          body,
        });
        assert.equal(await answer.text(), text);
        const { usage, isEstimated } = await under.settled();
        assert.equal(isEstimated, true);
        assert.ok((usage?.output ?? 0) >= text.length / 8, `${usage?.output} tokens`);
      } finally {
        await under.close();
        await provider.close();
      }
    });
  }
});

describe("a plain chat completion", () => {
  let provider: Provider;
  let under: UnderTest;
  beforeEach(async () => {
    provider = await startProvider();
    under = await startUnderTest({ upstreams: { a: provider.url } });
  });
  afterEach(async () => {
    await under.close();
    await provider.close();
  });

  it("returns whole, over http and https", async () => {
    for (const host of [under.a, under.b]) {
      const response = await fetch(`${host}/v1/chat/completions`, {
        method: "POST",
        headers: under.headers,
        body: GOOD_BODY,
      });
      assert.equal(response.status, 200);
      assert.equal(response.headers.get("content-type"), "application/json");
      assert.match(response.headers.get("x-request-id") ?? "", /^[0-9a-f-]{36}$/);
      assert.equal(await response.text(), COMPLETION);
    }
    const record = await under.settled(2);
    assert.equal(record.outcome, "ok");
    assert.equal(record.bytesIn, GOOD_BODY.length);
    assert.equal(record.bytesOut, COMPLETION.length);
    assert.equal(record.keyId, "tester");
    assert.equal(record.model, "test-1");
  });

  it("is forwarded byte for byte, with the caller's upstream key and without the gateway key", async () => {
    const body =
      ' {"seed":9223372036854775807, "model":"m","messages":[{"role":"user","content":"\\ud800"}],\n"x":1e400}';
    const headers = {
      ...under.headers,
      cookie: "session=1",
      "x-forwarded-for": "10.0.0.1",
      "openai-project": "p",
    };
    const response = await fetch(`${under.a}/v1/chat/completions`, {
      method: "POST",
      headers,
      body,
    });
    assert.equal(response.status, 200);
    await response.text();
    const [call] = provider.calls;
    assert.equal(call?.body.toString(), body);
    assert.equal(call?.path, "/v1/chat/completions");
    assert.equal(call?.headers.authorization, `Bearer ${UPSTREAM_KEY}`);
    assert.equal(call?.headers["openai-project"], "p");
    assert.equal(call?.headers["accept-encoding"], "identity");
    for (const name of ["gateway-auth", "cookie", "x-forwarded-for"]) {
      assert.equal(call?.headers[name], undefined);
    }
    assert.equal(call?.headers.host, new URL(provider.url).host);
  });
});
