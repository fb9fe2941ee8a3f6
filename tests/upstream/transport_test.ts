/**
 * The interface `Transport` over real connections: the bytes that are sent, how often, and the
 * requirements of an answer.
 */
// runtimes: all
import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import type { Socket } from "node:net";
import { afterEach, beforeEach, describe, it } from "@std/testing/bdd";
import type { ErrorCode } from "../../src/errors/codes.ts";
import { GatewayError } from "../../src/errors/gateway_error.ts";
import { runtimeParts } from "../../src/serve/compose.ts";
import { createFetchTransport, NeverSent, type Transport } from "../../src/upstream/transport.ts";
import { startBlackHole, startTcpPeer, type TcpPeer } from "../support/tcp_peer.ts";
import { until } from "../support/until.ts";
import { type CallOptions, sourceOf, textOf, toUpstreamCall } from "../support/upstream_call.ts";

const HEAD = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n";
const GOOD = `${HEAD}content-length: 2\r\n\r\n{}`;

describe("a transport", () => {
  let transport: Transport;
  let peer: TcpPeer;
  let answer: (socket: Socket) => unknown;
  let requests: string[];
  beforeEach(async () => {
    transport = runtimeParts().transport;
    requests = [];
    answer = (socket) => socket.write(GOOD);
    peer = await startTcpPeer((socket, request) => {
      requests.push(request.toString());
      answer(socket);
    });
  });
  afterEach(() => peer.close());

  const send = ({ url = peer.url, ...options }: CallOptions & { readonly url?: string } = {}) =>
    transport.send(toUpstreamCall(url, options));
  const openSockets = () => peer.sockets.filter((socket) => !socket.destroyed).length;

  it("keeps a connection for the next call, and makes as many as there are simultaneous calls", async () => {
    for (let number = 0; number < 5; number++) {
      assert.equal(await textOf(await send()), "{}");
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
    assert.equal(peer.sockets.length, 1);
    answer = () => {};
    const controller = new AbortController();
    const calls = Array.from({ length: 100 }, () => send({ controller }));
    await until(() => requests.length === 105, "all calls are there");
    assert.equal(openSockets(), 100);
    controller.abort(new Error("enough"));
    for (const call of calls) await assert.rejects(call);
    await until(() => openSockets() === 0, "all connections are closed");
  });

  for (const method of ["POST", "GET"]) {
    it(`uses no connection that closed after its answer, and sends a ${method} once`, async () => {
      const endings: ((socket: Socket) => unknown)[] = [
        (socket) => setTimeout(() => socket.resetAndDestroy(), 10),
        (socket) => setTimeout(() => socket.end(), 10),
      ];
      for (const end of endings) {
        answer = (socket) => {
          socket.write(GOOD);
          end(socket);
        };
        assert.equal(await textOf(await send({ method })), "{}");
        await until(() => peer.sockets.at(-1)?.destroyed ?? false, "the connection is closed");
        await new Promise((resolve) => setTimeout(resolve, 50));
        answer = (socket) => socket.write(GOOD);
        assert.equal(await textOf(await send({ method })), "{}");
        transport = runtimeParts().transport; // the next one starts without a connection
      }
      assert.equal(requests.length, 4);
    });
  }

  it("does not repeat a call that broke with a kept connection, not even a GET", async () => {
    for (const method of ["POST", "GET"]) {
      answer = (socket) => socket.write(GOOD);
      await textOf(await send({ method }));
      const before = requests.length;
      answer = (socket) => socket.resetAndDestroy();
      await assert.rejects(send({ method }), (error) => !(error instanceof NeverSent));
      assert.equal(requests.length, before + 1);
    }
  });

  it("reports that a call was never sent when no connection accepted it", async () => {
    await peer.close();
    await assert.rejects(send(), NeverSent);
    await assert.rejects(send({ url: "http://nobody.invalid/v1" }), NeverSent);
  });

  it("over fetch never reports that a call was not sent", async () => {
    await peer.close();
    transport = createFetchTransport();
    await assert.rejects(send(), (error) => !(error instanceof NeverSent));
  });

  it("gives up on a connection at its deadline, and when its caller leaves", async () => {
    const hole = await startBlackHole();
    const late = new AbortController();
    await assert.rejects(send({ url: hole.url, connectMs: 200, controller: late }));
    assert.equal(
      (late.signal.reason as GatewayError).code,
      "upstream_connect_timeout" satisfies ErrorCode,
    );
    const left = new AbortController();
    setTimeout(() => left.abort(new Error("left")), 50);
    const started = performance.now();
    await assert.rejects(send({ url: hole.url, controller: left }));
    assert.ok(performance.now() - started < 4000);
    await hole.close();
  });

  it("reports unreadable HTTP as a bad answer", async () => {
    const garbled = {
      "another protocol": "SSH-2.0-OpenSSH_9.2\r\n\r\n",
      "a folded field": `${HEAD}x-a: b\r\n c\r\ncontent-length: 2\r\n\r\n{}`,
      "two lengths": `${HEAD}content-length: 2\r\ncontent-length: 3\r\n\r\n{}`,
      "a length next to chunks":
        `${HEAD}content-length: 2\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n`,
      "headers without end": `${HEAD}x-a: ${"a".repeat(100_000)}\r\ncontent-length: 2\r\n\r\n{}`,
      "another protocol from here on":
        "HTTP/1.1 101 Switching\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n",
    };
    for (const [name, bytes] of Object.entries(garbled)) {
      answer = (socket) => socket.write(bytes);
      await assert.rejects(
        send(),
        (error) => GatewayError.is(error) && error.code === "upstream_bad_response",
        name,
      );
    }
    answer = (socket) => socket.write(`HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n${GOOD}`);
    assert.equal(await textOf(await send()), "{}");
  });

  it("never presents an answer that broke off as complete", async () => {
    const broken: Record<string, [head: string, end: (socket: Socket) => unknown]> = {
      "a length that is not reached": [
        `${HEAD}content-length: 9\r\n\r\n{`,
        (socket) => socket.end(),
      ],
      "chunks without the last one": [
        `${HEAD}transfer-encoding: chunked\r\n\r\n1\r\n{\r\n`,
        (socket) => socket.end(),
      ],
      "a reset where the end is a close": [`${HEAD}\r\n{`, (socket) => socket.resetAndDestroy()],
    };
    for (const [name, [head, end]] of Object.entries(broken)) {
      answer = (socket) => {
        socket.write(head);
        setTimeout(() => end(socket), 30);
      };
      await assert.rejects(textOf(await send()), name);
    }
    answer = (socket) => {
      socket.write(`${HEAD}\r\n{`);
      setTimeout(() => socket.end("}"), 30);
    };
    assert.equal(await textOf(await send()), "{}");
  });

  it("passes all bytes that arrive before an answer breaks off [cut stream]", async () => {
    const endings: Record<string, (socket: Socket) => unknown> = {
      "a close": (socket) => socket.destroy(),
      "a reset": (socket) => socket.resetAndDestroy(),
    };
    for (const [name, end] of Object.entries(endings)) {
      for (let number = 0; number < 20; number++) {
        answer = (socket) => socket.write(`${HEAD}content-length: 9\r\n\r\n{1}`, () => end(socket));
        const body = sourceOf(await send());
        assert.equal(Buffer.from(await body.read() ?? []).toString(), "{1}", name);
        await assert.rejects(body.read(), name);
      }
    }
  });

  it("reads no further than its reader, and closes when the rest is not wanted", async () => {
    const size = 64_000_000;
    answer = (socket) =>
      socket.write(Buffer.concat([
        Buffer.from(`${HEAD}content-length: ${size}\r\n\r\n`),
        Buffer.alloc(size),
      ]));
    const body = sourceOf(await send());
    await body.read();
    await new Promise((resolve) => setTimeout(resolve, 300));
    const [socket] = peer.sockets;
    assert.ok((socket?.writableLength ?? 0) > size / 2, "the peer still has most of it");
    body.cancel();
    await until(() => openSockets() === 0, "the connection is closed");
    assert.equal(await body.read(), undefined);
  });
});
