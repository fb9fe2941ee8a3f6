/** The watch over stalled outputs, and answers in memory that are read slowly. */
// runtimes: deno, node
import assert from "node:assert/strict";
import { describe, it } from "@std/testing/bdd";
import { OutputWatch } from "../../src/serve/connections.ts";
import type { Listener } from "../../src/serve/listener.ts";
import { serve } from "../../src/serve/node.ts";
import { FakeClock } from "../support/recording_model.ts";
import { closeAfterEach } from "../support/scenes.ts";
import { openRaw } from "../support/tcp_peer.ts";
import { until } from "../support/until.ts";

const STALL_MS = 4000;

/** A socket, as the watch sees it. */
class Output {
  bytesWritten = 0;
  writableLength = 0;
  isClosed = false;
  #closed = (): void => {};

  once(_event: "close", act: () => void): void {
    this.#closed = act;
  }

  close(): void {
    this.isClosed = true;
    this.#closed();
  }
}

describe("the watch over outputs", () => {
  const start = (...outputs: readonly Output[]) => {
    const clock = new FakeClock();
    const watch = new OutputWatch(STALL_MS, clock);
    for (const output of outputs) watch.add(output, () => output.close());
    return { clock, watch };
  };

  it("has a timer only while there are outputs", async () => {
    const { clock, watch } = start();
    watch.stallMs = STALL_MS;
    assert.equal(clock.waiting, 0);
    const output = new Output();
    watch.add(output, () => output.close());
    await clock.pass(10 * STALL_MS);
    assert.equal(clock.waiting, 1);
    output.close();
    await clock.pass(STALL_MS);
    assert.equal(clock.waiting, 0);
  });

  it("closes a stalled connection, and none that makes progress or has nothing to send", async () => {
    const [still, moving, idle] = [new Output(), new Output(), new Output()];
    const { clock } = start(still, moving, idle);
    still.bytesWritten = still.writableLength = 100;
    moving.writableLength = 100;
    for (let times = 0; times < 8; times++) {
      moving.bytesWritten += 100;
      await clock.pass(STALL_MS / 4);
    }
    assert.deepEqual([still.isClosed, moving.isClosed, idle.isClosed], [true, false, false]);
  });

  it("continues with the others when one cannot be closed", async () => {
    const [bad, good] = [new Output(), new Output()];
    const { clock, watch } = start();
    watch.add(bad, () => assert.fail("it can't be closed"));
    bad.writableLength = 100;
    watch.add(good, () => good.close());
    await clock.pass(STALL_MS / 2);
    good.writableLength = 100;
    await clock.pass(2 * STALL_MS);
    assert.equal(good.isClosed, true);
  });
});

describe("the listener of Node and Deno", () => {
  const { after } = closeAfterEach();
  const open = async (body: string | Uint8Array): Promise<Listener> => {
    const listener = await serve({
      fetch: () => Promise.reject(new Error("no one calls it")),
      handle: () => Promise.resolve({ status: 200, headers: {}, body }),
    }, { hostname: "127.0.0.1", port: 0, bodyTimeMs: 5000, writeStallMs: 1500 });
    after(() => listener.stop(), () => listener.kill());
    return listener;
  };

  for (const type of ["text", "bytes"]) {
    it(`sends a large answer of ${type} in memory completely, however long a caller that keeps reading needs`, async () => {
      const length = 24_000_000;
      const { url } = await open(
        type === "text" ? "x".repeat(length) : new Uint8Array(length).fill(120),
      );
      const caller = openRaw(url, "GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
      const { socket } = caller;
      let got = 0;
      socket.on("data", ({ length }) => {
        got += length;
        socket.pause();
      });
      const timer = setInterval(() => socket.resume(), 10); // 4 s in all
      after(() => socket.destroy(), () => clearInterval(timer));
      await until(caller.isClosed, "it is over", 60_000);
      assert.match(caller.received().slice(0, 300), new RegExp(`content-length: ${length}\r\n`));
      assert.equal(got - caller.received().indexOf("\r\n\r\n") - 4, length);
    });
  }
});
