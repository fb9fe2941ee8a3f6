/**
 * HTTP/2, which Deno's listener accepts over TLS: broken requests and answers, callers that leave,
 * limits of one connection.
 */
// runtimes: deno
import assert from "node:assert/strict";
import { type ClientHttp2Session, type ClientHttp2Stream, connect, constants } from "node:http2";
import { describe, it } from "@std/testing/bdd";
import { GOOD_BODY, STREAM_BODY, type UnderTest } from "../support/gateway.ts";
import { type Answering, answerLong, answerPlain, chunk, COMPLETION } from "../support/provider.ts";
import { useScenes } from "../support/scenes.ts";
import { until } from "../support/until.ts";

/** A request over HTTP/2 and its answer. */
interface Asked {
  readonly stream: ClientHttp2Stream;
  status(): number | undefined;
  received(): string;
  /** The code that ended the stream. `undefined` while it is open. */
  code(): number | undefined;
}

describe("HTTP/2", () => {
  const { start: startBoth, after } = useScenes();
  const start = async (
    answering: Answering = answerPlain,
    config: Record<string, unknown> = {},
  ) => {
    const { provider, under } = await startBoth(answering, { config });
    const session = connect(under.b, { rejectUnauthorized: false });
    session.on("error", () => {});
    after(() => session.destroy());
    return { provider, under, session };
  };
  const ask = (
    session: ClientHttp2Session,
    under: UnderTest,
    extra: Record<string, string> = {},
  ): Asked => {
    const path = "/v1/chat/completions";
    const stream = session.request({
      ":method": "POST",
      ":path": path,
      ...under.headers,
      ...extra,
    });
    let status: number | undefined;
    let received = "";
    let code: number | undefined;
    stream.setEncoding("utf8");
    stream.on("response", (headers) => status = headers[":status"]);
    stream.on("data", (text: string) => received += text);
    stream.on("error", () => {});
    stream.on("close", () => code = stream.rstCode);
    return { stream, status: () => status, received: () => received, code: () => code };
  };
  const isOver = ({ code }: Asked) => code() !== undefined;

  it("is answered like HTTP/1.1, many requests at a time", async () => {
    const { provider, under, session } = await start();
    const all = Array.from({ length: 50 }, () => ask(session, under));
    for (const { stream } of all) stream.end(GOOD_BODY);
    await until(() => all.every(isOver), "all are answered");
    for (const { status, received, code } of all) {
      assert.deepEqual([status(), received(), code()], [
        200,
        COMPLETION,
        constants.NGHTTP2_NO_ERROR,
      ]);
    }
    assert.equal(provider.calls.length, 50);
    assert.equal(provider.calls[0]?.body.toString(), GOOD_BODY);
  });

  it("loses no header with white space around its value, such as a caller's own key", async () => {
    const { provider, under, session } = await start();
    const good = ask(session, under, { "openai-beta": " x\t" });
    const bad = ["Bearer sk-own ", " Bearer sk-own", " "].map((authorization) =>
      ask(session, under, { authorization })
    );
    for (const { stream } of [good, ...bad]) stream.end(GOOD_BODY);
    await until(() => [good, ...bad].every(isOver), "all are answered");
    assert.equal(good.status(), 200);
    assert.deepEqual(provider.calls.map(({ headers }) => headers["openai-beta"]), ["x"]);
    for (const { received } of bad) assert.match(received(), /"code":"invalid_upstream_auth"/);
  });

  it("answers 4 kB without waiting for the caller's acknowledgement", async () => {
    const { under, session } = await start((response) => answerLong(response));
    const measureMedian = async () => {
      const times: number[] = [];
      for (let call = 0; call < 50; call++) {
        const began = performance.now();
        const asked = ask(session, under);
        asked.stream.end(GOOD_BODY);
        await new Promise((resolve) => asked.stream.once("close", resolve));
        times.push(performance.now() - began);
        assert.equal(asked.status(), 200);
      }
      return times.sort((one, other) => one - other)[25] ?? Infinity;
    };
    // With a wait a call takes 44 ms. On a busy machine it can take as long without one, but not
    // always.
    await until(async () => await measureMedian() < 35, "a call takes less than 35 ms");
  });

  it("does not forward a body whose stream was reset", async () => {
    const { provider, under, session } = await start();
    const asked = ask(session, under, { "content-length": String(GOOD_BODY.length) });
    asked.stream.write(GOOD_BODY.slice(0, 20));
    const whole = ask(session, under);
    asked.stream.close(constants.NGHTTP2_CANCEL);
    whole.stream.end(GOOD_BODY);
    await until(() => isOver(whole) && under.records.length === 2, "both are over");
    assert.deepEqual(under.records.map(({ outcome }) => outcome).sort(), ["client_closed", "ok"]);
    assert.equal(provider.calls.length, 1);
  });

  it("cancels the call of a stream that its caller resets", async () => {
    const { provider, under, session } = await start((response) => {
      response.writeHead(200, { "content-type": "text/event-stream" });
      response.write(chunk("a"));
    });
    const asked = ask(session, under);
    asked.stream.end(STREAM_BODY);
    await until(() => asked.received().includes("data: "), "it begins");
    asked.stream.close(constants.NGHTTP2_CANCEL);
    await until(() => provider.calls[0]?.isCut === true, "the upstream is closed");
    assert.equal((await under.settled()).outcome, "client_closed");
  });

  it("resets the stream of a plain answer that breaks off", async () => {
    const { under, session } = await start((response) => {
      response.writeHead(200, { "content-type": "application/json", "content-length": 100_000 });
      response.write("x".repeat(80_000), () => response.destroy());
    });
    const asked = ask(session, under);
    asked.stream.end(GOOD_BODY);
    await until(() => isOver(asked), "it is over");
    assert.deepEqual([asked.status(), asked.code()], [200, constants.NGHTTP2_INTERNAL_ERROR]);
    assert.equal((await under.settled()).outcome, "upstream_cut");
  });

  it("refuses a large body while it still arrives, and keeps the connection", async () => {
    const { provider, under, session } = await start(answerPlain, { limits: { body: "100KB" } });
    const refused = ask(session, under);
    for (let sent = 0; sent < 20; sent++) refused.stream.write("x".repeat(16_000));
    await until(() => refused.status() === 413, "it is refused");
    refused.stream.end();
    await until(() => isOver(refused), "it is over");
    assert.equal(JSON.parse(refused.received()).error.code, "body_too_large");
    const next = ask(session, under);
    next.stream.end(GOOD_BODY);
    await until(() => isOver(next), "the next is answered");
    assert.equal(next.status(), 200);
    assert.equal(provider.calls.length, 1);
  });

  it("buffers only a bounded part of a stream whose caller does not read", async () => {
    let sent = 0;
    const { under, session } = await start((response) => {
      response.writeHead(200, { "content-type": "application/json" });
      const send = () => {
        while (sent < 60_000_000) {
          sent += 100_000;
          if (!response.write("x".repeat(100_000))) return void response.once("drain", send);
        }
        response.end();
      };
      send();
    });
    const asked = ask(session, under);
    asked.stream.pause();
    asked.stream.end(GOOD_BODY);
    await until(() => asked.status() === 200, "it begins");
    let before = -1;
    await until(() => {
      const isStill = sent === before;
      before = sent;
      return isStill;
    }, "the provider waits");
    assert.ok(sent < 60_000_000, `${sent} bytes are held`);
    asked.stream.resume();
    await until(() => isOver(asked), "all of it is read");
    assert.equal(asked.received().length, 60_000_000);
    assert.equal((await under.settled()).outcome, "ok");
  });

  it("sends an answer completely, however long a caller that keeps reading needs", async () => {
    const size = 12_000_000;
    const { under, session } = await start((response) => {
      response.writeHead(200, { "content-type": "application/json", "content-length": size });
      response.end("x".repeat(size));
    }, { limits: { writeStall: "400ms" } });
    const asked = ask(session, under);
    asked.stream.on("data", () => asked.stream.pause());
    const timer = setInterval(() => asked.stream.resume(), 5);
    after(() => clearInterval(timer));
    asked.stream.end(GOOD_BODY);
    await until(() => isOver(asked), "it is over", 60_000);
    assert.deepEqual([asked.code(), asked.received().length], [constants.NGHTTP2_NO_ERROR, size]);
    assert.equal((await under.settled()).outcome, "ok");
  });

  it("resets the stream of a caller that stops reading, and the connection's other streams continue", async () => {
    const { under, session } = await start((response, { body }) => {
      if (!body.toString().includes('"stream":true')) return answerPlain(response);
      response.writeHead(200, { "content-type": "text/event-stream" });
      const send = () => {
        while (!response.destroyed && response.write(chunk("x".repeat(10_000))));
      };
      response.on("drain", send);
      send();
    }, { limits: { writeStall: "400ms" } });
    const stalled = ask(session, under);
    stalled.stream.pause();
    stalled.stream.end(STREAM_BODY);
    await until(() => under.records.length === 1, "the stalled one counts as gone");
    const next = ask(session, under);
    next.stream.end(GOOD_BODY);
    await until(() => isOver(next), "the next is answered");
    assert.deepEqual([next.status(), under.records[0]?.outcome], [200, "client_closed"]);
  });

  it("releases a stream that is answered, although its request does not end", async () => {
    const { under, session } = await start();
    const refused = ask(session, under, { "gateway-auth": "Bearer a-key-of-nobody-0123" });
    refused.stream.write("{");
    await until(() => refused.status() === 401, "it is refused");
    await until(() => isOver(refused), "its stream is released");
    assert.equal(refused.code(), constants.NGHTTP2_NO_ERROR);
    const next = ask(session, under);
    next.stream.end(GOOD_BODY);
    await until(() => isOver(next), "the next is answered");
    assert.equal(next.status(), 200);
  });
});
