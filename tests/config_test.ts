/** The configuration: what it fills in, and what it says of each mistake. */
import assert from "node:assert/strict";
import { describe, it } from "@std/testing/bdd";
import { ConfigError, parseConfig } from "../src/config.ts";
import { PRESETS } from "../src/presets.ts";

const providers = { a: { upstream: "https://a.example/v1" } };
const withProvider = (settings: Record<string, unknown>) => ({ providers: { a: { ...providers.a, ...settings } } });
const withKey = (key: Record<string, unknown>) => ({ providers, keys: [key] });

const MISTAKES: Readonly<Record<string, [input: unknown, path: string, says: RegExp]>> = {
  "nothing": [undefined, "config", /expected/],
  "a text": ["x", "config", /expected an object/],
  "no provider": [{}, "providers", /expected to be there/],
  "an empty list of providers": [{ providers: {} }, "providers", /at least one provider/],
  "an unknown setting": [{ providers, speed: 1 }, "speed", /unknown setting/],
  "an unknown setting of a provider": [withProvider({ speed: 1 }), "providers.a.speed", /unknown setting/],
  "a name with a space": [{ providers: { "a b": providers.a } }, "providers.a b", /letters, digits/],
  "no upstream": [{ providers: { a: {} } }, "providers.a.upstream", /expected to be there/],
  "an unknown short name": [withProvider({ upstream: "opnai" }), "providers.a.upstream", /or one of openai, groq/],
  "a ftp upstream": [withProvider({ upstream: "ftp://a.example" }), "providers.a.upstream", /http or https URL/],
  "credentials in the upstream": [
    withProvider({ upstream: "https://u:p@a.example" }),
    "providers.a.upstream",
    /without/,
  ],
  "a query in the upstream": [
    withProvider({ upstream: "https://a.example/v1?x=1" }),
    "providers.a.upstream",
    /without/,
  ],
  "a host with a path": [withProvider({ hosts: ["a.example/x"] }), "providers.a.hosts[0]", /host:port/],
  "no hosts": [withProvider({ hosts: [] }), "providers.a.hosts", /at least one/],
  "an odd order": [withProvider({ messages: "random" }), "providers.a.messages", /"ordered" or "any"/],
  "a deadline without a unit": [
    withProvider({ deadlines: { idle: "5" } }),
    "providers.a.deadlines.idle",
    /with its unit/,
  ],
  "a deadline that is a number": [
    withProvider({ deadlines: { idle: 5 } }),
    "providers.a.deadlines.idle",
    /with its unit/,
  ],
  "a deadline of zero": [withProvider({ deadlines: { idle: "0s" } }), "providers.a.deadlines.idle", /above zero/],
  "a negative deadline": [withProvider({ deadlines: { idle: "-1s" } }), "providers.a.deadlines.idle", /with its unit/],
  "a deadline of two days": [
    withProvider({ deadlines: { total: "48h" } }),
    "providers.a.deadlines.total",
    /at most 24h/,
  ],
  "an idle deadline above the total": [
    withProvider({ deadlines: { idle: "2h" } }),
    "providers.a.deadlines.idle",
    /at most total/,
  ],
  "a connect deadline above the first byte": [
    withProvider({ deadlines: { connect: "6m" } }),
    "providers.a.deadlines.connect",
    /at most firstByte/,
  ],
  "a first byte deadline above the total": [
    withProvider({ deadlines: { firstByte: "31m" } }),
    "providers.a.deadlines.firstByte",
    /at most total/,
  ],
  "no replica": [withProvider({ upstream: [] }), "providers.a.upstream", /at least one upstream/],
  "a replica twice": [withProvider({ upstream: ["openai", "openai"] }), "providers.a.upstream", /each upstream once/],
  "a replica that is no URL": [withProvider({ upstream: ["openai", "x"] }), "providers.a.upstream[1]", /http or https/],
  "an odd keep-alive": [withProvider({ keepAlive: "never" }), "providers.a.keepAlive", /or "off"/],
  "no exchanges": [{ providers, limits: { exchanges: 0 } }, "limits.exchanges", /at least 1/],
  "bodies below one body": [{ providers, limits: { bodies: "1MB" } }, "limits.body", /at most bodies/],
  "an admin without a port": [{ providers, admin: {} }, "admin.port", /to be there/],
  "a drain without a unit": [{ providers, drain: { delay: "5" } }, "drain.delay", /with its unit/],
  "a port beyond the range": [{ providers, listen: [{ port: 65536 }] }, "listen[0].port", /0 to 65535/],
  "no addresses": [{ providers, listen: [] }, "listen", /at least one/],
  "half an identity": [{ providers, listen: [{ port: 1, tls: { cert: "x" } }] }, "listen[0].tls.key", /to be there/],
  "a size without a unit": [{ providers, limits: { body: "32" } }, "limits.body", /with its unit/],
  "a size of ten gigabytes": [{ providers, limits: { body: "10GB" } }, "limits.body", /at most 1GB/],
  "a key without an id": [withKey({ key: "0123456789abcdef" }), "keys[0].id", /to be there/],
  "a key of 15 characters": [withKey({ id: "k", key: "0123456789abcde" }), "keys[0].key", /16 to 512/],
  "a key with a space": [withKey({ id: "k", key: "0123456789 abcdef" }), "keys[0].key", /visible/],
  "a digest that is none": [withKey({ id: "k", digest: "abc" }), "keys[0].digest", /SHA-256/],
  "neither key nor digest": [withKey({ id: "k" }), "keys[0]", /either key or digest/],
  "both key and digest": [
    withKey({ id: "k", key: "0123456789abcdef", digest: "a".repeat(64) }),
    "keys[0]",
    /either key or digest/,
  ],
  "an expiry without a time": [
    withKey({ id: "k", key: "0123456789abcdef", expires: "soon" }),
    "keys[0].expires",
    /date/,
  ],
  "a key for a stranger": [withKey({ id: "k", key: "0123456789abcdef", providers: ["z"] }), "config", /not configured/],
};

function issuesOf(input: unknown): ConfigError["issues"] {
  try {
    parseConfig(input);
  } catch (error) {
    assert.ok(error instanceof ConfigError, String(error));
    return error.issues;
  }
  return assert.fail("it was let through");
}

describe("the configuration", () => {
  for (const [name, [input, path, says]] of Object.entries(MISTAKES)) {
    it(`with ${name} says so at ${path}`, () => {
      const issues = issuesOf(input);
      assert.deepEqual(issues.map((issue) => issue.path), [path]);
      assert.match(issues[0]?.message ?? "", says);
    });
  }

  it("tells all mistakes at once", () => {
    const issues = issuesOf({ providers: { a: {}, b: { upstream: 7 } }, limits: { body: "x" }, listen: "y" });
    assert.deepEqual(issues.map(({ path }) => path).sort(), [
      "limits.body",
      "listen",
      "providers.a.upstream",
      "providers.b.upstream",
    ]);
  });

  it("never repeats a value that may be secret", () => {
    const text = issuesOf(withKey({ id: "k", key: "tiny-secret", digest: 5, providers: "hush" }))
      .map(({ message }) => message).join();
    assert.doesNotMatch(text, /tiny|hush/);
  });

  it("gives each host to one provider only, and each id to one key", () => {
    const hosts = ["x.example"];
    const two = { a: { ...providers.a, hosts }, b: { ...providers.a, hosts } };
    assert.match(issuesOf({ providers: two })[0]?.message ?? "", /each host at one provider/);
    const keys = [{ id: "k", key: "0123456789abcdef" }, { id: "k", key: "fedcba9876543210" }];
    assert.match(issuesOf({ providers, keys })[0]?.message ?? "", /each id once/);
  });

  it("fills in what was left out", () => {
    assert.deepEqual(parseConfig({ providers }), {
      listen: [{ hostname: "127.0.0.1", port: 8787 }],
      providers: {
        a: {
          upstreams: ["https://a.example/v1"],
          keepAliveMs: 15_000,
          hosts: ["*"],
          messages: "ordered",
          deadlines: { connectMs: 5000, firstByteMs: 300_000, idleMs: 120_000, totalMs: 1_800_000 },
        },
      },
      keys: [],
      limits: {
        maxBodyBytes: 32 * 1024 * 1024,
        bodyTimeMs: 60_000,
        maxBodiesBytes: 512 * 1024 * 1024,
        maxExchanges: 10_000,
        writeStallMs: 120_000,
      },
      drain: { delayMs: 0, limitMs: 600_000 },
    });
    const { a, b } = parseConfig({ providers: { ...providers, b: providers.a } }).providers;
    assert.deepEqual([a?.hosts, b?.hosts], [["a.localhost"], ["b.localhost"]]);
  });

  it("knows providers by their short names", () => {
    for (const [name, url] of Object.entries(PRESETS)) {
      assert.equal(parseConfig(withProvider({ upstream: name })).providers.a?.upstreams[0], url);
    }
  });

  it("waits before it closes its listeners where somebody asks whether it is ready", () => {
    assert.equal(parseConfig({ providers, admin: { port: 0 } }).drain.delayMs, 5000);
    assert.equal(parseConfig({ providers, admin: { port: 0 }, drain: { delay: "0s" } }).drain.delayMs, 0);
  });

  it("takes replicas, and no keep-alive", () => {
    const { a } = parseConfig(withProvider({ upstream: ["openai", "https://b.example/"], keepAlive: "off" })).providers;
    assert.deepEqual(a?.upstreams, ["https://api.openai.com/v1", "https://b.example"]);
    assert.equal(a?.keepAliveMs, 0);
  });

  it("reads units, lower-cases hosts and cuts the slash at the end of an upstream", () => {
    const settings = { upstream: "https://a.example/v1//", hosts: ["A.Example:80", "*.B.example"] };
    const config = parseConfig({
      ...withProvider({ ...settings, deadlines: { connect: "1.5s", firstByte: "90s", idle: "500ms", total: "1h" } }),
      limits: { body: "1.5KB" },
      keys: [{ id: "k", digest: "AB".repeat(32), expires: "2027-01-31T00:00:00Z", models: ["gpt-*"] }],
    });
    assert.deepEqual(config.providers.a?.upstreams, ["https://a.example/v1"]);
    assert.deepEqual(config.providers.a?.hosts, ["a.example:80", "*.b.example"]);
    assert.deepEqual(config.providers.a?.deadlines, {
      connectMs: 1500,
      firstByteMs: 90_000,
      idleMs: 500,
      totalMs: 3_600_000,
    });
    assert.equal(config.limits.maxBodyBytes, 1536);
    assert.deepEqual(config.keys, [
      { id: "k", digest: "ab".repeat(32), models: ["gpt-*"], expiresAt: Date.UTC(2027, 0, 31) },
    ]);
  });
});
