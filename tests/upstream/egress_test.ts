/** Egress to providers: through a proxy, with configured authorities and a client certificate. */
// runtimes: all
// long: proxies are waited for until they give up
import assert from "node:assert/strict";
import { createServer as createHttpsServer } from "node:https";
import { writeFileSync } from "node:fs";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import process from "node:process";
import { afterEach, beforeEach, describe } from "@std/testing/bdd";
import { it } from "../support/cases.ts";
import { createSelfSignedCertificate } from "../../src/cli/demo/certificate.ts";
import { parseConfig } from "../../src/config/config.ts";
import type { FailureCause } from "../../src/errors/outcomes.ts";
import { readEgress } from "../../src/serve/egress.ts";
import { type Authority, createAuthority, readIdentity } from "../support/authority.ts";
import {
  type ConnectProxy,
  type ConnectProxyOptions,
  startConnectProxy,
} from "../support/connect_proxy.ts";
import { freePort } from "../support/free_port.ts";
import {
  GOOD_BODY,
  startUnderTest,
  STREAM_BODY,
  type UnderTest,
  UPSTREAM_KEY,
} from "../support/gateway.ts";
import { makeFolder } from "../support/program.ts";
import {
  type Answering,
  answerPlain,
  chunk,
  type Provider,
  startProvider,
  stream,
} from "../support/provider.ts";
import { needs } from "../support/requires.ts";
import { runtime } from "../support/runtimes.ts";
import { type Squid, startSquid, withSquid } from "../support/squid.ts";
import { openRaw, toRawRequest } from "../support/tcp_peer.ts";
import { startTlsFront } from "../support/tls_front.ts";
import { until } from "../support/until.ts";

/** Characters that a URL must encode. */
const [USER, PASSWORD] = ["team", "canary/p@ss:wörd"];
const CREDENTIALS = `${USER}:${PASSWORD}`;
const withCredentials = (url: string) =>
  url.replace("://", `://${encodeURIComponent(USER)}:${encodeURIComponent(PASSWORD)}@`);
const withCertificates = needs(["nginx", "openssl"]);

let folder: ReturnType<typeof makeFolder>;
const closing: (() => unknown)[] = [];
const keep = <Resource extends { close(): unknown }>(resource: Resource): Resource => {
  closing.push(() => resource.close());
  return resource;
};
beforeEach(() => void (folder = makeFolder()));
afterEach(async () => {
  for (const close of closing.splice(0).reverse()) await close();
  folder.remove();
});

const provide = async (answering: Answering = answerPlain): Promise<Provider> =>
  keep(await startProvider(answering));
const proxy = async (options: ConnectProxyOptions = {}): Promise<ConnectProxy> =>
  keep(await startConnectProxy(options));
const start = async (
  upstream: string | string[],
  egress: Record<string, unknown>,
  more: Record<string, unknown> = {},
): Promise<UnderTest> => {
  const [a = ""] = [upstream].flat();
  return keep(await startUnderTest({ upstreams: { a }, provider: { upstream, egress, ...more } }));
};
const call = (under: UnderTest, body = GOOD_BODY, signal?: AbortSignal): Promise<Response> =>
  fetch(`${under.a}/v1/chat/completions`, {
    method: "POST",
    headers: under.headers,
    body,
    ...(signal !== undefined && { signal }),
  });
/** Makes one call and returns its status. Reads its body. */
const statusOf = async (under: UnderTest): Promise<number> => {
  const answer = await call(under);
  await answer.text();
  return answer.status;
};

/**
 * Starts nginx with TLS in front of a provider. @param verify True if it requires a certificate of
 * the authority
 */
const startSecure = async (
  provider: Provider,
  authority: Authority,
  verify: "on" | "off",
): Promise<string> => keep(await startTlsFront(folder.path, provider, authority, verify)).url;

describe("through a proxy", () => {
  for (
    const [form, configure] of Object.entries({
      "in the URL": (url: string) => ({ proxy: withCredentials(url) }),
      "in a file": (url: string) => {
        const file = join(folder.path, "credentials");
        writeFileSync(file, `${CREDENTIALS}\n`);
        return { proxy: url, credentials: file };
      },
    })
  ) {
    it(`shows the proxy the upstream and its credentials ${form}, nothing of the call, and reuses the tunnel`, async () => {
      const [provider, between] = [await provide(), await proxy()];
      const under = await start(provider.url, configure(between.url));
      for (let count = 0; count < 3; count++) assert.equal(await statusOf(under), 200);
      const { host } = new URL(provider.url);
      const basic = btoa(String.fromCharCode(...new TextEncoder().encode(CREDENTIALS)));
      assert.deepEqual(between.heads, [
        `CONNECT ${host} HTTP/1.1\r\nhost: ${host}\r\nproxy-authorization: Basic ${basic}\r\n\r\n`,
      ]);
      assert.equal(provider.calls.length, 3);
      for (const { path, headers } of provider.calls) {
        assert.equal(path, "/v1/chat/completions", "not the form for proxies");
        assert.ok(!JSON.stringify(headers).toLowerCase().includes("proxy"));
        assert.equal(headers.authorization, `Bearer ${UPSTREAM_KEY}`);
      }
      assert.ok(!(await under.told()).includes("canary/"), "no word of the password");
    });
  }

  withSquid.describe("squid", () => {
    let squid: Squid;
    beforeEach(async () => void (squid = keep(await startSquid(CREDENTIALS))));
    const connects = () => squid.log().split("\n").filter((line) => line.includes(" CONNECT "));

    it("passes calls to upstreams over http and https", async () => {
      const authority = createAuthority(folder.path);
      const server = createHttpsServer(
        readIdentity(authority.sign("upstream")),
        (request, response) => {
          request.resume().on("end", () => answerPlain(response));
        },
      );
      await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
      closing.push(() => server.closeAllConnections(), () => server.close());
      const secureUrl = `https://localhost:${(server.address() as AddressInfo).port}/v1`;
      for (const url of [(await provide()).url, secureUrl]) {
        const under = await start(url, { proxy: withCredentials(squid.url), ca: authority.ca });
        assert.deepEqual([await statusOf(under), await statusOf(under)], [200, 200]);
      }
    });

    it("reports wrong credentials and blocked ports with different causes", async () => {
      const provider = await provide();
      const wrong: [string, Record<string, unknown>, FailureCause][] = [
        [provider.url, { proxy: squid.url }, "proxy_auth"],
        [provider.url, { proxy: squid.url.replace("://", "://team:wrong@") }, "proxy_auth"],
        ["http://127.0.0.1:9/v1", { proxy: withCredentials(squid.url) }, "proxy_refused"],
        [
          `http://127.0.0.1:${await freePort()}/v1`,
          { proxy: withCredentials(squid.url) },
          "proxy_upstream",
        ],
      ];
      for (const [url, egress, cause] of wrong) {
        const under = await start(url, egress);
        assert.equal(await statusOf(under), 502);
        const { code, cause: told } = await under.settled();
        assert.deepEqual([code, told], ["upstream_unreachable", cause]);
      }
      assert.equal(provider.calls.length, 0);
    });

    it("passes streams on as they arrive", async () => {
      let goOn = (): void => {};
      const provider = await provide(async (response) => {
        response.writeHead(200, { "content-type": "text/event-stream" });
        response.write(chunk("one"));
        await new Promise<void>((resolve) => goOn = resolve);
        response.end(stream("two"));
      });
      const under = await start(provider.url, { proxy: withCredentials(squid.url) });
      const reader = (await call(under, STREAM_BODY)).body?.getReader() ?? assert.fail();
      const first = await reader.read();
      assert.match(new TextDecoder().decode(first.value), /one/);
      goOn();
      let rest = "";
      for (let each = await reader.read(); !each.done; each = await reader.read()) {
        rest += new TextDecoder().decode(each.value);
      }
      assert.match(rest, /two[^]*\[DONE\]/);
    });

    it("closes the tunnel when the caller leaves", async () => {
      const provider = await provide((response) => {
        response.writeHead(200, { "content-type": "text/event-stream" });
        response.write(chunk("one"));
      });
      const under = await start(provider.url, { proxy: withCredentials(squid.url) });
      const controller = new AbortController();
      const answer = await call(under, STREAM_BODY, controller.signal);
      await answer.body?.getReader().read();
      controller.abort();
      await until(() => provider.calls[0]?.isCut === true, "the provider is let go");
      assert.equal((await under.settled()).outcome, "client_closed");
      await until(() => connects().length === 1, "squid reports a tunnel that is over");
    });

    it("ends a stream with an error when it dies during the call", async () => {
      const provider = await provide((response) => {
        response.writeHead(200, { "content-type": "text/event-stream" });
        response.write(chunk("one"));
      });
      const under = await start(provider.url, { proxy: withCredentials(squid.url) });
      const answer = await call(under, STREAM_BODY);
      const reader = answer.body?.getReader() ?? assert.fail();
      await reader.read();
      await squid.kill();
      let rest = "";
      for (let each = await reader.read(); !each.done; each = await reader.read()) {
        rest += new TextDecoder().decode(each.value);
      }
      assert.match(rest, /"code":"upstream_(?:stream_truncated|disconnected)"/);
      assert.equal((await under.settled()).outcome, "upstream_cut");
      // The next call fails at once.
      assert.equal(await statusOf(under), 502);
      assert.equal((await under.settled(2)).cause, "proxy_unreachable");
    });
  });

  const ANSWERS: Readonly<Record<string, [answer: string, cause: FailureCause]>> = {
    "wants other credentials": ["HTTP/1.1 407 Proxy Authentication Required\r\n\r\n", "proxy_auth"],
    "forbids it": ["HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n", "proxy_refused"],
    "leads elsewhere": [
      "HTTP/1.1 302 Found\r\nlocation: http://login.example\r\n\r\n",
      "proxy_refused",
    ],
    "reaches no server": ["HTTP/1.1 502 Bad Gateway\r\n\r\n", "proxy_upstream"],
    "is an old proxy that reaches no server": ["HTTP/1.0 504 Late\r\n\r\n", "proxy_upstream"],
    "is none": ["SSH-2.0-OpenSSH\r\n", "proxy_failed"],
    "has no status": ["HTTP/1.1 OK\r\n\r\n", "proxy_failed"],
    "says more than it should": ["HTTP/1.1 200 OK\r\n\r\nHTTP/1.1 200 OK\r\n", "proxy_failed"],
    "has no end of words": [`HTTP/1.1 200 OK\r\n${"a: b\r\n".repeat(4000)}`, "proxy_failed"],
    "sends a flood of interim answers": ["HTTP/1.1 103 \r\n\r\n".repeat(30_000), "proxy_failed"],
    "closes": ["close", "proxy_failed"],
    "resets": ["reset", "proxy_failed"],
  };
  for (const [what, [answer, cause]] of Object.entries(ANSWERS)) {
    it(`makes the call use another replica if the proxy ${what}`, async () => {
      const provider = await provide();
      const gone = "http://gone.example:81/v1";
      const between = await proxy({
        answer(target, socket) {
          if (target !== "gone.example:81") return undefined;
          if (answer === "close") socket.end();
          else if (answer === "reset") socket.resetAndDestroy();
          return answer.length > 5 ? answer : "";
        },
      });
      const under = await start([gone, provider.url], { proxy: between.url });
      assert.equal(await statusOf(under), 200);
      assert.equal((await under.settled()).retryCause, cause);
      assert.equal(provider.calls.length, 1);
    });
  }

  it("makes the call use another replica if the proxy is silent until the deadline", async () => {
    const provider = await provide();
    const between = await proxy({
      answer: (target) => target === "gone.example:81" ? "" : undefined,
    });
    const deadlines = { connect: "2s" };
    const under = await start(["http://gone.example:81/v1", provider.url], { proxy: between.url }, {
      deadlines,
    });
    assert.equal(await statusOf(under), 200);
    assert.equal((await under.settled()).retryCause, "proxy_failed");
    await until(() => between.open.size === 1, "the silent connection is closed");
  });

  it("is named in the error if it cannot be reached", async () => {
    const provider = await provide();
    const gone = [`http://127.0.0.1:${await freePort()}`, "http://nobody.invalid:3128"];
    const distrusted = await proxy({ identity: createSelfSignedCertificate(["127.0.0.1"]) });
    for (const url of [...gone, distrusted.url]) {
      const under = await start(provider.url, { proxy: url });
      assert.equal(await statusOf(under), 502);
      assert.equal((await under.settled()).cause, "proxy_unreachable", url);
    }
  });

  it("can send interim answers, which are handled as such", async () => {
    const provider = await provide();
    const between = await proxy({
      answer: (_target, socket) =>
        void socket.write("HTTP/1.1 102 Processing\r\n\r\n") as undefined,
    });
    const under = await start(provider.url, { proxy: between.url });
    assert.equal(await statusOf(under), 200);
  });

  it("is read from the environment if that is configured", async () => {
    const [provider, between] = [await provide(), await proxy()];
    const names = ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY", "no_proxy", "NO_PROXY"];
    const before = names.map((name) => process.env[name]);
    const through = async (variables: Record<string, string>): Promise<boolean> => {
      for (const name of names) delete process.env[name];
      Object.assign(process.env, variables);
      const { length } = between.heads;
      const under = await start(provider.url, { fromEnvironment: true });
      // Not by fetch, because Bun's own fetch also reads these variables.
      const request = toRawRequest(under.a, { headers: under.headers, body: GOOD_BODY });
      assert.match(await openRaw(under.a, request).closed, /^HTTP\/1\.1 200 /);
      return between.heads.length > length;
    };
    try {
      assert.equal(await through({ HTTP_PROXY: between.url }), true);
      assert.equal(
        await through({ http_proxy: new URL(between.url).host }),
        true,
        "a proxy without a scheme",
      );
      assert.equal(await through({ ALL_PROXY: between.url }), true);
      assert.equal(
        await through({ HTTPS_PROXY: between.url }),
        false,
        "it is for upstreams over https",
      );
      assert.equal(
        await through({ HTTP_PROXY: between.url, NO_PROXY: "example.com, 127.0.0.0/8" }),
        false,
      );
      assert.equal(await through({ HTTP_PROXY: between.url, no_proxy: "10.0.0.0/8" }), true);
      process.env.HTTP_PROXY = "socks5://canary@h:1";
      const config = parseConfig({
        providers: { a: { upstream: provider.url, egress: { fromEnvironment: true } } },
      });
      assert.throws(() => readEgress(config, "."), (error: Error) => {
        assert.match(
          error.message,
          /providers\.a\.egress\.fromEnvironment: .*SOCKS is not supported \(HTTP_PROXY\)/,
        );
        return !error.message.includes("canary");
      });
    } finally {
      for (const [index, name] of names.entries()) {
        const value = before[index];
        if (value === undefined) delete process.env[name];
        else process.env[name] = value;
      }
    }
  });
});

withCertificates.describe("with certificates", () => {
  let authority: Authority;
  beforeEach(() => void (authority = createAuthority(folder.path)));

  it("shows its certificate to an upstream that requires one, directly and through a proxy over https", async () => {
    const provider = await provide();
    const url = await startSecure(provider, authority, "on");
    const { cert, key } = authority.sign("gateway");
    const between = await proxy({ identity: readIdentity(authority.sign("proxy")) });
    for (const egress of [{}, { proxy: between.url }]) {
      const under = await start(url, { ...egress, ca: authority.ca, cert, key });
      assert.deepEqual([await statusOf(under), await statusOf(under)], [200, 200]);
      assert.equal(provider.calls.at(-1)?.headers["x-subject"], "CN=gateway");
    }
    assert.equal(between.heads.length, 1);
    const without = await start(url, { ca: authority.ca });
    assert.equal(await statusOf(without), 400, "what nginx says to those without one");
  });

  it("trusts an authority only if it is configured, and keeps its connections separate", async () => {
    const provider = await provide();
    const url = await startSecure(provider, authority, "off");
    const under = keep(
      await startUnderTest({
        upstreams: { a: url },
        config: {
          providers: {
            a: { hosts: ["a.localhost"], upstream: url, egress: { ca: [authority.ca] } },
            b: { hosts: ["b.localhost"], upstream: url },
          },
        },
      }),
    );
    const statusAt = async (host: string) => {
      const port = Number(new URL(under.a).port);
      const headers = { ...under.headers, host };
      const request = toRawRequest(under.a, { headers, body: GOOD_BODY });
      return (await openRaw(`http://127.0.0.1:${port}`, request).closed).split(" ")[1];
    };
    assert.equal(await statusAt("a.localhost"), "200");
    assert.equal(await statusAt("b.localhost"), "502");
    assert.equal((await under.settled(2)).cause, "tls");
    assert.equal(await statusAt("a.localhost"), "200");
  });

  it("trusts the authorities of the runtime in addition to its own, unless only its own are trusted", async () => {
    const provider = await provide();
    const url = await startSecure(provider, authority, "off");
    const other = createAuthority(folder.path, "other").ca;
    for (
      const [egress, status] of [[{ ca: [other, authority.ca], caOnly: true }, 200], [
        { ca: other, caOnly: true },
        502,
      ]] as const
    ) {
      assert.equal(await statusOf(await start(url, egress)), status);
    }
  });

  const cannotResume = runtime === "deno" ? "Deno 2.9 resumes no TLS session" : undefined;
  it.unless(cannotResume, "resumes TLS sessions, directly and through a proxy", async () => {
    const provider = await provide();
    const url = await startSecure(provider, authority, "off");
    const between = await proxy();
    const resumed = () => provider.calls.map((each) => each.headers["x-resumed"]);
    for (const egress of [{}, { proxy: between.url }]) {
      provider.calls.splice(0);
      const under = await start(url, { ...egress, ca: authority.ca });
      assert.equal(await statusOf(under), 200);
      // Simultaneous calls need a second connection.
      const statuses = await Promise.all([statusOf(under), statusOf(under), statusOf(under)]);
      assert.deepEqual(statuses, [200, 200, 200]);
      assert.equal(
        resumed().filter((each) => each === "r").length >= 1,
        true,
        JSON.stringify(resumed()),
      );
      assert.equal(resumed()[0], ".");
    }
  });
});
