/**
 * The two credentials in requests, in each place where they can be: refused calls never reach a
 * provider.
 */
// runtimes: all, workers
import assert from "node:assert/strict";
import { afterEach, beforeEach, describe, it } from "@std/testing/bdd";
import { CREDENTIAL_HEADERS } from "../../src/config/credential.ts";
import { CREDENTIAL_FORM } from "../../src/upstream/header_lists.ts";
import { generateGatewayKey } from "../../src/keys/key_format.ts";
import { type Provider, startProvider } from "../support/provider.ts";
import { GOOD_BODY, startUnderTest, type UnderTest } from "../support/gateway.ts";
import { callRaw } from "../support/tcp_peer.ts";

/** Makes a key that can be in the name of a header: names that look like credentials are left out. */
function makeKey(): string {
  const key = generateGatewayKey();
  return CREDENTIAL_FORM.test(key.toLowerCase()) ? makeKey() : key;
}
/** No part of it looks like a credential: headers with such names are left out. */
const OWN = "own-one-of-a-team";
const EXPIRED = "expired-key-of-a-team";

describe("credentials", () => {
  let provider: Provider;
  let under: UnderTest;
  beforeEach(async () => {
    provider = await startProvider();
    const keys = [{ id: "own", key: OWN }, {
      id: "old",
      key: EXPIRED,
      expires: "2020-01-01T00:00:00Z",
    }];
    under = await startUnderTest({ upstreams: { a: provider.url }, config: { keys } });
  });
  afterEach(async () => {
    await under.close();
    await provider.close();
  });
  const call = (headers: Record<string, string | string[] | undefined>) =>
    callRaw(under.a, {
      headers: { ...under.headers, "gateway-auth": `Bearer ${OWN}`, ...headers },
      body: GOOD_BODY,
    });
  const codeOf = async (headers: Record<string, string | string[] | undefined>) => {
    const { status, body } = await call(headers);
    return status === 200 ? "ok" : JSON.parse(body).error.code;
  };

  it("accepts the scheme in any case and forwards Authorization unchanged", async () => {
    assert.equal(
      await codeOf({ "gateway-auth": `bearer ${OWN}`, authorization: "BEARER sk-1" }),
      "ok",
    );
    assert.equal(provider.calls[0]?.headers.authorization, "BEARER sk-1");
  });

  it("refuses everything except one Bearer credential [malformed credentials]", async () => {
    for (
      const value of [
        "Bearer",
        "Bearer ",
        `Basic ${OWN}`,
        OWN,
        `Bearer  ${OWN}`,
        `Bearer ${OWN} x`,
        `Bearer a, Bearer b`,
      ]
    ) {
      assert.equal(await codeOf({ "gateway-auth": value }), "invalid_gateway_auth", value);
      assert.equal(await codeOf({ authorization: value }), "invalid_upstream_auth", value);
    }
    const twice = [`Bearer ${OWN}`, `Bearer ${OWN}`];
    assert.equal(await codeOf({ "gateway-auth": twice }), "invalid_gateway_auth");
    assert.equal(await codeOf({ authorization: twice }), "invalid_upstream_auth");
    assert.equal(provider.calls.length, 0);
  });

  it("returns the same answer for unknown, expired and malformed keys [bad keys alike]", async () => {
    const shown = [generateGatewayKey(), EXPIRED, "gk_broken", "short", `${OWN}x`];
    const answers = new Set<string>();
    for (const key of shown) {
      const { status, headers, body } = await call({ "gateway-auth": `Bearer ${key}` });
      answers.add(`${status} ${headers["sallyport-error"]} ${headers["www-authenticate"]} ${body}`);
    }
    assert.equal(answers.size, 1);
    assert.match([...answers][0] ?? "", /^401 invalid_gateway_key/);
  });

  it("checks the gateway key first [one credential]", async () => {
    assert.equal(
      await codeOf({ "gateway-auth": undefined, authorization: undefined }),
      "missing_gateway_key",
    );
    assert.equal(
      await codeOf({ "gateway-auth": "Bearer wrong-key-of-16-up", authorization: undefined }),
      "invalid_gateway_key",
    );
  });

  it("never forwards a gateway key: neither the key that was sent nor any text of that form", async () => {
    for (const authorization of [`Bearer ${generateGatewayKey()}`, `Bearer ${OWN}`]) {
      assert.equal(await codeOf({ authorization }), "gateway_key_in_authorization");
    }
    assert.equal(provider.calls.length, 0);
  });

  it("names the header of a gateway key that is sent alone", async () => {
    const { status, body } = await call({
      "gateway-auth": undefined,
      authorization: `Bearer ${generateGatewayKey()}`,
    });
    const { error } = JSON.parse(body);
    assert.deepEqual([status, error.code, error.param], [
      401,
      "gateway_key_in_authorization",
      "Authorization",
    ]);
    assert.match(error.message, /the gateway key in Gateway-Auth/);
    assert.equal(provider.calls.length, 0);
  });

  it("names the header of a missing gateway key, and says the same of a key that exists and of another", async () => {
    const messages = new Set<string>();
    for (const key of [OWN, EXPIRED, "no-key-of-any-team", "sk-1"]) {
      const { status, body } = await call({
        "gateway-auth": undefined,
        authorization: `Bearer ${key}`,
      });
      assert.equal(status, 401);
      messages.add(JSON.parse(body).error.message);
    }
    assert.equal(messages.size, 1);
    assert.match(
      [...messages][0] ?? "",
      /Authorization is for the key at the provider\. Send Gateway-Auth: Bearer <gateway key>$/,
    );
  });

  it("never forwards a gateway key of either kind in a query", async () => {
    for (const key of [makeKey(), OWN]) {
      const headers = { ...under.headers, "gateway-auth": `Bearer ${OWN}` };
      const { status, body } = await callRaw(under.a, {
        path: `/v1/chat/completions?key=${key}`,
        headers,
        body: GOOD_BODY,
      });
      assert.deepEqual([status, JSON.parse(body).error.code], [400, "gateway_key_misplaced"]);
    }
    assert.equal(provider.calls.length, 0);
  });

  it("never forwards a gateway key of either kind in an escaped URL, a header, a user name or a model", async () => {
    for (const key of [makeKey(), OWN]) {
      const escaped = Array.from(key, (character) => `%${character.charCodeAt(0).toString(16)}`)
        .join("");
      const body = { messages: [{ role: "user", content: "Hi" }], model: "m" };
      const escapedTwice = escaped.replaceAll("%", "%25");
      const title = `x-openrouter-${key}`;
      const misplaced: Readonly<
        Record<string, [path: string, headers: Record<string, string>, body: object]>
      > = {
        "an escaped query": [`/v1/chat/completions?key=${escaped}`, {}, body],
        "a half escaped query": [
          `/v1/chat/completions?key=${escaped.slice(0, 3)}${key.slice(1)}`,
          {},
          body,
        ],
        // A header with a key of the gateway's own form is left out, and the call continues.
        ...(key === OWN &&
          { "a header": ["/v1/chat/completions", { "openai-organization": `x${key}` }, body] }),
        "a twice escaped query": [`/v1/chat/completions?key=${escapedTwice}`, {}, body],
        "a query that is escaped three times": [
          `/v1/chat/completions?${escaped.replaceAll("%", "%2525")}`,
          {},
          body,
        ],
        "an escaped header": ["/v1/chat/completions", { "x-title": escaped }, body],
        "a half escaped header": ["/v1/chat/completions", {
          "x-title": escaped.slice(0, 3) + key.slice(1),
        }, body],
        "a twice escaped header": [
          "/v1/chat/completions",
          { baggage: `user=${escapedTwice}` },
          body,
        ],
        "the name of a header": ["/v1/chat/completions", { [title]: "1" }, body],
        "the name of a header in capitals": [
          "/v1/chat/completions",
          { [title.toUpperCase()]: "1" },
          body,
        ],
        "a user in metadata": ["/v1/chat/completions", {}, { ...body, metadata: { user_id: key } }],
        "a user": ["/v1/chat/completions", {}, { ...body, user: `me:${key}` }],
        "a safety identifier": ["/v1/chat/completions", {}, { ...body, safety_identifier: key }],
        "a model": ["/v1/chat/completions", {}, { ...body, model: key }],
      };
      for (const [name, [path, more, sent]] of Object.entries(misplaced)) {
        const headers = { ...under.headers, "gateway-auth": `Bearer ${OWN}`, ...more };
        const { status, body: answer } = await callRaw(under.a, {
          path,
          headers,
          body: JSON.stringify(sent),
        });
        assert.deepEqual(
          [status, JSON.parse(answer).error.code],
          [400, "gateway_key_misplaced"],
          name,
        );
        assert.ok(!answer.toLowerCase().includes(key.toLowerCase()), name);
      }
      assert.ok(!JSON.stringify(under.records).includes(key));
    }
    assert.equal(provider.calls.length, 0);
  });

  it("refuses a body that names an end user twice, because parsers differ in which one they use", async () => {
    for (const field of ["user", "safety_identifier", "metadata", "\\u0075ser"]) {
      for (const [one, other] of [[OWN, "me"], ["me", OWN]]) {
        const rest = '"model":"m","messages":[{"role":"user","content":"Hi"}]';
        const body = `{"${field}":"${one}",${rest},"${field}":"${other}"}`;
        const headers = { ...under.headers, "gateway-auth": `Bearer ${OWN}` };
        const { status, body: answer } = await callRaw(under.a, { headers, body });
        assert.deepEqual([status, JSON.parse(answer).error.code], [400, "invalid_body"], body);
        assert.ok(!answer.includes(OWN));
      }
    }
    assert.equal(provider.calls.length, 0);
  });

  it("logs the key by its id", async () => {
    assert.equal(await codeOf({}), "ok");
    assert.equal((await under.settled()).keyId, "own");
    assert.doesNotMatch(JSON.stringify(under.records), new RegExp(`${OWN}|sk-`));
  });
});

const SK = "sk-ant-0123";
const OWN_HEADERS = CREDENTIAL_HEADERS.filter((name) => name !== "authorization");

/** Names and values of the credentials that arrived at a provider. */
function credentialsOf({ headers }: { readonly headers: Readonly<Record<string, unknown>> }) {
  return Object.fromEntries(
    CREDENTIAL_HEADERS.flatMap((name) => name in headers ? [[name, headers[name]]] : []),
  );
}

/** The credentials among a call's headers. Fails if any other header differs from a good call's. */
type Presented = Readonly<Record<string, string | string[] | undefined>>;

/** A gateway whose providers expect their keys in a certain header. */
async function startWith(settings: Record<string, unknown>) {
  const provider = await startProvider();
  const config = { keys: [{ id: "own", key: OWN }] };
  const under = await startUnderTest({
    upstreams: { a: provider.url },
    provider: settings,
    config,
  });
  const none = { "authorization": undefined, "gateway-auth": undefined };
  return {
    provider,
    /** The result of a call: the forwarded credentials, or the error's code, header and message. */
    async call(presented: Presented): Promise<unknown> {
      const before = provider.calls.length;
      const { status, body } = await callRaw(under.a, {
        headers: { ...under.headers, ...none, ...presented },
        body: GOOD_BODY,
      });
      const [arrived] = provider.calls.slice(before);
      if (status === 200 && arrived !== undefined) {
        assert.equal(arrived.headers["gateway-auth"], undefined);
        return credentialsOf(arrived);
      }
      assert.equal(arrived, undefined, "what is refused arrives nowhere");
      assert.equal(status, 401);
      assert.doesNotMatch(body, new RegExp(`${OWN}|${SK}|gk_`));
      const { error: { code, param, message } } = JSON.parse(body);
      return [code, param, message];
    },
    async close() {
      await under.close();
      await provider.close();
    },
  };
}

describe("the header of a provider's interface", () => {
  let started: Awaited<ReturnType<typeof startWith>>;
  afterEach(() => started.close());
  const call = (presented: Presented) =>
    started.call({ "gateway-auth": `Bearer ${OWN}`, ...presented });
  const refusal = async (presented: Presented) => (await call(presented) as string[]).slice(0, 2);

  for (const header of OWN_HEADERS) {
    it(`${header} carries the upstream key, and so can Authorization: credentials are forwarded unchanged`, async () => {
      started = await startWith({ credential: header });
      const bearer = { authorization: "bearer sk-1" };
      for (
        const presented of [{ [header]: SK }, bearer, { [header]: SK, ...bearer }, {
          [header]: "Bearer~",
        }]
      ) {
        assert.deepEqual(await call(presented), presented);
      }
    });

    it(`${header} is exactly one key, and Authorization next to it exactly one Bearer credential`, async () => {
      started = await startWith({ credential: header });
      for (const value of [`Bearer ${SK}`, `${SK} x`, `${SK}, ${SK}`, [SK, SK], "x".repeat(8193)]) {
        assert.deepEqual(await refusal({ [header]: value, authorization: "Bearer sk-1" }), [
          "invalid_upstream_auth",
          header,
        ]);
      }
      assert.deepEqual(await refusal({ [header]: SK, authorization: SK }), [
        "invalid_upstream_auth",
        "Authorization",
      ]);
    });

    it(`${header} is named in the error if no upstream key is sent`, async () => {
      started = await startWith({ credential: header });
      const [code, param, message] = await call({}) as string[];
      assert.deepEqual([code, param], ["missing_upstream_key", header]);
      assert.match(message ?? "", new RegExp(`: send ${header}: <.*>, or Authorization: Bearer <`));
    });

    it(`${header} never forwards a gateway key`, async () => {
      started = await startWith({ credential: header });
      for (
        const value of [
          OWN,
          generateGatewayKey(),
          `x${OWN}`,
          `${OWN}~${SK}`,
          `${generateGatewayKey()}~${SK}`,
        ]
      ) {
        for (const beside of [{}, { authorization: "Bearer sk-1" }]) {
          assert.deepEqual(await refusal({ [header]: value, ...beside }), [
            "gateway_key_in_authorization",
            header,
          ]);
        }
        assert.deepEqual(await refusal({ [header]: SK, authorization: `Bearer ${value}` }), [
          "gateway_key_in_authorization",
          "Authorization",
        ]);
      }
    });

    it(`${header} of another interface is not a credential and is not forwarded`, async () => {
      const others = Object.fromEntries(
        OWN_HEADERS.filter((name) => name !== header).map((name) => [name, SK]),
      );
      started = await startWith({ credential: header });
      assert.deepEqual(await refusal(others), ["missing_upstream_key", header]);
      assert.deepEqual(await call({ ...others, [header]: SK }), { [header]: SK });
    });
  }

  it("is Authorization by default, and then no other header counts", async () => {
    started = await startWith({});
    const all = Object.fromEntries(OWN_HEADERS.map((name) => [name, SK]));
    const [code, param, message] = await call(all) as string[];
    assert.deepEqual([code, param], ["missing_upstream_key", "Authorization"]);
    assert.match(message ?? "", /: send Authorization: Bearer <your key at the provider>$/);
    assert.deepEqual(await call({ ...all, authorization: "Bearer sk-1" }), {
      authorization: "Bearer sk-1",
    });
  });

  it("does not matter for upstream keys in Gateway-Auth: their prefixes identify them", async () => {
    started = await startWith({ credential: "x-goog-api-key" });
    for (
      const key of [
        "sk-ant-api03-0123456789",
        "sk-proj-0123456789",
        "gsk_0123456789abcdef",
        "AIzaSy0123456789abc",
      ]
    ) {
      assert.deepEqual(await refusal({ "gateway-auth": `Bearer ${key}`, "x-goog-api-key": SK }), [
        "provider_key_in_gateway_auth",
        "Gateway-Auth",
      ]);
    }
  });
});

describe("a combined key", () => {
  let started: Awaited<ReturnType<typeof startWith>>;
  afterEach(() => started.close());
  const refusal = async (presented: Presented) =>
    (await started.call(presented) as string[]).slice(0, 2);

  it("serves as both keys: the gateway keeps the first half and forwards the second", async () => {
    started = await startWith({ combinedKey: true, credential: "x-api-key" });
    for (const key of [SK, "k", "a~b", "~", "~~x", "sk-gk_"]) {
      const bearer = { authorization: `Bearer ${OWN}~${key}` };
      const bare = { "x-api-key": `${OWN}~${key}` };
      assert.deepEqual(await started.call(bearer), { authorization: `Bearer ${key}` });
      assert.deepEqual(await started.call(bare), { "x-api-key": key });
      assert.deepEqual(await started.call({ ...bare, ...bearer }), {
        "x-api-key": key,
        authorization: `Bearer ${key}`,
      });
    }
    assert.deepEqual(await started.call({ authorization: `BEARER ${OWN}~${SK}` }), {
      authorization: `Bearer ${SK}`,
    });
  });

  it("is optional for each call: with Gateway-Auth the upstream key is forwarded whole", async () => {
    started = await startWith({ combinedKey: true });
    const presented = { "gateway-auth": `Bearer ${OWN}`, authorization: "Bearer a-signed~token" };
    assert.deepEqual(await started.call(presented), { authorization: "Bearer a-signed~token" });
  });

  it("is refused if a half is missing or wrong", async () => {
    started = await startWith({ combinedKey: true, credential: "x-api-key" });
    const other = generateGatewayKey();
    const REFUSED: readonly [presented: Presented, code: string, param: string][] = [
      [{}, "missing_gateway_key", "Gateway-Auth"],
      [{ authorization: `Bearer ${SK}` }, "missing_gateway_key", "Gateway-Auth"],
      [{ authorization: `Bearer ${OWN}` }, "missing_gateway_key", "Gateway-Auth"],
      [{ authorization: `Bearer ${other}` }, "gateway_key_in_authorization", "Authorization"],
      [{ "x-api-key": other }, "gateway_key_in_authorization", "x-api-key"],
      [{ authorization: `Bearer ~${SK}` }, "missing_gateway_key", "Gateway-Auth"],
      [{ authorization: `Bearer ~` }, "missing_gateway_key", "Gateway-Auth"],
      [{ authorization: `${OWN}~${SK}` }, "missing_gateway_key", "Gateway-Auth"],
      [
        { "x-api-key": SK, authorization: `Bearer ${OWN}~${SK}` },
        "missing_gateway_key",
        "Gateway-Auth",
      ],
      [{ authorization: `Bearer ${OWN}~` }, "missing_upstream_key", "x-api-key"],
      [{ "x-api-key": `${OWN}~` }, "missing_upstream_key", "x-api-key"],
      [{ authorization: `Bearer ${OWN}x~${SK}` }, "invalid_gateway_key", "Gateway-Auth"],
      [{ authorization: `Bearer ${other}~${SK}` }, "invalid_gateway_key", "Gateway-Auth"],
      [{ authorization: `Bearer ${SK}~${OWN}` }, "provider_key_in_gateway_auth", "Gateway-Auth"],
      [{ authorization: `Bearer ${OWN}~${OWN}` }, "gateway_key_in_authorization", "Authorization"],
      [{ "x-api-key": `${OWN}~${other}` }, "gateway_key_in_authorization", "x-api-key"],
      [{ "x-api-key": `${OWN}~${SK} x` }, "invalid_upstream_auth", "x-api-key"],
      [
        { "x-api-key": `${OWN}~${SK}`, authorization: `Bearer ${SK}` },
        "invalid_upstream_auth",
        "Authorization",
      ],
      [
        { "x-api-key": `${OWN}~${SK}`, authorization: `Bearer ${other}~${SK}` },
        "invalid_upstream_auth",
        "Authorization",
      ],
    ];
    for (const [presented, code, param] of REFUSED) {
      assert.deepEqual(await refusal(presented), [code, param], Object.keys(presented).join());
    }
  });

  it("is refused together with Gateway-Auth", async () => {
    started = await startWith({ combinedKey: true });
    for (const key of [OWN, generateGatewayKey()]) {
      const presented = { "gateway-auth": `Bearer ${OWN}`, authorization: `Bearer ${key}~${SK}` };
      const [code, param, message] = await started.call(presented) as string[];
      assert.deepEqual([code, param], ["gateway_key_in_authorization", "Authorization"]);
      assert.match(message ?? "", /as that key, and no Gateway-Auth$/);
    }
    assert.deepEqual(await refusal({ "gateway-auth": "", authorization: `Bearer ${OWN}~${SK}` }), [
      "invalid_gateway_auth",
      "Gateway-Auth",
    ]);
  });

  it("is refused if it is not configured, and the error names the setting", async () => {
    started = await startWith({});
    for (
      const [beside, code] of [
        [{}, "missing_gateway_key"],
        [{ "gateway-auth": `Bearer ${OWN}` }, "gateway_key_in_authorization"],
      ] as const
    ) {
      const [told, , message] = await started.call({
        ...beside,
        authorization: `Bearer ${OWN}~${SK}`,
      }) as string[];
      assert.equal(told, code);
      assert.match(message ?? "", /only if the gateway's operator sets combinedKey/);
    }
  });
});
