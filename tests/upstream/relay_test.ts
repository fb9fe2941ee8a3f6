/**
 * Deadlines of the relay of an answer whose caller has left. A test controls provider and caller.
 */
// runtimes: once
import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { describe, it } from "@std/testing/bdd";
import { OPENAI_CHAT } from "../../src/dialects/openai_chat.ts";
import { GatewayError } from "../../src/errors/gateway_error.ts";
import { Exchange } from "../../src/exchange/exchange.ts";
import type { ByteSink, PushedBody } from "../../src/http/message.ts";
import { RelayedBody } from "../../src/upstream/relay.ts";
import { chunk } from "../support/provider.ts";
import { FakeClock } from "../support/recording_model.ts";

const DEADLINES = {
  idleMs: 10_000,
  firstEventMs: 10_000,
  keepAlive: "",
  keepAliveMs: 0,
  writeStallMs: 5000,
};

/** An answer whose provider a test controls. */
class Answer implements PushedBody {
  sink: ByteSink | undefined;
  isCancelled = false;

  pushTo(sink: ByteSink): () => void {
    this.sink = sink;
    return () => {};
  }

  cancel(): void {
    this.isCancelled = true;
  }
}

describe("an answer that is read to its end although its caller has left", () => {
  const start = (isStalled: boolean) => {
    const clock = new FakeClock();
    const exchange = new Exchange(clock);
    exchange.unbind();
    const answer = new Answer();
    const scanner = OPENAI_CHAT.createScanner(1);
    const relay = new RelayedBody(answer, {
      exchange,
      scanner,
      countsTokens: true,
      ...DEADLINES,
      clock,
    });
    relay.pushTo({ write: () => !isStalled, end() {}, fail() {} });
    answer.sink?.write(Buffer.from(chunk("a")));
    return { clock, exchange, answer, relay };
  };

  it("ends when the provider is silent, also after the caller has stalled", async () => {
    const { clock, exchange, answer } = start(true);
    await clock.pass(DEADLINES.writeStallMs);
    assert.deepEqual([answer.isCancelled, exchange.isSettled], [false, false], "it is read on");
    await clock.pass(DEADLINES.idleMs - 1);
    assert.equal(answer.isCancelled, false);
    await clock.pass(1);
    assert.deepEqual([answer.isCancelled, exchange.isSettled], [true, true]);
    assert.equal(clock.waiting, 0);
  });

  it("continues while the provider sends, and has no timer left at its end", async () => {
    const { clock, exchange, answer } = start(true);
    await clock.pass(DEADLINES.writeStallMs);
    for (let times = 0; times < 5; times++) {
      await clock.pass(DEADLINES.idleMs - 1);
      answer.sink?.write(Buffer.from(chunk("b")));
    }
    answer.sink?.write(Buffer.from(`${chunk("c", "stop")}data: [DONE]\n\n`));
    answer.sink?.end();
    assert.deepEqual([exchange.isSettled, clock.waiting], [true, 0]);
  });

  it("counts the bytes that its caller receives, if the call was stopped before the answer began", () => {
    const clock = new FakeClock();
    const exchange = new Exchange(clock);
    exchange.unbind();
    exchange.endCallerPart(new GatewayError("exchange_stopped"));
    const scanner = OPENAI_CHAT.createScanner(1);
    const relay = new RelayedBody(new Answer(), {
      exchange,
      scanner,
      countsTokens: true,
      ...DEADLINES,
      clock,
    });
    let bytes = 0;
    relay.pushTo({ write: (chunk) => (bytes += chunk.byteLength) > 0, end() {}, fail() {} });
    assert.ok(bytes > 0);
    assert.equal(exchange.bytesOut, bytes);
  });

  it("ends when the provider is silent after the caller has left", async () => {
    const { clock, exchange, answer, relay } = start(false);
    relay.cancel();
    await clock.pass(DEADLINES.idleMs);
    assert.deepEqual([answer.isCancelled, exchange.isSettled, clock.waiting], [true, true, 0]);
  });
});

describe("an answer whose caller leaves while a comment is sent to it", () => {
  it("ends, and leaves no timer", async () => {
    const clock = new FakeClock();
    const exchange = new Exchange(clock);
    const answer = new Answer();
    const relay = new RelayedBody(answer, {
      exchange,
      scanner: OPENAI_CHAT.createScanner(1),
      countsTokens: true,
      ...DEADLINES,
      keepAlive: ": keep-alive\n\n",
      keepAliveMs: 1000,
      clock,
    });
    const leaveAtComment = (bytes: Uint8Array) => {
      if (Buffer.from(bytes).toString().startsWith(":")) relay.cancel();
      return true;
    };
    relay.pushTo({ write: leaveAtComment, end() {}, fail() {} });
    answer.sink?.write(Buffer.from(chunk("a")));
    await clock.pass(1000);
    assert.deepEqual([answer.isCancelled, exchange.isSettled, clock.waiting], [true, true, 0]);
  });
});
