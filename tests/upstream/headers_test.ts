/** Header filters over arbitrary input: nothing crashes, nothing that is not on a list crosses. */
// runtimes: once
import assert from "node:assert/strict";
import { describe, it } from "@std/testing/bdd";
import fc from "fast-check";
import { hasLooped, toCallerHeaders, toUpstreamHeaders } from "../../src/upstream/headers.ts";

const name = fc.oneof(
  fc.constantFrom(
    "authorization",
    "gateway-auth",
    "cookie",
    "host",
    "connection",
    "x-stainless-lang",
    "user-agent",
    "via",
  ),
  fc.constantFrom(
    "set-cookie",
    "location",
    "x-ratelimit-limit",
    "openai-model",
    "content-type",
    "__proto__",
    "constructor",
  ),
  fc.stringMatching(/^[a-z][a-z0-9-]{0,20}$/),
);
const headers = fc.array(fc.tuple(name, fc.string({ unit: "binary", maxLength: 30 })), { maxLength: 20 });
// deno-lint-ignore no-control-regex -- what must not cross
const UNSAFE = /[\u0000-\u0008\u000a-\u001f\u007f]|[^\u0000-\u00ff]/;
const UP =
  /^(?:content-type|accept|user-agent|accept-encoding|via|openai-(?:organization|project|beta)|(?:x-)?idempotency-key|http-referer|x-title|trace(?:parent|state)|x-stainless-[a-z-]+)$/;
const BACK =
  /^(?:cache-control|x-content-type-options|x-accel-buffering|content-(?:type|language)|retry-after(?:-ms)?|x-should-retry|x-generation-id|x-upstream-request-id|x-ratelimit-.*|openai-.*)$/;

const up = (entries: Readonly<Record<string, string>>, credentials: Readonly<Record<string, string>> = {}) => {
  const map = new Map(Object.entries(entries));
  const headers = { get: (wanted: string) => map.get(wanted) ?? null, forEach: map.forEach.bind(map) };
  return toUpstreamHeaders(headers, credentials);
};
const back = (name: string, value: string, isStream = false) => toCallerHeaders(new Map([[name, value]]), isStream);

const GO_UP = (
  "content-type accept user-agent openai-organization openai-project openai-beta idempotency-key " +
  "x-idempotency-key http-referer x-title traceparent tracestate x-stainless-lang x-stainless-package-version x-stainless-os " +
  "x-stainless-arch x-stainless-runtime x-stainless-runtime-version x-stainless-retry-count x-stainless-timeout " +
  "x-stainless-read-timeout x-stainless-helper-method x-stainless-async"
).split(" ");
const STAY_DOWN = (
  "gateway-auth authorization x-api-key api-key x-goog-api-key cookie host connection keep-alive te trailer transfer-encoding upgrade expect proxy-authorization " +
  "forwarded x-forwarded-for x-forwarded-host x-real-ip content-length content-encoding x-request-id origin " +
  "sec-fetch-mode accept-language baggage x-stainless-unheard-of __proto__ constructor"
).split(" ");
const COME_BACK = (
  "content-type content-language retry-after retry-after-ms x-should-retry x-generation-id " +
  "x-ratelimit-limit-requests x-ratelimit-reset-tokens openai-model openai-processing-ms"
).split(" ");
const STAY_UP = (
  "set-cookie server location connection keep-alive transfer-encoding content-length content-encoding trailer via " +
  "www-authenticate proxy-authenticate strict-transport-security alt-svc access-control-allow-origin sallyport-error " +
  "cache-control x-accel-buffering x-content-type-options x-ratelimit xopenai-model __proto__ constructor"
).split(" ");
const SPLITTERS = ["\r", "\n", "\r\nx: y", "\u0000", "\u0001", "\u001f", "\u007f", "\u0100", "\u2028", "😀"];

describe("header filters", () => {
  it("carry up each header of the list, and none beside it", () => {
    const fixed = up({});
    for (const wanted of GO_UP) assert.equal(up({ [wanted]: "a value\tü" })[wanted], "a value\tü", wanted);
    for (const unwanted of STAY_DOWN) assert.deepEqual(up({ [unwanted]: "secret" }), fixed, unwanted);
    assert.deepEqual(Object.keys(fixed).sort(), ["accept", "accept-encoding", "user-agent", "via"]);
    assert.equal(up({ "accept-encoding": "gzip" })["accept-encoding"], "identity");
  });

  it("carry up the credentials that are passed in, whatever the caller sent under their names", () => {
    const sent = { "authorization": "Bearer gk~sk", "x-api-key": "gk~sk" };
    const credentials = { "authorization": "Bearer sk", "x-api-key": "sk" };
    assert.deepEqual(up(sent, credentials), { ...up({}), ...credentials });
    assert.deepEqual(up(sent), up({}));
  });

  it("carry back each header of the list, and none beside it", () => {
    const fixed = toCallerHeaders(new Map(), false);
    for (const wanted of COME_BACK) assert.equal(back(wanted, "a value\tü")[wanted], "a value\tü", wanted);
    for (const unwanted of STAY_UP) assert.deepEqual(back(unwanted, "secret"), fixed, unwanted);
    assert.deepEqual(back("x-request-id", "req_1"), { ...fixed, "x-upstream-request-id": "req_1" });
    assert.deepEqual(fixed, { "cache-control": "no-store", "x-content-type-options": "nosniff" });
    assert.deepEqual(toCallerHeaders(new Map(), true), {
      ...fixed,
      "cache-control": "no-cache, no-transform",
      "x-accel-buffering": "no",
    });
  });

  it("carry back the same from web Headers as from a map", () => {
    const names = [...COME_BACK, ...STAY_UP, "x-request-id"].filter((name) => !name.startsWith("__"));
    const entries = names.map((name, index): [string, string] => [name, `value ${index}\tü`]);
    const [listed, walked] = [toCallerHeaders(new Map(entries), true), toCallerHeaders(new Headers(entries), true)];
    assert.deepEqual(walked, listed);
    assert.equal(Object.keys(walked).length, COME_BACK.length + 4);
  });

  it("drop a value with a character that could split a header", () => {
    for (const splitter of SPLITTERS) {
      for (const value of [splitter, `a${splitter}`, `${splitter}a`, `a${splitter}b`]) {
        assert.equal(up({ "openai-project": value })["openai-project"], undefined, JSON.stringify(value));
        assert.deepEqual(back("openai-model", value), back("x", "x"), JSON.stringify(value));
        assert.deepEqual(back("x-request-id", value), back("x", "x"), JSON.stringify(value));
      }
    }
  });

  it("tell of the way through gateways of this kind only, and notice a loop", () => {
    const own = up({}).via ?? "";
    assert.match(own, /^1\.1 sallyport-[0-9a-f]{8}$/);
    const hop = (number: number) => `1.1 sallyport-0000000${number}`;
    assert.equal(up({ via: `1.0 inner.corp, ${hop(1)}, 1.1 cdn` }).via, `${hop(1)}, ${own}`);
    assert.equal(up({ via: `1.1 sallyport-00000001\r\nx: y` }).via, `${hop(1)}, ${own}`);
    const loops = (via: string | null) => hasLooped({ get: () => via });
    for (const via of [null, "", "1.1 cdn", hop(1), Array.from({ length: 7 }, (_, index) => hop(index)).join(", ")]) {
      assert.equal(loops(via), false, String(via));
    }
    for (const via of [own, `1.1 cdn, ${own}`, Array.from({ length: 8 }, (_, index) => hop(index)).join(", ")]) {
      assert.equal(loops(via), true, via);
    }
    const crowd = Array.from({ length: 5000 }, () => hop(1)).join(", ");
    assert.ok((up({ via: crowd }).via ?? "").length < 300, "the way may grow without bound");
  });

  it("let up what is on the list and nothing else", () => {
    fc.assert(fc.property(headers, (entries) => {
      const crossing = up(Object.fromEntries(entries));
      for (const [crossed, value] of Object.entries(crossing)) {
        assert.match(crossed, UP);
        assert.doesNotMatch(value, UNSAFE);
      }
      assert.equal(crossing["accept-encoding"], "identity");
    }));
  });

  it("let back what is on the list and nothing else", () => {
    fc.assert(fc.property(headers, fc.boolean(), (entries, isStream) => {
      for (const [crossed, value] of Object.entries(toCallerHeaders(new Map(entries), isStream))) {
        assert.match(crossed, BACK);
        assert.doesNotMatch(value, UNSAFE);
      }
    }));
  });
});
