/** Hosts, paths before `/v1` and credentials over a large input space. */
// runtimes: once
import assert from "node:assert/strict";
import { describe, it } from "@std/testing/bdd";
import fc from "fast-check";
import { parseConfig } from "../../src/config/config.ts";
import { GatewayError } from "../../src/errors/gateway_error.ts";
import { createGateway } from "../../src/gateway.ts";
import {
  parseBearer,
  readGatewayCredential,
  readUpstreamCredentials,
  toMissingKeyError,
} from "../../src/inbound/credentials.ts";
import { createHostTable, type HostTable, withoutPrefix } from "../../src/inbound/host.ts";
import { holdsGatewayKey } from "../../src/keys/key_format.ts";

const table = createHostTable([
  ["a.example", "exact"],
  ["a.example:8443", "exact with port"],
  ["*.example", "suffix"],
  ["*.deep.example", "longer suffix"],
  ["[::1]:80", "address"],
]);
const outcomeOf = (
  host: string | null,
  find: HostTable<string> = table,
  url = "/v1/models",
): string => {
  try {
    return find(host, url).provider;
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

  it("of any kind is matched by *, if configured, but only if it is a valid host", () => {
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
  const pattern = fc.oneof(
    name,
    name.map((host) => `${host}:8443`),
    name.map((host) => `*.${host}`),
    fc.constant("*"),
  );

  it("prefers the port, then the name, then the longest suffix, then *", () => {
    const request = fc.tuple(name, fc.constantFrom("", ":8443", ":1"), fc.constantFrom("", "."));
    fc.assert(
      fc.property(fc.uniqueArray(pattern), request, (patterns, [hostname, port, dot]) => {
        const labels = hostname.split(".");
        const suffixes = labels.slice(1).map((_, index) =>
          `*.${labels.slice(index + 1).join(".")}`
        );
        const wanted = [`${hostname}${port}`, hostname, ...suffixes, "*"];
        const expected = wanted.find((candidate) => patterns.includes(candidate)) ?? "unknown_host";
        const find = createHostTable(patterns.map((each) => [each, each]));
        assert.equal(outcomeOf(`${hostname}${dot}${port}`, find), expected);
        assert.equal(outcomeOf(`${hostname}${dot}${port}`.toUpperCase(), find), expected);
      }),
      { numRuns: 2000 },
    );
  });

  it("can contain anything and be asked for anything", () => {
    const odd = fc.oneof(
      fc.string({ unit: "binary" }),
      pattern,
      fc.constantFrom("__proto__", "constructor", "*.", "["),
    );
    fc.assert(fc.property(fc.array(odd), odd, (patterns, host) => {
      const find = createHostTable(patterns.map((each) => [each, `for ${each}`]));
      assert.match(outcomeOf(host, find), /^(?:for |invalid_host$|unknown_host$|not_found$)/);
    }));
    assert.equal(outcomeOf("constructor"), "unknown_host");
    assert.equal(outcomeOf("__proto__"), "unknown_host");
  });
});

const addresses = createHostTable(
  [
    "gw.example",
    "gw.example/groq",
    "gw.example/groq/openai",
    "gw.example:8443/groq",
    "*.example/x.y",
    "*/any",
    "bare.test/-._~09aZ",
    "[::1]/six",
  ].map((address) => [address, address]),
);

/**
 * The results for a Host and a URL: an address and the URL without its path, or the code of an
 * error.
 */
const PATHS: readonly [host: string, url: string, expected: string, rest?: string][] = [
  ["gw.example", "/v1/models", "gw.example", "/v1/models"],
  ["gw.example", "/v1", "gw.example", "/v1"],
  ["gw.example", "/v1?x=/groq/v1/", "gw.example", "/v1?x=/groq/v1/"],
  ["gw.example", "/v1/groq/v1/x", "gw.example", "/v1/groq/v1/x"],
  [
    "gw.example",
    "/groq/v1/models/a%2Fb.c?x=/../y#z",
    "gw.example/groq",
    "/v1/models/a%2Fb.c?x=/../y#z",
  ],
  ["gw.example", "/groq/v1", "gw.example/groq", "/v1"],
  ["gw.example", "/groq/v1?x", "gw.example/groq", "/v1?x"],
  ["gw.example", "/groq/v1/v1/groq/v1", "gw.example/groq", "/v1/v1/groq/v1"],
  ["gw.example", "/groq/openai/v1/models", "gw.example/groq/openai", "/v1/models"],
  ["GW.Example.:1", "http://gw.example:1/groq/v1/models", "gw.example/groq", "/v1/models"],
  ["gw.example", "https://groq/groq/v1/models", "gw.example/groq", "/v1/models"],
  ["gw.example", "http://groq/v1/models", "gw.example", "http://groq/v1/models"],
  ["gw.example", "http://[::1]:1/groq/openai/v1/", "gw.example/groq/openai", "/v1/"],
  ["gw.example", "http://u:p@x/groq/v1/x", "gw.example/groq", "/v1/x"],
  ["bare.test", "/-._~09aZ/v1/x", "bare.test/-._~09aZ", "/v1/x"],
  ["[::1]:80", "/six/v1/x", "[::1]/six", "/v1/x"],
  // The most specific host that has the path.
  ["gw.example:8443", "/groq/v1/x", "gw.example:8443/groq", "/v1/x"],
  ["gw.example:8443", "/groq/openai/v1/x", "gw.example/groq/openai", "/v1/x"],
  ["gw.example:8443", "/v1/x", "gw.example", "/v1/x"],
  ["gw.example:8443", "/x.y/v1/x", "*.example/x.y", "/v1/x"],
  ["gw.example", "/any/v1/x", "*/any", "/v1/x"],
  ["nobody.test", "/any/v1/x", "*/any", "/v1/x"],
  // The whole path, in its one plain spelling.
  ["gw.example", "/Groq/v1/models", "not_found"],
  ["gw.example", "/groq/V1/models", "not_found"],
  ["gw.example", "/groq/v1x/models", "not_found"],
  ["gw.example", "/groq", "not_found"],
  ["gw.example", "/groq/", "not_found"],
  ["gw.example", "/groq/openai", "not_found"],
  ["gw.example", "/groq/other/v1/models", "not_found"],
  ["gw.example", "/groq/openai/groq/v1/models", "not_found"],
  ["gw.example", "/openai/v1/models", "not_found"],
  ["gw.example", "/gro%71/v1/models", "not_found"],
  ["gw.example", "/groq%2Fopenai/v1/models", "not_found"],
  ["gw.example", "/groq/%761/models", "not_found"],
  ["gw.example", "/groq%2Fv1/models", "not_found"],
  ["gw.example", "//groq/v1/models", "not_found"],
  ["gw.example", "/groq//v1/models", "not_found"],
  ["gw.example", "/groq/./v1/models", "not_found"],
  ["gw.example", "/./groq/v1/models", "not_found"],
  ["gw.example", "/any/../groq/v1/models", "not_found"],
  ["gw.example", "/any/%2e%2e/groq/v1/models", "not_found"],
  ["gw.example", "/any/..%2fgroq/v1/models", "not_found"],
  ["gw.example", "\\groq\\v1\\models", "not_found"],
  ["gw.example", "/any\\..\\groq/v1/models", "not_found"],
  ["gw.example", "/groq;x/v1/models", "not_found"],
  ["gw.example", "/groq?/v1/models", "not_found"],
  ["gw.example", "/groq#/v1/models", "not_found"],
  ["gw.example", "/groq /v1/models", "not_found"],
  ["gw.example", "/groq\t/v1/models", "not_found"],
  ["gw.example", "groq/v1/models", "not_found"],
  ["gw.example", "ftp://x/groq/v1/models", "not_found"],
  ["gw.example", "http:///groq/v1/models", "not_found"],
  ["gw.example", "http:/groq/v1/models", "not_found"],
  ["gw.example", "*", "not_found"],
  ["gw.example", "", "not_found"],
  // The rest must not lead out of the path again: a proxy in front can have resolved it.
  ["gw.example", "/groq/v1/../../any/v1/models", "not_found"],
  ["gw.example", "/groq/v1/%2E./../v1/models", "not_found"],
  ["gw.example", "/groq/v1/..", "not_found"],
  ["gw.example", "/groq/v1/..\\models", "not_found"],
  ["gw.example", "/groq/v1/.\t./models", "not_found"],
  ["gw.example", "/groq/v1/...", "gw.example/groq", "/v1/..."],
  // The Host is checked first.
  ["gw.example/groq", "/groq/v1/models", "invalid_host"],
  ["", "/any/v1/models", "invalid_host"],
  ["bare.test", "/v1/models", "not_found"],
];

describe("an address with a path", () => {
  for (const [host, url, expected, rest] of PATHS) {
    it(`${JSON.stringify(host + url)} is ${expected}`, () => {
      assert.equal(outcomeOf(host, addresses, url), expected);
      if (rest !== undefined) {
        assert.equal(withoutPrefix(url, addresses(host, url).prefix), rest);
      }
    });
  }

  it("on a known host only leaves other hosts unknown, with any path", () => {
    const find = createHostTable([["gw.example/groq", "groq"]]);
    assert.equal(outcomeOf("gw.example", find, "/v1/models"), "not_found");
    for (const url of ["/groq/v1/models", "/v1/models", "/"]) {
      assert.equal(outcomeOf("other.example", find, url), "unknown_host");
    }
  });

  it("is found by its host among those with exactly this path, which is removed from the URL", () => {
    const label = fc.constantFrom("a", "b");
    const name = fc.array(label, { minLength: 1, maxLength: 3 }).map((labels) => labels.join("."));
    const host = fc.oneof(
      name,
      name.map((each) => `${each}:1`),
      name.map((each) => `*.${each}`),
      fc.constant("*"),
    );
    const prefix = fc.array(label, { maxLength: 3 }).map((segments) =>
      segments.map((each) => `/${each}`).join("")
    );
    const address = fc.tuple(host, prefix).map(([left, right]) => left + right);
    const start = fc.constantFrom("", "http://a", "https://a.b:1");
    fc.assert(
      fc.property(fc.uniqueArray(address), name, prefix, start, (all, hostname, path, before) => {
        const find = createHostTable(all.map((each) => [each, each]));
        const labels = hostname.split(".");
        const suffixes = labels.slice(1).map((_, index) =>
          `*.${labels.slice(index + 1).join(".")}`
        );
        const wanted = [`${hostname}:1`, hostname, ...suffixes, "*"];
        const isKnown = all.some((each) => wanted.includes(each.split("/", 1)[0] ?? ""));
        const hasPaths = all.some((each) => each.includes("/")); // no paths: the URL is not read
        const expected = wanted.map((each) =>
          hasPaths ? each + path : each
        ).find((each) => all.includes(each)) ??
          (isKnown ? "not_found" : "unknown_host");
        const url = `${before}${path}/v1/models?x`;
        assert.equal(outcomeOf(`${hostname}:1`, find, url), expected);
        if (path !== "" && expected.includes("/")) {
          assert.equal(withoutPrefix(url, path), "/v1/models?x");
        }
      }),
      { numRuns: 2000 },
    );
  });

  it("is never found by another spelling of a path", () => {
    const find = createHostTable([["a.test/x", "x"], ["a.test/x/y", "x/y"], ["a.test", "none"]]);
    const piece = fc.constantFrom(
      "/",
      "x",
      "y",
      "v1",
      "..",
      ".",
      "%78",
      "%2e",
      "%2F",
      "\\",
      "?",
      "#",
      "X",
      "\t",
      ":",
    );
    fc.assert(
      fc.property(
        fc.array(piece, { maxLength: 12 }).map((pieces) => `/${pieces.join("")}`),
        (url) => {
          const found = outcomeOf("a.test", find, url);
          if (found === "not_found") return;
          const prefix = found === "none" ? "" : `/${found}`;
          assert.match(url.slice(prefix.length), /^\/v1(?:[/?#]|$)/);
          assert.ok(url.startsWith(prefix));
          // A URL parser agrees if there is a path.
          if (prefix !== "") {
            assert.ok(
              new URL(url, "http://a.test").pathname.startsWith(`${prefix}/v1`),
              url,
            );
          }
        },
      ),
      { numRuns: 5000 },
    );
  });

  it("is read from a URL with a host, if there is no Host header", async () => {
    const hosts = ["gw.test/ai"];
    const gateway = createGateway(parseConfig({ providers: { a: { hosts, upstream: "openai" } } }));
    const codeOf = async (url: string) =>
      (await gateway.fetch(new Request(url))).headers.get("sallyport-error");
    assert.equal(await codeOf("https://gw.test/ai/v1/models"), "missing_gateway_key");
    assert.equal(await codeOf("https://gw.test/v1/models"), "not_found");
    assert.equal(await codeOf("https://other.test/ai/v1/models"), "unknown_host");
  });

  it("is also found in a long URL", () => {
    for (const part of ["/a", "/v1x", "/", "a", "/."]) {
      assert.equal(outcomeOf("gw.example", addresses, `/${part.repeat(100_000)}`), "not_found");
    }
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
  const readGateway = (headers: Headers) => readGatewayCredential(headers, RULES, holdsGatewayKey);
  const readUpstream = (headers: Headers) => {
    const credentials = readUpstreamCredentials(headers, RULES, "a-gateway-key");
    if (credentials === undefined) throw toMissingKeyError("authorization");
    return parseBearer(credentials.authorization ?? null) ?? assert.fail();
  };
  const read = (value: string | null, reader: (headers: Headers) => string) =>
    outcomeOf(value, (text) => ({ provider: reader({ get: () => text }), prefix: "" }));

  it("is one Bearer value with visible ASCII, or refused", () => {
    const value = fc.oneof(
      fc.string({ unit: "binary" }),
      fc.string().map((key) => `Bearer ${key}`),
    );
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
    const headers = (own: string) => ({
      get: (name: string) => name.toLowerCase() === own ? "Bearer key" : null,
    });
    assert.equal(readGateway(headers("gateway-auth")), "key");
    assert.throws(() => readGateway(headers("authorization")), { code: "missing_gateway_key" });
    assert.equal(readUpstream(headers("authorization")), "key");
    assert.throws(() => readUpstream(headers("gateway-auth")), { code: "missing_upstream_key" });
  });

  it("has its own error when it is missing, and a limit", () => {
    assert.equal(read(null, readGateway), "missing_gateway_key");
    assert.equal(read(null, readUpstream), "missing_upstream_key");
    assert.equal(read(`Bearer ${"x".repeat(100_000)}`, readGateway), "invalid_gateway_auth");
  });

  it("that is combined is split at its first ~, in any header", () => {
    const gatewayKey = fc.stringMatching(/^[!-}]{1,40}$/).filter((key) =>
      !/^(?:sk|gsk|xai)[-_]|^AIza/.test(key)
    );
    const upstreamKey = fc.stringMatching(/^[!-~]{1,40}$/);
    const header = fc.constantFrom("authorization", "x-api-key", "api-key", "x-goog-api-key");
    fc.assert(fc.property(gatewayKey, upstreamKey, header, (first, second, credential) => {
      const scheme = credential === "authorization" ? "Bearer " : "";
      const headers = {
        get: (name: string) => name === credential ? `${scheme}${first}~${second}` : null,
      };
      const rules = { credential, combinedKey: true };
      assert.equal(readGatewayCredential(headers, rules, holdsGatewayKey), first);
      assert.deepEqual(readUpstreamCredentials(headers, rules, first), {
        [credential]: `${scheme}${second}`,
      });
      const apart = { credential, combinedKey: false };
      assert.throws(() => readGatewayCredential(headers, apart, holdsGatewayKey), {
        code: "missing_gateway_key",
      });
    }));
  });
});
