/** The caller's body in requests to the gateway: limited in size and time, strictly JSON. */
// runtimes: all, workers
import assert from "node:assert/strict";
import { afterEach, describe } from "@std/testing/bdd";
import { it } from "../support/cases.ts";
import {
  type Answering,
  answerPlain,
  answerStream,
  COMPLETION,
  type Provider,
  startProvider,
  stream,
} from "../support/provider.ts";
import { GOOD_BODY, startUnderTest, type UnderTest } from "../support/gateway.ts";
import { callRaw, openRaw, parseAnswer, toRawRequest } from "../support/tcp_peer.ts";
import { until } from "../support/until.ts";

describe("a caller's body", () => {
  let provider: Provider;
  let under: UnderTest;
  const start = async (
    limits: Record<string, string> = {},
    messages = "ordered",
    answering?: Answering,
  ) => {
    provider = await startProvider(answering);
    under = await startUnderTest({
      upstreams: { a: provider.url },
      config: { limits },
      provider: { messages },
    });
  };
  afterEach(async () => {
    await under.close();
    await provider.close();
  });
  const chunked = (...chunks: string[]) =>
    toRawRequest(under.a, {
      headers: { ...under.headers, "content-length": undefined, "transfer-encoding": "chunked" },
      body: chunks.map((text) => `${text.length.toString(16)}\r\n${text}\r\n`).join(""),
    });

  it("of a megabyte arrives whole, over http and https", async () => {
    await start();
    const image = `data:image/png;base64,${"iVBORw0KGgo".repeat(100_000)}`;
    const content = [{ type: "image_url", image_url: { url: image } }];
    const body = JSON.stringify({ model: "m", messages: [{ role: "user", content }] });
    for (const host of [under.a, under.b]) {
      const response = await fetch(`${host}/v1/chat/completions`, {
        method: "POST",
        headers: under.headers,
        body,
      });
      assert.equal(response.status, 200);
      await response.text();
    }
    assert.deepEqual(provider.calls.map((call) => call.body.toString() === body), [true, true]);
  });

  it.large("arrives whole also when many are sent at once", async () => {
    await start({ bodies: "200MB" });
    const content = "x".repeat(3_500_000);
    const bodyOf = (index: number) =>
      JSON.stringify({
        model: `m${index}`,
        messages: [{ role: "user", content: content + index }],
      });
    const failures = await Promise.all(Array.from({ length: 24 }, async (_, index) => {
      const init = { method: "POST", headers: under.headers, body: bodyOf(index) };
      const response = await fetch(`${under.a}/v1/chat/completions`, init);
      const text = await response.text();
      return response.status === 200 ? undefined : `${response.status} ${text}`;
    }));
    assert.deepEqual(failures.filter((failure) => failure !== undefined), []);
    const sent = new Set(provider.calls.map((call) => call.body.toString()));
    assert.ok(
      Array.from({ length: 24 }, (_, index) => bodyOf(index)).every((body) => sent.has(body)),
    );
  });

  it("can come in chunks, and is forwarded with its length", async () => {
    await start();
    const half = GOOD_BODY.length >> 1;
    const raw = openRaw(
      under.a,
      `${chunked(GOOD_BODY.slice(0, half), GOOD_BODY.slice(half))}0\r\n\r\n`,
    );
    assert.equal(parseAnswer(await raw.closed).status, 200);
    assert.equal(provider.calls[0]?.body.toString(), GOOD_BODY);
    assert.equal(provider.calls[0]?.headers["content-length"], String(GOOD_BODY.length));
  });

  it.notOn(
    "workers",
    "workerd or the edge reads the bytes first",
    "over the limit is refused before it is read, and in chunks as soon as it exceeds the limit [announced size] [chunked size]",
    async () => {
      await start({ body: "1KB" });
      const declared = openRaw(
        under.a,
        toRawRequest(under.a, {
          headers: { ...under.headers, "content-length": "100000" },
          body: "{",
        }),
      );
      await until(
        () => declared.received().includes("body_too_large"),
        "413 for the declared length",
      );
      declared.socket.destroy();
      const counted = openRaw(under.a, chunked(" ".repeat(600), " ".repeat(600)));
      await until(
        () => counted.received().includes("body_too_large"),
        "413 for the counted length",
      );
      counted.socket.destroy();
      for (const raw of [declared, counted]) {
        const { status, headers } = parseAnswer(raw.received());
        assert.equal(status, 413);
        assert.equal(headers.connection, "close");
        assert.match(
          raw.received(),
          /Cannot accept the body: it is larger than this gateway allows: the limit is 1 KB"/,
        );
      }
      assert.equal(provider.calls.length, 0);
    },
  );

  it("that stops arriving is refused at the deadline [stopped body]", async () => {
    await start({ bodyTime: "300ms" });
    const announced = (length: string) =>
      toRawRequest(under.a, { headers: { ...under.headers, "content-length": length }, body: "{" });
    for (const bytes of [chunked("{"), announced("200"), announced("200000")]) {
      const raw = openRaw(under.a, bytes);
      await until(() => raw.received().includes("body_timeout"), "408");
      raw.socket.destroy();
      assert.equal((await under.settled()).code, "body_timeout");
    }
    assert.equal(provider.calls.length, 0);
  });

  it("that breaks off because the caller leaves is not an error", async () => {
    await start();
    const raw = openRaw(under.a, chunked("{"));
    await until(() => raw.socket.bytesWritten > 0, "the first piece is sent");
    setTimeout(() => raw.socket.destroy(), 50);
    const { outcome, status } = await under.settled();
    assert.deepEqual({ outcome, status }, { outcome: "client_closed", status: 499 });
    assert.equal(provider.calls.length, 0);
  });

  it("must be declared as JSON, in UTF-8 [media type]", async () => {
    await start();
    const types: Record<string, number> = {
      "application/json": 200,
      "application/json; charset=utf-8": 200,
      'Application/JSON;charset="UTF-8"': 200,
      "application/json; charset=latin1": 415,
      "text/plain": 415,
      "application/x-www-form-urlencoded": 415,
      "multipart/form-data; boundary=x": 415,
      "application/jsonp": 415,
    };
    for (const [type, expected] of Object.entries(types)) {
      const { status } = await callRaw(under.a, {
        headers: { ...under.headers, "content-type": type },
        body: GOOD_BODY,
      });
      assert.equal(status, expected, type);
    }
    const none = await callRaw(under.a, {
      headers: { ...under.headers, "content-type": undefined },
      body: GOOD_BODY,
    });
    assert.equal(none.status, 415);
    const coded = { ...under.headers, "content-encoding": "identity" };
    assert.equal((await callRaw(under.a, { headers: coded, body: GOOD_BODY })).status, 200);
  });

  it("is checked down to its messages, unless the configuration leaves that to the provider", async () => {
    const body = JSON.stringify({
      model: "m",
      messages: [{ role: "assistant", content: [] }, { role: "system" }],
    });
    await start();
    const refused = await callRaw(under.a, { headers: under.headers, body });
    assert.equal(refused.status, 400);
    assert.match(
      refused.body,
      /This is a rule of the gateway: its operator turns it off with \\"messages\\": \\"any\\"/,
    );
    assert.equal(provider.calls.length, 0);
    await under.close();
    await provider.close();
    await start({}, "any");
    assert.equal((await callRaw(under.a, { headers: under.headers, body })).status, 200);
    assert.equal(provider.calls[0]?.body.toString(), body);
    const empty = await callRaw(under.a, {
      headers: under.headers,
      body: '{"model":"m","messages":[]}',
    });
    assert.equal(JSON.parse(empty.body).error.param, "messages");
  });

  it("can ask for a stream in a provider's own way: the type of the answer decides whether it is one", async () => {
    let isStream = true;
    await start(
      {},
      "ordered",
      (response) => isStream ? answerStream(response, stream("a")) : answerPlain(response),
    );
    const headers = { ...under.headers, "x-stainless-timeout": "1" };
    const body = GOOD_BODY.replace("{", '{"stream":1,');
    assert.equal((await callRaw(under.a, { headers, body })).body, stream("a"));
    assert.equal((await under.settled()).stream, true);
    isStream = false;
    assert.equal((await callRaw(under.a, { headers, body })).body, COMPLETION);
    assert.equal((await under.settled(2)).stream, false);
    assert.equal(provider.calls[0]?.body.toString(), body);
  });

  it("that was not read does not break the connection for the next request", async () => {
    await start();
    const wrong = toRawRequest(under.a, {
      headers: {
        ...under.headers,
        "gateway-auth": "Bearer not-a-key-of-this-gateway",
        connection: "keep-alive",
      },
      body: GOOD_BODY,
    });
    const good = toRawRequest(under.a, { headers: under.headers, body: GOOD_BODY });
    const raw = openRaw(under.a, wrong);
    await until(() => raw.received().includes("invalid_gateway_key"), "401");
    if (!raw.isClosed()) raw.socket.write(good);
    await raw.closed;
    assert.match(raw.received(), /HTTP\/1\.1 401[\s\S]*HTTP\/1\.1 200/);
  });
});
