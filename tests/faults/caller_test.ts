/** Faults and abuse by callers. */
// runtimes: all, workers
// alone: it measures how soon a call ends after its caller left
import assert from "node:assert/strict";
import process from "node:process";
import { describe } from "@std/testing/bdd";
import { MemoryKeyStore } from "../../src/keys/key_store_memory.ts";
import { it } from "../support/cases.ts";
import {
  type Answering,
  answerPlain,
  chunk,
  COMPLETION,
  startProvider,
  stream,
} from "../support/provider.ts";
import { GOOD_BODY, startUnderTest, STREAM_BODY, type UnderTest } from "../support/gateway.ts";
import { isWorkers, runtime } from "../support/runtimes.ts";
import { useScenes } from "../support/scenes.ts";
import {
  callRaw,
  CANNOT_TELL,
  isHeld,
  openRaw,
  parseAnswer,
  type RawCall,
  toRawRequest,
} from "../support/tcp_peer.ts";
import { until, untilSoon } from "../support/until.ts";

/** An endless stream, as fast as it is read. */
const flood: Answering = (response) => {
  response.writeHead(200, { "content-type": "text/event-stream" });
  const event = chunk("x".repeat(16_000));
  const write = () => {
    while (!response.destroyed && response.write(event));
  };
  response.on("drain", write);
  write();
};

describe("faults of callers", () => {
  const { start, keep, after } = useScenes();
  const raw = (under: UnderTest, body = STREAM_BODY) =>
    openRaw(under.a, toRawRequest(under.a, { headers: under.headers, body }));

  it("the upstream is closed within 100 ms after the caller leaves, at every stage [early leaver] [caller leaves]", async () => {
    const stages: Record<string, Answering> = {
      "before the header": () => {},
      "in a stream": (response) => {
        response.writeHead(200, { "content-type": "text/event-stream" });
        response.write(chunk("a"));
      },
      "in a plain answer": (response) => {
        response.writeHead(200, { "content-type": "application/json" });
        response.write("{");
      },
    };
    for (const [stage, answering] of Object.entries(stages)) {
      const { provider, under } = await start(answering);
      const caller = raw(under);
      await until(() => provider.calls.length === 1, "the call arrives");
      if (stage !== "before the header") {
        await until(() => caller.received().includes("{"), "the answer begins");
      }
      caller.socket.destroy();
      await untilSoon(
        () => provider.calls[0]?.isCut === true,
        `the upstream is closed ${stage}`,
        100,
      );
      const { outcome, status } = await under.settled();
      assert.deepEqual([outcome, status], [
        "client_closed",
        stage === "before the header" ? 499 : 200,
      ]);
      assert.equal(under.gateway.openExchanges, 0);
    }
  });

  it("the upstream is closed when the caller of a large request leaves before the header [early leaver]", async () => {
    for (const bytes of [600, 5000, 100_000]) {
      const { provider, under } = await start(() => {});
      const caller = raw(
        under,
        STREAM_BODY.replace('"messages"', `"user":"${"x".repeat(bytes)}","messages"`),
      );
      await until(() => provider.calls.length === 1, "the call arrives");
      caller.socket.destroy();
      await until(() => provider.calls[0]?.isCut === true, "the upstream is closed");
      assert.equal((await under.settled()).outcome, "client_closed");
    }
  });

  it.notOn(
    "workers",
    "workerd ends a broken body like a whole one",
    "a caller that reads nothing is disconnected after the write deadline, and the upstream too [slow reader]",
    async () => {
      const { provider, under } = await start(flood, {
        config: { limits: { writeStall: "500ms" } },
      });
      const caller = raw(under);
      await until(() => caller.received().length > 0, "the stream begins");
      caller.socket.pause();
      const { outcome } = await under.settled();
      assert.equal(outcome, "client_closed");
      await until(() => provider.calls[0]?.isCut === true, "the upstream is closed");
      caller.socket.resume();
      assert.doesNotMatch(
        (await caller.closed).slice(-200),
        /\r\n0\r\n\r\n$/,
        "it must not look complete",
      );
    },
  );

  it.unless(
    isWorkers ? "workerd keeps the connection" : CANNOT_TELL,
    "a caller that reads nothing is let go, also after a deadline has ended its exchange",
    async () => {
      const { provider, under } = await start((response) => {
        response.writeHead(200, { "content-type": "application/json" });
        const write = () => {
          while (!response.destroyed && response.write(" ".repeat(64_000)));
        };
        response.on("drain", write);
        write();
      }, { config: { limits: { writeStall: "8s" } }, provider: { deadlines: { total: "2s" } } });
      const caller = raw(under, GOOD_BODY);
      await until(() => caller.received().length > 0, "the answer begins");
      caller.socket.pause();
      assert.equal((await under.settled()).outcome, "timeout");
      await until(() => provider.calls[0]?.isCut === true, "the upstream is closed");
      assert.ok(isHeld(caller.socket), "the connection is open at first");
      await until(() => !isHeld(caller.socket), "the connection is closed");
    },
  );

  it.unless(
    isWorkers || runtime === "bun" ? "there is no pipelining" : CANNOT_TELL,
    "a caller that sends calls ahead and reads no answer is let go",
    async () => {
      const { provider, under } = await start((response) => {
        response.writeHead(200, { "content-type": "application/json", "content-length": 60_000 });
        response.end(" ".repeat(60_000));
      }, { config: { limits: { writeStall: "1s" } } });
      const request = toRawRequest(under.a, {
        headers: { ...under.headers, connection: undefined },
        body: GOOD_BODY,
      });
      const caller = openRaw(under.a, "");
      await until(() => !caller.socket.connecting, "it is connected");
      caller.socket.pause();
      caller.socket.write(request.repeat(100), "latin1");
      await until(() => provider.calls.length > 10, "many are answered");
      await until(() => !isHeld(caller.socket), "the connection is closed");
      await until(() => under.gateway.openExchanges === 0, "all exchanges are over");
    },
  );

  it.notOn(
    ["bun", "workers"],
    "there is no pipelining",
    "requests sent ahead are worked on a few at a time, and answered in order",
    async () => {
      const release: (() => void)[] = [];
      const { provider, under } = await start((response, { body }) => {
        const { user } = JSON.parse(body.toString());
        release.push(() =>
          response.writeHead(200, { "content-type": "application/json" }).end(`{"user":"${user}"}`)
        );
      });
      const headers = { ...under.headers, connection: undefined };
      const requests = Array.from({ length: 50 }, (_, number) => {
        const body = GOOD_BODY.replace('"messages"', `"user":"-${number}-","messages"`);
        return toRawRequest(under.a, { headers, body });
      });
      const caller = openRaw(under.a, requests.join(""));
      let most = 0;
      await until(() => {
        most = Math.max(most, release.length);
        for (const answer of release.splice(0)) answer();
        return caller.received().split("HTTP/1.1 200").length === 51;
      }, "all are answered");
      const order = Array.from(
        caller.received().matchAll(/"user":"-(\d+)-"/g),
        ([, number]) => Number(number),
      );
      assert.deepEqual(order, Array.from({ length: 50 }, (_, number) => number));
      assert.equal(provider.calls.length, 50);
      assert.ok(most <= 5, `${most} at a time`);
      caller.socket.destroy();
    },
  );

  it.notOn(
    ["bun", "workers"],
    "there is no pipelining",
    "a thousand requests ahead are answered in turn or refused with their connection, without a word on the console",
    async () => {
      const warnings: string[] = [];
      const warn = ({ name }: Error) => void warnings.push(name);
      process.on("warning", warn);
      after(() => void process.off("warning", warn));
      const { under } = await start();
      const headers = { ...under.headers, "connection": undefined, "gateway-auth": undefined };
      const caller = openRaw(
        under.a,
        toRawRequest(under.a, { headers, body: GOOD_BODY }).repeat(1000),
      );
      const isAnswered = () => caller.received().split("HTTP/1.1 401").length === 1001;
      await until(
        () => isAnswered() || caller.isClosed(),
        "all are answered, or the connection is closed",
      );
      await until(() => under.gateway.openExchanges === 0, "all exchanges are over");
      caller.socket.destroy();
      assert.deepEqual(warnings, []);
    },
  );

  it.notOn(
    "workers",
    "workerd ends a broken body like a whole one",
    "an answer to HTTP/1.0 that breaks off ends with a reset, since its end is that of the connection",
    async () => {
      const { under } = await start((response) => {
        response.writeHead(200, { "content-type": "application/json" });
        response.write("[", () => response.destroy());
      });
      const text = toRawRequest(under.a, { headers: under.headers, body: GOOD_BODY }).replace(
        "HTTP/1.1",
        "HTTP/1.0",
      );
      const caller = openRaw(under.a, text);
      let failure: string | undefined;
      caller.socket.on("error", ({ code }: NodeJS.ErrnoException) => failure = code);
      await until(caller.isClosed, "the connection is closed");
      assert.equal(failure, "ECONNRESET");
      assert.equal((await under.settled()).outcome, "upstream_cut");
    },
  );

  it.notOn(
    "workers",
    "a Worker has no gateway in this process",
    "the answer of an embedded gateway fails where it is read after its caller counts as gone",
    async () => {
      const { under } = await start((response) => {
        response.writeHead(200, { "content-type": "application/json" });
        response.end(" ".repeat(200_000));
      }, { config: { limits: { writeStall: "100ms" } } });
      const url = `${under.a}/v1/chat/completions`;
      const headers = { ...under.headers, host: new URL(under.a).host };
      const answer = await under.gateway.fetch(
        new Request(url, { method: "POST", headers, body: GOOD_BODY }),
      );
      assert.equal((await under.settled()).outcome, "client_closed");
      assert.equal(answer.status, 200);
      await assert.rejects(answer.text());
    },
  );

  it("hundreds of idle streams do not delay other calls [idle streams]", async () => {
    const { provider, under } = await start((response, { body }) => {
      if (!body.toString().includes('"stream":true')) return answerPlain(response);
      response.writeHead(200, { "content-type": "text/event-stream" });
      response.write(chunk("a"));
    });
    const callers = Array.from({ length: 200 }, () => raw(under));
    await until(
      () => callers.every((caller) => caller.received().includes("data: ")),
      "all streams begin",
    );
    assert.equal(under.gateway.openExchanges, 200);
    for (let number = 0; number < 20; number++) {
      assert.equal(
        (await callRaw(under.a, { headers: under.headers, body: GOOD_BODY })).body,
        COMPLETION,
      );
    }
    for (const { socket } of callers) socket.destroy();
    await until(
      () => provider.calls.filter(({ isCut }) => isCut).length === 200,
      "all upstreams are closed",
    );
    await until(() => under.gateway.openExchanges === 0, "all exchanges are over");
  });

  it.notOn(
    "workers",
    "a Worker accepts no parts from a test",
    "a flood of wrong keys does not slow good callers, and malformed keys are not looked up [key flood]",
    async () => {
      let lookups = 0;
      const good = new MemoryKeyStore([]);
      const keys = {
        find(digest: string) {
          lookups++;
          return good.find(digest);
        },
      };
      const { provider, under } = await start(answerPlain, { parts: { keys } });
      const malformed = ["gk_0123456789ab_wrong", "short", `gk_${"x".repeat(5000)}`];
      const answers = await Promise.all(
        Array.from({ length: 300 }, (_, number) =>
          callRaw(under.a, {
            headers: {
              ...under.headers,
              "gateway-auth": `Bearer ${malformed[number % malformed.length]}`,
            },
            body: GOOD_BODY,
          })),
      );
      for (const { status, body } of answers) {
        assert.equal(status, 401);
        assert.match(body, /invalid_gateway_key/);
      }
      assert.equal(lookups, 0);
      assert.equal(provider.calls.length, 0);
      const headers = { ...under.headers, "gateway-auth": "Bearer wrong-but-well-formed-key" };
      assert.equal((await callRaw(under.a, { headers, body: GOOD_BODY })).status, 401);
      assert.equal(lookups, 1);
    },
  );

  it("when the memory for bodies is full, new bodies are refused at once, and open calls continue [no body memory]", async () => {
    let finish = (): void => {};
    const { under } = await start((response, { body }) => {
      if (!body.toString().includes('"stream":true')) return answerPlain(response);
      response.writeHead(200, { "content-type": "text/event-stream" });
      response.write(chunk("a"));
      finish = () => response.end(stream("b"));
    }, { config: { limits: { body: "1MB", bodies: "1MB" } } });
    const running = raw(under);
    await until(() => running.received().includes("data: "), "the stream begins");
    // An unfinished body uses less than half of the memory. A second one then has no room.
    const large = { ...under.headers, "content-length": "900000" };
    const refused = () =>
      callRaw(under.a, { headers: under.headers, body: `${GOOD_BODY}${" ".repeat(500_000)}` });
    // The body that is read first gets the memory, so this can need a few tries.
    let holding = running;
    let answer = await refused();
    for (let tries = 0; answer.status === 200 && tries < 50; tries++) {
      if (holding === running || holding.received() !== "") {
        holding = openRaw(
          under.a,
          toRawRequest(under.a, { headers: large, body: " ".repeat(400_000) }),
        );
      }
      await until(
        () => under.gateway.openExchanges === 2 || holding.received() !== "",
        "the large body is on its way",
      );
      answer = await refused();
    }
    assert.equal(answer.status, 503);
    assert.match(answer.body, /gateway_overloaded/);
    assert.equal(answer.headers["retry-after"], "1");
    holding.socket.destroy();
    await until(
      () => under.records.some(({ outcome }) => outcome === "client_closed"),
      "its memory is free again",
    );
    assert.equal((await refused()).status, 200);
    finish();
    assert.equal(parseAnswer(await running.closed).body, chunk("a") + stream("b"));
  });

  describe("that open as many exchanges as they can", () => {
    const MANY = ["one", "two", "three", "four"];
    const KEYS = ["greedy", "other", ...MANY].map((id) => ({ id, key: `0123456789-key-of-${id}` }));
    const PLACES = 40;
    /** Exchanges that one key can have open, and one of several providers. */
    const [OF_KEY, OF_PROVIDER] = [32, 36];
    const openAll = (under: UnderTest, call: (number: number) => RawCall) => {
      const all = Array.from(
        { length: 2 * PLACES },
        (_, number) => openRaw(under.a, toRawRequest(under.a, call(number))),
      );
      const leave = () => {
        for (const { socket } of all) socket.destroy();
        return Promise.resolve();
      };
      after(leave);
      return { all, leave };
    };
    const headersOf = (under: UnderTest, id: string) => ({
      ...under.headers,
      "gateway-auth": `Bearer 0123456789-key-of-${id}`,
    });
    const startFull = (answering: Answering, provider: Record<string, unknown> = {}) =>
      start(answering, { provider, config: { keys: KEYS, limits: { exchanges: PLACES } } });
    const isOverloaded = ({ received }: { received(): string }) =>
      received().includes("gateway_overloaded");

    it("leave room for other keys: uploads that do not arrive", async () => {
      const { under } = await startFull(answerPlain, { durable: {} });
      for (const sent of [{}, { "idempotency-key": "one" }]) {
        const headers = { ...headersOf(under, "greedy"), ...sent, "content-length": "900" };
        const { all, leave } = openAll(under, () => ({ headers, body: "{" }));
        await until(
          () => all.filter(isOverloaded).length === 2 * PLACES - OF_KEY,
          "the rest is refused",
        );
        assert.match(
          all.find(isOverloaded)?.received() ?? "",
          /^HTTP\/1.1 503.*this gateway key has its share/s,
        );
        const other = await callRaw(under.a, {
          headers: headersOf(under, "other"),
          body: GOOD_BODY,
        });
        assert.equal(other.status, 200, other.body);
        await leave();
        await until(() => under.gateway.openExchanges === 0, "all have left");
        const again = await callRaw(under.a, {
          headers: headersOf(under, "greedy"),
          body: GOOD_BODY,
        });
        assert.equal(again.status, 200, "their places are free again");
      }
    });

    it("leave room for callers of other providers: calls to a silent provider", async () => {
      const silent = keep(await startProvider(() => {}));
      const provider = keep(await startProvider(answerPlain));
      const under = await startUnderTest({
        upstreams: { a: silent.url, b: provider.url },
        config: { keys: KEYS, limits: { exchanges: PLACES } },
      });
      keep(under);
      const { all, leave } = openAll(under, (number) => {
        return { headers: headersOf(under, MANY[number % MANY.length] ?? ""), body: GOOD_BODY };
      });
      await until(
        () => all.filter(isOverloaded).length === 2 * PLACES - OF_PROVIDER,
        "the rest is refused",
      );
      assert.match(all.find(isOverloaded)?.received() ?? "", /this provider has its share/);
      const call = { method: "POST", headers: headersOf(under, "other"), body: GOOD_BODY };
      const other = await fetch(`${under.b}/v1/chat/completions`, call);
      assert.equal(other.status, 200, await other.text());
      await leave();
      await until(() => under.gateway.openExchanges === 0, "all have left");
    });

    it("leave room for other keys: readers of a recording", async () => {
      let finish = () => {};
      const { under } = await startFull((response, { body }) => {
        if (!body.toString().includes('"stream":true')) return answerPlain(response);
        response.writeHead(200, { "content-type": "text/event-stream" });
        response.write(chunk("a"));
        finish = () => response.end(stream("b"));
      }, { durable: {} });
      const headers = { ...headersOf(under, "greedy"), "idempotency-key": "one" };
      const first = openRaw(under.a, toRawRequest(under.a, { headers, body: STREAM_BODY }));
      after(() => void first.socket.destroy());
      await until(() => first.received().includes("data: "), "the stream begins");
      const path = /^location: (\S+)/im.exec(first.received())?.[1] ?? "";
      const { all, leave } = openAll(
        under,
        () => ({ method: "GET", path, headers: headersOf(under, "greedy") }),
      );
      await until(
        () => all.filter(isOverloaded).length === 2 * PLACES - OF_KEY + 1,
        "the rest is refused",
      );
      // docs/workers.md: workerd can miss a caller that leaves when its answer begins.
      await until(
        () => all.every((each) => isOverloaded(each) || each.received().includes("data: ")),
        "the others read",
      );
      const other = await callRaw(under.a, { headers: headersOf(under, "other"), body: GOOD_BODY });
      assert.equal(other.status, 200, other.body);
      await leave();
      await until(() => under.gateway.openExchanges === 1, "all but the call have left");
      finish();
      assert.equal(parseAnswer(await first.closed).body, chunk("a") + stream("b"));
    });
  });
});
