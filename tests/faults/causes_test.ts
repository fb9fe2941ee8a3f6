/**
 * The cause of a failed call to a provider: log, record and metrics name it in one word, the same
 * word on every runtime.
 */
// runtimes: all
import assert from "node:assert/strict";
import { describe, it } from "@std/testing/bdd";
import { createSelfSignedCertificate } from "../../src/cli/demo/certificate.ts";
import type { ErrorCode } from "../../src/errors/codes.ts";
import type { FailureCause } from "../../src/errors/outcomes.ts";
import { createFetchTransport } from "../../src/upstream/transport.ts";
import { urlOfNobody } from "../support/free_port.ts";
import { chunk, startProvider } from "../support/provider.ts";
import { GOOD_BODY, STREAM_BODY, testIdentity } from "../support/gateway.ts";
import { runtime } from "../support/runtimes.ts";
import { useScenes } from "../support/scenes.ts";
import { callRaw, startBlackHole, startTcpPeer, startTlsPeer } from "../support/tcp_peer.ts";

const PART = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 10\r\n\r\n{";

describe("the cause of a failed call", () => {
  const { keep, startAt: start } = useScenes();
  const peer = async (onRequest: Parameters<typeof startTcpPeer>[0]) =>
    keep(await startTcpPeer(onRequest)).url;
  const tls = async (...args: Parameters<typeof startTlsPeer>) =>
    keep(await startTlsPeer(...args)).url;
  const wrongHost = () => tls(testIdentity(), "127.0.0.2"); // valid for 127.0.0.1
  const selfSigned = () => tls(createSelfSignedCertificate(["127.0.0.1"]));
  const expired = () => tls(createSelfSignedCertificate(["127.0.0.1"], -30_000));
  const notTls = async (answer: string) => {
    const { port } = keep(
      await startTcpPeer(() => {}, (socket) => socket.once("data", () => socket.end(answer))),
    );
    return `https://127.0.0.1:${port}/v1`;
  };

  interface Failure {
    readonly upstream: () => string | Promise<string>;
    readonly cause: FailureCause;
    /** Default: `upstream_unreachable`. */
    readonly code?: ErrorCode;
    readonly body?: string;
    readonly deadlines?: Record<string, string>;
  }

  const FAILURES: Readonly<Record<string, Failure>> = {
    "a port without a listener": { upstream: urlOfNobody, cause: "refused" },
    "a name that does not resolve [untrusted upstream]": {
      upstream: () => "http://nobody.invalid/v1",
      cause: "dns",
    },
    "a name that does not resolve, over TLS [untrusted upstream]": {
      upstream: () => "https://nobody.invalid/v1",
      cause: "dns",
    },
    "a certificate without a known signer [untrusted upstream]": {
      upstream: selfSigned,
      cause: "tls",
    },
    "a certificate for another host [untrusted upstream]": { upstream: wrongHost, cause: "tls" },
    "an expired certificate [untrusted upstream]": { upstream: expired, cause: "tls" },
    "no TLS on that port": {
      upstream: () => notTls("HTTP/1.1 400 Bad Request\r\n\r\n"),
      cause: "tls",
    },
    "an end in the TLS handshake": { upstream: () => notTls(""), cause: "tls" },
    "a reset before the header": {
      upstream: () => peer((socket) => socket.resetAndDestroy()),
      cause: "reset",
    },
    "an end before the header": { upstream: () => peer((socket) => socket.end()), cause: "closed" },
    "an end in the header": {
      upstream: () => peer((socket) => socket.end("HTTP/1.1 200 OK\r\n")),
      cause: "closed",
    },
    "no HTTP": {
      upstream: () => peer((socket) => socket.write("SSH-2.0-OpenSSH\r\n\r\n")),
      cause: "malformed",
      code: "upstream_bad_response",
    },
    "a redirect": {
      upstream: () =>
        peer((socket) =>
          socket.end("HTTP/1.1 302 Found\r\nlocation: /\r\ncontent-length: 0\r\n\r\n")
        ),
      cause: "redirect",
      code: "upstream_bad_response",
    },
    "a black hole": {
      upstream: async () => keep(await startBlackHole()).url,
      cause: "timeout",
      code: "upstream_connect_timeout",
      deadlines: { connect: "300ms" },
    },
    "silence": {
      upstream: () => peer(() => {}),
      cause: "timeout",
      code: "upstream_first_byte_timeout",
      deadlines: { firstByte: "300ms" },
    },
    "an end in an answer": {
      upstream: () => peer((socket) => socket.end(PART)),
      cause: "closed",
      code: "upstream_disconnected",
    },
    "a reset in an answer": {
      upstream: () =>
        peer((socket) => socket.write(PART, () => setTimeout(() => socket.resetAndDestroy(), 100))),
      cause: "reset",
      code: "upstream_disconnected",
    },
    "a stream without its end": {
      upstream: async () =>
        keep(
          await startProvider((response) =>
            response.writeHead(200, { "content-type": "text/event-stream" }).end(chunk("a"))
          ),
        ).url,
      cause: "closed",
      code: "upstream_stream_truncated",
      body: STREAM_BODY,
    },
  };

  for (
    const [what, { upstream, cause, code = "upstream_unreachable", body = GOOD_BODY, deadlines }]
      of Object.entries(
        FAILURES,
      )
  ) {
    it(`${what} is ${cause}`, async () => {
      const url = await upstream();
      const under = await start(url, deadlines && { provider: { deadlines } });
      const answer = await callRaw(under.a, { headers: under.headers, body });
      const record = await under.settled();
      assert.deepEqual([record.code, record.cause], [code, cause]);
      const told = await under.told();
      const line = JSON.parse(told.split("\n").find((each) => each.startsWith('{"time"')) ?? "{}");
      assert.deepEqual([line.code, line.cause], [code, cause]);
      assert.ok(told.includes(`${code} (${cause})`), "the form for people");
      assert.match(
        told,
        new RegExp(`^sallyport_exchanges_total\\{.*code="${code}".*,cause="${cause}"\\} 1$`, "m"),
      );
      assert.match(
        told,
        new RegExp(
          `^sallyport_upstream_results_total\\{.*result="${code}",cause="${cause}"\\} 1$`,
          "m",
        ),
      );
      assert.ok(!told.includes(new URL(url).host), "no address is logged");
      // The caller receives the code, but neither the cause nor an address.
      const shown = Object.values(answer.headers).concat(answer.body).join("\n");
      assert.ok(
        shown.includes(code) && !shown.includes(new URL(url).hostname) &&
          !shown.includes('"cause"'),
        shown,
      );
    });
  }

  it("of a retried call is reported, although the exchange succeeded", async () => {
    const alive = keep(await startProvider());
    const under = await start([await urlOfNobody(), alive.url]);
    assert.equal((await callRaw(under.a, { headers: under.headers, body: GOOD_BODY })).status, 200);
    const { outcome, cause, retries, retryCause } = await under.settled();
    assert.deepEqual([outcome, cause, retries, retryCause], ["ok", undefined, 1, "refused"]);
    const told = await under.told();
    assert.match(told, /"outcome":"ok","retryCause":"refused"/);
    assert.match(
      told,
      /^sallyport_upstream_retries_total\{provider="a",operation="chat.completions",cause="refused"\} 1$/m,
    );
    assert.match(told, /^sallyport_exchanges_total\{.*outcome="ok".*cause="none"\} 1$/m);
  });

  describe("over the runtime's own fetch, as far as fetch reports it", () => {
    // Bun's fetch reports each end of a connection as a reset, and Node's fetch an end in a
    // handshake.
    const ELSEWHERE: Readonly<Record<string, readonly [runtime: string, cause: FailureCause]>> = {
      "an end before the header": ["bun", "reset"],
      "an end in the header": ["bun", "reset"],
    };
    const SAME = [
      "a port without a listener",
      "a name that does not resolve [untrusted upstream]",
      "a certificate without a known signer [untrusted upstream]",
      "a certificate for another host [untrusted upstream]",
      "an expired certificate [untrusted upstream]",
      "no TLS on that port",
      "a reset before the header",
      "an end before the header",
      "no HTTP",
      "a redirect",
    ];
    for (const what of SAME) {
      it(what, async () => {
        const { upstream, cause } = FAILURES[what] ?? assert.fail();
        const under = await start(await upstream(), {
          parts: { transport: createFetchTransport() },
        });
        await callRaw(under.a, { headers: under.headers, body: GOOD_BODY });
        const [where, other] = ELSEWHERE[what] ?? [];
        assert.equal((await under.settled()).cause, where === runtime ? other : cause);
      });
    }
  });
});
