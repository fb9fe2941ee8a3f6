/** Keys at the admin API of a running gateway: its routes, and its refusals. */
// runtimes: once
import assert from "node:assert/strict";
import { rmSync } from "node:fs";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, describe, it } from "@std/testing/bdd";
import { gatewayKeyId } from "../../src/keys/key_format.ts";
import { KEY_ROUTES } from "../../src/admin/api/keys.ts";
import {
  assertRefusal,
  type Call,
  POLICY,
  type Running,
  startAdmin,
  TOKEN,
} from "../support/admin.ts";
import { openRaw, parseAnswer } from "../support/tcp_peer.ts";
import { until } from "../support/until.ts";
import { type RedisServer, startRedis, withRedis } from "../support/redis.ts";

const DAY_MS = 86_400_000;
const MAX_BODY_BYTES = 65536;

/** Settings that are refused, and the name of the wrong one. */
const WRONG: readonly [body: unknown, param: string][] = [
  [{ nam: "not-this" }, "nam"],
  [{ id: "not-this" }, "id"],
  [{ digest: "ab".repeat(32) }, "digest"],
  [{ expiresAt: 5 }, "expiresAt"],
  [{ revoked: "2020-01-01T00:00:00Z" }, "revoked"],
  [{ name: "" }, "name"],
  [{ name: 5 }, "name"],
  [{ name: "x".repeat(257) }, "name"],
  [{ providers: "a" }, "providers"],
  [{ providers: ["a", ""] }, "providers[1]"],
  [{ models: [5] }, "models[0]"],
  [{ disabled: "not-this" }, "disabled"],
  [{ metadata: { a: 5 } }, "metadata.a"],
  [{ metadata: "not-this" }, "metadata"],
  [{ limits: "not-this" }, "limits"],
  [{ limits: { speed: "not-this" } }, "limits.speed"],
  [{ limits: { requests: "not-this" } }, "limits.requests"],
  [{ limits: { requests: 5 } }, "limits.requests"],
  [{ limits: { tokens: "1.5/s" } }, "limits.tokens"],
  [{ limits: { budget: "5M/year" } }, "limits.budget"],
  [{ limits: { concurrency: 0 } }, "limits.concurrency"],
  [{ limits: { concurrency: 1.5 } }, "limits.concurrency"],
  [{ limits: { mode: "not-this" } }, "limits.mode"],
  [{ expires: "90d" }, "expires"],
  [{ expires: "2027-02-30T00:00:00Z" }, "expires"],
  [{ expires: "2027-02-01T00:00:00+01" }, "expires"],
  [{ expires: "2027-02-01 00:00:00Z" }, "expires"],
];

/** Every route, with an unknown id. */
const everyRoute = KEY_ROUTES.map(({ method, path, ...route }) => ({
  ...route,
  method: method.toUpperCase(),
  path: path.replace("{id}", "nobody"),
}));

describe("the admin API of keys", () => {
  let running: Running;
  let call: Call;
  beforeAll(async () => {
    running = await startAdmin();
    call = running.call;
  });
  afterAll(() => running.stop());
  const create = async (body: unknown = {}): Promise<{ key: string; id: string }> => {
    const { status, json } = await call("POST", "/v1/keys", { body });
    assert.equal(status, 201, JSON.stringify(json));
    return json;
  };

  for (const { method, path } of everyRoute) {
    it(`${method} ${path} needs the admin token, and without it does not reveal if the key exists`, async () => {
      for (
        const authorization of [
          "",
          "Bearer",
          `Bearer ${TOKEN}x`,
          `Basic ${TOKEN}`,
          `Bearer ${TOKEN.slice(1)}`,
          TOKEN,
        ]
      ) {
        const answered = await call(method, path, {
          authorization,
          ...(method === "GET" ? {} : { raw: "{" }),
        });
        assertRefusal(answered, 401, "invalid_admin_token");
        assert.match(answered.headers.get("www-authenticate") ?? "", /^Bearer realm=/);
      }
    });
  }

  it("a key is made, used, changed, rotated and revoked; only its creator ever sees it", async () => {
    const { key, id, ...made } = (await call("POST", "/v1/keys", { body: POLICY })).json;
    assert.equal(gatewayKeyId(key), id);
    const { created, ...rest } = made;
    assert.deepEqual(rest, { ...POLICY, state: "active" });
    assert.ok(Math.abs(Date.parse(created) - Date.now()) < 60_000);
    assert.equal(await running.chat(key), 200);
    const { use, lastUsed, ...shown } = (await call("GET", `/v1/keys/${id}`)).json;
    assert.deepEqual(shown, { ...made, id });
    assert.deepEqual(
      use.map(({ name, limit, used }: Record<string, unknown>) => [name, limit, used]),
      [
        ["requests", 600, 1],
        ["tokens", 2_300_000, 2],
        ["budget", 5_000_000, 2],
        ["concurrency", 20, 0],
      ],
    );
    assert.match(use[0].resetsIn, /^\d+s$/);
    assert.ok(Math.abs(Date.parse(lastUsed) - Date.now()) < 60_000);
    const changed = (await call("PATCH", `/v1/keys/${id}`, { body: { disabled: true } })).json;
    assert.equal(changed.state, "disabled");
    assert.equal(await running.chat(key), 401);
    await call("PATCH", `/v1/keys/${id}`, { body: { disabled: null } });
    assert.equal(await running.chat(key), 200);
    assert.equal((await call("POST", `/v1/keys/${id}/disable`)).json.state, "disabled");
    assert.equal(await running.chat(key), 401);
    assert.equal((await call("POST", `/v1/keys/${id}/enable`)).json.state, "active");
    const rotated =
      (await call("POST", `/v1/keys/${id}/rotate`, { body: { overlap: "24h" } })).json;
    assert.ok(Math.abs(Date.parse(rotated.previousExpires) - Date.now() - DAY_MS) < 60_000);
    assert.deepEqual([await running.chat(key), await running.chat(rotated.key)], [200, 200]);
    assertRefusal(await call("POST", `/v1/keys/${id}/rotate`, { body: {} }), 409, "refused");
    const again = await call("POST", `/v1/keys/${id}/rotate`, { body: { overlap: "0s" } });
    assert.deepEqual([await running.chat(key), await running.chat(rotated.key)], [401, 401]);
    assert.equal(await running.chat(again.json.key), 200);
    const revoked = await call("POST", `/v1/keys/${id}/revoke`);
    assert.equal(revoked.json.state, "revoked");
    assert.equal(await running.chat(again.json.key), 401);
    for (const act of ["rotate", "disable", "enable"]) {
      assertRefusal(
        await call("POST", `/v1/keys/${id}/${act}`, act === "rotate" ? { body: {} } : {}),
        409,
        "refused",
      );
    }
    const said = [
      (await call("GET", "/v1/keys")).text,
      (await call("GET", `/v1/keys/${id}`)).text,
      revoked.text,
    ];
    const kept = [await running.at.kept(), running.program.stdout(), running.program.stderr()];
    for (const whole of [key, rotated.key, again.json.key]) {
      for (const text of [...said, ...kept]) assert.ok(!text.includes(whole.slice(16)));
    }
    for (const text of said) assert.doesNotMatch(text, /digest|[0-9a-f]{64}/);
  });

  it("PATCH sets the given fields, and removes null fields, including single limits", async () => {
    const { id } = await create(POLICY);
    const patch = async (body: unknown) => {
      const { status, json } = await call("PATCH", `/v1/keys/${id}`, { body });
      assert.equal(status, 200, JSON.stringify(json));
      const { created: _, id: __, state: ___, ...rest } = json;
      return rest;
    };
    assert.deepEqual(await patch({}), POLICY);
    const { expires: _, models: __, ...left } = POLICY;
    const { tokens: ___, mode: ____, ...limits } = POLICY.limits;
    assert.deepEqual(
      await patch({
        name: "y",
        expires: null,
        models: null,
        limits: { requests: "1/s", tokens: null, mode: null },
      }),
      { ...left, name: "y", limits: { ...limits, requests: "1/s" } },
    );
    assert.deepEqual(
      await patch({
        limits: { requests: null, concurrency: null, budget: null },
        metadata: { a: "b" },
        durable: false,
      }),
      {
        name: "y",
        providers: ["a"],
        durable: false,
        heldKeys: false,
        metadata: { a: "b" },
      },
    );
    const without = {
      name: null,
      providers: null,
      metadata: null,
      durable: null,
      heldKeys: null,
    };
    assert.deepEqual(await patch({ limits: { budget: "1/day" }, ...without }), {
      limits: { budget: "1/day" },
    });
    assertRefusal(
      await call("PATCH", `/v1/keys/${id}`, { body: { durable: { keep: "long" } } }),
      400,
      "invalid_body",
      "durable.keep",
    );
    assert.deepEqual(await patch({ limits: null, expires: "2099-01-01T00:00:00+02:00" }), {
      expires: "2098-12-31T22:00:00.000Z",
    });
  });

  it("lists in pages, the newest first, and searches by id and name", async () => {
    const ids: string[] = [];
    for (const name of ["page-1", "page-2", "page-3", "page-4", "page-5"]) {
      ids.unshift((await create({ name })).id);
    }
    const seen: string[] = [];
    for (let next: string | null = ""; next !== null;) {
      const { json } = await call(
        "GET",
        `/v1/keys?search=PAGE-&limit=2${next && `&after=${next}`}`,
      );
      assert.ok(json.keys.length <= 2);
      seen.push(...json.keys.map(({ id }: { id: string }) => id));
      next = json.next;
    }
    assert.deepEqual(seen, ids);
    assert.equal(
      (await call("GET", `/v1/keys?search=${ids[2]?.toLowerCase()}`)).json.keys[0].name,
      "page-3",
    );
    assert.deepEqual((await call("GET", "/v1/keys?search=nobody%20has%20this")).json, {
      keys: [],
      next: null,
      readOnly: false,
    });
    assertRefusal(await call("GET", "/v1/keys?after=nobody"), 409, "refused");
  });

  // In memory, the last changed key used to be last until the gateway was restarted.
  it("a changed key keeps its position", async () => {
    const { id } = await create({ name: "place-1" });
    await create({ name: "place-2" });
    await call("PATCH", `/v1/keys/${id}`, { body: { metadata: { a: "b" } } });
    const { keys } = (await call("GET", "/v1/keys?search=place-")).json;
    assert.deepEqual(keys.map(({ name }: { name: string }) => name), ["place-2", "place-1"]);
  });

  it("concurrent writes of the command line and the API lose nothing", async () => {
    const made = await Promise.all(
      Array.from(
        { length: 10 },
        async (_, index) => {
          if (index % 2 === 0) return await create({ name: "both" });
          return JSON.parse(
            (await running.at.program("create", "--name", "both", "--json")).stdout,
          );
        },
      ),
    );
    const { keys } = (await call("GET", "/v1/keys?search=both")).json;
    assert.deepEqual(
      keys.map(({ id }: { id: string }) => id).sort(),
      made.map(({ id }) => id).sort(),
    );
  });

  it("a body that is not a JSON object is refused, and so is a key with a wrong shape", async () => {
    const { id } = await create();
    for (const path of ["/v1/keys", `/v1/keys/${id}`, `/v1/keys/${id}/rotate`]) {
      const method = path === `/v1/keys/${id}` ? "PATCH" : "POST";
      for (
        const raw of ["{", "{}{}", "[]", "nope", '"', "{'a':1}", Uint8Array.of(0x7b, 0xff, 0x7d)]
      ) {
        assertRefusal(await call(method, path, { raw }), 400, "invalid_json");
      }
      for (const raw of ["null", "5", '"text"', "true"]) {
        assertRefusal(await call(method, path, { raw }), 400, "invalid_body");
      }
      for (
        const type of [
          "",
          "text/plain",
          "application/x-www-form-urlencoded",
          "application/jsonp",
          "multipart/form-data",
        ]
      ) {
        const raw = new TextEncoder().encode("{}"); // bytes: fetch would add a type for a text
        assertRefusal(
          await call(method, path, { raw, type }),
          415,
          "unsupported_media_type",
          "Content-Type",
        );
      }
      const { status } = await call(method, path, {
        raw: "{}",
        type: "Application/JSON; charset=utf-8",
      });
      assert.ok(status === 200 || status === 201);
    }
  });

  it("a wrong or unknown setting is named", async () => {
    const { id } = await create();
    for (const [body, param] of WRONG) {
      for (const [method, path] of [["POST", "/v1/keys"], ["PATCH", `/v1/keys/${id}`]] as const) {
        const answered = await call(method, path, { body });
        assertRefusal(answered, 400, "invalid_body", param);
        assert.ok(
          answered.json.error.message.startsWith(`Cannot accept the body: ${param}: `),
          answered.text,
        );
        assert.doesNotMatch(answered.text, /not-this|Invalid|received/, "no value of the caller's");
      }
    }
    assertRefusal(
      await call("PATCH", `/v1/keys/${id}`, { body: { nam: null } }),
      400,
      "invalid_body",
      "nam",
    );
    assertRefusal(
      await call("POST", "/v1/keys", { body: { name: null } }),
      400,
      "invalid_body",
      "name",
    );
    for (
      const body of [{ overlap: "soon" }, { overlap: 5 }, { overlap: null }, { overlap: "-1h" }]
    ) {
      assertRefusal(
        await call("POST", `/v1/keys/${id}/rotate`, { body }),
        400,
        "invalid_body",
        "overlap",
      );
    }
    assertRefusal(
      await call("POST", `/v1/keys/${id}/rotate`, { body: { over: "1h" } }),
      400,
      "invalid_body",
      "over",
    );
    assert.deepEqual(Object.keys((await call("GET", `/v1/keys/${id}`)).json).sort(), [
      "created",
      "id",
      "state",
    ]);
  });

  // On Node the connection used to wait for the rest of the body, and so did the next call on it.
  it("a body that is too large is refused without being read, a body of exactly the limit is accepted", async () => {
    const fits = `{}${" ".repeat(MAX_BODY_BYTES - 2)}`;
    assert.equal((await call("POST", "/v1/keys", { raw: fits })).status, 201);
    const refused = async (authorization: string, framing: string, body: string) => {
      const head =
        `POST /v1/keys HTTP/1.1\r\nhost: x\r\nauthorization: ${authorization}\r\ncontent-type: application/json`;
      const { received, socket } = openRaw(running.admin, `${head}\r\n${framing}\r\n\r\n${body}`);
      await until(() => received().includes("}}"), "an answer");
      socket.destroy();
      const { status, headers, body: text } = parseAnswer(received());
      assert.equal(headers.connection, "close");
      return `${status} ${JSON.parse(text).error.code}`;
    };
    const length = `content-length: ${MAX_BODY_BYTES + 1}`;
    const counted = `${(MAX_BODY_BYTES + 1).toString(16)}\r\n${fits} \r\n`;
    for (
      const [framing, body] of [[length, "{"], ["transfer-encoding: chunked", counted]] as const
    ) {
      assert.equal(await refused(`Bearer ${TOKEN}`, framing, body), "413 body_too_large");
      assert.equal(await refused("", framing, body), "401 invalid_admin_token");
    }
    assert.equal((await call("GET", "/v1/keys?limit=1")).status, 200);
  });

  it("a wrong query is refused", async () => {
    for (const limit of ["0", "-1", "1001", "1e2", "many", "1.5", ""]) {
      assertRefusal(await call("GET", `/v1/keys?limit=${limit}`), 400, "invalid_query", "limit");
    }
    assertRefusal(await call("GET", "/v1/keys?serach=x"), 400, "invalid_query", "serach");
  });

  it("an unknown id is 404, and so is an id that is not UTF-8", async () => {
    for (const { method, path, body } of everyRoute.filter(({ path }) => path.includes("nobody"))) {
      for (
        const id of [
          "nobody",
          "gk_nobody",
          "%ZZ",
          "%ff",
          "%2F",
          "constructor",
          "__proto__",
          "a%00b",
          "x".repeat(4000),
        ]
      ) {
        const answered = await call(
          method,
          path.replace("nobody", id),
          body === undefined ? {} : { body: {} },
        );
        assertRefusal(answered, 404, "key_not_found");
      }
    }
  });

  it("an unknown path is 404, an unsupported method 405", async () => {
    for (
      const path of [
        "/console",
        "/v1",
        "/v1/key",
        "/v1/keys/x/y",
        "/v1/keys/x/revoke/now",
        "/V1/keys",
      ]
    ) {
      assertRefusal(await call("GET", path), 404, "unknown_admin_path");
    }
    const allowed: Record<string, string> = {
      "/livez": "GET, HEAD",
      "/readyz": "GET, HEAD",
      "/openapi.json": "GET",
    };
    for (const { path, method } of everyRoute) {
      allowed[path] = [allowed[path] ?? [], method].flat().join(", ");
    }
    for (const [path, allow] of Object.entries(allowed)) {
      for (const method of ["DELETE", "PUT", "OPTIONS", "GET", "POST", "PATCH"]) {
        if (allow.split(", ").includes(method)) continue;
        const answered = await call(method, path, { authorization: "" });
        assertRefusal(answered, 405, "method_not_allowed");
        assert.equal(answered.headers.get("allow"), allow);
      }
    }
  });

  it("lists the keys in one state, page by page", async () => {
    const made = [await create(), await create(), await create(), await create()];
    for (const { id } of made.slice(1)) await call("POST", `/v1/keys/${id}/disable`);
    const ids = async (query: string) => {
      const { json } = await call("GET", `/v1/keys?state=disabled&${query}`);
      return [json.keys.map(({ id }: { id: string }) => id), json.next];
    };
    const [oldest, middle, newest] = made.slice(1).map(({ id }) => id);
    assert.deepEqual(await ids("limit=2"), [[newest, middle], middle]);
    assert.deepEqual(await ids(`limit=2&after=${middle}`), [[oldest], null]);
    assertRefusal(await call("GET", "/v1/keys?state=lost"), 400, "invalid_query", "state");
  });

  it("a change that makes no sense is refused with 409, and changes nothing", async () => {
    const { id } = await create({ name: "sense" });
    const before = await running.at.kept();
    const refused: [method: string, path: string, body: unknown, says: RegExp, param?: string][] = [
      [
        "POST",
        "/v1/keys",
        { providers: ["a", "stranger"] },
        /not configured: expected one of a, b$/,
        "providers[1]",
      ],
      [
        "PATCH",
        `/v1/keys/${id}`,
        { providers: ["stranger"] },
        /not configured: expected one of a, b$/,
        "providers[0]",
      ],
      ["POST", "/v1/keys", { expires: "2020-01-01T00:00:00Z" }, /has expired already/, "expires"],
      ["POST", `/v1/keys/${id}/rotate`, { overlap: "4000000d" }, /for longer than 365d/],
      ["POST", `/v1/keys/${id}/rotate`, { overlap: "99999999999999d" }, /for longer than 365d/],
    ];
    for (const [method, path, body, says, param] of refused) {
      const answered = await call(method, path, { body });
      assertRefusal(answered, 409, "refused", param);
      assert.match(answered.json.error.message, says);
    }
    assert.equal(await running.at.kept(), before);
  });
});

describe("the admin API of keys, elsewhere", () => {
  let running: Running | undefined;
  let redis: RedisServer | undefined;
  afterEach(async () => {
    await running?.stop();
    await redis?.stop();
    running = redis = undefined;
  });

  it("without a token in the configuration keys cannot be managed, but health checks work", async () => {
    const { call } = running = await startAdmin({ admin: { port: 0 } });
    for (const { method, path } of everyRoute) {
      const answered = await call(method, path);
      assertRefusal(answered, 403, "no_admin_token");
      assert.match(answered.json.error.message, /set admin\.token/);
    }
    for (const path of ["/livez", "/readyz", "/openapi.json"]) {
      for (const method of path === "/openapi.json" ? ["GET"] : ["GET", "HEAD"]) {
        assert.equal((await call(method, path, { authorization: "" })).status, 200);
      }
    }
  });

  it("keys of the configuration are read-only", async () => {
    const keys = [{ id: "own", key: "0123456789-own-key", limits: { requests: "1/s" } }];
    const { call, chat } = running = await startAdmin({ keys });
    assert.equal(await chat("0123456789-own-key"), 200);
    const { json, text } = await call("GET", "/v1/keys/own");
    assert.deepEqual([json.id, json.limits, json.use[0].used], ["own", { requests: "1/s" }, 1]);
    assert.doesNotMatch(text, /0123456789|[0-9a-f]{64}/);
    for (const { method, path, body } of everyRoute.filter(({ method }) => method !== "GET")) {
      const answered = await call(
        method,
        path.replace("nobody", "own"),
        body === undefined ? {} : { body: {} },
      );
      assertRefusal(answered, 409, "refused");
      assert.match(answered.json.error.message, /keys of the configuration/);
    }
  });

  // A new key used to become the only one in a new file: all others were lost.
  it("while the file is missing, nothing can be changed, and the keys stay valid", async () => {
    const { at, call, chat, program } = running = await startAdmin();
    const { key, id } = (await call("POST", "/v1/keys", { body: {} })).json;
    rmSync(join(at.path, "keys.json"));
    await program.waitFor(/keys\.json: it is gone\. The previous keys stay valid/);
    assertRefusal(await call("POST", "/v1/keys", { body: {} }), 503, "key_store_unavailable");
    assertRefusal(await call("POST", `/v1/keys/${id}/revoke`), 503, "key_store_unavailable");
    assert.equal(await chat(key), 200);
  });

  withRedis.it(
    "answers 503 with the reason while Redis is down, and works again afterwards",
    async () => {
      redis = await startRedis();
      const { call, chat } = running = await startAdmin({}, redis);
      const made = await call("POST", "/v1/keys", {
        body: { name: "x", limits: { requests: "9/min" } },
      });
      const { id, key } = made.json;
      assert.equal(await chat(key), 200);
      const { use } = (await call("GET", `/v1/keys/${id}`)).json;
      assert.deepEqual([use[0].limit, use[0].used], [9, 1]);
      await redis.kill();
      for (
        const [method, path, body] of [["GET", "/v1/keys"], ["POST", "/v1/keys", {}], [
          "GET",
          `/v1/keys/${id}`,
        ]] as const
      ) {
        const answered = await call(method, path, { body });
        assertRefusal(answered, 503, "key_store_unavailable");
      }
      assert.equal((await call("GET", "/livez")).status, 200);
      await redis.restart();
      for (let status = 0; status !== 201;) {
        status = (await call("POST", "/v1/keys", { body: { name: "y" } })).status;
        assert.ok(status === 201 || status === 503);
      }
      assert.equal((await call("GET", "/v1/keys")).json.keys.length, 1);
    },
  );
});
