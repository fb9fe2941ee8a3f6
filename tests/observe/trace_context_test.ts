/** The grammar of W3C Trace Context, and an SDK that fails. */
// runtimes: once
import assert from "node:assert/strict";
import { type Span, type SpanOptions, trace, type Tracer } from "@opentelemetry/api";
import fc from "fast-check";
import { afterEach, describe, it } from "@std/testing/bdd";
import { readTraceParent, withTraceParent } from "../../src/observe/traces/trace_context.ts";
import { createTraces } from "../../src/observe/traces/traces.ts";
import { ROUTES } from "../../src/operations/shapes.ts";
import { GOOD_BODY, startUnderTest, type UnderTest } from "../support/gateway.ts";
import { COMPLETION, type Provider, startProvider } from "../support/provider.ts";
import { callRaw } from "../support/tcp_peer.ts";

const TRACE = "4bf92f3577b34da6a3ce929d0e0e4736";
const SPAN = "00f067aa0ba902b7";
const GOOD = `00-${TRACE}-${SPAN}-01`;

const read = (traceparent: string | null, tracestate: string | null = null) =>
  readTraceParent({
    get: (name) => name === "traceparent" ? traceparent : name === "tracestate" ? tracestate : null,
  });
const stateOf = (tracestate: string) => read(GOOD, tracestate)?.state;

describe("trace context", () => {
  it("accepts everything that W3C allows, of this version and of later ones", () => {
    assert.deepEqual(read(GOOD), { traceId: TRACE, spanId: SPAN, flags: 1, state: "" });
    for (
      const [flags, kept] of [["00", 0], ["01", 1], ["02", 2], ["03", 3], ["ff", 3], [
        "fc",
        0,
      ]] as const
    ) {
      assert.equal(read(`00-${TRACE}-${SPAN}-${flags}`)?.flags, kept, flags);
    }
    for (
      const later of [
        `01-${TRACE}-${SPAN}-01`,
        `cc-${TRACE}-${SPAN}-01-what-the-future-will-be`,
        `fe-${TRACE}-${SPAN}-01-`,
      ]
    ) {
      assert.equal(read(later)?.traceId, TRACE, later);
    }
  });

  it("accepts nothing else as a trace", () => {
    const bad = [
      "",
      "garbage",
      `00-${TRACE}-${SPAN}`,
      `00-${TRACE}-${SPAN}-`,
      `00-${TRACE}-${SPAN}-0`,
      `00-${TRACE}-${SPAN}-001`,
      `00-${TRACE}-${SPAN}-01-`,
      `00-${TRACE}-${SPAN}-01-more`,
      `00-${TRACE}-${SPAN}-0g`,
      `0-${TRACE}-${SPAN}-01`,
      `000-${TRACE}-${SPAN}-01`,
      `ff-${TRACE}-${SPAN}-01`,
      `01-${TRACE}-${SPAN}-01.more`,
      `00-${TRACE.toUpperCase()}-${SPAN}-01`,
      `00-${TRACE}-${SPAN.toUpperCase()}-01`,
      `00-${"0".repeat(32)}-${SPAN}-01`,
      `00-${TRACE}-${"0".repeat(16)}-01`,
      `00-${TRACE.slice(1)}-${SPAN}-01`,
      `00-${TRACE}1-${SPAN}-01`,
      `00-${TRACE}-${SPAN.slice(1)}-01`,
      `00_${TRACE}_${SPAN}_01`,
      ` ${GOOD}`,
      `${GOOD} `,
      `${GOOD}\n`,
      `${GOOD}, ${GOOD}`,
    ];
    for (const text of bad) assert.equal(read(text), undefined, JSON.stringify(text));
    assert.equal(read(null), undefined);
    fc.assert(
      fc.property(fc.string({ unit: "binary", maxLength: 80 }), (text) => read(text) === undefined),
    );
    fc.assert(
      fc.property(fc.nat({ max: GOOD.length - 1 }), fc.string({ maxLength: 1 }), (at, piece) => {
        const text = GOOD.slice(0, at) + piece + GOOD.slice(at + 1);
        return read(text) === undefined ||
          /^(?!ff)[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$/.test(text);
      }),
    );
  });

  it("passes on a state that is valid as a whole, and no other", () => {
    const good = [
      "a=1",
      "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE",
      "0digit=1",
      "9tenant@system=x y",
      "a_-*/b=!\"#$%&'()*+-./:;<>?@[]^_`{|}~",
      `${"k".repeat(256)}=v`,
      `a=${"v".repeat(256)}`,
      Array.from({ length: 32 }, (_, index) => `k${index}=v`).join(","),
    ];
    for (const text of good) assert.equal(stateOf(text), text);
    assert.equal(stateOf("a=1 ,\tb=2,,"), "a=1,b=2");
    const bad = [
      "a",
      "a=",
      "=1",
      "A=1",
      "_a=1",
      "a=1,a=2",
      "a=b=c",
      "a =1",
      "a=\u00fc",
      "a=\u0000",
      "t@S=1",
      "t@9s=1",
      "@s=1",
      `${"k".repeat(257)}=v`,
      `${"t".repeat(242)}@s=v`,
      `t@${"s".repeat(15)}=v`,
      `a=${"v".repeat(257)}`,
      "good=1,not good",
      Array.from({ length: 33 }, (_, index) => `k${index}=v`).join(","),
      Array.from({ length: 8 }, (_, index) => `k${index}=${"v".repeat(100)}`).join(","),
    ];
    for (const text of bad) assert.equal(stateOf(text), "", text);
    assert.equal(read("garbage", "a=1"), undefined);
  });

  it("is written in the form in which it is read, and replaces the caller's value", () => {
    const parent = { traceId: TRACE, spanId: SPAN, flags: 3, state: "a=1" };
    const headers = withTraceParent(
      { accept: "x", traceparent: "theirs", tracestate: "theirs=1" },
      parent,
    );
    assert.deepEqual(headers, {
      accept: "x",
      traceparent: `00-${TRACE}-${SPAN}-03`,
      tracestate: "a=1",
    });
    assert.deepEqual(read(headers.traceparent ?? null, headers.tracestate), parent);
    const without = withTraceParent({ tracestate: "theirs=1" }, { ...parent, state: "" });
    assert.deepEqual(Object.keys(without), ["traceparent"]);
  });
});

describe("an SDK that fails", () => {
  let provider: Provider;
  let under: UnderTest;
  afterEach(() => trace.disable());

  const broken = () => {
    throw new Error("broken SDK");
  };
  const brokenSpan = { ...trace.wrapSpanContext({ traceId: TRACE, spanId: SPAN, traceFlags: 1 }) };
  const cases: Record<string, Tracer["startSpan"]> = {
    "when a span begins": broken,
    "when a span ends": (_name: string, _options?: SpanOptions): Span =>
      Object.assign(Object.create(brokenSpan), {
        spanContext: () => ({ traceId: TRACE, spanId: SPAN, traceFlags: 1 }),
        isRecording: () => true,
        setAttribute: broken,
        setAttributes: broken,
        setStatus: broken,
        end: broken,
      }),
  };
  for (const [name, startSpan] of Object.entries(cases)) {
    it(`fails no exchange ${name}`, async () => {
      trace.setGlobalTracerProvider({ getTracer: () => ({ startSpan, startActiveSpan: broken }) });
      const said: string[] = [];
      const tracer = createTraces({
        version: "0",
        routes: ROUTES,
        report: (text) => void said.push(text),
      });
      assert.ok(tracer !== undefined);
      provider = await startProvider();
      under = await startUnderTest({ upstreams: { a: provider.url }, parts: { tracer } });
      const answer = await callRaw(under.a, { headers: under.headers, body: GOOD_BODY });
      await under.close();
      await provider.close();
      assert.deepEqual([answer.status, answer.body], [200, COMPLETION]);
      assert.deepEqual(under.records.map(({ outcome }) => outcome), ["ok"]);
      await tracer.flush(1);
      assert.deepEqual(said, []);
    });
  }

  it("or is absent costs nothing: no other gateway follows", () => {
    assert.equal(
      createTraces({ version: "0", routes: ROUTES, report: assert.fail }),
      undefined,
    );
  });
});
