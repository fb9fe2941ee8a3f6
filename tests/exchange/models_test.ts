/** The list of models passes through in the same way: client libraries request it first. */
// runtimes: bun, node
import assert from "node:assert/strict";
import { gzipSync } from "node:zlib";
import { afterEach, beforeEach, describe, it } from "@std/testing/bdd";
import { type Answering, type Provider, startProvider } from "../support/provider.ts";
import { startUnderTest, type UnderTest, UPSTREAM_KEY } from "../support/gateway.ts";
import { callRaw, type RawAnswer } from "../support/tcp_peer.ts";

const LIST = '{"object":"list","data":[{"id":"m-1","object":"model"}]}';

const [SOME, ALL] = ["a-gateway-key-for-some", "a-gateway-key-for-all"];

describe("models", () => {
  let provider: Provider;
  let under: UnderTest;
  beforeEach(async () => {
    provider = await startProvider((response) =>
      response.setHeader("content-type", "application/json").end(LIST)
    );
    under = await startUnderTest({ upstreams: { a: provider.url } });
  });
  afterEach(async () => {
    await under.close();
    await provider.close();
  });
  const get = (path: string, method = "GET") =>
    callRaw(under.a, {
      method,
      path,
      headers: { ...under.headers, "content-length": undefined, "content-type": undefined },
    });

  it("are listed", async () => {
    const { status, body } = await get("/v1/models?limit=1");
    assert.equal(status, 200);
    assert.equal(body, LIST);
    const [call] = provider.calls;
    assert.equal(call?.method, "GET");
    assert.equal(call?.path, "/v1/models?limit=1");
    assert.equal(call?.headers.authorization, `Bearer ${UPSTREAM_KEY}`);
    assert.equal(call?.headers["gateway-auth"], undefined);
    assert.equal((await under.settled()).operation, "models.list");
  });

  it("are looked up by an id, which is encoded again for the provider", async () => {
    for (
      const id of [
        "gpt-4o",
        "meta-llama/Llama-3",
        "meta-llama%2FLlama-3",
        "ft:gpt-4o:org::id",
        "a%20b",
      ]
    ) {
      assert.equal((await get(`/v1/models/${id}`)).status, 200, id);
    }
    assert.deepEqual(provider.calls.map(({ path }) => path), [
      "/v1/models/gpt-4o",
      "/v1/models/meta-llama/Llama-3",
      "/v1/models/meta-llama%2FLlama-3",
      "/v1/models/ft:gpt-4o:org::id",
      "/v1/models/a%20b",
    ]);
  });

  it("cannot be used to reach another path", async () => {
    for (
      const id of [
        "../chat",
        "%2e%2e/files",
        "..%2ffiles",
        "a/../../files",
        "%00",
        "a%0d%0ab",
        "%zz",
        "a//b",
      ]
    ) {
      const { status } = await get(`/v1/models/${id}`);
      assert.ok(status === 404 || status === 400 || status === 403, `${id} answered ${status}`);
    }
    for (const { path } of provider.calls) assert.match(path, /^\/v1\/models\/[^.]/);
  });

  describe("for a key that is limited to some models", () => {
    const entry = (id: string) => ({ id, object: "model", created: 1_700_000_000, owned_by: "x" });
    const limited = async (
      answering: Answering,
      models: string[] = ["m-*"],
    ): Promise<RawAnswer> => {
      await under.close();
      await provider.close();
      provider = await startProvider(answering);
      const config = { keys: [{ id: "some", key: SOME, models }, { id: "all", key: ALL }] };
      under = await startUnderTest({ upstreams: { a: provider.url }, config });
      return await getAs(SOME);
    };
    const getAs = (key: string) =>
      callRaw(under.a, {
        method: "GET",
        path: "/v1/models",
        headers: {
          ...under.headers,
          "gateway-auth": `Bearer ${key}`,
          "content-length": undefined,
          "content-type": undefined,
        },
      });
    const json = (text: string): Answering => (response) =>
      response.writeHead(200, { "content-type": "application/json", "openai-version": "x" }).end(
        text,
      );

    const LISTS: Readonly<Record<string, readonly [all: unknown, some: unknown]>> = {
      "OpenAI's form": [
        { object: "list", data: [entry("m-1"), entry("other"), entry("m-2")], has_more: false },
        { object: "list", data: [entry("m-1"), entry("m-2")], has_more: false },
      ],
      "a bare array": [[entry("other"), entry("m-1")], [entry("m-1")]],
      "two lists of the same": [
        {
          models: [{ name: "m-1" }, { model: "other" }],
          object: "list",
          data: [entry("m-1"), entry("other")],
        },
        { models: [{ name: "m-1" }], object: "list", data: [entry("m-1")] },
      ],
      "names alone": [{ models: ["m-1", "other"] }, { models: ["m-1"] }],
      "entries without a name": [{ data: [{ title: "m-1" }, null, 7, entry("m-1")] }, {
        data: [entry("m-1")],
      }],
      "none that it may use": [{ object: "list", data: [entry("other")] }, {
        object: "list",
        data: [],
      }],
    };
    for (const [form, [all, some]] of Object.entries(LISTS)) {
      it(`contain only permitted models: ${form}`, async () => {
        const text = JSON.stringify(all, null, 2);
        const { status, headers, body } = await limited(json(text));
        assert.deepEqual([status, JSON.parse(body)], [200, some]);
        assert.equal(headers["openai-version"], "x");
        assert.equal((await under.settled()).outcome, "ok");
        assert.equal((await getAs(ALL)).body, text, "byte for byte for a key that may use all");
      });
    }

    it("contain only permitted models of a long list in pieces, with gzip or without", async () => {
      const data = Array.from(
        { length: 8000 },
        (_, index) => ({ ...entry(`${index % 2 ? "m" : "n"}-${index}`) }),
      );
      const text = JSON.stringify({ data });
      assert.ok(text.length > 500_000);
      const expected = data.filter(({ id }) => id.startsWith("m-"));
      assert.deepEqual(JSON.parse((await limited(json(text))).body), { data: expected });
      const packed = await limited((response) =>
        response.writeHead(200, { "content-type": "application/json", "content-encoding": "gzip" })
          .end(gzipSync(text))
      );
      assert.deepEqual(JSON.parse(packed.body), { data: expected });
    });

    it("are refused if they cannot be read, because they could name any model", async () => {
      const unreadable = {
        "no JSON": '{"data":[{"id":"other"}',
        "no list": '{"data":{"other":{}}}',
        "null": "null",
        "deep": "[".repeat(1_000_000),
        "too long": JSON.stringify({
          data: Array.from({ length: 80_000 }, (_, index) => entry(`m-${index}`)),
        }),
      };
      for (const [what, text] of Object.entries(unreadable)) {
        const { status, body } = await limited(json(text));
        assert.deepEqual(
          [status, JSON.parse(body).error.code],
          [502, "upstream_bad_response"],
          what,
        );
        assert.ok(!body.includes("other"), what);
        const { cause, outcome } = await under.settled();
        assert.deepEqual([outcome, cause], ["upstream_failed", "malformed"], what);
        assert.equal((await getAs(ALL)).body.length, text.length, what);
      }
    });

    it("are answered to HEAD as the provider answers it", async () => {
      await limited(json('{"data":[]}'));
      for (const key of [SOME, ALL]) {
        const headers = {
          ...under.headers,
          "gateway-auth": `Bearer ${key}`,
          "content-type": undefined,
        };
        const answer = await callRaw(under.a, { method: "HEAD", path: "/v1/models", headers });
        assert.deepEqual([answer.status, answer.headers["openai-version"], answer.body], [
          200,
          "x",
          "",
        ]);
      }
      assert.deepEqual(provider.calls.slice(-2).map(({ method }) => method), ["HEAD", "HEAD"]);
    });

    it("pass a provider's own error unchanged, and report an answer that breaks off", async () => {
      const refusal = '{"error":{"message":"no"}}';
      const { status, body } = await limited((response) => response.writeHead(401).end(refusal));
      assert.deepEqual([status, body], [401, refusal]);
      const cut = await limited((response) => {
        response.writeHead(200, { "content-type": "application/json", "content-length": "99" })
          .write('{"data":[');
        setTimeout(() => response.destroy(), 50);
      });
      assert.deepEqual([cut.status, JSON.parse(cut.body).error.code], [
        502,
        "upstream_disconnected",
      ]);
    });
  });

  it("accept no other method", async () => {
    const { status, headers } = await get("/v1/models", "DELETE");
    assert.equal(status, 405);
    assert.equal(headers.allow, "GET, HEAD");
  });
});
