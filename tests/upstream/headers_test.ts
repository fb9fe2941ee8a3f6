/** Header filters over arbitrary input: nothing crashes, and no unlisted header passes. */
// runtimes: once
import assert from "node:assert/strict";
import { describe, it } from "@std/testing/bdd";
import fc from "fast-check";
import { BARRED, type HeaderList, type HeadersConfig } from "../../src/config/headers.ts";
import { REQUEST_HEADERS, RESPONSE_HEADERS } from "../../src/upstream/header_lists.ts";
import {
  createHeaderRules,
  hasLooped,
  listWithheld,
  toCallerHeaders,
  toUpstreamHeaders,
} from "../../src/upstream/headers.ts";

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
    "anthropic-beta",
    "x-openrouter-title",
    "x-forwarded-for",
    "x-api-key",
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
const headers = fc.array(fc.tuple(name, fc.string({ unit: "binary", maxLength: 30 })), {
  maxLength: 20,
});
// deno-lint-ignore no-control-regex -- what must not cross
const UNSAFE = /[\u0000-\u0008\u000a-\u001f\u007f]|[^\u0000-\u00ff]/;
const UP =
  /^(?:content-type|accept|user-agent|accept-encoding|via|baggage|(?:openai|anthropic|x-stainless|x-openrouter|x-dashscope|helicone|cf-aig|x-openai|x-claude|x-codex|x-opencode|x-session)-.*|x-app|originator|thread-id|x-models-etag|x-reasoning-included|(?:x-)?idempotency-key|http-referer|x-title|trace(?:parent|state)|x-client-request-id|chatgpt-account-id|session-id|x-grok-conv-id|groq-(?:beta|model-version)|(?:x-)?hf-bill-to|x-goog-(?:api-client|user-project)|x-server-timeout|amz-sdk-.*|x-amz-user-agent|x-amzn-bedrock-.*|copilot-integration-id|editor-version)$/;
const BACK =
  /^(?:cache-control|x-content-type-options|x-accel-buffering|content-(?:type|language|disposition)|retry-after(?:-ms)?|x-should-retry|x-generation-id|x-upstream-request-id|request-id|x-groq-region|cf-ray|azureml-model-session|apim-request-id|x-ms-region|x-amzn-(?:errortype|requestid|bedrock-.*)|(?:x-ratelimit|openai|anthropic|x-openrouter|helicone|cf-aig|x-openai|x-claude|x-codex|x-opencode|x-session)-.*|x-app|originator|thread-id|session-id|x-models-etag|x-reasoning-included)$/;

const RULES = createHeaderRules();
const toRequest = (entries: Readonly<Record<string, string>>) => {
  const map = new Map(Object.entries(entries));
  return { get: (wanted: string) => map.get(wanted) ?? null, forEach: map.forEach.bind(map) };
};
const up = (
  entries: Readonly<Record<string, string>>,
  rules = RULES,
  credentials: Record<string, string> = {},
) => toUpstreamHeaders(toRequest(entries), rules, credentials);
const back = (name: string, value: string, rules = RULES) =>
  toCallerHeaders(new Map([[name, value]]), false, rules);

const GO_UP = (
  "content-type accept user-agent openai-organization openai-project openai-beta idempotency-key " +
  "x-idempotency-key http-referer x-title traceparent tracestate baggage x-stainless-lang x-stainless-package-version x-stainless-os " +
  "x-stainless-arch x-stainless-runtime x-stainless-runtime-version x-stainless-retry-count x-stainless-timeout " +
  "x-stainless-read-timeout x-stainless-helper-method x-stainless-async x-stainless-not-known-yet anthropic-version " +
  "anthropic-beta anthropic-not-known-yet openai-safety-identifier x-openrouter-title x-dashscope-async hf-bill-to " +
  "x-hf-bill-to helicone-auth helicone-property-app cf-aig-cache-ttl groq-beta groq-model-version x-grok-conv-id " +
  "x-session-affinity x-session-id session-id x-claude-code-session-id x-client-request-id x-goog-api-client x-goog-user-project " +
  "amz-sdk-request x-amzn-bedrock-guardrailidentifier x-server-timeout " +
  "copilot-integration-id editor-version"
).split(" ");
const STAY_DOWN = (
  "gateway-auth authorization x-api-key api-key x-goog-api-key cookie host connection keep-alive te trailer transfer-encoding upgrade expect proxy-authorization " +
  "forwarded x-forwarded-for x-forwarded-host x-real-ip content-length content-encoding x-request-id origin " +
  "sec-fetch-mode accept-language x-stainless openai anthropic __proto__ constructor"
).split(" ");
const COME_BACK = (
  "content-type content-language retry-after retry-after-ms x-should-retry x-generation-id " +
  "x-ratelimit-limit-requests x-ratelimit-reset-tokens x-ratelimit-limit-tokens_usage_based openai-model openai-processing-ms content-disposition " +
  "request-id anthropic-ratelimit-requests-limit anthropic-organization-id x-groq-region cf-ray azureml-model-session " +
  "apim-request-id x-ms-region x-openrouter-provider helicone-id cf-aig-log-id " +
  "x-amzn-errortype x-amzn-requestid x-amzn-bedrock-input-token-count x-amzn-bedrock-invocation-latency"
).split(" ");
const STAY_UP = (
  "set-cookie server location connection keep-alive transfer-encoding content-length content-encoding trailer via " +
  "www-authenticate proxy-authenticate strict-transport-security alt-svc access-control-allow-origin sallyport-error " +
  "cache-control x-accel-buffering x-content-type-options x-ratelimit xopenai-model __proto__ constructor"
).split(" ");
const SPLITTERS = [
  "\r",
  "\n",
  "\r\nx: y",
  "\u0000",
  "\u0001",
  "\u001f",
  "\u007f",
  "\u0100",
  "\u2028",
  "😀",
];

describe("header filters", () => {
  it("pass each listed header to the provider, and no other", () => {
    const fixed = up({});
    for (const wanted of GO_UP) {
      assert.equal(up({ [wanted]: "a value\tü" })[wanted], "a value\tü", wanted);
    }
    for (const unwanted of STAY_DOWN) {
      assert.deepEqual(up({ [unwanted]: "secret" }), fixed, unwanted);
    }
    assert.deepEqual(Object.keys(fixed).sort(), ["accept", "accept-encoding", "user-agent", "via"]);
    assert.equal(up({ "accept-encoding": "gzip" })["accept-encoding"], "identity");
  });

  it("forward the given credentials in place of the caller's headers of the same names", () => {
    const sent = { "authorization": "Bearer gk~sk", "x-api-key": "gk~sk" };
    const credentials = { "authorization": "Bearer sk", "x-api-key": "sk" };
    assert.deepEqual(up(sent, createHeaderRules({ pass: ["*"] }), credentials), {
      ...up({}),
      ...credentials,
    });
    assert.deepEqual(up(sent), up({}));
  });

  it("pass each listed header to the caller, and no other", () => {
    const fixed = toCallerHeaders(new Map(), false, RULES);
    for (const wanted of COME_BACK) {
      assert.equal(back(wanted, "a value\tü")[wanted], "a value\tü", wanted);
    }
    for (const unwanted of STAY_UP) assert.deepEqual(back(unwanted, "secret"), fixed, unwanted);
    assert.deepEqual(back("x-request-id", "req_1"), { ...fixed, "x-upstream-request-id": "req_1" });
    assert.deepEqual(fixed, { "cache-control": "no-store", "x-content-type-options": "nosniff" });
    assert.deepEqual(toCallerHeaders(new Map(), true, RULES), {
      ...fixed,
      "cache-control": "no-cache, no-transform",
      "x-accel-buffering": "no",
    });
  });

  it("withhold names that look like credentials, unless the configuration names them", () => {
    const secret = (
      "x-openai-api-key openai-api-key x-openai-apikey anthropic-api-key x-codex-authorization " +
      "x-codex-oauth x-claude-access-token x-session-token x-session-secret x-session-cookie " +
      "x-session-passphrase x-opencode-password x-opencode-jwt x-stainless-credential " +
      "x-codex-signature x-claude-code-bearer x-session-tokens-key x-session-pwd x-session-pw " +
      "x-openai-cred x-openai-creds x-session-sid x-claude-code-pat x-openai-otp x-codex-sig " +
      "x-session-pat-id x-codex-a_sig_b"
    ).split(" ");
    const plain = (
      "anthropic-ratelimit-tokens-limit anthropic-ratelimit-input-tokens-remaining " +
      "x-codex-used-tokens x-codex-used-tokens_today x-claude-path x-session-side x-codex-spat"
    ).split(" ");
    for (const wanted of plain) {
      assert.equal(up({ [wanted]: "1" })[wanted], "1", wanted);
      assert.equal(back(wanted, "1")[wanted], "1", wanted);
    }
    const named = createHeaderRules({ pass: [...secret], answer: ["x-session-*"] });
    for (const unwanted of secret) {
      assert.deepEqual(up({ [unwanted]: "s" }), up({}), unwanted);
      assert.deepEqual(back(unwanted, "s"), back("x", "s"), unwanted);
      assert.equal(up({ [unwanted]: "s" }, named)[unwanted], "s", unwanted);
    }
    assert.equal(back("x-session-token", "s", named)["x-session-token"], "s");
  });

  it("return the same from web Headers as from a map", () => {
    const names = [...COME_BACK, ...STAY_UP, "x-request-id"].filter((name) =>
      !name.startsWith("__")
    );
    const entries = names.map((name, index): [string, string] => [name, `value ${index}\tü`]);
    const [listed = {}, walked = {}] = [new Map(entries), new Headers(entries)].map((each) =>
      toCallerHeaders(each, true, RULES)
    );
    assert.deepEqual(walked, listed);
    assert.equal(Object.keys(walked).length, COME_BACK.length + 4);
  });

  it("drop a value with a character that could split a header", () => {
    for (const splitter of SPLITTERS) {
      for (const value of [splitter, `a${splitter}`, `${splitter}a`, `a${splitter}b`]) {
        assert.equal(
          up({ "openai-project": value })["openai-project"],
          undefined,
          JSON.stringify(value),
        );
        assert.deepEqual(back("openai-model", value), back("x", "x"), JSON.stringify(value));
        assert.deepEqual(back("x-request-id", value), back("x", "x"), JSON.stringify(value));
      }
    }
  });

  it("add a `Via` of this kind of gateway only, and detect a loop", () => {
    const own = up({}).via ?? "";
    assert.match(own, /^1\.1 sallyport-[0-9a-f]{8}$/);
    const hop = (number: number) => `1.1 sallyport-0000000${number}`;
    assert.equal(up({ via: `1.0 inner.corp, ${hop(1)}, 1.1 cdn` }).via, `${hop(1)}, ${own}`);
    assert.equal(up({ via: `1.1 sallyport-00000001\r\nx: y` }).via, `${hop(1)}, ${own}`);
    const loops = (via: string | null) => hasLooped({ get: () => via });
    for (
      const via of [
        null,
        "",
        "1.1 cdn",
        hop(1),
        Array.from({ length: 7 }, (_, index) => hop(index)).join(", "),
      ]
    ) {
      assert.equal(loops(via), false, String(via));
    }
    for (
      const via of [
        own,
        `1.1 cdn, ${own}`,
        Array.from({ length: 8 }, (_, index) => hop(index)).join(", "),
      ]
    ) {
      assert.equal(loops(via), true, via);
    }
    const crowd = Array.from({ length: 5000 }, () => hop(1)).join(", ");
    assert.ok((up({ via: crowd }).via ?? "").length < 300, "the way may grow without bound");
  });

  it("forward the listed headers and no others", () => {
    fc.assert(fc.property(headers, (entries) => {
      const crossing = up(Object.fromEntries(entries));
      for (const [crossed, value] of Object.entries(crossing)) {
        assert.match(crossed, UP);
        assert.doesNotMatch(value, UNSAFE);
      }
      assert.equal(crossing["accept-encoding"], "identity");
    }));
  });

  it("return the listed headers and no others", () => {
    fc.assert(fc.property(headers, fc.boolean(), (entries, isStream) => {
      for (
        const [crossed, value] of Object.entries(toCallerHeaders(new Map(entries), isStream, RULES))
      ) {
        assert.match(crossed, BACK);
        assert.doesNotMatch(value, UNSAFE);
      }
    }));
  });

  it("drop the headers that Connection names, in each direction", () => {
    const rules = createHeaderRules({ pass: ["x-*"], answer: ["x-*"] });
    const sent = { "openai-project": "p", "x-one": "1", "x-two": "2", "anthropic-beta": "b" };
    for (const connection of ["close, X-One", "x-one", "Keep-Alive,x-one ,\tanthropic-beta"]) {
      const crossing = up({ ...sent, connection }, rules);
      const isBoth = connection.includes("anthropic");
      assert.deepEqual(
        ["openai-project", "x-one", "x-two", "anthropic-beta"].map((name) => crossing[name]),
        ["p", undefined, "2", isBoth ? undefined : "b"],
        connection,
      );
      const answered = toCallerHeaders(
        new Map(Object.entries({ ...sent, connection })),
        false,
        rules,
      );
      assert.deepEqual([answered["x-one"], answered["x-two"]], [undefined, "2"], connection);
    }
    for (const connection of ["close", "keep-alive", "Keep-Alive", ""]) {
      assert.equal(up({ ...sent, connection }, rules)["x-one"], "1", connection);
    }
  });

  it("forward the headers that a provider's configuration adds, and override the headers that it sets", () => {
    const rules = createHeaderRules({
      pass: ["x-my-*", "x-one"],
      answer: ["x-their-*"],
      set: { "x-team": "blue" },
    });
    const crossing = up({
      "x-my-a": "1",
      "x-one": "2",
      "x-ones": "3",
      "x-team": "red",
      "x-their-a": "4",
    }, rules);
    assert.deepEqual(crossing, { ...up({}), "x-my-a": "1", "x-one": "2", "x-team": "blue" });
    assert.equal(back("x-their-a", "1", rules)["x-their-a"], "1");
    assert.deepEqual(back("x-my-a", "1", rules), back("x", "x"));
    assert.equal(
      up(
        { "user-agent": "curl" },
        createHeaderRules({ set: { "user-agent": "us" } }),
      )["user-agent"],
      "us",
    );
    assert.equal(up({ "x-my-a": "a\r\nx: y" }, rules)["x-my-a"], undefined);
  });

  it("never forward barred headers, even if a provider's configuration lets everything pass", () => {
    const named = BARRED.flatMap(({ names }) => names); // no checked configuration has these
    const all: HeadersConfig = {
      pass: ["*", "x-*", ...named],
      answer: ["*", "s*", ...named],
      set: {},
    };
    const rules = createHeaderRules(all);
    const barredFrom = (list: HeaderList) =>
      BARRED.filter(({ lists }) => lists.includes(list)).flatMap(({ names }) => names)
        .flatMap((each) =>
          each.endsWith("*") ? [each.replace("*", "for"), each.slice(0, -1)] : [each]
        );
    assert.equal(up({ "anything-else": "1" }, rules)["anything-else"], "1");
    assert.equal(back("anything-else", "1", rules)["anything-else"], "1");
    for (const name of barredFrom("pass")) {
      const { "accept-encoding": coding, via } = up({ [name]: "secret" }, rules);
      assert.deepEqual([coding, via?.includes("secret")], ["identity", false]);
      assert.ok(!JSON.stringify(up({ [name]: "secret" }, rules)).includes("secret"), name);
    }
    for (const name of barredFrom("answer")) {
      assert.ok(!JSON.stringify(back(name, "secret", rules)).includes("secret"), name);
    }
  });

  it("allow no barred name in any list", () => {
    const listed = [...REQUEST_HEADERS, ...RESPONSE_HEADERS].flatMap(({ names }) => names);
    const barred = BARRED.filter(({ lists }) => lists.length === 3).flatMap(({ names }) => names);
    assert.deepEqual(listed.filter((name) => barred.includes(name)), []);
    for (const rows of [REQUEST_HEADERS, RESPONSE_HEADERS]) {
      const names = rows.flatMap((row) => row.names);
      assert.equal(new Set(names).size, names.length);
    }
  });

  it("name the withheld headers: names alone, a bounded number, and none that can be a key", () => {
    const list = (entries: Readonly<Record<string, string>>) =>
      listWithheld(toRequest(entries), up(entries));
    const routine = {
      host: "h",
      connection: "close",
      "content-length": "3",
      "gateway-auth": "Bearer k",
      te: "trailers",
    };
    assert.deepEqual(
      list({ ...routine, "accept-encoding": "gzip", via: "1.1 cdn", "user-agent": "u" }),
      [],
    );
    const missed = {
      cookie: "c",
      "x-one": "1",
      "x-forwarded-for": "::1",
      "openai-project": "a\nb",
    };
    assert.deepEqual(list({ ...routine, ...missed }), Object.keys(missed));
    const odd = ["x".repeat(65), "sk-proj-0123", "gsk_0123", "x-gk_0123", "a b", "", "ü", "a\nb"];
    for (const name of odd) {
      assert.deepEqual(list({ [name]: "1", "x-one": "1" }), ["x-one", "and 1 more"], name);
    }
    const many = Object.fromEntries(
      Array.from({ length: 5000 }, (_, index) => [`x-${index}`, "1"]),
    );
    const told = list(many);
    assert.equal(told.length, 21);
    assert.equal(told.at(-1), "and 4980 more");
    const answered = new Headers({ "x-request-id": "r", server: "s", date: "d", "x-odd": "o" });
    answered.append("set-cookie", "a=1");
    answered.append("set-cookie", "b=2");
    const crossed = toCallerHeaders(answered, false, RULES);
    assert.deepEqual(listWithheld(answered, crossed).toSorted(), ["server", "set-cookie", "x-odd"]);
  });
});
