/**
 * Egress in the configuration: mistakes, defaults, variables and masks; and exceptions from a
 * proxy.
 */
// runtimes: once
import assert from "node:assert/strict";
import { describe, it } from "@std/testing/bdd";
import { checkConfig, ConfigError } from "../../src/config/config.ts";
import { type Json, layVariable } from "../../src/config/environment.ts";
import { createGateway } from "../../src/gateway.ts";
import { maskSecrets } from "../../src/serve/masked_config.ts";
import { isExcepted } from "../../src/upstream/http1/no_proxy.ts";

const upstream = "https://a.example/v1";
const PROXY = "http://user:canary@proxy.example:3128";
const configure = (egress: unknown, own?: unknown, more: Json = {}) =>
  checkConfig({
    ...(egress !== undefined && { egress }),
    providers: { a: { upstream, ...(own !== undefined && { egress: own }), ...more } },
  });
const effective = (egress: unknown, own?: unknown) => configure(egress, own).providers.a?.egress;

const MISTAKES: Readonly<Record<string, [egress: unknown, path: string, says: RegExp]>> = {
  "no URL": [{ proxy: "canary" }, "egress.proxy", /expected a URL such as/],
  "SOCKS": [{ proxy: "socks5://canary:1" }, "egress.proxy", /SOCKS is not supported/],
  "a path": [{ proxy: "http://h:1/canary" }, "egress.proxy", /nothing after the port/],
  "a slash in a password": [{ proxy: "http://user:1/canary@h" }, "egress.proxy", /written %2f/],
  "a bare percent sign": [{ proxy: "http://user:canary%@h" }, "egress.proxy", /% is written %25/],
  "two routes": [
    { proxy: PROXY, fromEnvironment: true },
    "egress.fromEnvironment",
    /can't be combined with proxy/,
  ],
  "credentials of nothing": [
    { credentials: "f" },
    "egress.credentials",
    /needs proxy or fromEnvironment/,
  ],
  "credentials twice": [
    { proxy: PROXY, credentials: "f" },
    "egress.credentials",
    /expected them once/,
  ],
  "no authority": [{ caOnly: true }, "egress.caOnly", /needs ca/],
  "a certificate alone": [{ cert: "c" }, "egress.key", /together with cert/],
  "a key alone": [{ key: "k" }, "egress.cert", /together with key/],
  "an unknown setting": [{ proxies: "x" }, "egress.proxies", /unknown setting/],
};

describe("egress in the configuration", () => {
  for (const [what, [egress, path, says]] of Object.entries(MISTAKES)) {
    it(`refuses ${what}, at the top and at a provider, and prints no value`, () => {
      for (
        const [act, at] of [[() => configure(egress), path], [
          () => configure({}, egress),
          `providers.a.${path}`,
        ]] as const
      ) {
        assert.throws(act, (error: ConfigError) => {
          assert.deepEqual(error.issues.map((issue) => issue.path), [at]);
          assert.match(error.message, says);
          return !error.message.includes("canary");
        });
      }
    });
  }

  it("is refused with fetch, and if there is only fetch", () => {
    assert.throws(
      () => configure({ ca: "f" }, undefined, { transport: "fetch" }),
      /providers\.a\.egress: expected "off"/,
    );
    configure({ ca: "f" }, "off", { transport: "fetch" });
    assert.throws(() => createGateway(configure({ ca: "f" })), ConfigError);
  });

  it("prefers the settings of a provider to the general ones, group by group", () => {
    const shared = { proxy: PROXY, ca: "shared.pem", cert: "c", key: "k" };
    const all = { ...shared, ca: ["shared.pem"] };
    assert.deepEqual(effective(shared), all);
    assert.deepEqual(effective(shared, "off"), undefined);
    const { proxy: _, ...direct } = all;
    assert.deepEqual(effective(shared, { proxy: "off" }), direct);
    assert.deepEqual(effective(shared, { fromEnvironment: true }), {
      ...direct,
      fromEnvironment: true,
    });
    assert.deepEqual(effective(shared, { ca: ["own.pem", "b.pem"] }), {
      ...all,
      ca: ["own.pem", "b.pem"],
    });
    assert.deepEqual(effective(undefined, { ca: "x" }), { ca: ["x"] });
    assert.equal("egress" in (configure(undefined).providers.a ?? {}), false);
  });

  it("can be set by variables, and its password is masked", () => {
    const input: Json = { providers: { a: { upstream } } };
    for (
      const [name, text] of [
        ["SALLYPORT_EGRESS_PROXY", PROXY],
        ["SALLYPORT_EGRESS_CA", "one.pem, two.pem"],
        ["SALLYPORT_EGRESS_CA_ONLY", "true"],
        ["SALLYPORT_EGRESS_CERT_A", "c"],
        ["SALLYPORT_EGRESS_KEY_A", "k"],
      ] as const
    ) layVariable(input, name, text);
    const masked = JSON.parse(JSON.stringify(maskSecrets(checkConfig(input))));
    assert.deepEqual(masked.providers.a.egress, {
      proxy: "http://(masked)@proxy.example:3128",
      ca: ["one.pem", "two.pem"],
      caOnly: true,
      cert: "c",
      key: "k",
    });
  });
});

describe("exceptions from a proxy", () => {
  const CASES: readonly (readonly [list: string, url: string, isExcepted: boolean])[] = [
    ["", "https://a.example", false],
    ["*", "https://a.example", true],
    ["b.example,*", "https://a.example", true],
    ["example.com", "https://example.com", true],
    ["example.com", "https://EXAMPLE.com.", true],
    ["example.com", "https://api.example.com", true],
    ["example.com", "https://badexample.com", false],
    [".example.com", "https://example.com", true],
    ["*.example.com.", "https://api.example.com", true],
    ["a.example b.example", "https://b.example", true],
    ["example.com:8443", "https://example.com:8443", true],
    ["example.com:8443", "https://example.com", false],
    ["example.com:443", "https://example.com", true],
    ["example.com:80", "http://example.com", true],
    ["10.0.0.1", "http://10.0.0.1:9", true],
    ["10.0.0.0/8", "http://10.255.1.1", true],
    ["10.0.0.0/8", "http://11.0.0.1", false],
    ["10.0.0.0/33", "http://10.0.0.1", false],
    ["0.1", "http://10.0.0.1", false],
    ["::1", "http://[::1]:8080", true],
    ["[::1]:8080", "http://[::1]:8080", true],
    ["[::1]:8081", "http://[::1]:8080", false],
    ["fd00::/8", "http://[fd12:3456::1]", true],
    ["fd00::/8", "http://[fe80::1]", false],
    ["::ffff:10.0.0.1", "http://10.0.0.1", false],
    ["localhost", "http://127.0.0.1", false],
    [",, ,", "http://a.example", false],
  ];
  for (const [list, url, expected] of CASES) {
    it(`${JSON.stringify(list)} ${expected ? "has" : "has no"} ${url}`, () => {
      assert.equal(isExcepted(new URL(url), list), expected);
    });
  }
});
