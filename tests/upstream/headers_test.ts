/** Header filters over arbitrary input: nothing crashes, nothing that is not on a list crosses. */
import assert from "node:assert/strict";
import { describe, it } from "@std/testing/bdd";
import fc from "fast-check";
import { toCallerHeaders, toUpstreamHeaders } from "../../src/upstream/headers.ts";

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
  /^(?:authorization|content-type|accept|user-agent|accept-encoding|via|openai-(?:organization|project|beta)|(?:x-)?idempotency-key|http-referer|x-title|x-stainless-[a-z-]+)$/;
const BACK =
  /^(?:cache-control|x-content-type-options|x-accel-buffering|content-(?:type|language)|retry-after(?:-ms)?|x-should-retry|x-generation-id|x-upstream-request-id|x-ratelimit-.*|openai-.*)$/;

describe("header filters", () => {
  it("let up what is on the list and nothing else", () => {
    fc.assert(fc.property(headers, (entries) => {
      const map = new Map(entries);
      const up = toUpstreamHeaders({ get: (wanted) => map.get(wanted) ?? null });
      for (const [crossed, value] of Object.entries(up)) {
        assert.match(crossed, UP);
        assert.doesNotMatch(value, UNSAFE);
      }
      assert.equal(up["accept-encoding"], "identity");
    }));
  });

  it("let back what is on the list and nothing else", () => {
    fc.assert(fc.property(headers, fc.boolean(), (entries, isStream) => {
      for (const [crossed, value] of Object.entries(toCallerHeaders(entries, isStream))) {
        assert.match(crossed, BACK);
        assert.doesNotMatch(value, UNSAFE);
      }
    }));
  });
});
