/** A transport over simulated connections: a test sends all their events, in any order. */
// runtimes: all
import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { setImmediate } from "node:timers";
import { beforeEach, describe, it } from "@std/testing/bdd";
import { GatewayError } from "../../src/errors/gateway_error.ts";
import { systemClock } from "../../src/exchange/clock.ts";
import { NeverSent, type Transport } from "../../src/upstream/transport.ts";
import { createHttp1Transport } from "../../src/upstream/http1/client.ts";
import type { ClientSocket, SocketEvents } from "../../src/upstream/http1/connection.ts";
import { sourceOf, textOf, toUpstreamCall } from "../support/upstream_call.ts";

const GOOD = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";

/** A connection that does nothing unasked, except for reporting its close. */
class Dialled implements ClientSocket {
  isAlive = true;
  isFlushed = true;
  isPaused = false;
  isHolding = true;
  written = "";
  readonly events: SocketEvents;

  constructor(events: SocketEvents) {
    this.events = events;
  }

  write(bytes: Uint8Array): void {
    assert.ok(this.isAlive);
    this.written += Buffer.from(bytes).toString("latin1");
  }

  pause(): void {
    this.isPaused = true;
  }

  resume(): void {
    this.isPaused = false;
  }

  ref(): void {
    this.isHolding = true;
  }

  unref(): void {
    this.isHolding = false;
  }

  destroy(): void {
    if (!this.isAlive) return;
    this.isAlive = false;
    this.events.closed(undefined); // at once, as Bun does
  }

  tell(text: string): void {
    this.events.received(Buffer.from(text, "latin1"));
  }
}

describe("a transport with simulated connections", () => {
  let transport: Transport;
  let dialled: Dialled[];
  let nowMs: number;
  /** The callbacks of background timers, in the order in which they were set. */
  let timers: (() => void)[];
  beforeEach(() => {
    dialled = [];
    timers = [];
    nowMs = 0;
    transport = createHttp1Transport((_, events) => {
      const socket = new Dialled(events);
      dialled.push(socket);
      return socket;
    }, {
      ...systemClock,
      monotonic: () => nowMs,
      timer(ms, fire, options) {
        if (!options?.isBackground) return systemClock.timer(ms, fire, options);
        timers.push(fire);
        return () => {};
      },
    });
  });
  const send = (controller = new AbortController()) =>
    transport.send(toUpstreamCall("http://upstream.invalid/", { controller }));
  /** A call whose connection is open, and which has been sent. */
  const sent = () => {
    const answered = send();
    answered.catch(() => {});
    const socket = dialled.at(-1) ?? assert.fail("nothing is dialled");
    socket.events.opened();
    return { answered, socket };
  };
  /** A kept connection whose call is answered. */
  const kept = async (): Promise<Dialled> => {
    const { answered, socket } = sent();
    socket.tell(GOOD);
    assert.equal(await textOf(await answered), "{}");
    return socket;
  };
  const isBroken = (error: unknown) => error instanceof Error && !(error instanceof NeverSent);

  it("sends a call once, however often its connection reports that it is open", async () => {
    const { answered, socket } = sent();
    socket.events.opened(); // as after a second TLS handshake
    assert.equal(socket.written.split("POST").length, 2);
    socket.tell(GOOD);
    assert.equal(await textOf(await answered), "{}");
  });

  it("accepts no answer from a peer that is not verified yet", async () => {
    const answered = send();
    dialled[0]?.tell(GOOD);
    await assert.rejects(answered, NeverSent);
    assert.equal(dialled[0]?.isAlive, false);
    assert.equal(dialled[0]?.written, "");
    await kept();
    assert.equal(dialled.length, 2);
  });

  it("gives up at once on an answer whose connection ends too early, even if it never closes", async () => {
    for (
      const begun of ["", "HTTP/1.1 200 OK\r\n", "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{"]
    ) {
      const { answered, socket } = sent();
      socket.tell(begun);
      socket.events.ended();
      await assert.rejects(async () => await textOf(await answered), isBroken);
      assert.equal(socket.isAlive, false);
    }
    const answered = send();
    dialled.at(-1)?.events.ended();
    await assert.rejects(answered, NeverSent);
  });

  it("does not reuse a connection that the other side has ended, or on which it has spoken unasked", async () => {
    const tellings: ((socket: Dialled) => unknown)[] = [
      (socket) => socket.events.ended(),
      (socket) => socket.tell(GOOD),
      (socket) => socket.tell("HTTP/1.1 408 Request Timeout\r\nconnection: close\r\n\r\n"),
      (socket) => socket.events.closed(new Error("reset")),
    ];
    for (const tell of tellings) {
      const socket = await kept();
      const { length } = dialled;
      tell(socket);
      await kept();
      assert.equal(dialled.length, length + 1);
      assert.equal(socket.written.split("POST").length, 2);
      dialled.at(-1)?.destroy();
    }
  });

  it("does not reuse a connection whose request was not sent completely", async () => {
    const { answered, socket } = sent();
    socket.isFlushed = false;
    socket.tell(GOOD);
    assert.equal(await textOf(await answered), "{}");
    assert.equal(socket.isAlive, false);
  });

  it("lets the next call read on a connection whose last reader had stopped", async () => {
    const { answered, socket } = sent();
    const size = 1_000_000;
    socket.tell(`HTTP/1.1 200 OK\r\ncontent-length: ${size}\r\n\r\n`);
    socket.tell("a".repeat(size / 2));
    assert.equal(socket.isPaused, true);
    socket.tell("a".repeat(size / 2));
    assert.equal(socket.isPaused, false, "no other code would resume it");
    const body = sourceOf(await answered);
    const next = send();
    assert.equal(dialled.length, 1);
    socket.tell("HTTP/1.1 200 OK\r\ncontent-length: 200000\r\n\r\n");
    socket.tell("b".repeat(100_000));
    assert.equal(socket.isPaused, true);
    assert.equal((await body.read())?.byteLength, size);
    assert.equal(await body.read(), undefined);
    body.cancel();
    assert.equal(socket.isPaused, true, "it is the next one's reader who decides");
    assert.equal(socket.isAlive, true);
    const whole = textOf(await next);
    await Promise.resolve();
    assert.equal(socket.isPaused, false);
    socket.tell("b".repeat(100_000));
    assert.equal(await whole, "b".repeat(200_000));
  });

  it("stops reading a flood until other connections had their turn", async () => {
    const { answered, socket } = sent();
    socket.tell("HTTP/1.1 200 OK\r\n\r\n");
    const body = sourceOf(await answered);
    for (let turn = 0; turn < 3; turn++) {
      let bytes = 0;
      for (; !socket.isPaused && bytes < 1_000_000; bytes += 10_000) {
        socket.tell("\n".repeat(10_000));
        assert.equal(
          (await body.read())?.byteLength,
          10_000,
          "its reader takes everything at once",
        );
      }
      assert.ok(bytes < 300_000, `${bytes} bytes`);
      await new Promise((resolve) => setImmediate(resolve));
      assert.equal(socket.isPaused, false, "and then it goes on");
    }
    body.cancel();
    assert.equal(socket.isAlive, false);
  });

  it("keeps a flood paused if its reader has stopped meanwhile", async () => {
    const { answered, socket } = sent();
    socket.tell("HTTP/1.1 200 OK\r\n\r\n");
    socket.tell("\n".repeat(300_000));
    const body = sourceOf(await answered);
    await new Promise((resolve) => setImmediate(resolve));
    assert.equal(socket.isPaused, true);
    await body.read();
    assert.equal(socket.isPaused, false);
    body.cancel();
  });

  it("releases a body once it is sent, independently of the answer, and keeps an unsent body", async () => {
    const body = new Uint8Array(100_000);
    const begin = (isFlushed: boolean) => {
      let releases = 0;
      const options = { body, onReleased: () => void releases++ };
      const answered = transport.send(toUpstreamCall("http://upstream.invalid/", options));
      const socket = dialled.at(-1) ?? assert.fail("nothing was dialled");
      socket.isFlushed = isFlushed;
      return { answered, socket, isReleased: () => releases > 0 };
    };
    const early = begin(false);
    assert.equal(early.isReleased(), false);
    early.socket.events.opened();
    early.socket.events.flushed();
    early.socket.tell("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{");
    await early.answered;
    assert.equal(early.isReleased(), false, "some of it still waits");
    early.socket.isFlushed = true;
    early.socket.events.flushed();
    assert.equal(early.isReleased(), true);
    const atOnce = begin(true);
    atOnce.socket.events.flushed();
    assert.equal(atOnce.isReleased(), false, "nothing was sent so far");
    atOnce.socket.events.opened();
    assert.equal(atOnce.isReleased(), true);
    const ends: Record<string, (socket: Dialled) => void> = {
      "a whole answer": (socket) => socket.tell(GOOD),
      "a break": (socket) => socket.events.closed(new Error("gone")),
    };
    for (const [name, end] of Object.entries(ends)) {
      const waiting = begin(false);
      waiting.socket.events.opened();
      end(waiting.socket);
      await waiting.answered.catch(() => {});
      assert.deepEqual([waiting.isReleased(), waiting.socket.isAlive], [true, false], name);
    }
    const refused = begin(false);
    refused.socket.events.closed(new Error("refused"));
    await assert.rejects(refused.answered, NeverSent);
    assert.equal(refused.isReleased(), false, "it may be sent elsewhere");
  });

  it("discards bytes that arrive after the caller left", async () => {
    const controller = new AbortController();
    const left = send(controller);
    const [socket] = dialled;
    socket?.events.opened();
    controller.abort(new Error("left"));
    await assert.rejects(left, /left/);
    assert.equal(socket?.isAlive, false);
    const next = sent();
    socket?.tell(GOOD);
    socket?.events.ended();
    socket?.events.closed(new Error("late"));
    next.socket.tell("HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n");
    assert.equal((await next.answered).status, 404);
  });

  it("reports once why a call failed, and ignores later events", async () => {
    const { answered, socket } = sent();
    socket.tell("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{");
    socket.events.closed(new Error("first"));
    socket.events.closed(new Error("second"));
    socket.events.ended();
    socket.tell("garbled");
    const body = sourceOf(await answered);
    assert.equal((await body.read())?.byteLength, 1);
    await assert.rejects(async () => await body.read(), /first/);
    const garbled = sent();
    garbled.socket.tell("garbled");
    await assert.rejects(
      garbled.answered,
      (error) => GatewayError.is(error) && error.code === "upstream_bad_response",
    );
  });

  it("uses a connection for five minutes at most, however busy it is, and cuts no call", async () => {
    const minuteMs = 60_000;
    let socket = await kept();
    for (; nowMs < 4.5 * minuteMs; nowMs += minuteMs / 2) assert.equal(await kept(), socket);
    nowMs = 5 * minuteMs;
    const next = await kept();
    assert.notEqual(next, socket, "it is not taken any more");
    assert.equal(socket.isAlive, false);
    socket = next;
    nowMs += 4 * minuteMs;
    const { answered } = sent(); // still unanswered when the connection gets too old
    assert.equal(dialled.length, 3, "the one before was idle for too long");
    nowMs += 10 * minuteMs;
    const last = dialled.at(-1) ?? assert.fail();
    assert.equal(last.isAlive, true);
    last.tell(GOOD);
    assert.equal(await textOf(await answered), "{}");
    assert.equal(last.isAlive, false, "it is not given back any more");
  });

  for (const error of [429, 500]) {
    it(`lets a connection rest after a ${error}, and reuses it for the next call only if it is still open`, async () => {
      const fail = async (): Promise<Dialled> => {
        const { answered, socket } = sent();
        socket.tell(`HTTP/1.1 ${error} X\r\ncontent-length: 0\r\n\r\n`);
        assert.equal((await answered).status, error);
        assert.equal(socket.isAlive, true);
        return socket;
      };
      const rested = await fail();
      const other = await kept();
      assert.notEqual(other, rested, "it rests");
      assert.equal(await kept(), other);
      const resting = timers.splice(0);
      other.destroy();
      for (const fire of resting) fire();
      const answered = send();
      rested.tell(GOOD);
      assert.equal(await textOf(await answered), "{}", "and goes on");
      rested.destroy();
      const closed = await fail();
      closed.events.ended();
      for (const fire of timers.splice(0)) fire();
      assert.notEqual(await kept(), closed);
    });
  }

  it("accepts the end of a TLS connection as the end of a body only after one whole JSON text", async () => {
    const bodies: Record<string, boolean> = {
      "{}": true,
      ' {"a":[{"b":"}\\"]"}]}\r\n': true,
      "[1,[]]": true,
      "": false,
      " ": false,
      "{": false,
      '{"a":"}': false,
      '{"a":"\\"}': false,
      "[{}": false,
      "{}{": false,
      "{} x": false,
      "1": false,
      "data: {}\n\n": false,
    };
    for (const [text, isWhole] of Object.entries(bodies)) {
      for (const [scheme, isComplete] of [["https", isWhole], ["http", true]] as const) {
        const answered = transport.send(toUpstreamCall(`${scheme}://upstream.invalid/`));
        const socket = dialled.at(-1) ?? assert.fail("nothing is dialled");
        socket.events.opened();
        socket.tell("HTTP/1.1 200 OK\r\n\r\n");
        for (const byte of text) socket.tell(byte);
        socket.events.ended();
        const read = answered.then(textOf);
        if (isComplete) assert.equal(await read, text);
        else await assert.rejects(read, isBroken, text);
      }
    }
  });

  it("reports that a call was never sent if it cannot connect", async () => {
    const none = createHttp1Transport(() => {
      throw new Error("no such thing");
    });
    await assert.rejects(none.send(toUpstreamCall("http://upstream.invalid/")), NeverSent);
  });

  it("keeps no program alive with a connection that waits for a call", async () => {
    const socket = await kept();
    assert.equal(socket.isHolding, false);
    const next = send();
    assert.equal(socket.isHolding, true);
    socket.tell(GOOD);
    await next;
    assert.equal(socket.isHolding, false);
  });
});
