/**
 * `GET /v1/exchanges`: settled exchanges page by page, by filter, with the names of keys, over real
 * HTTP.
 */
// runtimes: once
import assert from "node:assert/strict";
import { afterEach, describe, it } from "@std/testing/bdd";
import { Ajv2020 } from "ajv/dist/2020.js";
import { assertRefusal, type Running, startAdmin } from "../support/admin.ts";
import { GOOD_BODY, STREAM_BODY } from "../support/gateway.ts";
import { answerPlain, answerStream, stream } from "../support/provider.ts";
import { until } from "../support/until.ts";

const MARK = "a-mark-that-only-the-content-holds";

describe("GET /v1/exchanges", () => {
  let running: Running;
  afterEach(() => running.stop());

  const start = async (args: readonly string[] = [], more: Record<string, unknown> = {}) => {
    running = await startAdmin(more, undefined, {
      args,
      answering(response, { body }) {
        const text = body.toString();
        if (text.includes('"stream":true')) return answerStream(response, stream("Hello"));
        if (!text.includes('"o3"')) return answerPlain(response);
        response.writeHead(500, { "content-type": "application/json" }).end("{}");
      },
    });
    return running;
  };
  const makeKey = async (name: string, team?: string): Promise<{ key: string; id: string }> =>
    (await running.call("POST", "/v1/keys", { body: { name, team } })).json;
  const callGateway = async (key: string, body: string) => {
    const response = await fetch(`${running.url}/v1/chat/completions`, {
      method: "POST",
      headers: {
        authorization: "Bearer sk-1",
        "gateway-auth": `Bearer ${key}`,
        "content-type": "application/json",
      },
      body,
    });
    await response.text();
    return response.headers.get("x-request-id");
  };
  // deno-lint-ignore no-explicit-any
  const list = async (query = ""): Promise<any> => {
    const { status, json } = await running.call("GET", `/v1/exchanges${query}`);
    assert.equal(status, 200, JSON.stringify(json));
    return json;
  };
  const ids = async (query: string) =>
    (await list(query)).exchanges.map(({ id }: { id: string }) => id);

  for (const args of [[], ["--workers", "2"]]) {
    it(`finds exchanges by key name, team, model, outcome, code and time${args.length > 0 ? ", with workers" : ""}`, async () => {
      await start(args, { teams: { ads: { limits: { requests: "100/min" } } } });
      assert.deepEqual(await list(), { exchanges: [], next: null });
      const [search, ads] = [await makeKey("search-team"), await makeKey("ads-team", "ads")];
      const plain = await callGateway(search.key, GOOD_BODY.replace("Hi", MARK));
      const streamed = await callGateway(ads.key, STREAM_BODY);
      const failed = await callGateway(ads.key, GOOD_BODY.replace("test-1", "o3"));
      const refused = await callGateway("a-wrong-key-of-some-length", GOOD_BODY);
      await until(async () => (await list()).exchanges.length === 4, "all are told");
      const all = await list();
      // deno-lint-ignore no-explicit-any
      const names = all.exchanges.map(({ id, keyName }: any) => [id, keyName]);
      assert.deepEqual(new Map(names).get(plain), "search-team");
      assert.deepEqual(new Map(names).get(refused), undefined);
      const found: readonly [query: string, ids: readonly (string | null)[]][] = [
        ["?key=SEARCH", [plain]],
        [`?key=${ads.id}`, [failed, streamed]],
        ["?key=team&outcome=ok", [streamed, plain]],
        ["?outcome=errors", [failed]],
        ["?outcome=refused", [refused]],
        ["?outcome=cancelled", []],
        ["?model=O3", [failed]],
        ["?code=gateway_key", [refused]],
        ["?status=4xx", [refused]],
        ["?stream=true", [streamed]],
        ["?minFirstToken=0", [streamed]],
        ["?minDuration=10m", []],
        ["?operation=chat&provider=a&key=ads-team&status=500", [failed]],
        ["?provider=b", []],
        [`?id=${streamed}`, [streamed]],
        ["?search=ads-team", [failed, streamed]],
        ["?team=ads", [failed, streamed]],
        ["?team=ad", []],
      ];
      for (const [query, wanted] of found) {
        assert.deepEqual(new Set(await ids(query)), new Set(wanted), query);
      }
      const text = JSON.stringify(all);
      for (const secret of [MARK, "sk-1", search.key.slice(16), "a-wrong-key"]) {
        assert.ok(!text.includes(secret));
      }
    });

    it(`pages back while new exchanges arrive${args.length > 0 ? ", with workers" : ""}`, async () => {
      await start(args);
      const { key } = await makeKey("x");
      const made: (string | null)[] = [];
      for (let count = 0; count < 25; count++) made.push(await callGateway(key, GOOD_BODY));
      await until(async () => (await list()).exchanges.length === 25, "all are told");
      const seen: string[] = [];
      let page = await list("?limit=10");
      while (true) {
        seen.push(...page.exchanges.map(({ id }: { id: string }) => id));
        assert.ok(page.exchanges.length <= 10);
        if (page.next === null) break;
        await callGateway(key, GOOD_BODY);
        page = await list(`?limit=10&after=${page.next}`);
      }
      assert.deepEqual(seen, made.toReversed());
    });
  }

  it("names the mistake in a query, and matches its description", async () => {
    await start();
    const wrong = {
      limit: "501",
      after: "x",
      outcome: "bad",
      status: "teapot",
      minDuration: "long",
      stream: "maybe",
      owner: "x",
      model: "m".repeat(257),
    };
    for (const [name, value] of Object.entries(wrong)) {
      const answered = await running.call(
        "GET",
        `/v1/exchanges?${new URLSearchParams({ [name]: value })}`,
      );
      assertRefusal(answered, 400, "invalid_query", name);
    }
    assertRefusal(
      await running.call("GET", "/v1/exchanges", { authorization: "" }),
      401,
      "invalid_admin_token",
    );
    assertRefusal(await running.call("POST", "/v1/exchanges"), 405, "method_not_allowed");
    await callGateway((await makeKey("x")).key, STREAM_BODY);
    await callGateway("a-wrong-key-of-some-length", GOOD_BODY);
    await until(async () => (await list()).exchanges.length === 2, "both are told");
    const ajv = new Ajv2020({ allErrors: true, strict: false });
    ajv.addSchema({
      ...(await running.call("GET", "/openapi.json")).json,
      $id: "http://admin/openapi.json",
    });
    const validate = ajv.getSchema("http://admin/openapi.json#/components/schemas/ExchangeList") ??
      assert.fail();
    assert.ok(validate(await list()), ajv.errorsText(validate.errors));
  });
});
