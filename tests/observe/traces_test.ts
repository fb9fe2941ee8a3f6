/**
 * Traces of the single-file build, as a collector receives them: from the SDK on Node and Bun, and
 * from Deno's own exporter.
 */
// runtimes: all
import assert from "node:assert/strict";
import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import process from "node:process";
import { pathToFileURL } from "node:url";
import { afterEach, beforeEach, describe, it } from "@std/testing/bdd";
import { urlOfNobody } from "../support/free_port.ts";
import {
  type OtlpReceiver,
  type ReceivedSpan,
  startOtlpReceiver,
} from "../support/otlp_receiver.ts";
import { endPrograms, makeFolder, type Program, startProgram } from "../support/program.ts";
import {
  answerPlain,
  chunk,
  COMPLETION,
  type Provider,
  startProvider,
} from "../support/provider.ts";
import { runtime } from "../support/runtimes.ts";
import { callRaw, type RawAnswer, startTcpPeer } from "../support/tcp_peer.ts";
import { until } from "../support/until.ts";

const KEY = "marked-gateway-key";
const TRACE = "4bf92f3577b34da6a3ce929d0e0e4736";
const SPAN = "00f067aa0ba902b7";
const headers = {
  "authorization": "Bearer sk-marked-upstream-key",
  "gateway-auth": `Bearer ${KEY}`,
  "content-type": "application/json",
  "x-marked": "marked-header",
};
const USAGE = {
  prompt_tokens: 11,
  completion_tokens: 22,
  total_tokens: 33,
  prompt_tokens_details: { cached_tokens: 4 },
  completion_tokens_details: { reasoning_tokens: 5 },
};
const bodyOf = (stream: boolean) =>
  JSON.stringify({
    model: "test-1",
    messages: [{ role: "user", content: "marked-prompt" }],
    stream,
  });

/** Writes the file from docs/observability.md to a folder where packages are found. */
function writeSdk(): { file: string; remove(): void } {
  const [, text] =
    /```js\n(\/\/ otel\.mjs[^]*?)```/.exec(readFileSync("docs/observability.md", "utf8")) ?? [];
  const folder = resolve(".cache", `otel-${process.pid}`);
  mkdirSync(folder, { recursive: true });
  const file = join(folder, "otel.mjs");
  writeFileSync(file, text ?? assert.fail("docs/observability.md shows no otel.mjs"));
  return { file, remove: () => rmSync(folder, { recursive: true, force: true }) };
}

describe("traces", () => {
  let collector: OtlpReceiver;
  let provider: Provider;
  let sdk: ReturnType<typeof writeSdk>;
  let folder: ReturnType<typeof makeFolder>;
  let program: Program;
  let url: string;
  let answering: Parameters<typeof startProvider>[0];
  beforeEach(async () => {
    answering = answerPlain;
    collector = await startOtlpReceiver();
    provider = await startProvider((response, call) => answering?.(response, call));
    sdk = writeSdk();
    folder = makeFolder();
  });
  afterEach(async () => {
    await endPrograms();
    await provider.close();
    await collector.close();
    sdk.remove();
    folder.remove();
  });

  /** Returns arguments that make the runtime load a file before the gateway. */
  const preload = (file: string) =>
    runtime === "node" ? ["--import", pathToFileURL(file).href] : ["--preload", file];
  const withSdk = () => runtime === "deno" ? [] : preload(sdk.file);
  async function serve(
    more: Record<string, string> = {},
    args: string[] = [],
    flags = withSdk(),
  ): Promise<void> {
    program = startProgram(["serve", ...args], {
      flags,
      cwd: folder.path,
      env: {
        SALLYPORT_PROVIDER_A: provider.url,
        SALLYPORT_KEYS: KEY,
        SALLYPORT_LISTEN: "127.0.0.1:0",
        OTEL_DENO: "true",
        OTEL_EXPORTER_OTLP_ENDPOINT: collector.url,
        OTEL_EXPORTER_OTLP_PROTOCOL: "http/json",
        OTEL_SERVICE_NAME: "gateway-under-test",
        ...more,
      },
    });
    url = await program.waitFor(/listening on (http:\S+)/);
  }
  const call = (
    more: Record<string, string> = {},
    { stream = false, path = "/v1/chat/completions?q=marked-query" } = {},
  ) => callRaw(url, { path, headers: { ...headers, ...more }, body: bodyOf(stream) });
  /** Ends the gateway, which flushes its spans. Returns the spans in the order of their ends. */
  async function spans(): Promise<ReceivedSpan[]> {
    program.kill("SIGTERM");
    assert.equal(await program.ended, 0, program.stderr());
    assert.equal(program.reports(), "");
    assert.doesNotMatch(
      collector.payloads.join("\n"),
      /marked/i,
      "no key, no prompt, no query, no answer",
    );
    for (const { name, scope, doubled } of collector.spans) {
      assert.equal(scope, "sallyport", name);
      assert.deepEqual(doubled, [], name);
    }
    return collector.spans.toSorted((one, other) =>
      Number(one.end - other.end) || Number(other.start - one.start)
    );
  }
  const told = (call = provider.calls.at(-1)) => String(call?.headers.traceparent);
  const named = (name: string, list: readonly ReceivedSpan[]) =>
    list.find((span) => span.name === name) ??
      assert.fail(`no span ${name}: ${list.map((span) => span.name)}`);

  it("continue the caller's, with a span for the exchange and a span for the call that the provider receives", async () => {
    answering = (response) =>
      response.setHeader("content-type", "application/json")
        .end(JSON.stringify({ ...JSON.parse(COMPLETION), usage: USAGE, x: "marked-answer" }));
    await serve();
    const { headers: answered } = await call({
      traceparent: `00-${TRACE}-${SPAN}-01`,
      tracestate: "vendor=a:b,9tenant@system=x",
      baggage: "user=marked-user",
    });
    const [client, server, ...more] = await spans();
    assert.ok(client && server && more.length === 0);
    assert.deepEqual([server.kind, server.traceId, server.parentSpanId], ["server", TRACE, SPAN]);
    assert.deepEqual([client.kind, client.traceId, client.parentSpanId], [
      "client",
      TRACE,
      server.spanId,
    ]);
    assert.equal(server.service, "gateway-under-test");
    assert.deepEqual(
      provider.calls.map((
        { headers },
      ) => [headers.traceparent, headers.tracestate, headers.baggage]),
      [
        [`00-${TRACE}-${client.spanId}-01`, "vendor=a:b,9tenant@system=x", "user=marked-user"],
      ],
    );
    assert.ok(
      server.start <= client.start && client.start <= client.end && client.end <= server.end,
    );
    assert.deepEqual([client.isError, server.isError], [false, false]);
    assert.equal(server.name, "POST /v1/chat/completions");
    const { "sallyport.overhead": overhead, ...rest } = server.attributes;
    assert.ok(Number(overhead) > 0 && Number(overhead) < 5);
    assert.deepEqual(rest, {
      "http.request.method": "POST",
      "http.route": "/v1/chat/completions",
      "http.response.status_code": 200,
      "sallyport.provider": "a",
      "sallyport.operation": "chat.completions",
      "sallyport.key.id": rest["sallyport.key.id"],
      "sallyport.request.id": answered["x-request-id"],
      "sallyport.outcome": "ok",
    });
    assert.equal(client.name, "chat test-1");
    assert.deepEqual(client.attributes, {
      "http.request.method": "POST",
      "server.address": "127.0.0.1",
      "server.port": Number(new URL(provider.url).port),
      "sallyport.operation": "chat.completions",
      "gen_ai.operation.name": "chat",
      "gen_ai.provider.name": "a",
      "gen_ai.request.model": "test-1",
      "http.response.status_code": 200,
      "gen_ai.usage.input_tokens": 11,
      "gen_ai.usage.output_tokens": 22,
      "gen_ai.usage.cache_read.input_tokens": 4,
      "gen_ai.usage.reasoning.output_tokens": 5,
    });
  });

  it("have no key that the gateway holds", async () => {
    writeFileSync(
      join(folder.path, "gateway.jsonc"),
      JSON.stringify({
        providers: {
          a: { upstream: provider.url, hosts: ["*"], upstreamKey: { env: "HELD" } },
        },
        keys: [{ id: "one", key: KEY, heldKeys: true }],
      }),
    );
    await serve({ SALLYPORT_PROVIDER_A: "", SALLYPORT_KEYS: "", HELD: "sk-marked-held" });
    const { authorization: _, ...own } = headers;
    const { status } = await callRaw(url, {
      path: "/v1/chat/completions",
      headers: own,
      body: bodyOf(false),
    });
    assert.equal(status, 200);
    assert.equal(provider.calls[0]?.headers.authorization, "Bearer sk-marked-held");
    assert.equal((await spans()).length, 2);
  });

  it("have the attribution of the call on the span of the exchange", async () => {
    const attribution = { user: "x-user", session: "x-s", agent: "x-a", project: "x-p" };
    await serve({
      SALLYPORT_ATTRIBUTION: JSON.stringify({ ...attribution, client: "user-agent family" }),
    });
    await call({
      "x-user": "ann",
      "x-s": "s1",
      "x-a": "review",
      "x-p": "legal",
      "user-agent": "curl/8",
    });
    const [client, server] = await spans();
    const names = [
      "user.id",
      "session.id",
      "gen_ai.agent.id",
      "user_agent.name",
      "sallyport.project",
    ];
    const valuesOf = (span: ReceivedSpan | undefined) =>
      names.map((name) => span?.attributes[name]);
    assert.deepEqual(valuesOf(server), ["ann", "s1", "review", "curl", "legal"]);
    assert.deepEqual(valuesOf(client), names.map(() => undefined));
  });

  it("of a stream last to its end, and record when its first event arrived", async () => {
    let finish = (): void => {};
    answering = (response) => {
      response.writeHead(200, { "content-type": "text/event-stream" });
      response.write(chunk("marked-answer"));
      const usage = `data: ${JSON.stringify({ choices: [], usage: USAGE })}\n\n`;
      finish = () => response.end(`${chunk(null, "stop")}${usage}data: [DONE]\n\n`);
    };
    await serve();
    const answer = fetch(`${url}/v1/chat/completions`, {
      method: "POST",
      headers,
      body: bodyOf(true),
    });
    await until(() => provider.calls.length === 1, "the call");
    const reader = (await answer).body?.getReader();
    await reader?.read();
    const called = performance.now();
    await until(() => performance.now() > called + 50, "a while");
    finish();
    while ((await reader?.read())?.done === false);
    const [client, server] = await spans();
    assert.ok(client && server);
    assert.ok(client.end - client.start > 50_000_000n);
    const { "gen_ai.response.time_to_first_chunk": first, ...attributes } = client.attributes;
    assert.ok(
      Number(first) > 0 &&
        BigInt(Math.round(Number(first) * 1e9)) < client.end - client.start - 40_000_000n,
    );
    assert.equal(attributes["gen_ai.request.stream"], true);
    assert.equal(attributes["gen_ai.usage.output_tokens"], 22);
    assert.deepEqual([client.isError, server.isError], [false, false]);
  });

  it("of a stream that breaks after its 200 are errors", async () => {
    answering = (response) => {
      response.writeHead(200, { "content-type": "text/event-stream" });
      response.end(chunk("marked-answer")); // without its end
    };
    await serve();
    assert.equal((await call({}, { stream: true })).status, 200);
    const [client, server] = await spans();
    for (
      const [span, type] of [[client, "closed"], [server, "upstream_stream_truncated"]] as const
    ) {
      assert.equal(span?.isError, true);
      assert.equal(span?.attributes["error.type"], type);
      assert.equal(span?.attributes["http.response.status_code"], 200);
    }
    assert.equal(server?.attributes["sallyport.outcome"], "upstream_cut");
    assert.equal(server?.attributes["sallyport.cause"], "closed");
  });

  it("show a failed call next to the call that replaced it", async () => {
    const gone = await urlOfNobody();
    await serve({ SALLYPORT_PROVIDER_A: `${gone},${provider.url}` });
    assert.equal((await call()).status, 200);
    const [first, second, server] = await spans();
    assert.ok(first && second && server);
    assert.deepEqual([first, second].map(({ parentSpanId }) => parentSpanId), [
      server.spanId,
      server.spanId,
    ]);
    assert.deepEqual([first.isError, first.attributes["error.type"]], [true, "refused"]);
    assert.equal(first.attributes["server.port"], Number(new URL(gone).port));
    assert.deepEqual([second.isError, second.attributes["http.request.resend_count"]], [false, 1]);
    assert.equal(server.isError, false);
    assert.equal(told(), `00-${server.traceId}-${second.spanId}-01`);
  });

  it("show the side that caused an error", async () => {
    const statuses: Record<string, number> = {
      "/v1/chat/completions": 429,
      "/v1/models/marked-model": 500,
      "/v1/models": 302,
    };
    answering = (response, { path }) => {
      response.writeHead(statuses[path.replace(/\?.*/, "")] ?? 200, { location: "/" });
      response.end("{}");
    };
    await serve();
    await call();
    const get = (path: string) => callRaw(url, { method: "GET", path, headers });
    await get("/v1/models/marked-model?q=marked-query");
    await get("/v1/models");
    const list = await spans();
    const facts = (name: string) => {
      const { isError, attributes } = named(name, list);
      return [isError, attributes["error.type"], attributes["http.response.status_code"]];
    };
    assert.deepEqual(facts("chat test-1"), [true, "429", 429]);
    assert.deepEqual(facts("POST /v1/chat/completions"), [false, "429", 429]);
    assert.deepEqual(
      list.filter(({ name }) => name === "GET /v1/models/{id}").map((
        { isError, kind },
      ) => [isError, kind]),
      [[true, "client"], [true, "server"]],
    );
    assert.deepEqual(
      list.filter(({ name }) => name === "GET /v1/models").map(({ attributes }) =>
        attributes["error.type"]
      ),
      ["redirect", "upstream_bad_response"],
    );
  });

  it("of other operations are named by the model's work, or by method and route", async () => {
    answering = (response) =>
      response.setHeader("content-type", "application/json").end(
        JSON.stringify({ usage: { prompt_tokens: 3, total_tokens: 3 } }),
      );
    writeFileSync(
      join(folder.path, "gateway.jsonc"),
      '{ "providers": { "a": { "operations": ["all"] } } }',
    );
    await serve();
    await call({}, { path: "/v1/embeddings?q=marked-query" });
    const get = (path: string) => callRaw(url, { method: "GET", path, headers });
    const paths = ["responses/marked-id", "files/marked-id/content", "batches", "marked/path"];
    for (const path of paths) await get(`/v1/${path}`);
    const list = await spans();
    const { kind, attributes } = named("embeddings test-1", list);
    assert.equal(kind, "client");
    assert.deepEqual(
      [
        "sallyport.operation",
        "gen_ai.operation.name",
        "gen_ai.request.model",
        "gen_ai.usage.input_tokens",
      ]
        .map((name) => attributes[name]),
      ["embeddings", "embeddings", "test-1", 3],
    );
    const names = (wanted: string) =>
      list.filter(({ kind }) => kind === wanted).map(({ name }) => name);
    const routes = ["GET /v1/files/{id}/content", "GET /v1/batches/*", "GET /v1/*"];
    assert.deepEqual(names("client"), ["embeddings test-1", "fetch_response", ...routes]);
    assert.deepEqual(names("server"), ["POST /v1/embeddings", "GET /v1/responses/{id}", ...routes]);
    for (
      const { name, attributes } of list.filter(({ name }) => name.startsWith("GET /v1/files"))
    ) {
      assert.deepEqual(
        Object.keys(attributes).filter((each) => each.startsWith("gen_ai.")),
        [],
        name,
      );
    }
  });

  it("of refusals have no call, and start a new trace for callers without a valid key", async () => {
    await serve();
    const traceparent = `00-${TRACE}-${SPAN}-01`;
    const refused: RawAnswer[] = [
      await call({ traceparent, "gateway-auth": "Bearer marked-other-key" }),
      await call({ traceparent, "content-type": "text/plain" }),
      await callRaw(url, { method: "PROPFIND", path: "/marked-path", headers }),
    ];
    assert.deepEqual(refused.map(({ status }) => status), [401, 415, 404]);
    const [stranger, caller, odd, ...more] = await spans();
    assert.ok(stranger && caller && odd && more.length === 0);
    assert.deepEqual([stranger.kind, stranger.parentSpanId, stranger.links], ["server", "", [
      TRACE,
    ]]);
    assert.notEqual(stranger.traceId, TRACE);
    assert.deepEqual([caller.traceId, caller.parentSpanId, caller.links], [TRACE, SPAN, []]);
    assert.deepEqual([odd.name, odd.attributes["http.request.method"]], ["HTTP", "_OTHER"]);
    const types = [stranger, caller, odd].map((
      { isError, attributes },
    ) => [isError, attributes["error.type"]]);
    assert.deepEqual(types, [
      [false, "invalid_gateway_key"],
      [false, "unsupported_media_type"],
      [false, "not_found"],
    ]);
    assert.equal(provider.calls.length, 0);
  });

  it("start again if the caller's cannot be read, and the provider receives only the new one", async () => {
    await serve();
    await call({ traceparent: `00-${TRACE}-${SPAN}-1`, tracestate: "vendor=1" });
    await call({ traceparent: `00-${TRACE}-${SPAN}-03`, tracestate: "not good" });
    const [, anew, , continued] = await spans();
    assert.deepEqual([anew?.parentSpanId, anew?.links], ["", []]);
    assert.match(told(provider.calls[0]), new RegExp(`^00-${anew?.traceId}-[0-9a-f]{16}-01$`));
    assert.equal(continued?.traceId, TRACE);
    assert.match(told(provider.calls[1]), new RegExp(`^00-${TRACE}-[0-9a-f]{16}-03$`));
    assert.deepEqual(provider.calls.map((call) => call.headers.tracestate), [undefined, undefined]);
  });

  it("are recorded as the sampler decides, and otherwise pass on unrecorded", async () => {
    await serve({ OTEL_TRACES_SAMPLER: "parentbased_always_on" });
    await call({ traceparent: `00-${TRACE}-${SPAN}-00` });
    assert.match(told(), new RegExp(`^00-${TRACE}-[0-9a-f]{16}-00$`));
    assert.equal(told().includes(SPAN), false);
    assert.deepEqual(await spans(), []);
    await serve({ OTEL_TRACES_SAMPLER: "traceidratio", OTEL_TRACES_SAMPLER_ARG: "0" });
    await call({ traceparent: `00-${TRACE}-${SPAN}-01` });
    assert.match(told(), new RegExp(`^00-${TRACE}-[0-9a-f]{16}-00$`));
    assert.deepEqual(await spans(), []);
  });

  it("arrive from each of several workers", async () => {
    await serve({}, ["--workers", "2"]);
    assert.equal((await call()).status, 200);
    assert.deepEqual((await spans()).map(({ kind }) => kind), ["client", "server"]);
  });

  if (runtime === "deno") {
    it("are the same behind node:http, which has its own spans on Deno too", async () => {
      await serve({}, ["--server", "node"]);
      assert.equal((await call()).status, 200);
      assert.deepEqual((await spans()).map(({ kind }) => kind), ["client", "server"]);
    });
  }

  it("without a collector delay neither answers nor the end", async () => {
    const silent = await startTcpPeer(() => {});
    await serve({
      OTEL_EXPORTER_OTLP_ENDPOINT: `http://127.0.0.1:${silent.port}`,
      OTEL_BSP_SCHEDULE_DELAY: "10",
      ...(runtime === "deno" && { OTEL_EXPORTER_OTLP_TIMEOUT: "1000" }), // as docs/observability.md says
    });
    for (let count = 0; count < 20; count++) assert.equal((await call()).status, 200);
    const started = performance.now();
    program.kill("SIGTERM");
    assert.equal(await program.ended, 0);
    const took = performance.now() - started;
    await silent.close();
    assert.ok(took < 8000, `${took} ms`);
  });

  it("are absent without an SDK: the caller's trace reaches the provider unchanged", async () => {
    await serve({ OTEL_DENO: "false" }, [], []);
    await call({ traceparent: `00-${TRACE}-${SPAN}-01`, tracestate: "vendor=1" });
    assert.equal(told(), `00-${TRACE}-${SPAN}-01`);
    assert.equal(provider.calls[0]?.headers.tracestate, "vendor=1");
    assert.deepEqual(await spans(), []);
  });

  it("report an SDK that cannot be used", async () => {
    const file = join(folder.path, "old.mjs");
    writeFileSync(
      file,
      'globalThis[Symbol.for("opentelemetry.js.api.1")] = { version: "1.4.0", trace: {} };',
    );
    await serve({ OTEL_DENO: "false" }, [], preload(file));
    assert.equal((await call()).status, 200);
    assert.match(
      program.reports(),
      /^sallyport: no traces: the registered OpenTelemetry API is 1\.4\.0, and 1\.9 or later is needed\n$/,
    );
  });
});
