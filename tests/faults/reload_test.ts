/** A reload by SIGHUP, with and without workers. */
// runtimes: all
import assert from "node:assert/strict";
import { rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { connect, type TLSSocket } from "node:tls";
import { join } from "node:path";
import { afterEach, beforeEach, describe, it } from "@std/testing/bdd";
import { createSelfSignedCertificate } from "../../src/cli/demo/certificate.ts";
import { GOOD_BODY, STREAM_BODY } from "../support/gateway.ts";
import { freePort } from "../support/free_port.ts";
import { openKeptAlive } from "../support/kept_alive.ts";
import { endPrograms, makeFolder, startProgram } from "../support/program.ts";
import { answerPlain, chunk, type Provider, startProvider, stream } from "../support/provider.ts";
import { runtime } from "../support/runtimes.ts";
import { callRaw, openRaw, parseAnswer, toRawRequest } from "../support/tcp_peer.ts";
import { until } from "../support/until.ts";

const KEY = "0123456789-secret-key";
const LIMITED_KEY = "0123456789-limited-key";
const TOKEN = "0123456789-admin-token";
const CALLERS = 4;
const toHeaders = (key: string, host = "a.localhost") => ({
  host,
  authorization: "Bearer sk-1",
  "gateway-auth": `Bearer ${key}`,
  "content-type": "application/json",
});

interface Ready {
  readonly config: { readonly digest: string; readonly loadedAt: string };
  readonly openExchanges: number;
  readonly workers?: readonly { readonly digest: string; readonly pid: number }[];
}

describe("reload", () => {
  let folder: ReturnType<typeof makeFolder>;
  let provider: Provider;
  let finish: (() => void)[];
  let file: string;
  beforeEach(async () => {
    folder = makeFolder();
    file = join(folder.path, "gateway.jsonc");
    finish = [];
    provider = await startProvider((response, { body }) => {
      if (!body.toString().includes('"stream":true')) return answerPlain(response);
      response.writeHead(200, { "content-type": "text/event-stream" });
      response.write(chunk("a"));
      finish.push(() => response.end(stream("b")));
    });
  });
  afterEach(async () => {
    await endPrograms();
    await provider.close();
    folder.remove();
  });

  const config = (providers: readonly string[] = ["a"], more: Record<string, unknown> = {}) => ({
    listen: [{ port: 0 }],
    admin: { port: 0, token: TOKEN },
    providers: Object.fromEntries(
      providers.map((name) => [name, { upstream: provider.url, hosts: [`${name}.localhost`] }]),
    ),
    keys: [{ id: "team", key: KEY }, {
      id: "limited",
      key: LIMITED_KEY,
      limits: { requests: "2/h" },
    }],
    drain: { delay: "0s" },
    ...more,
  });
  const write = (settings: unknown) =>
    writeFileSync(
      file,
      typeof settings === "string" ? settings : JSON.stringify(settings, null, 2),
    );

  async function serve(workers: number, settings: unknown = config()) {
    write(settings);
    const args = workers === 1 ? [] : ["--workers", String(workers)];
    const program = startProgram(["serve", "--config", file, ...args]);
    const url = await program.waitFor(/listening on (http:\S+)/);
    const admin = await program.waitFor(/admin on (http:\S+)/);
    if (workers > 1) await program.waitFor(/(\d+ workers)/);
    const ask = async (path: string) => {
      const headers = { connection: "close", authorization: `Bearer ${TOKEN}` };
      return (await callRaw(admin, { method: "GET", path, headers })).body;
    };
    const ready = async (): Promise<Ready> => JSON.parse(await ask("/readyz"));
    const call = async (host?: string, key = KEY, at = url) =>
      (await callRaw(at, {
        headers: { ...toHeaders(key, host), connection: "close" },
        body: GOOD_BODY,
      })).status;
    /** Reloads, and returns the lines about it. */
    const reload = async () => {
      const before = program.reports().length;
      program.kill("SIGHUP");
      await until(
        () => /reloaded.*\n/.test(program.reports().slice(before)),
        "the reload is reported",
      );
      return program.reports().slice(before);
    };
    /** Waits until every process uses the configuration that the supervisor reports. */
    const settle = async () => {
      const isSame = ({ config: { digest }, workers = [] }: Ready) =>
        workers.every((each) => each.digest === digest);
      await until(async () => isSame(await ready()), "all have the same configuration");
      return await ready();
    };
    return { program, url, admin, ask, ready, call, reload, settle };
  }

  it("counts an exchange of an earlier configuration until its end", async () => {
    const limited = (names: readonly string[]) => config(names, { limits: { exchanges: 1 } });
    const { url, ready, call, reload } = await serve(1, limited(["a"]));
    const running = openRaw(url, toRawRequest(url, { headers: toHeaders(KEY), body: STREAM_BODY }));
    await until(() => running.received().includes("data: "), "the stream begins");
    write(limited(["a", "b"]));
    await reload();
    assert.equal((await ready()).openExchanges, 1);
    assert.equal(await call("b.localhost"), 503);
    finish.forEach((end) => end());
    await until(async () => (await ready()).openExchanges === 0, "the stream ends");
    assert.equal(await call("b.localhost"), 200);
    running.socket.destroy();
  });

  for (const workers of [1, 2]) {
    describe(workers === 1 ? "alone" : "with workers", () => {
      it("takes effect under kept-alive load, twice at once, and no call is refused, cut or lost [reload]", async () => {
        const { program, url, ask, ready, call, settle } = await serve(workers);
        const limited = async () => await call(undefined, LIMITED_KEY);
        assert.deepEqual([await limited(), await limited(), await limited()], [200, 200, 429]);
        const raw = toRawRequest(url, {
          headers: { ...toHeaders(KEY), connection: "close" },
          body: STREAM_BODY,
        });
        const running = openRaw(url, raw);
        await until(() => running.received().includes("data: "), "the stream begins");
        const before = await settle();
        const request = toRawRequest(url, {
          headers: { ...toHeaders(KEY), connection: "keep-alive" },
          body: GOOD_BODY,
        });
        const callers = Array.from({ length: CALLERS }, () => openKeptAlive(url, request));
        const right = () => callers.reduce((sum, each) => sum + each.right(), 0);
        await until(() => right() > 50, "the load runs");
        for (const names of [["a", "b"], ["a", "b", "c"]]) {
          write(config(names));
          program.kill("SIGHUP");
        }
        await until(async () => await call("c.localhost") === 200, "the last one holds");
        await until(
          async () => (await settle()).config.digest !== before.config.digest,
          "it is reported",
        );
        const after = right();
        await until(() => right() > after + 50, "the load goes on");
        for (const caller of callers) assert.deepEqual(caller.stop(), { isOpen: true, wrong: [] });
        assert.equal(await limited(), 429, "a spent limit is not forgotten");
        assert.ok((await ready()).config.loadedAt > before.config.loadedAt);
        const isOne = async () => (await ready()).openExchanges === 1; // after the last other calls
        if (workers === 1) {
          await until(isOne, "the stream of the configuration before counts, and nothing else");
        }
        finish[0]?.();
        assert.equal(parseAnswer(await running.closed).body, chunk("a") + stream("b"));
        const counted = async () =>
          Array.from((await ask("/metrics")).matchAll(/^sallyport_exchanges_total\{.* (\d+)$/gm))
            .reduce((sum, [, count]) => sum + Number(count), 0);
        await until(
          async () => await counted() >= right() + 4,
          "what was counted before is counted still",
        );
        assert.doesNotMatch(
          program.stdout() + program.stderr() + await ask("/readyz"),
          /secret-key|admin-token/,
        );
        program.kill("SIGTERM");
        assert.equal(await program.ended, 0, program.stderr());
      });

      it("reports a mistake, changes nothing, and allows a later reload [reload]", async () => {
        const { call, reload, ready, settle } = await serve(workers);
        const { config: { digest } } = await ready();
        const mistakes: [unknown, RegExp][] = [
          [
            '{\n  "providers": {\n    "a" 1\n}',
            /config: cannot parse the file: line 3, column 9: expected a colon/,
          ],
          [config(["a", "b"], { speed: 1 }), /speed: unknown setting .*gateway\.jsonc:\d+/],
          [
            config(["a", "b"], { keys: { file: "none.json" } }),
            /keys\.file: there is no such file/,
          ],
          [config(["a", "b"], { keys: [] }), /keys: expected at least one gateway key/],
          [
            config(["a", "b"], {
              listen: [{ port: 0 }, { port: 0, tls: { cert: "b.crt", key: "b.key" } }],
            }),
            /listen\[1\]\.tls\.cert: cannot read the PEM file/,
          ],
        ];
        for (const [settings, says] of mistakes) {
          write(settings);
          const told = await reload();
          assert.match(told, says);
          assert.match(
            told,
            /^sallyport: the configuration was not reloaded, the previous one stays in effect: .*\n$/,
            "one line",
          );
          assert.equal((await settle()).config.digest, digest);
          assert.deepEqual([await call(), await call("b.localhost")], [200, 421]);
        }
        rmSync(file);
        assert.match(await reload(), /config: cannot read the file/);
        write(config(["a", "b"]));
        assert.match(
          await reload(),
          /the configuration was reloaded \(.*gateway\.jsonc\), digest [0-9a-f]{64}\n$/,
        );
        assert.notEqual((await settle()).config.digest, digest);
        assert.equal(await call("b.localhost"), 200);
      });

      it("opens new addresses and closes removed ones, and does neither if one cannot be opened [reload]", async () => {
        const ports = [await freePort(), await freePort()] as const;
        const on = (...all: readonly number[]) => ({ listen: all.map((port) => ({ port })) });
        const { call, reload, settle } = await serve(workers, config(["a"], on(ports[0])));
        const [first, second] = ports.map((port) => `http://127.0.0.1:${port}`);
        const isRefused = async (url = "") => Number.isNaN(await call("a.localhost", KEY, url));
        const taken = createServer();
        await new Promise<void>((resolve) => taken.listen(ports[1], "127.0.0.1", resolve));
        write(config(["a", "b"], on(...ports)));
        const told = await reload();
        await new Promise<void>((resolve) => taken.close(() => resolve()));
        assert.match(told, /not reloaded.*listen\[1\]: cannot listen on http:\/\/127\.0\.0\.1:\d+/);
        assert.equal(await call("b.localhost", KEY, first), 421, "all of the old one holds");
        assert.match(await reload(), /was reloaded/);
        await settle();
        assert.deepEqual([
          await call("b.localhost", KEY, first),
          await call("b.localhost", KEY, second),
        ], [200, 200]);
        write(config(["a"], on(ports[1])));
        assert.match(await reload(), /was reloaded/);
        await settle();
        await until(() => isRefused(first), "the first is closed");
        assert.equal(await call("a.localhost", KEY, second), 200);
        write(config(["a"], { listen: [{ hostname: "0.0.0.0", port: ports[1] }] }));
        assert.match(
          await reload(),
          /not reloaded.*listen\[0\]: a port can't change its hostname.*restart/,
        );
        assert.equal(await call("a.localhost", KEY, second), 200);
      });

      /** Serves with a certificate for `one.test`, which `renew` replaces. */
      async function serveWithCertificate() {
        const renew = (name: string) => {
          const { cert, key } = createSelfSignedCertificate([name]);
          writeFileSync(join(folder.path, "b.crt"), cert);
          writeFileSync(join(folder.path, "b.key"), key);
        };
        renew("one.test");
        const tls = { cert: "b.crt", key: "b.key" };
        const served = await serve(
          workers,
          config(["a"], { listen: [{ port: 0 }, { port: 0, tls }] }),
        );
        const port = Number(new URL(await served.program.waitFor(/listening on (https:\S+)/)).port);
        let opened = 0;
        const open = () =>
          new Promise<TLSSocket>((resolve, reject) => {
            // A different name for each connection, because Deno's client resumes the TLS session
            // of a name, with the certificate of its start.
            const options = {
              host: "127.0.0.1",
              port,
              servername: `${++opened}.test`,
              rejectUnauthorized: false,
            };
            const socket = connect(options, () => resolve(socket));
            socket.on("error", reject);
          });
        const nameOf = async () => {
          const socket = await open().catch(() => undefined); // between two listeners
          const name = socket?.getPeerCertificate().subject?.CN;
          socket?.destroy();
          return name;
        };
        return { ...served, renew, open, nameOf };
      }

      it("uses a renewed certificate [reload]", async () => {
        const { reload, renew, open, nameOf } = await serveWithCertificate();
        assert.equal(await nameOf(), "one.test");
        const kept = await open();
        let isClosed = false;
        kept.on("close", () => isClosed = true);
        renew("two.test");
        assert.match(await reload(), /was reloaded/);
        await until(async () => await nameOf() === "two.test", "the renewed one is shown");
        if (runtime === "node") assert.ok(!isClosed, "Node changes it without closing anything");
        kept.destroy();
        writeFileSync(join(folder.path, "b.key"), createSelfSignedCertificate(["x"]).key);
        assert.match(
          await reload(),
          /not reloaded.*listen\[1\]\.tls\.key: expected the private key of the certificate/,
        );
        assert.equal(await nameOf(), "two.test");
      });

      it("keeps the port open when another reload follows a renewed certificate at once", async () => {
        const { reload, renew, nameOf } = await serveWithCertificate();
        for (const name of ["two.test", "three.test", "four.test", "five.test"]) {
          renew(name);
          assert.match(await reload(), /was reloaded/);
          assert.match(await reload(), /was reloaded/);
          await until(async () => await nameOf() === name, `${name} is shown`);
        }
      });
    });
  }
});
