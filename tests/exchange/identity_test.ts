/**
 * Callers with identity tokens (JWT) in place of gateway keys: which tokens are accepted, and which
 * caller they identify.
 */
// runtimes: bun, node, workers
import assert from "node:assert/strict";
import { createHmac } from "node:crypto";
import { afterEach, beforeEach, describe } from "@std/testing/bdd";
import { decodeProtectedHeader } from "jose";
import { parseConfig } from "../../src/config/config.ts";
import type { FailureCause } from "../../src/errors/outcomes.ts";
import type { RevocableToken } from "../../src/keys/identity/revocations.ts";
import { GOOD_BODY, startUnderTest, type UnderTest, UPSTREAM_KEY } from "../support/gateway.ts";
import {
  AUDIENCE,
  makeIssuerKey,
  startIssuer,
  type TestIssuer,
  toPart,
} from "../support/issuer.ts";
import { it } from "../support/cases.ts";
import { COMPLETION, type Provider, startProvider } from "../support/provider.ts";
import { callRaw, type RawAnswer } from "../support/tcp_peer.ts";
import { until } from "../support/until.ts";

const codeOf = ({ status, body }: RawAnswer): string => `${status} ${JSON.parse(body).error?.code}`;
const REFUSED = "401 invalid_gateway_key";

describe("callers with identity tokens", () => {
  let provider: Provider;
  let issuer: TestIssuer;
  let under: UnderTest | undefined;
  const shown: string[] = [];
  beforeEach(async () => {
    provider = await startProvider();
    issuer = await startIssuer();
  });
  afterEach(async () => {
    const told = await under?.told() ?? "";
    for (const token of shown.splice(0)) {
      for (const part of token.split(".")) {
        assert.ok(part.length < 20 || !told.includes(part), "a token is told");
      }
    }
    await under?.close();
    under = undefined;
    await issuer.stop().catch(() => {});
    await provider.close();
  });

  const start = async (
    identity: Record<string, unknown> | Record<string, unknown>[] = {},
    more: Partial<Parameters<typeof startUnderTest>[0]> = {},
  ): Promise<UnderTest> => {
    const good = { issuer: issuer.url, audience: AUDIENCE, name: "idp" };
    const all = [identity].flat().map((each) => ({ ...good, ...each }));
    under = await startUnderTest({
      upstreams: { a: provider.url },
      ...more,
      config: { identity: all, ...more.config },
    });
    return under;
  };
  const call = (
    gateway: UnderTest,
    token: string,
    more: Parameters<typeof callRaw>[1] = {},
  ): Promise<RawAnswer> => {
    shown.push(token);
    const { headers, ...rest } = more;
    return callRaw(gateway.a, {
      headers: { ...gateway.headers, "gateway-auth": `Bearer ${token}`, ...headers },
      body: GOOD_BODY,
      ...rest,
    });
  };
  /** Calls with a token that is refused, and returns the fault that the log reports. */
  const faultOf = async (gateway: UnderTest, token: string): Promise<FailureCause | undefined> => {
    const count = gateway.records.length;
    assert.equal(codeOf(await call(gateway, token)), REFUSED);
    return (await gateway.settled(count + 1)).cause;
  };

  it("are identified by the subject, next to callers with keys", async () => {
    const gateway = await start();
    const answer = await call(gateway, await issuer.token());
    assert.equal(answer.body, COMPLETION);
    assert.equal((await gateway.settled()).keyId, "jwt:idp:ann");
    const [sent] = provider.calls;
    assert.equal(sent?.headers["authorization"], `Bearer ${UPSTREAM_KEY}`);
    assert.equal(sent?.headers["gateway-auth"], undefined);
    assert.equal(
      (await callRaw(gateway.a, { headers: gateway.headers, body: GOOD_BODY })).status,
      200,
    );
    assert.equal((await gateway.settled(2)).keyId, "tester");
  });

  for (const alg of ["RS256", "PS256", "ES256", "ES384", "EdDSA"]) {
    it(`are accepted with ${alg}`, async () => {
      await issuer.rotate(alg);
      const gateway = await start();
      assert.equal((await call(gateway, await issuer.token())).status, 200);
      assert.equal(
        (await call(gateway, await issuer.token({ claims: { sub: "bob" } }))).status,
        200,
      );
    });
  }

  it("get the same answer for any fault of their token; the log names the fault", async () => {
    const gateway = await start({ leeway: "30s" });
    const now = Math.floor(Date.now() / 1000);
    const foreign = await makeIssuerKey("ES256", issuer.keys[0]?.kid);
    const unknown = await makeIssuerKey();
    const good = await issuer.token();
    const [head = "", body = "", signature = ""] = good.split(".");
    const { kid } = decodeProtectedHeader(good);
    const flipped = `${signature[0] === "A" ? "B" : "A"}${signature.slice(1)}`;
    const bad: readonly (readonly [name: string, token: string, fault: FailureCause])[] = [
      ["expired", await issuer.token({ claims: { exp: now - 31 } }), "token_expired"],
      [
        "older than maxAge",
        await issuer.token({ claims: { iat: now - 86_400 - 31 } }),
        "token_expired",
      ],
      ["not valid yet", await issuer.token({ claims: { nbf: now + 60 } }), "token_early"],
      ["issued in the future", await issuer.token({ claims: { iat: now + 60 } }), "token_early"],
      ["for another audience", await issuer.token({ claims: { aud: "another" } }), "token_issuer"],
      ["for no audience", await issuer.token({ claims: { aud: undefined } }), "token_issuer"],
      [
        "of another issuer",
        await issuer.token({ claims: { iss: "https://other.example" } }),
        "token_issuer",
      ],
      [
        "of an issuer with a slash",
        await issuer.token({ claims: { iss: `${issuer.url}/` } }),
        "token_issuer",
      ],
      ["without an end", await issuer.token({ claims: { exp: undefined } }), "token_claims"],
      ["without a subject", await issuer.token({ claims: { sub: undefined } }), "token_claims"],
      [
        "without a time of issue",
        await issuer.token({ claims: { iat: undefined } }),
        "token_claims",
      ],
      [
        "signed by another key of the same kid",
        await issuer.token({ key: foreign }),
        "token_signature",
      ],
      ["signed by a key of an unknown kid", await issuer.token({ key: unknown }), "token_key"],
      ["changed in its signature", `${head}.${body}.${flipped}`, "token_signature"],
      [
        "of a type for logging out",
        await issuer.token({ header: { typ: "logout+jwt" } }),
        "token_form",
      ],
      ["without a signature", `${toPart({ alg: "none" })}.${body}.`, "token_algorithm"],
      [
        "without a signature, by kid",
        `${toPart({ alg: "none", kid })}.${body}.${signature}`,
        "token_algorithm",
      ],
      [
        "of another algorithm",
        `${toPart({ alg: "RS256", kid })}.${body}.${signature}`,
        "token_key",
      ],
      [
        "malformed",
        `${toPart({ alg: "ES256", kid })}.${toPart("{ no json }")}.${signature}`,
        "token_issuer",
      ],
      [
        "critical of what is unknown",
        `${toPart({ alg: "ES256", kid, crit: ["x"], x: 1 })}.${body}.${signature}`,
        "token_algorithm",
      ],
    ];
    const told = new Set<string>();
    for (const [name, token, fault] of bad) {
      const { status, headers, body } = await call(gateway, token);
      told.add(`${status} ${headers["www-authenticate"]} ${body}`);
      const record = await gateway.settled(gateway.records.length);
      assert.equal(record.cause, fault, name);
    }
    assert.equal(told.size, 1, Array.from(told).join("\n"));
    assert.match(await gateway.told(), /"cause":"token_signature"/);
    const long = await issuer.token({ claims: { filler: "x".repeat(6200) } });
    assert.ok(long.length > 8192);
    assert.equal(codeOf(await call(gateway, long)), "401 invalid_gateway_auth");
    assert.equal(provider.calls.length, 0);
  });

  it("can neither use a public key as a shared secret, nor supply their own key", async () => {
    await issuer.rotate("RS256");
    const gateway = await start();
    const [key] = issuer.keys;
    const [, body = ""] = (await issuer.token()).split(".");
    for (
      const secret of [JSON.stringify(key?.publicJwk), String(key?.publicJwk.n), key?.kid ?? ""]
    ) {
      const signed = `${toPart({ alg: "HS256", typ: "JWT", kid: key?.kid })}.${body}`;
      const mac = createHmac("sha256", secret).update(signed).digest("base64url");
      assert.equal(await faultOf(gateway, `${signed}.${mac}`), "token_algorithm");
    }
    const own = await makeIssuerKey("RS256");
    const brought = [
      { jwk: own.publicJwk },
      { jku: "http://127.0.0.1:1/keys" },
      { kid: "../../../dev/null" },
      { kid: "' OR 1=1 --" },
      { kid: 7 },
      { kid: "__proto__" },
    ];
    for (const header of brought) {
      const fault = await faultOf(gateway, await issuer.token({ key: own, header }));
      assert.ok(
        fault === "token_key" || fault === "token_form",
        `${JSON.stringify(header)}: ${fault}`,
      );
    }
  });

  it("can differ from the gateway's clock by the leeway", async () => {
    const gateway = await start();
    const now = Math.floor(Date.now() / 1000);
    for (const claims of [{ exp: now - 10 }, { nbf: now + 10 }, { iat: now + 10 }]) {
      assert.equal(
        (await call(gateway, await issuer.token({ claims }))).status,
        200,
        JSON.stringify(claims),
      );
    }
  });

  it("get the team, models, providers, operations and plan limits that their claims state", async () => {
    const gateway = await start({
      claims: {
        id: "oid",
        name: "email",
        team: { claim: "realm_access.roles", map: { "group-1": "search" } },
        models: "https://gateway.example/models",
        operations: { value: ["chat"] },
        limits: { claim: "plan", default: "basic" },
      },
      plans: { basic: { requests: "1/h" }, gold: { requests: "100/h" } },
      name: "corp",
    }, { config: { teams: { search: { limits: { requests: "1k/h" } } } } });
    const claims = {
      oid: "0f1e",
      realm_access: { roles: ["other", "group-1"] },
      "https://gateway.example/models": ["test-*"],
    };
    const token = await issuer.token({ claims });
    assert.equal((await call(gateway, token)).status, 200);
    assert.equal((await gateway.settled()).keyId, "jwt:corp:0f1e");
    // Another token of the same caller is the same caller.
    assert.equal(
      codeOf(await call(gateway, await issuer.token({ claims }))),
      "429 rate_limit_exceeded",
    );
    const gold = await issuer.token({ claims: { ...claims, oid: "2d3c", plan: "gold" } });
    for (let made = 0; made < 3; made++) assert.equal((await call(gateway, gold)).status, 200);
    const other = await issuer.token({
      claims: { ...claims, oid: "4b5a", "https://gateway.example/models": "other" },
    });
    assert.equal(codeOf(await call(gateway, other)), "403 model_not_allowed");
    const embedding = {
      path: "/v1/embeddings",
      body: JSON.stringify({ model: "test-1", input: "x" }),
    };
    assert.equal(codeOf(await call(gateway, gold, embedding)), "403 operation_not_allowed");
    // A mapped claim that is missing does not permit everything.
    for (const name of ["realm_access", "https://gateway.example/models", "oid"]) {
      assert.equal(
        await faultOf(gateway, await issuer.token({ claims: { ...claims, [name]: undefined } })),
        "token_claims",
      );
    }
    for (const plan of ["platinum", "__proto__", "1000000/h"]) {
      assert.equal(
        await faultOf(gateway, await issuer.token({ claims: { ...claims, plan } })),
        "token_claims",
      );
    }
  });

  it("are mapped in the written order of a map's pairs, also if they look like numbers", async () => {
    const teams = {
      ads: { limits: { requests: "1/h" } },
      search: { limits: { requests: "1k/h" } },
    };
    const map = [["10", "ads"], ["9", "search"]];
    const gateway = await start({ claims: { team: { claim: "groups", map } } }, {
      config: { teams },
    });
    const token = await issuer.token({ claims: { groups: ["9", "10"] } });
    assert.equal((await call(gateway, token)).status, 200);
    assert.equal(
      codeOf(await call(gateway, token)),
      "429 rate_limit_exceeded",
      "its team is the first one",
    );
  });

  it("without a key id are tried with each key of the issuer", async () => {
    const [first, second] = [await makeIssuerKey(), await makeIssuerKey()];
    const withoutId = ({ publicJwk: { kid: _, ...rest }, ...key }: typeof first) => ({
      ...key,
      publicJwk: rest,
    });
    issuer.keys = [first, second].map((each) => withoutId(each) as typeof first);
    const gateway = await start();
    for (const key of [first, second]) {
      assert.equal(
        (await call(gateway, await issuer.token({ key, header: { kid: undefined } }))).status,
        200,
      );
    }
    const stranger = await makeIssuerKey();
    assert.equal(
      await faultOf(gateway, await issuer.token({ key: stranger, header: { kid: undefined } })),
      "token_key",
    );
  });

  it("can be admitted by required claims alone, if the configuration has some", async () => {
    const gateway = await start({ require: { repository: ["my-org/*"], ref: "refs/heads/main" } });
    const good = {
      repository: "my-org/app",
      ref: "refs/heads/main",
      sub: "repo:my-org/app:ref:refs/heads/main",
    };
    assert.equal((await call(gateway, await issuer.token({ claims: good }))).status, 200);
    assert.equal((await gateway.settled()).keyId, "jwt:idp:repo:my-org/app:ref:refs/heads/main");
    for (
      const claims of [{ repository: "other/app" }, { ref: "refs/heads/other" }, {
        repository: undefined,
      }]
    ) {
      assert.equal(
        await faultOf(gateway, await issuer.token({ claims: { ...good, ...claims } })),
        "token_claims",
      );
    }
  });

  it("never have the id of a stored key, or of each other", async () => {
    const gateway = await start();
    const subjects = [
      "tester",
      "jwt:idp:ann",
      "a b",
      "a_b",
      "x".repeat(80),
      `${"x".repeat(79)}y`,
      "ä",
      "a~b",
      "a\nb",
    ];
    const ids = new Set<string | undefined>();
    for (const sub of subjects) {
      const count = gateway.records.length;
      assert.equal((await call(gateway, await issuer.token({ claims: { sub } }))).status, 200, sub);
      const { keyId = "" } = await gateway.settled(count + 1);
      assert.match(keyId, /^jwt:idp:[\w.@:/|+=~-]{1,56}$/, sub);
      ids.add(keyId);
    }
    assert.equal(ids.size, subjects.length);
    const keys = [{ id: "jwt:idp:ann", key: "a-key-of-a-stranger" }];
    assert.throws(() => parseConfig({ providers: { a: { upstream: "openai" } }, keys }), /jwt:/);
  });

  it("must not send a token of this gateway to the provider", async () => {
    const gateway = await start();
    const [mine, other] = [await issuer.token(), await issuer.token({ claims: { sub: "bob" } })];
    const forProvider = await issuer.token({ claims: { aud: "https://provider.example" } });
    const authorization = (token: string) => ({ headers: { authorization: `Bearer ${token}` } });
    for (const token of [mine, other]) {
      assert.equal(
        codeOf(await call(gateway, mine, authorization(token))),
        "401 gateway_key_in_authorization",
      );
      const path = `/v1/chat/completions?key=x${token}`;
      assert.equal(codeOf(await call(gateway, mine, { path })), "400 gateway_key_misplaced");
      const body = JSON.stringify({ ...JSON.parse(GOOD_BODY), user: `me:${token}` });
      assert.equal(codeOf(await call(gateway, mine, { body })), "400 gateway_key_misplaced");
      // The same applies to callers with keys.
      const headers = { ...gateway.headers, authorization: `Bearer ${token}` };
      const answer = await callRaw(gateway.a, { headers, body: GOOD_BODY });
      assert.equal(codeOf(answer), "401 gateway_key_in_authorization");
    }
    shown.push(forProvider);
    assert.equal((await call(gateway, mine, authorization(forProvider))).status, 200);
    assert.equal(provider.calls.length, 1);
  });

  it("can send both keys in one", async () => {
    const gateway = await start({}, { provider: { combinedKey: true } });
    const token = await issuer.token();
    const headers = { "gateway-auth": undefined, authorization: `Bearer ${token}~${UPSTREAM_KEY}` };
    assert.equal((await call(gateway, token, { headers })).status, 200);
    assert.equal(provider.calls[0]?.headers["authorization"], `Bearer ${UPSTREAM_KEY}`);
  });

  it("are distinguished by audience if an issuer has two entries", async () => {
    const gateway = await start([{ name: "apps", audience: ["apps", "more-apps"] }, {
      name: "people",
      audience: "people",
      callers: false,
      admin: { role: "role" },
    }]);
    for (const aud of ["apps", ["other", "more-apps"]]) {
      assert.equal((await call(gateway, await issuer.token({ claims: { aud } }))).status, 200);
    }
    assert.equal(
      await faultOf(gateway, await issuer.token({ claims: { aud: "people" } })),
      "token_issuer",
    );
    const twice = [{ name: "apps", audience: ["apps", "more"] }, {
      name: "people",
      audience: ["people", "more"],
    }];
    const identity = twice.map((each) => ({ issuer: issuer.url, ...each }));
    assert.throws(
      () => parseConfig({ providers: { a: { upstream: "openai" } }, identity }),
      /audiences that differ/,
    );
  });

  it("cost one signature check each: a token is remembered until it or its key expires", async () => {
    const gateway = await start({ refresh: "1s" });
    const token = await issuer.token();
    for (let made = 0; made < 3; made++) assert.equal((await call(gateway, token)).status, 200);
    // The key is no longer published: tokens that it signed are refused, remembered or not.
    await issuer.rotate();
    await until(async () => codeOf(await call(gateway, token)) === REFUSED, "the end of the token");
    assert.equal((await call(gateway, await issuer.token())).status, 200);
  });

  it.notOn(
    "workers",
    "a Worker accepts no parts from a test",
    "can be revoked by an embedder",
    async () => {
      const revoked = new Set<string | undefined>();
      const isRevoked = ({ jti }: RevocableToken) => revoked.has(jti);
      const gateway = await start({}, { parts: { isRevoked } });
      const [token, other] = [await issuer.token({ claims: { jti: "one" } }), await issuer.token()];
      assert.equal((await call(gateway, token)).status, 200);
      revoked.add("one");
      assert.equal(await faultOf(gateway, token), "token_revoked");
      assert.equal((await gateway.settled(2)).keyId, "jwt:idp:ann");
      assert.equal((await call(gateway, other)).status, 200);
    },
  );
});
