/**
 * The real curl, through both hosts of the gateway: http, https, HTTP/1.1 and, if the listener
 * supports it, HTTP/2.
 */
// runtimes: all
import assert from "node:assert/strict";
import { type ChildProcessWithoutNullStreams, spawn } from "node:child_process";
import process from "node:process";
import { afterEach, it } from "@std/testing/bdd";
import {
  assertJournal,
  closeAll,
  startBefore,
  startWith,
  startWithMock,
} from "../support/aimock.ts";
import { GOOD_BODY, STREAM_BODY, type UnderTest, UPSTREAM_KEY } from "../support/gateway.ts";
import { answerStream, chunk, COMPLETION, startProvider, stream } from "../support/provider.ts";
import { needs } from "../support/requires.ts";
import { until } from "../support/until.ts";

/** A running curl. */
interface Curl {
  readonly child: ChildProcessWithoutNullStreams;
  /** Returns its output so far. */
  out(): string;
  /** Its exit code, at the end. */
  readonly ended: Promise<number | null>;
}

interface CurlOptions {
  readonly host?: "a" | "b";
  /** The path before `/v1`. */
  readonly prefix?: string;
  readonly body?: string;
  readonly headers?: readonly string[];
  readonly args?: readonly string[];
}

/** Starts curl. It reads the body from stdin unchanged. */
function startCurl(
  under: UnderTest,
  { host = "a", prefix = "", body = GOOD_BODY, headers, args = [] }: CurlOptions = {},
): Curl {
  const { SALLYPORT_TEST_TLS: tls } = process.env;
  const trust = tls === undefined ? ["-k"] : ["--cacert", `${tls}/cert.pem`];
  const all = headers ?? [
    `Authorization: Bearer ${UPSTREAM_KEY}`,
    `Gateway-Auth: Bearer ${under.key}`,
    "Content-Type: application/json",
  ];
  const child = spawn("curl", [
    "-q",
    "-sS",
    "--noproxy",
    "*",
    "--max-time",
    "20",
    "--data-binary",
    "@-",
    "--cookie",
    "session=1",
    ...trust,
    ...all.flatMap((header) => ["-H", header]),
    ...args,
    `${under[host]}${prefix}/v1/chat/completions`,
  ]);
  let out = "";
  child.stdout.setEncoding("utf8");
  child.stdout.on("data", (text: string) => out += text);
  child.stdin.on("error", () => {}); // curl can exit before it has read everything
  child.stdin.end(body);
  const ended = new Promise<number | null>((resolve, reject) => {
    child.once("error", reject);
    child.once("close", resolve);
  });
  return { child, out: () => out, ended };
}

/** Runs curl, and returns its output. */
async function curl(under: UnderTest, options?: CurlOptions): Promise<string> {
  const { out, ended } = startCurl(under, options);
  assert.equal(await ended, 0, out());
  return out();
}

needs(["curl"]).describe("curl", () => {
  afterEach(closeAll);

  for (const host of ["a", "b"] as const) {
    it(`gets a plain answer on host ${host}; the provider gets the same bytes, no gateway key and no cookie`, async () => {
      const { provider, under } = await startWith();
      const body =
        ' {"x":1e400, "model":"m","messages":[{"role":"user","content":"Grüße\\ud800"}],\n"seed":9223372036854775807}';
      assert.equal(await curl(under, { host, body }), COMPLETION);
      const [call] = provider.calls;
      assert.equal(call?.body.toString(), body);
      assert.equal(call?.headers.authorization, `Bearer ${UPSTREAM_KEY}`);
      assert.ok(
        call !== undefined && !("gateway-auth" in call.headers) && !("cookie" in call.headers),
      );
      const { outcome, provider: name } = await under.settled();
      assert.deepEqual([outcome, name], ["ok", host]);
    });

    it(`gets answers from a mock provider on host ${host}`, async () => {
      const { mock, under, tale } = await startWithMock();
      const messages = [{ role: "user", content: "Tell me" }];
      const plain = JSON.parse(
        await curl(under, { host, body: JSON.stringify({ model: "m", messages }) }),
      );
      assert.equal(plain.choices[0].message.content, tale);
      const body = JSON.stringify({ model: "m", messages, stream: true });
      const events = (await curl(under, { host, body, args: ["-N"] })).split("\n\n");
      assert.deepEqual(events.slice(-2), ["data: [DONE]", ""]);
      const chunks = events.slice(0, -2).map((event) => JSON.parse(event.slice("data: ".length)));
      assert.equal(
        chunks.map(({ choices: [choice] }) => choice?.delta.content ?? "").join(""),
        tale,
      );
      await under.settled(2);
      assertJournal(mock, under, 2);
    });

    it(`gets a stream byte for byte on host ${host}`, async () => {
      const events = `\uFEFF: hello\r\n\r\n${stream("Grüße", " 你好 👋")}`;
      const { under } = await startWith((response) => answerStream(response, events));
      assert.equal(await curl(under, { host, body: STREAM_BODY, args: ["-N"] }), events);
      const { outcome, stream: isStream } = await under.settled();
      assert.deepEqual([outcome, isStream], ["ok", true]);
    });

    it(`gets each event when it is sent on host ${host}, with headers that keep it unbuffered`, async () => {
      const events = [
        ...["one", "two", "three"].map((word) => chunk(word)),
        chunk(null, "stop"),
        "data: [DONE]\n\n",
      ];
      const heard = { out: () => "" };
      const { under } = await startWith(async (response) => {
        response.writeHead(200, { "content-type": "text/event-stream" });
        for (const [index, event] of events.entries()) {
          response.write(event);
          await until(() => heard.out().endsWith(event), `hearing event ${index}`);
        }
        response.end();
      });
      const running = startCurl(under, { host, body: STREAM_BODY, args: ["-N", "-i"] });
      heard.out = running.out;
      assert.equal(await running.ended, 0);
      const [head = "", ...rest] = running.out().split("\r\n\r\n");
      assert.match(head, /^HTTP\/(?:1\.1|2) 200/);
      assert.match(head, /^content-type: text\/event-stream/mi);
      assert.match(head, /^x-accel-buffering: no/mi);
      assert.equal(rest.join("\r\n\r\n"), events.join(""));
    });

    it(`calls on host ${host} with a path before /v1, also over HTTP/1.1`, async () => {
      const provider = await startProvider();
      const hosts = ["*/one", "*/one/openai"];
      const config = { providers: { a: { hosts, upstream: provider.url } } };
      const under = await startBefore({ url: provider.url, close: () => provider.close() }, {
        config,
      });
      assert.equal(await curl(under, { host, prefix: "/one" }), COMPLETION);
      assert.equal(
        await curl(under, { host, prefix: "/one/openai", args: ["--http1.1"] }),
        COMPLETION,
      );
      assert.match(await curl(under, { host, prefix: "/two" }), /"code":"not_found"/);
      assert.deepEqual(provider.calls.map(({ path }) => path), [
        "/v1/chat/completions",
        "/v1/chat/completions",
      ]);
    });

    it(`leaves mid-stream on host ${host}, and the provider sees the connection close`, async () => {
      const { provider, under } = await startWith((response) => {
        response.writeHead(200, { "content-type": "text/event-stream" });
        response.write(chunk("Once"));
      });
      const { child, out, ended } = startCurl(under, { host, body: STREAM_BODY, args: ["-N"] });
      await until(() => out() === chunk("Once"), "hearing the first word");
      child.kill("SIGKILL");
      await ended;
      await until(() => provider.calls[0]?.isCut === true, "the provider seeing the close");
      assert.equal((await under.settled()).outcome, "client_closed");
    });

    it(`sends a large image on host ${host}, over HTTP/1.1 after a 100 Continue`, async () => {
      const { provider, under } = await startWith();
      const url = `data:image/png;base64,${"iVBORw0KGgo".repeat(120_000)}`;
      const content = [{ type: "image_url", image_url: { url } }];
      const body = JSON.stringify({ model: "m", messages: [{ role: "user", content }] });
      assert.equal(await curl(under, { host, body }), COMPLETION);
      assert.equal(await curl(under, { host, body, args: ["--http1.1"] }), COMPLETION);
      assert.ok(
        provider.calls.every((call) => call.body.toString() === body),
        "the body arrived changed",
      );
      assert.equal(provider.calls.length, 2);
    });

    it(`gets a description of the error on host ${host}`, async () => {
      const { provider, under } = await startWith();
      const good = [`Authorization: Bearer ${UPSTREAM_KEY}`, `Gateway-Auth: Bearer ${under.key}`];
      const json = "Content-Type: application/json";
      const refusals: readonly [code: string, status: number, CurlOptions][] = [
        ["missing_gateway_key", 401, { headers: [...good.slice(0, 1), json] }],
        ["missing_upstream_key", 401, { headers: [...good.slice(1), json] }],
        ["unsupported_media_type", 415, { headers: good }],
        ["invalid_json", 400, { body: "model=m" }],
        ["invalid_body", 400, { body: "{}" }],
      ];
      for (const [code, status, options] of refusals) {
        const out = await curl(under, {
          host,
          ...options,
          args: ["-w", "\n%{http_code} %{content_type}"],
        });
        const [body = "", line] = out.split("\n");
        assert.deepEqual([JSON.parse(body).error.code, line], [code, `${status} application/json`]);
      }
      assert.equal(provider.calls.length, 0);
    });

    it(`gets an error instead of a clean end on host ${host}`, async () => {
      const { under } = await startWith((response) => answerStream(response, chunk("Once")));
      const out = await curl(under, { host, body: STREAM_BODY, args: ["-N"] });
      const [first, last = "", rest] = out.split("\n\n");
      assert.equal(`${first}\n\n`, chunk("Once"));
      assert.equal(JSON.parse(last.slice("data: ".length)).error.code, "upstream_stream_truncated");
      assert.equal(rest, "");
    });
  }
});
