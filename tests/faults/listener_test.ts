/**
 * Connections and bytes that a listener must handle before, after or during a request: rows 37, 52,
 * 58 and 59 of the list.
 */
// runtimes: all
// long: it waits for deadlines of the listeners
import assert from "node:assert/strict";
import { describe } from "@std/testing/bdd";
import { type ErrorCode, ERRORS } from "../../src/errors/codes.ts";
import { it } from "../support/cases.ts";
import { GOOD_BODY, STREAM_BODY, type UnderTest } from "../support/gateway.ts";
import { answerLong, answerPlain, chunk, COMPLETION } from "../support/provider.ts";
import { timeKept } from "../support/kept_alive.ts";
import { runtime } from "../support/runtimes.ts";
import { useScenes } from "../support/scenes.ts";
import {
  callRaw,
  openRaw,
  parseAnswer,
  type RawConnection,
  toRawRequest,
} from "../support/tcp_peer.ts";
import { until } from "../support/until.ts";

/** `Bun.serve` closes a connection if the next request arrives before the answer. */
const hasPipelining = runtime !== "bun";
const BUN_ANSWERS =
  "Bun.serve answers bytes that are no request itself, with a status and nothing else";
/** The beginning of a TLS record with a ClientHello of 508 bytes. */
const HALF_HELLO = `\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03${"r".repeat(100)}`;

describe("the listener", () => {
  const { start, after } = useScenes();
  const open = (url: string, text: string): RawConnection => {
    const connection = openRaw(url, text);
    after(() => void connection.socket.destroy());
    return connection;
  };
  /** A good request on a connection that stays open. */
  const request = ({ a, headers }: UnderTest, body = GOOD_BODY) =>
    toRawRequest(a, { headers: { ...headers, connection: undefined }, body });
  const countAnswers = ({ received }: RawConnection) =>
    received().split("HTTP/1.1 200 OK").length - 1;

  it.large("silent and incomplete TLS handshakes are closed in time, and the plain listener is not affected [TLS handshakes]", async () => {
    const { provider, under } = await start(answerPlain, { headersMs: 1000 });
    const began = performance.now();
    const incomplete = Array.from(
      { length: 500 },
      (_, number) => open(under.b, number % 2 === 0 ? "" : HALF_HELLO),
    );
    await until(
      () => incomplete.every(({ socket }) => !socket.connecting),
      "all are connected",
    );
    const countOpen = () => incomplete.filter(({ isClosed }) => !isClosed()).length;
    for (let number = 0; number < 10; number++) {
      assert.equal(
        (await callRaw(under.a, { headers: under.headers, body: GOOD_BODY })).status,
        200,
      );
    }
    if (performance.now() - began < 1000) {
      assert.equal(countOpen(), 500, "they were open meanwhile");
    }
    await until(() => countOpen() === 0, "all are closed");
    assert.equal(provider.calls.length, 10);
  });

  for (const host of ["a", "b"] as const) {
    it(`an answer of 4 kB on a kept connection does not wait for the caller's acknowledgement, on host ${host}`, async () => {
      const { provider, under } = await start(answerLong);
      const headers = { ...under.headers, connection: undefined };
      const ms = await timeKept(
        under[host],
        toRawRequest(under[host], { headers, body: GOOD_BODY }),
        50,
      );
      assert.ok(ms < 15, `a call takes ${ms} ms`);
      assert.equal(provider.calls.length, 50);
    });
  }

  it("of two requests in one write either both are answered, or neither is forwarded [pipelining]", async () => {
    const { provider, under } = await start((response) =>
      setTimeout(() => answerPlain(response), 5)
    );
    const caller = open(under.a, request(under).repeat(2));
    await until(
      () => countAnswers(caller) === 2 || caller.isClosed(),
      "both are answered, or neither",
    );
    const answers = countAnswers(caller);
    assert.equal(answers, hasPipelining ? 2 : 0);
    await until(() => under.records.length >= Math.max(answers, 1), "they are settled");
    assert.equal(provider.calls.length, answers);
    assert.equal(under.records.filter(({ outcome }) => outcome === "ok").length, answers);
  });

  it("of a large body and the next request in one write either both are answered, or neither is forwarded [pipelining]", async () => {
    const { provider, under } = await start((response) =>
      setTimeout(() => answerPlain(response), 5)
    );
    const caller = open(under.a, request(under, GOOD_BODY + " ".repeat(300_000)) + request(under));
    await until(
      () => countAnswers(caller) === 2 || caller.isClosed(),
      "both are answered, or neither",
    );
    await until(() => under.records.length >= 1, "they are settled");
    const answers = countAnswers(caller);
    assert.equal(provider.calls.length, answers);
    assert.equal(under.records.filter(({ outcome }) => outcome === "ok").length, answers);
  });

  it("of one and a half requests the first is answered, and the second when its rest has arrived [pipelining]", async () => {
    const { provider, under } = await start();
    const second = request(under);
    const caller = open(under.a, request(under) + second.slice(0, 30));
    await until(() => countAnswers(caller) === 1, "the first is answered");
    caller.socket.write(second.slice(30), "latin1");
    await until(() => countAnswers(caller) === 2, "the second is answered");
    assert.equal(provider.calls.length, 2);
    await until(() => under.records.length === 2, "both are settled");
  });

  for (const [kind, body] of Object.entries({ plain: GOOD_BODY, streamed: STREAM_BODY })) {
    it(`a request that arrives during a ${kind} answer is answered after it, or never forwarded [pipelining]`, async () => {
      let finish = (): void => {};
      const { provider, under } = await start((response, call) => {
        if (call.body.toString() === GOOD_BODY && provider.calls.length > 1) {
          return answerPlain(response);
        }
        response.writeHead(200, {
          "content-type": kind === "plain" ? "application/json" : "text/event-stream",
        });
        response.write(kind === "plain" ? COMPLETION.slice(0, 9) : chunk("a"));
        finish = () =>
          response.end(
            kind === "plain" ? COMPLETION.slice(9) : `${chunk("b", "stop")}data: [DONE]\n\n`,
          );
      });
      const caller = open(under.a, request(under, body));
      await until(() => provider.calls.length === 1, "the first call is made");
      if (kind === "streamed") {
        await until(() => caller.received().includes("data: "), "its answer begins");
      }
      caller.socket.write(request(under), "latin1");
      if (!hasPipelining) {
        await until(
          () => provider.calls[0]?.isCut === true,
          "the connection is lost, and the first call with it",
        );
        assert.equal((await under.settled()).outcome, "client_closed");
        assert.equal(provider.calls.length, 1);
        return;
      }
      finish();
      await until(() => countAnswers(caller) === 2, "both are answered");
      await until(() => under.records.length === 2, "both are settled");
      assert.deepEqual(under.records.map(({ outcome }) => outcome), ["ok", "ok"]);
    });
  }

  it("a caller that sends two requests and leaves causes no open call [pipelining]", async () => {
    const { provider, under } = await start(() => {});
    const caller = open(under.a, request(under).repeat(2));
    await until(
      () => provider.calls.length === 2 || caller.isClosed(),
      "the calls are made, or never will be",
    );
    caller.socket.destroy();
    await until(() => provider.calls.every(({ isCut }) => isCut), "all upstreams are closed");
    await until(() => under.gateway.openExchanges === 0, "all exchanges are over");
    assert.ok(under.records.every(({ outcome }) => outcome === "client_closed"));
  });

  for (const framing of ["announced", "in chunks"]) {
    it(`a caller that reads only after it has sent 20 MB ${framing} gets its 413 [half-closed]`, async () => {
      const { provider, under } = await start(answerPlain, { config: { limits: { body: "1MB" } } });
      const piece = " ".repeat(500_000);
      const size = framing === "announced"
        ? { "content-length": String(40 * piece.length) }
        : { "content-length": undefined, "transfer-encoding": "chunked" };
      const caller = open(
        under.a,
        toRawRequest(under.a, { headers: { ...under.headers, ...size } }),
      );
      const { socket } = caller;
      let failure = "";
      socket.on("error", ({ message }) => failure = message);
      await until(() => !socket.connecting, "it is connected");
      socket.pause();
      for (let sent = 0; sent < 40; sent++) {
        const text = framing === "announced"
          ? piece
          : `${piece.length.toString(16)}\r\n${piece}\r\n`;
        await new Promise((resolve) => socket.write(text, "latin1", resolve));
      }
      if (framing === "in chunks") socket.write("0\r\n\r\n");
      socket.resume();
      const { status, body } = parseAnswer(await caller.closed);
      assert.deepEqual([status, failure], [413, ""]);
      assert.equal(JSON.parse(body).error.code, "body_too_large");
      assert.equal(provider.calls.length, 0);
    });
  }

  it.large("a refused caller that keeps sending is disconnected [half-closed]", async () => {
    const { under } = await start(answerPlain, { config: { limits: { body: "1KB" } } });
    const chunked = { "content-length": undefined, "transfer-encoding": "chunked" };
    const endless = open(
      under.a,
      toRawRequest(under.a, { headers: { ...under.headers, ...chunked } }),
    );
    const timer = setInterval(
      () => endless.socket.destroyed || endless.socket.write(`400\r\n${" ".repeat(1024)}\r\n`),
      50,
    );
    const stopped = open(
      under.a,
      toRawRequest(under.a, { headers: { ...under.headers, "content-length": "99999999" } }),
    );
    await until(() => stopped.received().includes("body_too_large"), "the one is answered");
    await until(() => endless.received().includes("body_too_large"), "the other too");
    await until(() => stopped.isClosed() && endless.isClosed(), "both are closed");
    clearInterval(timer);
  });

  it("a caller that ends its own side counts as gone: its call ends, and the record says so [half-closed]", async () => {
    const { provider, under } = await start(() => {});
    const caller = open(under.a, request(under));
    await until(() => provider.calls.length === 1, "the call is made");
    caller.socket.end();
    await until(() => provider.calls[0]?.isCut === true, "the upstream is closed");
    const { outcome, status } = await under.settled();
    assert.deepEqual([outcome, status], ["client_closed", 499]);
    await until(caller.isClosed, "the connection is closed");
  });

  it.large("half a header, a slow header and a slow body end in bounded time, and other callers are not affected [slow senders]", async () => {
    const { provider, under } = await start(answerPlain, {
      config: { limits: { bodyTime: "2s" } },
    });
    open(under.a, "");
    const half = open(
      under.a,
      "POST /v1/chat/completions HTTP/1.1\r\nhost: a.localhost\r\nx-half: ",
    );
    const drip = open(under.a, "POST /v1/chat/completions HTTP/1.1\r\nhost: a.localhost\r\n");
    const body = open(
      under.a,
      toRawRequest(under.a, { headers: { ...under.headers, "content-length": "10000" } }),
    );
    const timer = setInterval(() => {
      for (const { socket } of [drip, body]) {
        if (!socket.destroyed) socket.write(socket === drip.socket ? "x: 1\r\n" : " ");
      }
    }, 500);
    await until(
      () => body.received().includes("body_timeout"),
      "408 for the dripping body",
    );
    await until(
      () => half.isClosed() && drip.isClosed() && body.isClosed(),
      "all are closed",
    );
    clearInterval(timer);
    assert.equal((await callRaw(under.a, { headers: under.headers, body: GOOD_BODY })).status, 200);
    assert.equal(provider.calls.length, 1);
  });

  it.large("closes the connection of an unknown caller whose small body drips, and keeps it if the body arrives", async () => {
    const { provider, under } = await start(answerPlain, { headersMs: 2000 });
    const stranger = {
      ...under.headers,
      "gateway-auth": "Bearer a-key-of-nobody-0123",
      connection: undefined,
    };
    const half = { headers: { ...stranger, "content-length": "1000" }, body: " ".repeat(500) };
    const dripping = open(under.a, toRawRequest(under.a, half));
    const arriving = open(under.a, toRawRequest(under.a, half));
    for (const { received } of [dripping, arriving]) {
      await until(() => received().startsWith("HTTP/1.1 401"), "it is refused at once");
    }
    arriving.socket.write(" ".repeat(500) + request(under));
    await until(() => countAnswers(arriving) === 1, "its next request is answered");
    const timer = setInterval(() => dripping.isClosed() || dripping.socket.write(" "), 250);
    await until(dripping.isClosed, "it is closed");
    clearInterval(timer);
    assert.equal(provider.calls.length, 1);
  });

  it("an offer to use h2c is ignored, as RFC 9110 allows", async () => {
    const { under } = await start(answerPlain);
    const upgrade = {
      "connection": "Upgrade, HTTP2-Settings",
      "upgrade": "h2c",
      "http2-settings": "AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA",
    };
    const { status, body } = await callRaw(under.a, {
      headers: { ...under.headers, ...upgrade },
      body: GOOD_BODY,
    });
    assert.deepEqual([status, body], [200, COMPLETION]);
    if (runtime !== "deno") return;
    // This is documented in docs/reliability.md. If it changes, update the page.
    const { under: native } = await start(answerPlain, { server: "native" });
    const answer = await callRaw(native.a, {
      headers: { ...native.headers, ...upgrade },
      body: GOOD_BODY,
    });
    assert.deepEqual([answer.status, answer.body], [400, ""]);
  });

  it("HTTP/1.1 without a Host is refused", async () => {
    for (const options of [{}, { server: "native" }] as const) {
      const { provider, under } = await start(answerPlain, options);
      const { status, body } = await callRaw(under.a, {
        headers: { ...under.headers, host: undefined },
        body: GOOD_BODY,
      });
      assert.equal(status, 400);
      if (runtime !== "bun") assert.match(body, /invalid_host/);
      assert.equal(provider.calls.length, 0);
    }
  });

  it("lines that end without a carriage return are refused", async () => {
    const { provider, under } = await start(answerPlain);
    for (
      const text of [
        request(under).replaceAll("\r\n", "\n"),
        request(under).replace("\r\n", "\nx: 1\r\n"),
      ]
    ) {
      const caller = open(under.a, text);
      await until(() => caller.received().includes("\r\n\r\n"), "it is answered");
      assert.match(caller.received(), /^HTTP\/1\.1 (?:400|505) /);
    }
    assert.equal(provider.calls.length, 0);
  });

  for (const server of runtime === "deno" ? [undefined, "native"] as const : [undefined]) {
    it(`other versions than HTTP/1.1 and HTTP/1.0 are refused, and the connection is closed (${server ?? "default"})`, async () => {
      const { provider, under } = await start(answerPlain, server && { server });
      for (const version of [" HTTP/2.0", " HTTP/0.9", " HTTP/1.2", " HTTP/3.0", ""]) {
        const text = request(under).replace(" HTTP/1.1", version);
        assert.match(
          await open(under.a, text + request(under)).closed,
          /^HTTP\/1\.1 (?:400|505) /,
          version,
        );
      }
      assert.equal(provider.calls.length, 0);
      const good = request(under).replace(" HTTP/1.1\r\n", " HTTP/1.0\r\n");
      assert.match(await open(under.a, good).closed, /^HTTP\/1\.[01] 200 /);
    });
  }

  /** Bytes that are not a request, by the code of their refusal. */
  const BAD: Readonly<Record<string, (under: UnderTest) => string>> = {
    headers_too_large: (under) =>
      toRawRequest(under.a, { headers: { ...under.headers, x: "x".repeat(20_000) } }),
    invalid_http: () => "this is no request\r\n\r\n",
    headers_timeout: () => "POST /v1/chat/completions HTTP/1.1\r\nhost: a.localhost\r\n",
  };
  for (const [code, toText] of Object.entries(BAD) as [ErrorCode, (under: UnderTest) => string][]) {
    const { status, type, message } = ERRORS[code];
    it.notOn("bun", BUN_ANSWERS, `${code} answers ${status}`, async () => {
      const { under } = await start(answerPlain, { headersMs: 1000 });
      const { status: answered, headers, body } = parseAnswer(
        await open(under.a, toText(under)).closed,
      );
      assert.equal(answered, status);
      assert.deepEqual(JSON.parse(body), { error: { message, type, param: null, code } });
      assert.equal(headers["content-type"], "application/json");
      assert.equal(headers["sallyport-error"], code);
      assert.equal(headers["x-should-retry"], "false");
      assert.equal(headers.connection, "close");
      assert.match(headers["x-request-id"] ?? "", /^[\da-f-]{36}$/);
    });
  }

  it("a header of 20 KB is refused with 431", async () => {
    const { under } = await start(answerPlain);
    const headers = { ...under.headers, x: "x".repeat(20_000) };
    assert.equal((await callRaw(under.a, { headers, body: GOOD_BODY })).status, 431);
  });

  it.notOn(
    "bun",
    BUN_ANSWERS,
    "a refusal does not land in the middle of an answer",
    async () => {
      const { provider, under } = await start((response) => {
        response.writeHead(200, { "content-type": "text/event-stream" });
        response.write(chunk("a"));
      });
      const caller = open(under.a, request(under, STREAM_BODY));
      await until(() => caller.received().includes("data: "), "the stream begins");
      caller.socket.write("this is no request\r\n\r\n");
      await until(caller.isClosed, "the connection is closed");
      assert.equal(caller.received().split("HTTP/1.1").length, 2);
      await until(() => provider.calls[0]?.isCut === true, "the upstream is closed");
      assert.equal((await under.settled()).outcome, "client_closed");
    },
  );
});
