/**
 * `sallyport doctor`: its findings about providers with different faults, directly and through the
 * gateway.
 */
// runtimes: all
import assert from "node:assert/strict";
import { createServer as createTlsServer, type Server } from "node:https";
import type { AddressInfo } from "node:net";
import { Buffer } from "node:buffer";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { gzipSync } from "node:zlib";
import { afterEach, beforeEach, describe } from "@std/testing/bdd";
import { it } from "../support/cases.ts";
import { createSelfSignedCertificate } from "../../src/cli/demo/certificate.ts";
import { createAuthority, readIdentity } from "../support/authority.ts";
import { type ConnectProxy, startConnectProxy } from "../support/connect_proxy.ts";
import { freePort } from "../support/free_port.ts";
import { needs } from "../support/requires.ts";
import { runtime } from "../support/runtimes.ts";
import { runCommand } from "../support/command.ts";
import { endPrograms, makeFolder } from "../support/program.ts";
import {
  type Answering,
  answerPlain,
  chunk,
  type Provider,
  startProvider,
} from "../support/provider.ts";
import { startBlackHole } from "../support/tcp_peer.ts";

const KEY = "sk-canary-key-at-the-provider";
const USAGE = `data: ${
  JSON.stringify({
    choices: [],
    usage: { prompt_tokens: 2, completion_tokens: 3, total_tokens: 5 },
  })
}\n\n`;
const STOP = chunk(null, "stop");
const DONE = "data: [DONE]\n\n";

/** Differences between the stand-in providers. */
interface Mood {
  readonly events?: string;
  readonly isPacked?: boolean;
  readonly status?: number;
}

/** A long answer continues until its caller leaves. */
function answeringIn(
  { events = `${chunk("Hello")}${STOP}${USAGE}${DONE}`, isPacked, status = 200 }: Mood,
): Answering {
  return (response, { body }) => {
    const { stream, messages: [{ content }] } = JSON.parse(body.toString());
    if (status !== 200) {
      return response.writeHead(status).end(`{"error":{"message":"no such key: ${KEY}"}}`);
    }
    if (stream !== true) return answerPlain(response);
    response.writeHead(200, {
      "content-type": "text/event-stream",
      ...(isPacked && { "content-encoding": "gzip" }),
    });
    if (isPacked || !content.startsWith("Count")) {
      return response.end(isPacked ? gzipSync(events) : events);
    }
    response.write(chunk("one"));
  };
}

type Findings = Readonly<
  Record<string, readonly [state: string, says: string, fix: string | undefined]>
>;

describe("sallyport doctor", () => {
  let folder: ReturnType<typeof makeFolder>;
  const closers: (() => unknown)[] = [];
  beforeEach(() => void (folder = makeFolder()));
  afterEach(async () => {
    await endPrograms();
    for (const close of closers.splice(0)) await close();
    folder.remove();
  });

  const configure = (upstream: string | string[], more: Record<string, unknown> = {}) =>
    writeFileSync(
      join(folder.path, "gateway.jsonc"),
      JSON.stringify({
        providers: { a: { upstream, ...more }, b: { upstream: "https://b.invalid/v1" } },
        keys: { file: "absent.json" },
      }),
    );
  async function run(
    args: readonly string[],
    env: Record<string, string> = { SALLYPORT_UPSTREAM_KEY: KEY },
  ) {
    const ran = await runCommand(["doctor", ...args], { cwd: folder.path, env });
    for (const text of [ran.stdout, ran.stderr]) {
      assert.ok(!text.includes("canary") && !text.includes("gk_"), `a key is told: ${text}`);
    }
    return ran;
  }
  async function start(mood: Mood = {}): Promise<Provider> {
    const provider = await startProvider(answeringIn(mood));
    closers.push(() => provider.close());
    configure(provider.url);
    return provider;
  }
  /** Findings by subject. */
  async function examine(wantedStatus: number, ...args: string[]): Promise<Findings> {
    const { status, stdout, stderr } = await run(["a", "--model", "test-1", "--json", ...args]);
    assert.equal(status, wantedStatus, stdout + stderr);
    const [{ findings }] = JSON.parse(stdout);
    return Object.fromEntries(
      findings.map((
        { what, state, says, fix }: Record<string, string>,
      ) => [what, [state, says, fix]]),
    );
  }
  const states = (findings: Findings) =>
    Object.fromEntries(Object.entries(findings).map(([what, [state]]) => [what, state]));

  it("finds nothing wrong with a good provider, directly and through the gateway", async () => {
    const provider = await start();
    configure(provider.url, { hosts: ["gw.example.com/groq"] });
    const found = await examine(0);
    const ways = ["direct", "gateway"].flatMap((way) =>
      ["plain call", "stream", "events", "comments", "usage", "[DONE]"].map((what) =>
        `${what}, ${way}`
      )
    );
    assert.deepEqual(
      states(found),
      Object.fromEntries(
        ["DNS", "connect", ...ways, "difference", "time", "cancel"].map((what) => [what, "ok"]),
      ),
    );
    assert.equal(found["usage, gateway"]?.[1], "5 tokens");
    assert.match(found.cancel?.[1] ?? "", /^the provider was let go after [\d.]+ ms$/);
    assert.equal(provider.calls.length, 5);
    assert.ok(provider.calls.every(({ headers }) => headers.authorization === `Bearer ${KEY}`));
    assert.ok(provider.calls.every(({ headers }) => headers["gateway-auth"] === undefined));
    assert.ok(provider.calls.at(-1)?.isCut);
  });

  it.once("sends the key in the header that the provider expects", async () => {
    const provider = await start();
    configure(provider.url, { credential: "x-api-key" });
    await examine(0);
    assert.equal(provider.calls.length, 5);
    assert.ok(
      provider.calls.every(({ headers }) =>
        headers["x-api-key"] === KEY && !("authorization" in headers)
      ),
    );
  });

  it.once("prints a line for each finding, followed by the fix", async () => {
    await start({ events: `: hi\n\n${chunk("Hello")}${STOP}` });
    const { status, stdout, stderr } = await run(["a", "--model", "test-1"]);
    assert.equal(status, 0, stderr);
    assert.match(
      stdout,
      /^http:\/\/127\.0\.0\.1:\d+\/v1\nok +DNS +an address, nothing to look up\nok +connect +[\d.]+ ms\n/,
    );
    assert.match(stdout, /\nok +comments, direct +1, which are passed on/);
    assert.match(
      stdout,
      /\nwarning +usage, direct +no tokens are stated\n +-> limits of tokens, budgets and usage/,
    );
    assert.match(
      stdout,
      /\nwarning +\[DONE\], gateway +missing, but the answer says that it is finished\n +-> /,
    );
  });

  it.once("fails a stream without an end, which the gateway ends with an error", async () => {
    await start({ events: chunk("Hello") });
    const found = await examine(1);
    assert.equal(found["[DONE], direct"]?.[0], "failure");
    assert.equal(found["[DONE], gateway"]?.[0], "failure");
  });

  it.once("reports answers that are compressed without a request", async () => {
    await start({ isPacked: true });
    const found = await examine(0);
    assert.match(
      found["events, direct"]?.join() ?? "",
      /^warning,.*packed as gzip without being asked/,
    );
    assert.match(found["events, gateway"]?.join() ?? "", /^ok,.*not packed/);
  });

  it.once("fails an answer that is not a stream", async () => {
    const provider = await startProvider(answerPlain);
    closers.push(() => provider.close());
    configure(provider.url);
    assert.match(
      (await examine(1))["events, direct"]?.join() ?? "",
      /^failure,answered as application\/json/,
    );
  });

  for (
    const [status, says] of [[401, /does not accept this key/], [404, /ends in \/v1/], [
      429,
      /own limit/,
    ], [
      500,
      /try later/,
    ]] as const
  ) {
    it.once(`explains a ${status}, and does not print its body`, async () => {
      const provider = await start({ status });
      const found = await examine(1);
      assert.match(
        found["plain call, direct"]?.join() ?? "",
        new RegExp(`^failure,${status},.*${says.source}`),
      );
      assert.equal(
        provider.calls.length,
        1,
        "what does not go directly is not tried through the gateway",
      );
    });
  }

  it("fails a provider that cannot be reached, with the system's error code", async () => {
    configure(`http://127.0.0.1:${await freePort()}/v1`);
    assert.match(
      (await examine(1)).connect?.join() ?? "",
      /^failure,no connection \(ECONNREFUSED\)/,
    );
    configure("http://nobody.invalid/v1");
    assert.match(
      (await examine(1)).DNS?.join() ?? "",
      /^failure,nobody\.invalid can't be looked up \(/,
    );
    const hole = await startBlackHole();
    closers.push(() => hole.close());
    configure(hole.url, { deadlines: { connect: "100ms" } });
    assert.match((await examine(1)).connect?.join() ?? "", /^failure,no connection \(ETIMEDOUT\)/);
  });

  it("fails an untrusted certificate", async () => {
    const server: Server = createTlsServer(
      createSelfSignedCertificate(["localhost"]),
      (_request, response) => response.end(),
    );
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    closers.push(() => new Promise((resolve) => server.close(resolve)));
    configure(`https://localhost:${(server.address() as AddressInfo).port}/v1`);
    assert.match(
      (await examine(1)).TLS?.join() ?? "",
      /^failure,no safe connection \(.+\),.*NODE_EXTRA_CA_CERTS/,
    );
  });

  const identity = process.env.SALLYPORT_TEST_TLS;
  const needsIdentity = identity === undefined
    ? "a bare run has no certificate that is trusted"
    : undefined;
  it.unless(needsIdentity, "examines a safe connection", async () => {
    const [cert, key] = ["cert.pem", "key.pem"].map((file) =>
      readFileSync(join(identity ?? "", file), "utf8")
    );
    const server = createTlsServer({ cert, key }, async (request, response) => {
      const chunks: Uint8Array[] = [];
      for await (const part of request) chunks.push(part);
      const { url: path = "", method = "", headers } = request;
      answeringIn({})(response, {
        method,
        path,
        headers,
        body: Buffer.concat(chunks),
        isCut: false,
      });
    });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    closers.push(() => {
      server.closeAllConnections();
      server.close();
    });
    configure(`https://localhost:${(server.address() as AddressInfo).port}/v1`);
    const found = await examine(0);
    assert.match(found.DNS?.join() ?? "", /^ok,.*in all/);
    assert.match(found.TLS?.[1] ?? "", /^TLSv1\.3, [\d.]+ ms/);
    assert.equal(found.cancel?.[0], "ok");
  });

  it("examines each hop through a proxy, and makes calls through it", async () => {
    const provider = await start();
    const proxy: ConnectProxy = await startConnectProxy({
      answer: (_target, socket) => {
        if (proxy.heads.at(-1)?.includes("proxy-authorization")) return undefined;
        socket.end("HTTP/1.1 407 Proxy Authentication Required\r\n\r\n");
        return "";
      },
    });
    closers.push(() => proxy.close());
    const withPassword = proxy.url.replace("://", "://user:canary@");
    configure(provider.url, { egress: { proxy: withPassword } });
    const found = await examine(0);
    assert.match(found["proxy connect"]?.join() ?? "", /^ok,[\d.]+ ms/);
    assert.match(
      found.CONNECT?.join() ?? "",
      /^ok,the tunnel is open, credentials shown, [\d.]+ ms/,
    );
    assert.equal(found.connect, undefined, "no connection bypasses the proxy");
    assert.equal(found.cancel?.[0], "ok");
    assert.equal(provider.calls.length, 5);
    configure(provider.url, { egress: { proxy: proxy.url } });
    assert.match(
      (await examine(1)).CONNECT?.join() ?? "",
      /^failure,no tunnel \(proxy_auth\),.*egress\.credentials/,
    );
    await proxy.close();
    assert.match(
      (await examine(1))["proxy connect"]?.join() ?? "",
      /^failure,no connection \(ECONNREFUSED\)/,
    );
    assert.equal(provider.calls.length, 5);
  });

  needs(["openssl"]).it(
    "reports the issuer of the certificate, session resumption, and if a client certificate is requested",
    async () => {
      const authority = createAuthority(folder.path, "company");
      const [server, own] = [readIdentity(authority.sign("upstream")), authority.sign("gateway")];
      const options = {
        ...server,
        ca: readFileSync(authority.ca),
        requestCert: true,
        rejectUnauthorized: true,
      };
      const listener = createTlsServer(options, async (request, response) => {
        const chunks: Uint8Array[] = [];
        for await (const part of request) chunks.push(part);
        const { url: path = "", method = "", headers } = request;
        answeringIn({})(response, {
          method,
          path,
          headers,
          body: Buffer.concat(chunks),
          isCut: false,
        });
      });
      listener.on("tlsClientError", () => {});
      await new Promise<void>((resolve) => listener.listen(0, "127.0.0.1", resolve));
      const proxy = await startConnectProxy();
      closers.push(
        () => proxy.close(),
        () => listener.closeAllConnections(),
        () => listener.close(),
      );
      const url = `https://localhost:${(listener.address() as AddressInfo).port}/v1`;
      for (const route of [{}, { proxy: proxy.url }]) {
        configure(url, { egress: { ...route, ca: authority.ca, ...own } });
        const found = await examine(0);
        assert.match(found.TLS?.[1] ?? "", /^TLSv1\.3, [\d.]+ ms, by company, until \d{4}-/);
        const isTold = runtime === "node" || (runtime === "bun" && !("proxy" in route));
        // Bun's own server does not resume sessions of clients with a certificate.
        const says = runtime === "node" ? /^session resumed, / : /^session not resumed, /;
        assert.match(found["TLS again"]?.[1] ?? "", isTold ? says : /this runtime does not tell/);
        assert.match(
          found["client certificate"]?.join() ?? "",
          /^ok,asked for and shown: CN=gateway, until \d{4}-/,
        );
      }
      configure(url, { egress: { ca: authority.ca } });
      assert.match((await examine(1)).TLS?.join() ?? "", /^failure,.*egress\.(?:cert|ca)/);
    },
  );

  it.once("examines each replica", async () => {
    const provider = await start();
    configure([provider.url, `http://127.0.0.1:${await freePort()}/v1`]);
    const { status, stdout } = await run(["a", "--model", "test-1", "--json"]);
    assert.equal(status, 1);
    const reports = JSON.parse(stdout);
    assert.deepEqual(reports.map(({ findings }: { findings: unknown[] }) => findings.length), [
      17,
      2,
    ]);
  });

  it.once("reads its key from the named variable", async () => {
    const provider = await start();
    const { status } = await run(["a", "--model", "test-1", "--key-env", "MY_KEY"], {
      MY_KEY: KEY,
    });
    assert.equal(status, 0);
    assert.equal(provider.calls[0]?.headers.authorization, `Bearer ${KEY}`);
  });

  it.once("refuses a provider with another shape", async () => {
    configure("https://llm.example.com", { shape: "gemini" });
    const { status, stderr } = await run(["a", "--model", "m"]);
    assert.equal(status, 2);
    assert.match(stderr, /doctor makes chat completions, .* "shape": "gemini"/);
  });

  it.once("names missing arguments", async () => {
    configure("openai");
    const wrong: [args: string[], says: RegExp, env?: Record<string, string>][] = [
      [[], /doctor expects the name of a provider: a, b/],
      [["c"], /doctor expects the name of a provider: a, b/],
      [["a", "b"], /unexpected argument: b/],
      [["a"], /doctor needs --model NAME/],
      [["a", "--model", "m"], /set SALLYPORT_UPSTREAM_KEY, or --key-env/, {}],
      [["a", "--model", "m", "--key-env", "NOT_SET"], /set NOT_SET/],
      [["a", "--model", "m", "--csv"], /doctor has no option --csv/],
    ];
    for (const [args, says, env] of wrong) {
      const { status, stdout, stderr } = await run(args, env);
      assert.deepEqual([status, stdout], [2, ""], args.join(" "));
      assert.match(stderr, says);
    }
  });
});
