/** Hosts and credentials over a large input space. */
// runtimes: once
import assert from "node:assert/strict";
import { describe, it } from "@std/testing/bdd";
import fc from "fast-check";
import { GatewayError } from "../../src/errors/gateway_error.ts";
import { parseBearer, readGatewayCredential, readUpstreamCredentials } from "../../src/inbound/credentials.ts";
import { createHostTable } from "../../src/inbound/host.ts";

const table = createHostTable([
  ["a.example", "exact"],
  ["a.example:8443", "exact with port"],
  ["*.example", "suffix"],
  ["*.deep.example", "longer suffix"],
  ["[::1]:80", "address"],
]);
const outcomeOf = (host: string | null, find: (host: string | null) => unknown = table): unknown => {
  try {
    return find(host);
  } catch (error) {
    assert.ok(GatewayError.is(error), `${host} threw ${error}`);
    return error.code;
  }
};

const HOSTS: Readonly<Record<string, string>> = {
  "a.example": "exact",
  "A.EXAMPLE:1": "exact",
  "a.example.": "exact",
  "a.example:8443": "exact with port",
  "b.example": "suffix",
  "x.y.example:99": "suffix",
  "x.deep.example": "longer suffix",
  "deep.example": "suffix",
  "a.example.:8443": "exact with port",
  "a.example:0": "exact",
  "a.example:65535": "exact",
  "a_b.example": "suffix",
  "[::1]:80": "address",
  "[::1]": "unknown_host",
  "example": "unknown_host",
  "aXexample": "unknown_host",
  "": "invalid_host",
  ":80": "invalid_host",
  "a.example:": "invalid_host",
  "a.example:65536": "invalid_host",
  "a.example:x": "invalid_host",
  "user@a.example": "invalid_host",
  "a.example/x": "invalid_host",
  "a.example?x": "invalid_host",
  "a.example#x": "invalid_host",
  "a example": "invalid_host",
  "a.example, a.example": "invalid_host",
  "-a.example": "invalid_host",
  "a.example-": "invalid_host",
  "ä.example": "invalid_host",
  "[::1": "invalid_host",
  "[x]": "invalid_host",
  "::1": "invalid_host",
  "[::1]x": "invalid_host",
  "[::1]:": "invalid_host",
  "a.example:8443:1": "invalid_host",
  "a.example:-1": "invalid_host",
  "a.example:+80": "invalid_host",
  "a.example:123456": "invalid_host",
  "a.example..": "invalid_host",
  ".a.example": "invalid_host",
  "*.example": "invalid_host",
  "*": "invalid_host",
  " a.example": "invalid_host",
  "a.example\t": "invalid_host",
  "a.example\r\nx: y": "invalid_host",
  "a.example\u0000": "invalid_host",
  "http://a.example": "invalid_host",
  "a.example\\x": "invalid_host",
  "%61.example": "invalid_host",
};

describe("a host", () => {
  for (const [host, expected] of Object.entries(HOSTS)) {
    it(`${JSON.stringify(host)} is ${expected}`, () => assert.equal(outcomeOf(host), expected));
  }

  it("that is missing or far too long is invalid", () => {
    assert.equal(outcomeOf(null), "invalid_host");
    assert.equal(outcomeOf("a".repeat(100_000)), "invalid_host");
  });

  it("of any kind goes to * where there is one, but only if it is a host", () => {
    const open = createHostTable([["*", "all"]]);
    fc.assert(fc.property(fc.string(), (host) => {
      const outcome = outcomeOf(host, open);
      assert.ok(outcome === "all" || outcome === "invalid_host");
      if (outcome === "all") assert.doesNotMatch(host, /[/?#@\\\s%,]/);
    }));
  });
});

describe("a table of hosts", () => {
  const label = fc.constantFrom("a", "b", "c");
  const name = fc.array(label, { minLength: 1, maxLength: 4 }).map((labels) => labels.join("."));
  const pattern = fc.oneof(name, name.map((host) => `${host}:8443`), name.map((host) => `*.${host}`), fc.constant("*"));

  it("prefers the port, then the name, then the longest suffix, then *", () => {
    const request = fc.tuple(name, fc.constantFrom("", ":8443", ":1"), fc.constantFrom("", "."));
    fc.assert(
      fc.property(fc.uniqueArray(pattern), request, (patterns, [hostname, port, dot]) => {
        const labels = hostname.split(".");
        const suffixes = labels.slice(1).map((_, index) => `*.${labels.slice(index + 1).join(".")}`);
        const wanted = [`${hostname}${port}`, hostname, ...suffixes, "*"];
        const expected = wanted.find((candidate) => patterns.includes(candidate)) ?? "unknown_host";
        const find = createHostTable(patterns.map((each) => [each, each]));
        assert.equal(outcomeOf(`${hostname}${dot}${port}`, find), expected);
        assert.equal(outcomeOf(`${hostname}${dot}${port}`.toUpperCase(), find), expected);
      }),
      { numRuns: 2000 },
    );
  });

  it("may be made of anything and asked for anything", () => {
    const odd = fc.oneof(
      fc.string({ unit: "binary" }),
      pattern,
      fc.constantFrom("__proto__", "constructor", "*.", "["),
    );
    fc.assert(fc.property(fc.array(odd), odd, (patterns, host) => {
      const find = createHostTable(patterns.map((each) => [each, `for ${each}`]));
      assert.match(String(outcomeOf(host, find)), /^(?:for |invalid_host$|unknown_host$)/);
    }));
    assert.equal(outcomeOf("constructor"), "unknown_host");
    assert.equal(outcomeOf("__proto__"), "unknown_host");
  });
});

const MALFORMED: Readonly<Record<string, string>> = {
  "nothing": "",
  "the word alone": "Bearer",
  "the word and a space": "Bearer ",
  "two spaces": "Bearer  key",
  "a tab": "Bearer\tkey",
  "a space before": " Bearer key",
  "a space after": "Bearer key ",
  "a second word": "Bearer key x",
  "a line end after": "Bearer key\n",
  "two that were joined": "Bearer key, Bearer key",
  "another scheme": "Basic key",
  "the scheme twice": "Bearer Bearer key",
  "a longer scheme": "XBearer key",
  "a key alone": "sk-key",
  "a letter beyond ASCII": "Bearer kéy",
  "a NUL": "Bearer k\u0000y",
  "a DEL": "Bearer k\u007fy",
  "quotes for the word": '"Bearer" key',
};

describe("a credential", () => {
  interface Headers {
    get(name: string): string | null;
  }
  const RULES = { credential: "authorization", combinedKey: false } as const;
  const readGateway = (headers: Headers) => readGatewayCredential(headers, RULES);
  const readUpstream = (headers: Headers) =>
    parseBearer(readUpstreamCredentials(headers, RULES, "a-gateway-key").authorization ?? null) ?? assert.fail();
  const read = (value: string | null, reader: (headers: Headers) => string) =>
    outcomeOf(value, (text) => reader({ get: () => text }));

  it("is one Bearer with visible ASCII, or refused", () => {
    const value = fc.oneof(fc.string({ unit: "binary" }), fc.string().map((key) => `Bearer ${key}`));
    fc.assert(fc.property(value, (text) => {
      const isGood = /^bearer [\x21-\x7e]+$/i.test(text);
      assert.equal(read(text, readGateway), isGood ? text.slice(7) : "invalid_gateway_auth");
      assert.equal(read(text, readUpstream), isGood ? text.slice(7) : "invalid_upstream_auth");
    }));
  });

  for (const [name, value] of Object.entries(MALFORMED)) {
    it(`is refused with ${name}`, () => {
      assert.equal(read(value, readGateway), "invalid_gateway_auth");
      assert.equal(read(value, readUpstream), "invalid_upstream_auth");
    });
  }

  it("is accepted with the scheme in any case, and as long as signed tokens are", () => {
    for (const scheme of ["Bearer", "bearer", "BEARER", "bEaReR"]) {
      for (const key of ["k", "!~,;=", `own-${"x".repeat(4000)}`]) {
        assert.equal(read(`${scheme} ${key}`, readGateway), key);
        assert.equal(read(`${scheme} ${key}`, readUpstream), key);
      }
    }
  });

  it("is read from its own header only", () => {
    const headers = (own: string) => ({ get: (name: string) => name.toLowerCase() === own ? "Bearer key" : null });
    assert.equal(readGateway(headers("gateway-auth")), "key");
    assert.throws(() => readGateway(headers("authorization")), { code: "missing_gateway_key" });
    assert.equal(readUpstream(headers("authorization")), "key");
    assert.throws(() => readUpstream(headers("gateway-auth")), { code: "missing_upstream_key" });
  });

  it("has its own answer when it is missing, and a limit", () => {
    assert.equal(read(null, readGateway), "missing_gateway_key");
    assert.equal(read(null, readUpstream), "missing_upstream_key");
    assert.equal(read(`Bearer ${"x".repeat(100_000)}`, readGateway), "invalid_gateway_auth");
  });

  it("that is combined comes apart at its first ~, in any header", () => {
    const gatewayKey = fc.stringMatching(/^[!-}]{1,40}$/).filter((key) => !/^(?:sk|gsk|xai)[-_]|^AIza/.test(key));
    const upstreamKey = fc.stringMatching(/^[!-~]{1,40}$/);
    const header = fc.constantFrom("authorization", "x-api-key", "api-key", "x-goog-api-key");
    fc.assert(fc.property(gatewayKey, upstreamKey, header, (first, second, credential) => {
      const scheme = credential === "authorization" ? "Bearer " : "";
      const headers = { get: (name: string) => name === credential ? `${scheme}${first}~${second}` : null };
      const rules = { credential, combinedKey: true };
      assert.equal(readGatewayCredential(headers, rules), first);
      assert.deepEqual(readUpstreamCredentials(headers, rules, first), { [credential]: `${scheme}${second}` });
      assert.throws(() => readGatewayCredential(headers, { credential, combinedKey: false }), {
        code: "missing_gateway_key",
      });
    }));
  });
});
