/** Hosts and credentials over a large input space. */
import assert from "node:assert/strict";
import { describe, it } from "@std/testing/bdd";
import fc from "fast-check";
import { GatewayError } from "../../src/errors.ts";
import { readGatewayCredential, readUpstreamCredential } from "../../src/inbound/credentials.ts";
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
  "%61.example": "invalid_host",
};

describe("a host", () => {
  for (const [host, expected] of Object.entries(HOSTS)) {
    it(`"${host}" is ${expected}`, () => assert.equal(outcomeOf(host), expected));
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

describe("a credential", () => {
  const read = (value: string | null, reader: typeof readGatewayCredential) =>
    outcomeOf(value, (text) => reader({ get: () => text }));

  it("is one Bearer with visible ASCII, or refused", () => {
    const value = fc.oneof(fc.string({ unit: "binary" }), fc.string().map((key) => `Bearer ${key}`));
    fc.assert(fc.property(value, (text) => {
      const isGood = /^bearer [\x21-\x7e]+$/i.test(text);
      assert.equal(read(text, readGatewayCredential), isGood ? text.slice(7) : "invalid_gateway_auth");
      assert.equal(read(text, readUpstreamCredential), isGood ? text.slice(7) : "invalid_upstream_auth");
    }));
  });

  it("has its own answer when it is missing, and a limit", () => {
    assert.equal(read(null, readGatewayCredential), "missing_gateway_key");
    assert.equal(read(null, readUpstreamCredential), "missing_upstream_key");
    assert.equal(read(`Bearer ${"x".repeat(100_000)}`, readGatewayCredential), "invalid_gateway_auth");
  });
});
