/**
 * Calls over real connections to servers with any behavior: large bodies, odd moments,
 * certificates.
 */
// runtimes: all
import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { type AddressInfo, createServer, type Server, type Socket } from "node:net";
import { join, resolve } from "node:path";
import process from "node:process";
import { setImmediate } from "node:timers";
import { createServer as createTlsServer, type TLSSocket } from "node:tls";
import { afterEach, beforeEach, describe } from "@std/testing/bdd";
import { it } from "../support/cases.ts";
import { createSelfSignedCertificate } from "../../src/cli/demo/certificate.ts";
import { dialBun } from "../../src/upstream/http1/dial_bun.ts";
import { dialNode } from "../../src/upstream/http1/dial_node.ts";
import { NeverSent, type Transport } from "../../src/upstream/transport.ts";
import { createHttp1Transport } from "../../src/upstream/http1/client.ts";
import type { Dial } from "../../src/upstream/http1/connection.ts";
import { createEgressDial } from "../../src/upstream/http1/dial_egress.ts";
import { type ConnectProxy, startConnectProxy } from "../support/connect_proxy.ts";
import { endPrograms, runsTypeScript, startProgram } from "../support/program.ts";
import { runtime } from "../support/runtimes.ts";
import { startBlackHole, startTcpPeer } from "../support/tcp_peer.ts";
import { until } from "../support/until.ts";
import {
  bytesOf,
  type CallOptions,
  sourceOf,
  textOf,
  toUpstreamCall,
} from "../support/upstream_call.ts";

const GOOD = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";
const OTHER = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nother";

/** Bytes that differ at every position. */
function toBytes(size: number): Buffer {
  const bytes = Buffer.alloc(size);
  for (let at = 0; at + 4 <= size; at += 4) {
    bytes.writeUInt32LE(Math.imul(at, 2654435761) >>> 0, at);
  }
  return bytes;
}
const digestOf = (bytes: Uint8Array): string => createHash("sha256").update(bytes).digest("hex");
const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

/** The certificate that tests trust. */
function trusted(): { cert: string; key: string } {
  const directory = process.env.SALLYPORT_TEST_TLS ?? assert.fail("npm test makes a certificate");
  const read = (name: string) => readFileSync(join(directory, name), "utf8");
  return { cert: read("cert.pem"), key: read("key.pem") };
}

/** Through the proxy of the case. */
let proxy: ConnectProxy | undefined;
const dialThroughProxy: Dial = (url, events) => {
  const { url: proxyUrl } = proxy ?? assert.fail("it is started before each case");
  const same = { url: proxyUrl };
  return createEgressDial({ proxies: { "http:": same, "https:": same } }, dialNode)(url, events);
};

/** The ways to connect on this runtime: Bun has one more, see `dial_bun.ts`. */
const DIALS: Readonly<Record<string, Dial>> = {
  ...(runtime === "bun" && { "Bun's sockets": dialBun }),
  "node:net": dialNode,
  "a proxy": dialThroughProxy,
};

for (const [way, dial] of Object.entries(DIALS)) {
  describe(`a transport over ${way}`, () => {
    let transport: Transport;
    let sockets: Socket[];
    const closing: (() => unknown)[] = [];
    beforeEach(async () => {
      if (dial === dialThroughProxy) proxy = await startConnectProxy();
      transport = createHttp1Transport(dial);
      sockets = [];
    });
    afterEach(async () => {
      for (const socket of sockets) socket.destroy();
      for (const close of closing.splice(0)) await close();
      await proxy?.close();
      proxy = undefined;
    });

    /** @returns Its port */
    const listen = async (server: Server, host: string): Promise<number> => {
      closing.push(() => new Promise((done) => server.close(done)));
      await new Promise<void>((done, fail) => server.on("error", fail).listen(0, host, done));
      return (server.address() as AddressInfo).port;
    };
    const start = async (
      onConnection: (socket: Socket, number: number) => unknown,
    ): Promise<string> => {
      const server = createServer((socket) => {
        socket.on("error", () => {});
        onConnection(socket, sockets.push(socket));
      });
      return `http://127.0.0.1:${await listen(server, "127.0.0.1")}/`;
    };
    /** Answers each call in its turn, over all connections. Calls are small. */
    const answering = async (
      ...answers: ((socket: Socket) => unknown)[]
    ): Promise<{ url: string; calls(): number }> => {
      let calls = 0;
      const url = await start((socket) =>
        socket.on("data", () => {
          calls++;
          const answer = answers.shift();
          if (answer === undefined) socket.write(GOOD);
          else answer(socket);
        })
      );
      return { url, calls: () => calls };
    };
    const send = (url: string, options?: CallOptions) =>
      transport.send(toUpstreamCall(url, options));
    const isOpen = (socket: Socket | undefined) => socket !== undefined && !socket.destroyed;

    it("sends a large body to a slow reader, byte for byte, and reads an answer as large", async () => {
      const body = toBytes(10_000_000);
      let head = "";
      const came = createHash("sha256");
      let left = body.byteLength;
      const url = await start((socket) => {
        const take = (bytes: Buffer) => {
          if (left === 0) return socket.write(GOOD); // the next one
          came.update(bytes);
          left -= bytes.byteLength;
          if (left > 0) return;
          socket.write(`HTTP/1.1 200 OK\r\ncontent-length: ${body.byteLength}\r\n\r\n`);
          socket.write(body);
        };
        socket.on("data", (bytes: Buffer) => {
          socket.pause();
          setTimeout(() => socket.resume(), 2);
          if (head.includes("\r\n\r\n")) return take(bytes);
          head += bytes.toString("latin1");
          const end = head.indexOf("\r\n\r\n");
          if (end === -1) return;
          const rest = Buffer.from(head.slice(end + 4), "latin1");
          if (rest.byteLength > 0) take(rest);
        });
      });
      const answer = await send(url, { body });
      assert.equal(came.digest("hex"), digestOf(body));
      await pause(100); // a slow reader
      assert.equal(digestOf(await bytesOf(answer)), digestOf(body));
      assert.equal(await textOf(await send(url)), "{}");
      assert.equal(sockets.length, 1, "the connection is good for more");
    });

    it("reads to the end of an answer after the other side has closed", async () => {
      const bytes = toBytes(3_000_000);
      for (const head of [`content-length: ${bytes.byteLength}\r\n\r\n`, "\r\n"]) {
        const { url } = await answering((socket) => {
          socket.write(`HTTP/1.1 200 OK\r\n${head}`);
          socket.end(bytes);
        });
        const answer = await send(url);
        await pause(50);
        const body = sourceOf(answer);
        const first = await body.read() ?? assert.fail("there is a body");
        await pause(50);
        assert.equal(
          digestOf(Buffer.concat([first, await bytesOf({ ...answer, body })])),
          digestOf(bytes),
        );
      }
    });

    for (const then of ["goes on", "closes"]) {
      it(`accepts an answer that arrives before all of the call was sent, when the other side ${then}`, async () => {
        const url = await start((socket, number) => {
          if (number > 1) return socket.on("data", () => socket.write(OTHER));
          socket.once("data", () => {
            socket.pause();
            socket.write("HTTP/1.1 413 Content Too Large\r\ncontent-length: 2\r\n\r\n{}");
            if (then === "closes") socket.end();
          });
        });
        // More than the system buffers. Behind a proxy, it buffers twice.
        const answer = await send(url, {
          body: toBytes(dial === dialThroughProxy ? 64_000_000 : 8_000_000),
        });
        assert.equal(answer.status, 413);
        assert.equal(await textOf(answer), "{}");
        sockets[0]?.resume();
        await until(() => !isOpen(sockets[0]), "its connection is closed");
        assert.equal(await textOf(await send(url)), "other");
        assert.equal(sockets.length, 2);
      });
    }

    it("returns to each call its own answer, regardless of earlier bytes on the connection", async () => {
      const before: [string, (socket: Socket) => unknown][] = [
        ["more than an answer", (socket) => socket.write(GOOD + OTHER)],
        [
          "more than a chunked answer",
          (socket) =>
            socket.write(
              `HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n${OTHER}`,
            ),
        ],
        ["a word on an idle connection", (socket) => {
          socket.write(GOOD);
          setTimeout(() => socket.write(OTHER), 10);
        }],
        [
          "no more than a second",
          (socket) =>
            socket.write(
              "HTTP/1.1 200 OK\r\nkeep-alive: timeout=1, max=9\r\ncontent-length: 2\r\n\r\n{}",
            ),
        ],
        [
          "a request to close",
          (socket) =>
            socket.write("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{}"),
        ],
      ];
      for (const [name, first] of before) {
        const { url, calls } = await answering(
          first,
          (socket) => socket.write("HTTP/1.1 204 No Content\r\n\r\n"),
        );
        const { length } = sockets;
        assert.equal(await textOf(await send(url)), "{}", name);
        await until(() => !isOpen(sockets[length]), `closed after ${name}`);
        assert.equal((await send(url)).status, 204, name);
        assert.deepEqual([sockets.length, calls()], [length + 2, 2], name);
      }
    });

    it("sends a call once over a kept connection that closes at that moment", async () => {
      const ends: ((socket: Socket) => unknown)[] = [
        (socket) => socket.end(),
        (socket) => socket.resetAndDestroy(),
      ];
      for (const end of ends) {
        for (let turns = 0; turns < 6; turns++) {
          const { url, calls } = await answering();
          assert.equal(await textOf(await send(url)), "{}");
          const socket = sockets.at(-1) ?? assert.fail();
          socket.removeAllListeners("data");
          let came = 0;
          socket.on("data", () => came++);
          end(socket);
          for (let turn = 0; turn < turns; turn++) {
            await new Promise((resolve) => setImmediate(resolve));
          }
          const { length } = sockets;
          // Either the client had not seen the close yet, or it used a new connection: never both.
          const status = await send(url).then((answer) => answer.status, () => 0);
          assert.equal(came + calls() - 1, status === 200 ? 1 : came);
          assert.equal(sockets.length, status === 200 ? length + 1 : length);
        }
      }
    });

    it("closes its connection when its caller leaves: while it connects, waits, or reads", async () => {
      const left = new Error("left");
      const stages: Record<string, (socket: Socket) => unknown> = {
        "before the header": () => {},
        "in the header": (socket) => socket.write("HTTP/1.1 200 OK\r\ncontent-"),
        "in the body": (socket) => socket.write("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{"),
        "in a body that waits for its reader": (socket) =>
          socket.write(
            `HTTP/1.1 200 OK\r\ncontent-length: 9000000\r\n\r\n${"a".repeat(8_000_000)}`,
          ),
      };
      for (const [stage, answer] of Object.entries(stages)) {
        const controller = new AbortController();
        const { url, calls } = await answering(answer);
        const answered = send(url, { controller }).then(async (come) => {
          const body = sourceOf(come);
          await body.read();
          if (!stage.includes("reader")) return textOf({ ...come, body });
          await pause(50);
          controller.abort(left);
          return textOf({ ...come, body });
        });
        answered.catch(() => {});
        await until(() => calls() === 1, "the call is there");
        await pause(20);
        if (!stage.includes("reader")) controller.abort(left);
        await assert.rejects(answered, left, stage);
        await until(() => !isOpen(sockets.at(-1)), `the connection is closed ${stage}`);
      }
    });

    it("cancels attempts to connect that no call waits for", async () => {
      const hole = await startBlackHole();
      closing.push(() => hole.close());
      const attempts = () => attemptsTo(Number(new URL(hole.url).port));
      const before = attempts();
      for (let number = 0; number < 5; number++) {
        await assert.rejects(send(hole.url, { connectMs: 20 }));
      }
      // An attempt by Bun's own client cannot be cancelled. There is one at most.
      const most = way === "Bun's sockets" ? 1 : 0;
      await until(() => attempts() - before <= most, "no attempt is left");
    });

    it("reports that a call was never sent if its host cannot be reached", async () => {
      await assert.rejects(send("http://255.255.255.255:9/"), NeverSent);
      await assert.rejects(send("https://255.255.255.255:9/"), NeverSent);
    });

    it("sends no header that could be read as two", async () => {
      const { url } = await answering();
      for (const value of ["a\r\nb: c", "a\nb: c", "a\rb", "a\0b", "\u0100"]) {
        await assert.rejects(send(url, { headers: { a: value } }), NeverSent);
      }
      assert.equal(sockets.length, 0);
    });

    it("sends each character of a header as one byte, with a body and without", async () => {
      let came = "";
      const url = await start((socket) =>
        socket.on("data", (bytes: Buffer) => {
          came += bytes.toString("latin1");
          socket.write(GOOD);
        })
      );
      for (
        const body of [
          null,
          new Uint8Array(),
          Buffer.from("a"),
          Buffer.from("\xe9".repeat(200), "latin1"),
        ]
      ) {
        came = "";
        await textOf(await send(url, { headers: { a: "caf\xe9 \x80\xff", b: "c" }, body }));
        assert.ok(came.includes("\r\na: caf\xe9 \x80\xff\r\nb: c\r\n"), came);
        assert.ok(came.endsWith(`\r\n\r\n${Buffer.from(body ?? []).toString("latin1")}`), came);
      }
    });

    it("connects to an IPv6 address", async () => {
      const server = createServer((socket) => {
        sockets.push(socket);
        socket.on("error", () => {}).on(
          "data",
          (bytes) => socket.write(bytes.includes(`[::1]:${port}`) ? GOOD : OTHER),
        );
      });
      const port = await listen(server, "::1");
      assert.equal(await textOf(await send(`http://[::1]:${port}/`)), "{}");
    });

    it("speaks TLS only with trusted peers, and sends others no byte", async () => {
      let heard = "";
      const startTls = async (
        identity: { cert: string; key: string },
        host: string,
      ): Promise<number> => {
        const server = createTlsServer(identity, (socket: TLSSocket) => {
          sockets.push(socket);
          socket.on("error", () => {}).on("data", (bytes) => {
            heard += bytes.toString("latin1");
            socket.write(GOOD);
          });
        });
        server.on("tlsClientError", () => {});
        return await listen(server, host);
      };
      const isDistrust = (error: unknown) =>
        error instanceof NeverSent && /certificate|altnames/i.test(`${error.reason}`) ||
        assert.fail(`${error}`);
      const misnamed = await startTls(trusted(), "127.0.0.2");
      await assert.rejects(send(`https://127.0.0.2:${misnamed}/`), isDistrust);
      // Behind a proxy it needs a different name: this process has TLS sessions for localhost by
      // now, see below.
      const stranger = dial === dialThroughProxy ? "stranger.test" : "localhost";
      const unknown = await startTls(createSelfSignedCertificate([stranger]), "127.0.0.1");
      await assert.rejects(send(`https://${stranger}:${unknown}/`), isDistrust);
      const plain = await answering();
      await assert.rejects(send(plain.url.replace("http:", "https:")), NeverSent);
      await pause(50);
      assert.equal(heard, "");
      // This must come last. Servers of one process can accept each other's TLS sessions, as on
      // Deno.
      const port = await startTls(trusted(), "127.0.0.1");
      const { length } = sockets;
      for (const host of ["localhost", "127.0.0.1", "localhost"]) {
        assert.equal(await textOf(await send(`https://${host}:${port}/`)), "{}", host);
      }
      assert.equal(heard.split("POST").length, 4);
      assert.equal(sockets.length, length + 2, "kept, each for its host");
    });

    it("makes the other side of a TLS connection wait for the reader", async () => {
      // More than systems buffer, on each connection of the path.
      const size = dial === dialThroughProxy ? 128_000_000 : 64_000_000;
      let left = size;
      const piece = toBytes(1_000_000);
      const server = createTlsServer(trusted(), (socket: TLSSocket) => {
        sockets.push(socket);
        const more = () => {
          while (left > 0 && socket.write(piece)) left -= piece.byteLength;
        };
        socket.on("error", () => {}).on("drain", () => {
          left -= piece.byteLength;
          more();
        });
        socket.on("data", () => {
          left = size;
          socket.write(`HTTP/1.1 200 OK\r\ncontent-length: ${size}\r\n\r\n`);
          more();
        });
      });
      const url = `https://localhost:${await listen(server, "127.0.0.1")}/`;
      for (const isWanted of [true, false]) {
        const body = sourceOf(await send(url));
        let before: number;
        do {
          before = left;
          await pause(200);
        } while (left !== before); // until both sides' buffers are full
        assert.ok(left > 0, "the rest waits for the reader");
        let came = 0;
        if (!isWanted) body.cancel();
        for (let chunk = await body.read(); chunk !== undefined; chunk = await body.read()) {
          came += chunk.byteLength;
        }
        assert.equal(came, isWanted ? size : 0);
      }
      await until(() => !isOpen(sockets[0]), "the connection is closed");
      assert.equal(sockets.length, 1);
    });
  });
}

/**
 * Returns the number of connection attempts from this machine to a loopback port that have not been
 * answered. Linux.
 */
function attemptsTo(port: number): number {
  const to = `0100007F:${port.toString(16).toUpperCase().padStart(4, "0")} 02`; // SYN_SENT
  return readFileSync("/proc/net/tcp", "latin1").split(to).length - 1;
}

describe("a program that has made its calls", () => {
  const closing: (() => Promise<void>)[] = [];
  afterEach(async () => {
    await endPrograms();
    for (const close of closing.splice(0)) await close();
  });

  it.unless(runsTypeScript ? undefined : "this Node can't run TypeScript", "ends", async () => {
    const answering = await startTcpPeer((socket) => socket.write(GOOD));
    const mute = await startTcpPeer(() => {});
    const begun = await startTcpPeer((socket) => socket.write("HTTP/1.1 200 OK\r\n\r\n{"));
    // On Bun, an attempt to connect keeps the program alive until the system stops it.
    const hole = runtime === "bun" ? undefined : await startBlackHole();
    const silent = [mute, begun, ...(hole === undefined ? [] : [hole])];
    closing.push(...[answering, ...silent].map(({ close }) => close));
    const program = startProgram([answering, ...silent].map(({ url }) => url), {
      file: resolve("tests/support/calls_of_a_program.ts"),
      cwd: process.cwd(),
    });
    let isOver = false;
    program.onExit(() => isOver = true);
    await until(() => isOver, "it ends");
    assert.equal(await program.ended, 0, program.stderr());
    assert.equal(program.stdout(), `{}\n{}\n${"Error: left\n".repeat(silent.length)}`);
    assert.equal(answering.sockets.length, 1);
  });
});
