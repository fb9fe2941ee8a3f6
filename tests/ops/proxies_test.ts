/** `ops/`: the files for HAProxy, nginx and Caddy, each started unchanged in front of a gateway. */
// runtimes: bun
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import type { ServerResponse } from "node:http";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, describe, it } from "@std/testing/bdd";
import { parseConfig } from "../../src/config/config.ts";
import { parseDuration } from "../../src/config/units.ts";
import { freePort } from "../support/free_port.ts";
import { GOOD_BODY, STREAM_BODY } from "../support/gateway.ts";
import { addressOf, hasLoopbacks, OPS_PROXIES, type Ports } from "../support/ops_files.ts";
import { endPrograms, makeFolder, startProgram } from "../support/program.ts";
import { chunk, type Provider, startProvider, stream } from "../support/provider.ts";
import { needs } from "../support/requires.ts";
import { callRaw, openRaw, toRawRequest } from "../support/tcp_peer.ts";
import { until } from "../support/until.ts";

const KEY = "0123456789-secret-key";
const headers = {
  "host": "b.example.com",
  "accept-encoding": "gzip, br",
  "authorization": "Bearer sk-1",
  "gateway-auth": `Bearer ${KEY}`,
  "content-type": "application/json",
};

describe("the reverse proxies of ops/", () => {
  let provider: Provider;
  /** Two further providers, at ports of the same host. */
  let others: Provider[] = [];
  let answering: ServerResponse | undefined;
  let ports: Ports;
  const folders: ReturnType<typeof makeFolder>[] = [];
  const makeOwnFolder = () => {
    const folder = makeFolder();
    folders.push(folder);
    return folder.path;
  };

  if (hasLoopbacks) {
    beforeAll(async () => {
      provider = await startProvider((response) => void (answering = response)); // the test answers
      others = [await startProvider(), await startProvider()];
      ports = { gateway: await freePort(), admin: await freePort() };
      // One of the three gateways in the files; the others are down.
      const env = {
        SALLYPORT_PROVIDER_A: "http://127.0.0.1:9/v1",
        SALLYPORT_HOSTS_A: "a.example.com",
        SALLYPORT_PROVIDER_B: provider.url,
        SALLYPORT_HOSTS_B: "b.example.com",
        SALLYPORT_PROVIDER_ONE: others[0]?.url ?? "",
        SALLYPORT_HOSTS_ONE: "c.example.com:7001",
        SALLYPORT_PROVIDER_TWO: others[1]?.url ?? "",
        SALLYPORT_HOSTS_TWO: "c.example.com:7002",
        SALLYPORT_KEYS: KEY,
        SALLYPORT_LISTEN: `${addressOf(2)}:${ports.gateway}`,
        SALLYPORT_ADMIN: `${addressOf(2)}:${ports.admin}`,
        SALLYPORT_DRAIN_DELAY: "0s",
      };
      const program = startProgram(["serve"], { env });
      await program.waitFor(/admin on (http:\S+)/);
    });
  }
  afterEach(() => void (answering = undefined));
  afterAll(async () => {
    if (hasLoopbacks) await endPrograms();
    for (const each of [provider, ...others]) await each?.close();
    for (const folder of folders) folder.remove();
  });

  it("wait longer for an answer than the gateway", () => {
    const { deadlines, keepAliveMs } =
      parseConfig({ providers: { a: { upstream: "openai" } } }).providers.a ??
        assert.fail();
    const timeouts: [file: string, pattern: RegExp][] = [
      ["haproxy/haproxy.cfg", /timeout server (\w+)/],
      ["haproxy/haproxy.cfg", /timeout client (\w+)/],
      ["nginx/sallyport.conf", /proxy_read_timeout (\w+);/],
      ["caddy/Caddyfile", /response_header_timeout (\w+)/],
    ];
    for (const [file, pattern] of timeouts) {
      const [, timeout = ""] = pattern.exec(readFileSync(join("ops", file), "utf8")) ?? [];
      assert.ok(
        parseDuration(timeout) > Math.max(deadlines.firstByteMs, deadlines.idleMs, keepAliveMs),
        `${file}: ${timeout}`,
      );
    }
  });

  for (const { name, debianPackage, start } of OPS_PROXIES) {
    needs([debianPackage], hasLoopbacks ? undefined : "tested on Linux").it(
      `${name} forwards events one by one, and closes the call at the provider when a caller leaves`,
      async () => {
        const proxy = await start(makeOwnFolder(), ports);
        try {
          const post = { path: "/v1/chat/completions", headers };
          // The proxy must know that this gateway is up. It first finds that the others are down.
          await until(
            async () =>
              (await callRaw(proxy.url, {
                ...post,
                headers: { ...headers, "gateway-auth": "" },
                body: "{}",
              }))
                .status === 401,
            "the gateway's own refusal comes through",
          );

          const open = async () => {
            const count = provider.calls.length;
            const connection = openRaw(
              proxy.url,
              toRawRequest(proxy.url, { ...post, body: STREAM_BODY }),
            );
            await until(
              () => provider.calls.length > count && answering !== undefined,
              "the call is at the provider",
            );
            const response = answering ?? assert.fail();
            answering = undefined;
            return { connection, response, call: provider.calls.at(-1) ?? assert.fail() };
          };
          const whole = await open();
          whole.response.writeHead(200, { "content-type": "text/event-stream" });
          for (const word of ["one", "two", "three"]) {
            whole.response.write(chunk(word));
            await until(
              () => whole.connection.received().includes(chunk(word)),
              `the event “${word}”, before the next`,
            );
          }
          whole.response.end(stream("end"));
          await until(() => whole.connection.received().includes("[DONE]"), "the stream's end");
          assert.equal(whole.call.isCut, false);
          whole.connection.socket.destroy();

          const started = await open();
          started.response.writeHead(200, { "content-type": "text/event-stream" });
          started.response.write(chunk("one"));
          await until(
            () => started.connection.received().includes(chunk("one")),
            "the first event",
          );
          started.connection.socket.destroy();
          await until(() => started.call.isCut, "the provider is let go in the middle of a stream");

          const silent = await open();
          silent.connection.socket.destroy();
          await until(() => silent.call.isCut, "the provider is let go before its answer");
        } finally {
          await proxy.stop();
        }
      },
    );

    needs([debianPackage], hasLoopbacks ? undefined : "tested on Linux").it(
      `${name} forwards Host with its port, which selects the provider`,
      async () => {
        const proxy = await start(makeOwnFolder(), ports);
        try {
          const call = (host: string) =>
            callRaw(proxy.url, { headers: { ...headers, host }, body: GOOD_BODY });
          await until(
            async () => (await call("c.example.com")).status === 421,
            "no provider is at the host without its port, and the gateway itself says so",
          );
          for (const [index, port] of [7001, 7002, 7001].entries()) {
            const before = others.map(({ calls }) => calls.length);
            assert.equal(
              (await call(`c.example.com:${port}`)).status,
              200,
              `call ${index} of port ${port}`,
            );
            const more = others.map(({ calls }, at) => calls.length - (before[at] ?? 0));
            assert.deepEqual(more, port === 7001 ? [1, 0] : [0, 1]);
          }
          assert.equal((await call("c.example.com:7003")).status, 421);
        } finally {
          await proxy.stop();
        }
      },
    );
  }
});
