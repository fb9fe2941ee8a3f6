/** Memory and time that callers' bodies use. */
// runtimes: all
// alone: it measures how soon memory is given back
import assert from "node:assert/strict";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { describe, it } from "@std/testing/bdd";
import { createFetchTransport } from "../../src/upstream/transport.ts";
import {
  startUnderTest,
  type UnderTest,
  type UnderTestOptions,
  UPSTREAM_KEY,
} from "../support/gateway.ts";
import { endPrograms, startProgram } from "../support/program.ts";
import { answerPlain, chunk, startProvider, stream } from "../support/provider.ts";
import { closeAfterEach } from "../support/scenes.ts";
import {
  callRaw,
  openRaw,
  parseAnswer,
  type RawConnection,
  startBlackHole,
  toRawRequest,
} from "../support/tcp_peer.ts";
import { until } from "../support/until.ts";

const MB = 1024 * 1024;
/** More than the kernel keeps for a receiver that does not read, up to 36 MB on new ones. */
const UNREAD_BYTES = 48 * MB;
const KEYS = [{ id: "one", key: "0123456789-key-of-one" }, {
  id: "other",
  key: "0123456789-key-of-other",
}];
const headersOf = (index: number) => ({
  "authorization": `Bearer ${UPSTREAM_KEY}`,
  "gateway-auth": `Bearer ${KEYS[index]?.key}`,
  "content-type": "application/json",
});
const bodyOf = (bytes: number, isStream = false) => {
  const [head, tail] = [
    `{"model":"m","stream":${isStream},"messages":[{"role":"user","content":"`,
    '"}]}',
  ];
  return head + "x".repeat(Math.max(0, bytes - head.length - tail.length)) + tail;
};

describe("bodies of callers", () => {
  const { keep, after } = closeAfterEach();
  const start = async (upstream: string, options: Partial<UnderTestOptions> = {}) => {
    const { config = {}, ...rest } = options;
    const under = await startUnderTest({
      ...rest,
      upstreams: { a: upstream },
      config: { keys: KEYS, ...config },
    });
    keep(under);
    return under;
  };
  const send = ({ a }: UnderTest, bytes: number, key = 0) =>
    callRaw(a, { headers: headersOf(key), body: bodyOf(bytes) });
  /**
   * An upstream that starts to answer the largest bodies at once, and reads them only when the test
   * says so.
   */
  const startReluctant = async () => {
    const held: { request: IncomingMessage; response: ServerResponse }[] = [];
    const server = createServer((request, response) => {
      if (Number(request.headers["content-length"]) < 18 * MB) {
        return void request.resume().on("end", () => answerPlain(response));
      }
      held.push({ request: request.on("error", () => {}), response });
      response.writeHead(200, { "content-type": "text/event-stream" });
      response.write(chunk("a"));
    });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    after(() =>
      new Promise((resolve) => {
        server.closeAllConnections();
        server.close(resolve);
      })
    );
    return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`, held };
  };

  for (const transport of ["its own", "fetch"]) {
    const parts = transport === "fetch" ? { parts: { transport: createFetchTransport() } } : {};
    it(`a body counts until it is sent, not until the answer begins (transport: ${transport}) [large bodies]`, async () => {
      const { url, held } = await startReluctant();
      const under = await start(url, {
        ...parts,
        config: { limits: { body: "50MB", bodies: "56MB" } },
      });
      const body = bodyOf(UNREAD_BYTES, true);
      const running = openRaw(under.a, toRawRequest(under.a, { headers: headersOf(0), body }));
      await until(
        () => running.received().includes("data: "),
        "the answer begins, and the body waits",
      );
      const refused = await send(under, 16 * MB, 1);
      assert.deepEqual([refused.status, refused.headers["sallyport-error"]], [
        503,
        "gateway_overloaded",
      ]);
      assert.equal((await send(under, 1 * MB, 1)).status, 200, "what there is room for passes");
      held[0]?.request.resume();
      const end = () => held[0]?.response.end(stream("b"));
      if (transport === "fetch") end(); // fetch keeps the body until the answer ends
      for (let status = 503; status !== 200;) ({ status } = await send(under, 16 * MB, 1));
      assert.equal(under.gateway.openStreams, transport === "fetch" ? 0 : 1);
      end();
      assert.equal(parseAnswer(await running.closed).body, chunk("a") + stream("b"));
    });
  }

  it("a body that is never sent stops counting when its exchange ends, however it ends [large bodies]", async () => {
    const { url, held } = await startReluctant();
    const limits = { body: "50MB", bodies: "56MB" };
    const under = await start(url, { config: { limits } });
    const ends: Record<string, (running: RawConnection) => unknown> = {
      "the caller leaves": ({ socket }) => socket.destroy(),
      "the provider breaks the connection": () => held.at(-1)?.request.socket.resetAndDestroy(),
      "the provider ends its answer": () => held.at(-1)?.response.end(stream("b")),
    };
    let settled = 0;
    for (const [name, end] of Object.entries(ends)) {
      const running = openRaw(
        under.a,
        toRawRequest(under.a, { headers: headersOf(0), body: bodyOf(UNREAD_BYTES, true) }),
      );
      await until(() => running.received().includes("data: "), "the answer begins");
      assert.equal((await send(under, 16 * MB, 1)).status, 503, name);
      end(running);
      settled += 2;
      await until(() => under.records.length >= settled, `the exchange is over: ${name}`);
      assert.equal((await send(under, 16 * MB, 1)).status, 200, name);
      settled++;
      running.socket.destroy();
    }
  });

  it("a body that was never sent is kept, and is sent whole to another replica [large bodies]", async () => {
    const provider = keep(await startProvider());
    const hole = keep(await startBlackHole());
    const upstreams = { upstream: [hole.url, provider.url], deadlines: { connect: "2s" } };
    const under = await start(provider.url, { provider: upstreams });
    assert.equal((await send(under, 5 * MB)).status, 200);
    assert.equal((await under.settled()).retries, 1);
    assert.equal(provider.calls[0]?.body.toString(), bodyOf(5 * MB));
  });

  it("80 open streams with 5 MB bodies use no more memory than the limit for bodies [large bodies]", async () => {
    let open = 0;
    const server = createServer((request, response) => {
      request.resume().on("end", () => {
        open++;
        response.writeHead(200, { "content-type": "text/event-stream" });
        response.write(chunk("a"));
      });
    });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    const callers: RawConnection[] = [];
    try {
      const program = startProgram(["serve"], {
        env: {
          SALLYPORT_PROVIDER_A: `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`,
          SALLYPORT_KEYS: KEYS[0]?.key ?? "",
          SALLYPORT_LISTEN: "127.0.0.1:0",
          SALLYPORT_ADMIN: "127.0.0.1:0",
          SALLYPORT_LIMITS_BODIES: "64MB",
          SALLYPORT_DRAIN_DELAY: "0s",
        },
      });
      const url = await program.waitFor(/listening on (http:\S+)/);
      const admin = await program.waitFor(/admin on (http:\S+)/);
      const memory = async () => {
        const { body } = await callRaw(admin, { method: "GET", path: "/metrics" });
        return Number(/^process_resident_memory_bytes\S* (\S+)/m.exec(body)?.[1]);
      };
      const request = toRawRequest(url, { headers: headersOf(0), body: bodyOf(5_000_000, true) });
      const call = async () => {
        const caller = openRaw(url, request);
        callers.push(caller);
        await until(() => caller.received().includes("data: "), "a stream begins");
      };
      for (let number = 0; number < 5; number++) await call(); // warm-up of the runtime
      const before = await memory();
      for (let number = 0; number < 75; number++) await call();
      assert.equal(open, 80);
      // Memory in use stays. Memory that a runtime has not collected yet is freed later.
      await until(
        async () => await memory() - before < 180 * MB,
        "375 MB of bodies take less than half",
      );
    } finally {
      for (const { socket } of callers) socket.destroy();
      await endPrograms();
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    }
  });

  it("announced bodies that do not arrive do not block other callers [absent bodies]", async () => {
    const provider = keep(await startProvider());
    const under = await start(provider.url);
    const announce = (bytes: number, body = "{") =>
      openRaw(
        under.a,
        toRawRequest(under.a, {
          headers: { ...headersOf(0), "content-length": String(bytes) },
          body,
        }),
      );
    // 512 MB in total, to be read in pieces. Then more than 512 MB in bodies that Bun reads whole
    // if it has room.
    const waiting = Array.from({ length: 16 }, () => announce(32 * MB));
    for (let number = 0; number < 160; number++) waiting.push(announce(4_000_000));
    await until(() => under.gateway.openExchanges === waiting.length, "all are on their way");
    for (const key of [1, 0]) assert.equal((await send(under, 100, key)).status, 200);
    assert.equal((await send(under, 5 * MB, 1)).status, 200);
    assert.ok(waiting.every(({ received }) => received() === ""), "none was refused");
    for (const { socket } of waiting) socket.destroy();
    await until(() => under.gateway.openExchanges === 0, "all are over");
  });

  it("a key that sends as much as allowed leaves room for the bodies of another [absent bodies]", async () => {
    const provider = keep(await startProvider());
    const under = await start(provider.url, {
      config: { limits: { body: "4MB", bodies: "16MB" } },
    });
    // All but the last byte. Eight of them are twice the limit for all bodies.
    const body = bodyOf(4 * MB).slice(0, -1);
    const request = toRawRequest(under.a, {
      headers: { ...headersOf(0), "content-length": String(4 * MB) },
      body,
    });
    const waiting = Array.from({ length: 8 }, () => openRaw(under.a, request));
    const refused = () =>
      waiting.filter(({ received }) => received().includes("gateway_overloaded"));
    await until(() => refused().length >= 6, "what goes beyond its share is refused");
    assert.equal((await send(under, 4 * MB, 1)).status, 200);
    assert.ok(refused().length < waiting.length);
    // The freed memory can be used again.
    for (const { socket } of waiting) socket.destroy();
    await until(() => under.gateway.openExchanges === 0, "all are over");
    assert.equal((await send(under, 4 * MB, 0)).status, 200);
  });

  it("an array of ten million items is refused by its count, before it is parsed [many items]", async () => {
    const provider = keep(await startProvider());
    const under = await start(provider.url);
    const [head, tail] = ['{"model":"m","messages":[{"role":"user","content":"x"}],"x":[', "0]}"];
    for (
      const [item, count] of [['"",', 10_000_000], ["0,", 10_000_000], [
        "null,",
        2_000_000,
      ]] as const
    ) {
      const { status, body } = await callRaw(under.a, {
        headers: headersOf(0),
        body: head + item.repeat(count) + tail,
      });
      assert.equal(status, 400);
      assert.match(body, /expected at most 1100000 values/);
    }
    const million = head + "0,".repeat(999_999) + tail;
    assert.equal((await callRaw(under.a, { headers: headersOf(0), body: million })).status, 200);
    assert.equal(provider.calls.length, 1);
  });
});
