/** Faults of the upstream. Each has one right outcome. */
// runtimes: all, workers
// long: upstreams are waited for until the gateway gives them up
import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import process from "node:process";
import { brotliCompressSync, deflateSync, gzipSync } from "node:zlib";
import { describe } from "@std/testing/bdd";
import { urlOfNobody } from "../support/free_port.ts";
import { it } from "../support/cases.ts";
import {
  answerPlain,
  answerStream,
  chunk,
  COMPLETION,
  startProvider,
  stream,
} from "../support/provider.ts";
import {
  GOOD_BODY,
  startUnderTest,
  STREAM_BODY,
  testIdentity,
  type UnderTest,
} from "../support/gateway.ts";
import { useScenes } from "../support/scenes.ts";
import {
  callRaw,
  openRaw,
  parseAnswer,
  startBlackHole,
  startCuttablePeer,
  startTcpPeer,
  startTlsPeer,
  toRawRequest,
} from "../support/tcp_peer.ts";
import { until } from "../support/until.ts";

const codeOf = (body: string): string => JSON.parse(body).error?.code;

describe("faults of the upstream", () => {
  const { keep, startAt: start } = useScenes();
  const call = (under: UnderTest, body = GOOD_BODY, headers: Record<string, string> = {}) =>
    callRaw(under.a, { headers: { ...under.headers, ...headers }, body });

  it.notOn(
    "workers",
    "fetch in a Worker does not report whether it connected",
    "a refused connection answers 502 at once, and goes to another replica where there is one [connection refused]",
    async () => {
      const dead = await urlOfNobody();
      const lone = await start(dead);
      const { status, body } = await call(lone);
      assert.equal(status, 502);
      assert.equal(codeOf(body), "upstream_unreachable");
      assert.equal((await lone.settled()).retries, 0);
      const alive = keep(await startProvider());
      const under = await start([dead, alive.url]);
      for (let number = 0; number < 12; number++) assert.equal((await call(under)).status, 200);
      assert.equal(alive.calls.length, 12);
      assert.equal(
        under.records.reduce((sum, record) => sum + record.retries, 0),
        1,
        "one try, then it is left alone",
      );
    },
  );

  it("a name that does not resolve and an untrusted certificate answer 502 [untrusted upstream]", async () => {
    const under = await start("http://nobody.invalid/v1");
    assert.equal(codeOf((await call(under)).body), "upstream_unreachable");
    // The certificate of the tests is valid for localhost, but not for this other address of it.
    const wrongName = await start(keep(await startTlsPeer(testIdentity(), "127.0.0.2")).url);
    assert.equal(codeOf((await call(wrongName)).body), "upstream_unreachable");
  });

  it.notOn(
    "workers",
    "fetch in a Worker does not report whether it connected",
    "a black hole answers 504 at the connect deadline, and goes to another replica where there is one [black hole]",
    async () => {
      const hole = keep(await startBlackHole());
      const alive = keep(await startProvider());
      const under = await start([hole.url, alive.url], {
        provider: { deadlines: { connect: "2s" } },
      });
      for (let number = 0; number < 2; number++) assert.equal((await call(under)).status, 200);
      assert.deepEqual(under.records.map(({ retries }) => retries).sort(), [0, 1]);
      assert.equal(alive.calls.length, 2);
    },
  );

  it("a silent upstream answers 504 at the first byte deadline, once, and its connection is closed [silent upstream]", async () => {
    const silent = keep(await startTcpPeer(() => {}));
    const deadlines = { firstByte: "300ms" };
    const under = await start([silent.url, `${silent.url}/other`], { provider: { deadlines } });
    const { status, headers, body } = await call(under);
    assert.equal(status, 504);
    assert.equal(codeOf(body), "upstream_first_byte_timeout");
    assert.equal(headers["x-should-retry"], "false");
    await until(
      () => silent.sockets.filter((socket) => !socket.destroyed).length === 0,
      "the upstream is closed",
    );
    assert.equal(silent.sockets.length, 1, "never a second call: the first one may be billed");
  });

  it("a kept connection that breaks before an answer does not cause a second call [broken kept connection]", async () => {
    let requests = 0;
    const peer = keep(
      await startTcpPeer((socket) => {
        requests++;
        if (requests > 1) socket.resetAndDestroy();
        else {socket.write(
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}",
          );}
      }),
    );
    const under = await start(peer.url);
    assert.equal((await call(under)).status, 200);
    const { status, body } = await call(under);
    assert.equal(status, 502);
    assert.equal(codeOf(body), "upstream_unreachable");
    assert.equal(requests, 2, "the call arrived once");
  });

  for (const error of [400, 429, 500]) {
    it.notOn(
      "workers",
      "fetch in a Worker manages its connections itself",
      `a server that closes its connection a moment after ${error} costs no call of another caller`,
      async () => {
        const leaving = new Set<unknown>();
        const peer = keep(
          await startTcpPeer((socket, request) => {
            if (leaving.has(socket)) return; // it closes without reading this
            if (!request.includes('"cold"')) {
              socket.write(
                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}",
              );
              return;
            }
            socket.write(`HTTP/1.1 ${error} X\r\ncontent-length: 21\r\n\r\nInternal Server Error`);
            leaving.add(socket);
            setTimeout(() => socket.end(), leaving.size % 21); // as uvicorn does
          }),
        );
        const under = await start(peer.url);
        const statuses = new Map<number, number>();
        const callers = Array.from({ length: 10 }, async (_, caller) => {
          for (let number = 0; number < 20; number++) {
            const isCold = caller < 4;
            const { status } = await call(under, isCold ? bodyFor("cold") : GOOD_BODY);
            statuses.set(status, (statuses.get(status) ?? 0) + 1);
          }
        });
        await Promise.all(callers);
        assert.deepEqual(Object.fromEntries(statuses), { 200: 120, [error]: 80 });
      },
    );
  }

  it("comments do not extend the idle deadline [stalled stream] [endless stream]", async () => {
    const provider = keep(
      await startProvider((response) => {
        response.writeHead(200, { "content-type": "text/event-stream" });
        response.write(chunk("a"));
        const timer = setInterval(() => response.write(": keep-alive\n\n"), 50);
        response.on("close", () => clearInterval(timer));
      }),
    );
    const under = await start(provider.url, { provider: { deadlines: { idle: "400ms" } } });
    const { body } = await call(under, STREAM_BODY);
    assert.match(body, /: keep-alive\n\n/);
    assert.match(body, /upstream_idle_timeout/);
    assert.equal((await under.settled()).outcome, "timeout");
    await until(() => provider.calls[0]?.isCut === true, "the upstream is closed");
  });

  it("an endless stream ends at the total deadline [endless stream]", async () => {
    const provider = keep(
      await startProvider((response) => {
        response.writeHead(200, { "content-type": "text/event-stream" });
        const timer = setInterval(() => response.write(chunk("a")), 30);
        response.on("close", () => clearInterval(timer));
      }),
    );
    const deadlines = { total: "500ms" };
    const under = await start(provider.url, { provider: { deadlines } });
    const { body } = await call(under, STREAM_BODY);
    assert.match(body, /"code":"upstream_timeout"/);
    assert.doesNotMatch(body, /\[DONE\]/);
  });

  it("an upstream's own 429 passes with its body and its retry advice [upstream 429]", async () => {
    const provider = keep(
      await startProvider((response) => {
        response.writeHead(429, {
          "content-type": "application/json",
          "retry-after": "3",
          "retry-after-ms": "2900",
        });
        response.end('{"error":{"message":"slow down","code":"rate_limit"}}');
      }),
    );
    const { status, headers, body } = await call(await start(provider.url));
    assert.equal(status, 429);
    assert.equal(headers["retry-after"], "3");
    assert.equal(headers["retry-after-ms"], "2900");
    assert.equal(headers["sallyport-error"], undefined);
    assert.equal(body, '{"error":{"message":"slow down","code":"rate_limit"}}');
  });

  it("an upstream's own 500 in HTML passes unchanged [upstream 500]", async () => {
    const provider = keep(
      await startProvider((response) =>
        response.writeHead(500, { "content-type": "text/html" }).end("<h1>Oops</h1>")
      ),
    );
    const { status, headers, body } = await call(await start(provider.url), STREAM_BODY);
    assert.equal(status, 500);
    assert.equal(headers["content-type"], "text/html");
    assert.equal(body, "<h1>Oops</h1>");
  });

  it("a line of 20 MB is relayed with little memory [long line]", async () => {
    const provider = keep(
      await startProvider((response) =>
        answerStream(response, `data: ${"x".repeat(20_000_000)}\n\n${stream("a")}`)
      ),
    );
    const under = await start(provider.url);
    const { body } = await call(under, STREAM_BODY);
    assert.ok(body.endsWith(stream("a")));
    assert.equal((await under.settled()).outcome, "ok");
  });

  it("calls to a failing provider answer 502 at once each time, and the other provider is not affected [failing provider]", async () => {
    const dead = await urlOfNobody();
    const alive = keep(await startProvider());
    const under = keep(
      await startUnderTest({ upstreams: { a: dead, b: alive.url } }),
    );
    for (let number = 0; number < 10; number++) {
      assert.equal(codeOf((await call(under)).body), "upstream_unreachable");
      assert.equal((await call(under, GOOD_BODY, { host: "b.localhost" })).status, 200);
    }
  });

  /** A body that asks for a model. The provider answers calls for each model in a different way. */
  const bodyFor = (model: string) => GOOD_BODY.replace("test-1", model);

  it("a model that answers 502, 503 or 504 does not eject the provider for other models [partial failure]", async () => {
    const provider = keep(
      await startProvider((response, { body }) => {
        const [, status] = /"cold-(\d+)"/.exec(body.toString()) ?? [];
        if (status === undefined) answerPlain(response);
        else response.writeHead(Number(status), { "content-type": "text/plain" }).end("busy");
      }),
    );
    const under = await start([provider.url, `${provider.url}/other`]);
    for (let number = 0; number < 30; number++) {
      const status = 502 + number % 3;
      const cold = await call(under, bodyFor(`cold-${status}`));
      assert.deepEqual([cold.status, cold.body], [status, "busy"]);
    }
    for (let number = 0; number < 10; number++) assert.equal((await call(under)).status, 200);
    for (const path of ["/v1/chat", "/v1/other/chat"]) {
      assert.equal(
        provider.calls.filter((each) => each.path.startsWith(path)).length,
        20,
        "both replicas go on",
      );
    }
  });

  it("a model whose calls are reset does not eject the provider for other models [partial failure]", async () => {
    const provider = keep(
      await startProvider((response, { body }) => {
        if (body.includes('"cold"')) response.destroy();
        else answerPlain(response);
      }),
    );
    for (const replicas of [1, 2, 3]) {
      const under = await start(
        Array.from({ length: replicas }, (_, index) => `${provider.url}/${index}`),
      );
      const cold = Array.from({ length: 8 * replicas }, () => call(under, bodyFor("cold")));
      for (const { body } of await Promise.all(cold)) {
        assert.equal(codeOf(body), "upstream_unreachable");
      }
      for (let number = 0; number < 6; number++) assert.equal((await call(under)).status, 200);
    }
  });

  it.notOn(
    "workers",
    "workerd ends a broken body like a whole one",
    "packed answers are unpacked, plain and streamed, and an answer that is cut or too long never looks complete [packed answers]",
    async () => {
      const packs: Record<string, (text: string) => Uint8Array> = {
        gzip: (text) => Buffer.concat([gzipSync(text.slice(0, 9)), gzipSync(text.slice(9))]),
        deflate: deflateSync,
        br: brotliCompressSync,
      };
      let sent: [coding: string, bytes: Uint8Array] = ["gzip", Buffer.alloc(0)];
      let type = "application/json";
      const provider = keep(
        await startProvider((response) => {
          response.writeHead(200, { "content-type": type, "content-encoding": sent[0] });
          response.end(sent[1]);
        }),
      );
      const under = await start(provider.url, { provider: { keepAlive: "off" } });
      for (const [coding, pack] of Object.entries(packs)) {
        type = "application/json";
        const packed = pack(COMPLETION);
        sent = [coding, packed];
        assert.equal((await call(under)).body, COMPLETION, coding);
        type = "text/event-stream";
        sent = [coding, pack(stream("a", "b"))];
        assert.equal((await call(under, STREAM_BODY)).body, stream("a", "b"), coding);
        const { records } = under;
        assert.deepEqual(records.slice(-2).map(({ outcome }) => outcome), ["ok", "ok"]);
        const broken = pack(chunk("a"));
        for (
          const bytes of [broken.subarray(0, -3), Buffer.concat([broken, Buffer.from("more")])]
        ) {
          sent = [coding, bytes];
          assert.match(
            (await call(under, STREAM_BODY)).body,
            /"code":"upstream_disconnected"/,
            coding,
          );
        }
        type = "application/json";
        for (
          const bytes of [packed.subarray(0, -3), Buffer.concat([packed, Buffer.from("more")])]
        ) {
          sent = [coding, bytes];
          const received = await openRaw(
            under.a,
            toRawRequest(under.a, { headers: under.headers, body: GOOD_BODY }),
          )
            .closed;
          assert.doesNotMatch(
            received,
            /content-length|\r\n0\r\n\r\n$/,
            `${coding}: it has no end`,
          );
          assert.equal(records.at(-1)?.outcome, "upstream_cut", coding);
        }
      }
    },
  );

  it.notOn(
    "workers",
    "it measures the process of the gateway",
    "16 callers that do not read an answer that unpacks from 130 kB cost no more than their buffers [packed answers]",
    async () => {
      const bomb = gzipSync(Buffer.alloc(128_000_000));
      const provider = keep(
        await startProvider((response) => {
          response.writeHead(200, {
            "content-type": "application/json",
            "content-encoding": "gzip",
          });
          response.end(bomb);
        }),
      );
      const under = await start(provider.url);
      const before = process.memoryUsage.rss();
      const callers = Array.from({ length: 16 }, () => {
        const caller = openRaw(
          under.a,
          toRawRequest(under.a, { headers: under.headers, body: GOOD_BODY }),
        );
        caller.socket.once("data", () => caller.socket.pause());
        return caller;
      });
      await until(() => callers.every(({ socket }) => socket.isPaused()), "all are answered");
      let largest = 0;
      for (let look = 0; look < 20; look++) {
        await new Promise((resolve) => setTimeout(resolve, 50));
        largest = Math.max(largest, process.memoryUsage.rss() - before);
      }
      for (const { socket } of callers) socket.destroy();
      await under.settled(16);
      assert.ok(largest < 300_000_000, `${Math.round(largest / 1e6)} MB`);
    },
  );

  it("a 205 is answered at once, however the provider frames it, and its connection stays usable [half-closed]", async () => {
    const framings = [
      "content-length: 0\r\n\r\n",
      "transfer-encoding: chunked\r\n\r\n0\r\n\r\n",
      "\r\n",
    ];
    for (const framing of framings) {
      const peer = keep(
        await startTcpPeer((socket) => socket.write(`HTTP/1.1 205 Reset Content\r\n${framing}`)),
      );
      const under = await start(peer.url);
      const headers = { ...under.headers, connection: "keep-alive" };
      const request = toRawRequest(under.a, { headers, body: GOOD_BODY });
      const caller = openRaw(under.a, request);
      for (let answers = 1; answers <= 2; answers++) {
        // Some runtimes cannot mark the end of a 205 in a web response. There it becomes a 204,
        // which also has no body.
        const ends =
          /^HTTP\/1\.1 20(?:4 |5 [^]*?\r\n(?:content-length: 0\r\n[^]*?\r\n|[^]*?\r\n0\r\n\r\n))/gim;
        await until(
          () => caller.received().match(ends)?.length === answers,
          `answer ${answers} is whole`,
        );
        if (answers === 1) caller.socket.write(request);
      }
      caller.socket.destroy();
      assert.equal((await under.settled(2)).status, 205);
    }
  });

  it.notOn(
    "workers",
    "fetch in a Worker reads interim answers itself",
    "a flood of interim answers ends with 502, and calls of another provider are answered meanwhile",
    async () => {
      const flood = Buffer.from("HTTP/1.1 103 Early Hints\r\n\r\n".repeat(10_000));
      let isFlooding = false;
      const peer = keep(
        await startTcpPeer((socket) => {
          isFlooding = true;
          const pour = () => {
            while (!socket.destroyed && socket.write(flood));
          };
          socket.on("drain", pour).on("close", () => isFlooding = false);
          pour();
        }),
      );
      const good = keep(await startProvider());
      const provider = { deadlines: { firstByte: "10s" } };
      const under = keep(
        await startUnderTest({ upstreams: { a: peer.url, b: good.url }, provider }),
      );
      const flooded = call(under);
      const other = callRaw(under.a, {
        headers: { ...under.headers, host: "b.localhost" },
        body: GOOD_BODY,
      });
      assert.equal((await other).status, 200);
      const { status, body } = await flooded;
      assert.deepEqual([status, codeOf(body)], [502, "upstream_bad_response"]);
      await until(() => !isFlooding, "the flood's connection is closed");
    },
  );

  it.notOn(
    "workers",
    "workerd ends a broken body like a whole one",
    "an answer over TLS without a length that ends with its connection is complete only if its content says so",
    async () => {
      const type = (name: string) => `content-type: ${name}\r\n`;
      const packed = "content-encoding: gzip\r\n";
      const half = `${COMPLETION.slice(0, -1)} `;
      const cases: [
        name: string,
        head: string,
        body: string,
        end: "cut" | "announced",
        outcome: string,
      ][] = [
        ["half a JSON text", type("application/json"), half, "cut", "upstream_cut"],
        ["half a JSON text", type("application/json"), half, "announced", "upstream_cut"],
        ["a JSON text", type("application/json"), `${COMPLETION}\n`, "announced", "ok"],
        ["a JSON text", type("application/json"), COMPLETION, "cut", "ok"],
        ["any text", type("text/plain"), "half an answer", "cut", "upstream_cut"],
        ["a stream", type("text/event-stream"), stream("a"), "cut", "ok"],
        [
          "a stream without [DONE]",
          type("text/event-stream"),
          chunk("a", "stop"),
          "announced",
          "upstream_cut",
        ],
        ["a packed stream", type("text/event-stream") + packed, stream("a"), "cut", "ok"],
      ];
      for (const [name, head, body, end, outcome] of cases) {
        const sent = head.endsWith(packed) ? gzipSync(body) : Buffer.from(body);
        const peer = keep(
          await startCuttablePeer(testIdentity(), (socket) => {
            socket.write(Buffer.concat([Buffer.from(`HTTP/1.1 200 OK\r\n${head}\r\n`), sent]));
            if (end === "announced") socket.end();
          }),
        );
        const under = await start(peer.url);
        const raw = openRaw(
          under.a,
          toRawRequest(under.a, { headers: under.headers, body: STREAM_BODY }),
        );
        await until(() => raw.received().includes(body.slice(-15)), `${name} is there`);
        if (end === "cut") peer.cut();
        const received = await raw.closed;
        assert.equal(parseAnswer(received).body, body, name);
        assert.equal((await under.settled()).outcome, outcome, `${name}, ${end}`);
        if (/transfer-encoding: chunked/i.test(received)) {
          assert.equal(received.endsWith("\r\n0\r\n\r\n"), outcome === "ok", `${name}, ${end}`);
        }
      }
    },
  );

  it("a gateway that calls itself stops at the second hop [loop]", async () => {
    const under = await start("http://127.0.0.1:1/v1");
    const self = await start(`${under.a}/v1`);
    // This call is not a loop yet: the second gateway forwards to the first, whose provider is
    // dead.
    assert.equal((await call(self)).status, 401, "the first one knows no key of the second");
    const looped = await startLoop();
    const { status, body } = await call(looped);
    assert.equal(status, 508);
    assert.equal(codeOf(body), "upstream_loop");
    assert.equal(looped.records.length, 2);
  });

  /**
   * A gateway whose provider is a proxy that leads back to the gateway with both credentials, as a
   * misconfigured proxy would.
   */
  async function startLoop(): Promise<UnderTest> {
    const built: { under?: UnderTest } = {};
    const back = keep(
      await startProvider(async (response, { headers, body }) => {
        const { a = "", headers: good = {} } = built.under ?? {};
        const via = String(headers.via);
        const answer = await callRaw(a, { headers: { ...good, via }, body: body.toString() });
        response.writeHead(answer.status, { "content-type": "application/json" }).end(answer.body);
      }),
    );
    built.under = await start(back.url);
    return built.under;
  }

  it("the caller's timeout header shortens the deadlines and never lengthens them", async () => {
    const silent = keep(await startTcpPeer(() => {}));
    const under = await start(silent.url);
    const started = performance.now();
    const { body } = await call(under, GOOD_BODY, { "x-stainless-timeout": "0.3" });
    assert.match(codeOf(body), /^upstream_(?:first_byte_)?timeout$/);
    assert.ok(performance.now() - started < 10_000, "0.3 is seconds, and no other unit");
    const short = await start(silent.url, {
      provider: { deadlines: { firstByte: "300ms" } },
    });
    for (const clock of ["9999", "-1", "soon", "0"]) {
      assert.equal(
        codeOf((await call(short, GOOD_BODY, { "x-stainless-timeout": clock })).body),
        "upstream_first_byte_timeout",
      );
    }
  });

  it("a caller's timeout for a stream ends with its header", async () => {
    const provider = keep(
      await startProvider((response) => {
        response.writeHead(200, { "content-type": "text/event-stream" });
        response.write(chunk("a"));
        setTimeout(() => response.end(stream("b")), 3300);
      }),
    );
    const { body } = await call(await start(provider.url), STREAM_BODY, {
      "x-stainless-timeout": "2",
    });
    assert.equal(body, chunk("a") + stream("b"));
  });

  it("comments are sent into a quiet stream, only between events", async () => {
    const half = chunk("b").slice(0, 20);
    let finish = (): void => {};
    const provider = keep(
      await startProvider((response) => {
        response.writeHead(200, { "content-type": "text/event-stream" });
        response.write(chunk("a"));
        finish = () => {
          response.write(half);
          setTimeout(() => response.end(chunk("b").slice(20) + stream("c")), 400);
        };
      }),
    );
    const under = await start(provider.url, { provider: { keepAlive: "100ms" } });
    const raw = openRaw(
      under.a,
      toRawRequest(under.a, { headers: under.headers, body: STREAM_BODY }),
    );
    await until(() => (raw.received().match(/: keep-alive/g)?.length ?? 0) >= 3, "three comments");
    finish();
    const { body } = parseAnswer(await raw.closed);
    assert.equal(body.replaceAll(": keep-alive\n\n", ""), chunk("a") + chunk("b") + stream("c"));
    assert.ok(body.includes(chunk("b")), "no comment inside an event");
    assert.equal((await under.settled()).outcome, "ok");
  });

  it("a plain answer and a stream with keep-alive off get no comments", async () => {
    const provider = keep(
      await startProvider((response, { body }) => {
        const isStream = body.toString().includes('"stream":true');
        response.writeHead(200, {
          "content-type": isStream ? "text/event-stream" : "application/json",
        });
        response.flushHeaders();
        setTimeout(() => isStream ? response.end(stream("a")) : response.end("{}"), 300);
      }),
    );
    const plain = await start(provider.url, { provider: { keepAlive: "50ms" } });
    assert.equal((await call(plain)).body, "{}");
    const off = await start(provider.url, { provider: { keepAlive: "off" } });
    assert.equal((await call(off, STREAM_BODY)).body, stream("a"));
  });

  it("the healthy provider answers throughout", async () => {
    const moody = keep(await startTcpPeer((socket) => socket.resetAndDestroy()));
    const alive = keep(await startProvider(answerPlain));
    const under = keep(await startUnderTest({ upstreams: { a: moody.url, b: alive.url } }));
    await Promise.all(Array.from({ length: 20 }, async (_, number) => {
      const { status } = await call(
        under,
        GOOD_BODY,
        number % 2 === 0 ? {} : { host: "b.localhost" },
      );
      assert.ok(number % 2 === 0 ? status >= 500 : status === 200);
    }));
  });
});
