/** The description of the admin API: sound, complete, and true. */
// runtimes: once
import assert from "node:assert/strict";
import { globSync, readdirSync, readFileSync } from "node:fs";
import { afterAll, beforeAll, describe, it } from "@std/testing/bdd";
import { Validator } from "@seriousme/openapi-schema-validator";
import { Ajv2020 } from "ajv/dist/2020.js";
import formats from "ajv-formats";
import { ADMIN_ROUTES } from "../../src/admin/api/routes.ts";
import { SHAPE_SETTINGS, type ShapeName } from "../../src/config/shape.ts";
import { SHAPES, writePath } from "../../src/operations/shapes.ts";
import { OPERATIONS } from "../../src/operations/table.ts";
import { type Answered, POLICY, type Running, startAdmin, TOKEN } from "../support/admin.ts";
import { callRaw } from "../support/tcp_peer.ts";

/** The parts of a document that the tests read. */
interface Description {
  readonly openapi: string;
  readonly info: { readonly version: string };
  readonly security: readonly Readonly<Record<string, unknown>>[];
  readonly tags: readonly { readonly name: string }[];
  readonly paths: Readonly<Record<string, Readonly<Record<string, Operation>>>>;
  readonly components: {
    readonly schemas: Readonly<
      Record<string, { readonly properties: Readonly<Record<string, unknown>> }>
    >;
    readonly securitySchemes: Readonly<Record<string, unknown>>;
  };
}

interface Content {
  readonly content: Readonly<Record<string, { readonly schema: { readonly $ref: string } }>>;
}

interface Operation {
  readonly operationId: string;
  /** Groups of operations for callers; operators' routes have no group. */
  readonly tags?: readonly string[];
  readonly security?: readonly Readonly<Record<string, unknown>>[];
  readonly parameters: readonly {
    readonly name: string;
    readonly in: string;
    readonly required?: boolean;
  }[];
  readonly requestBody?: Content & { readonly required: boolean };
  readonly responses: Readonly<Record<string, Content>>;
}

const SHAPED = (Object.keys(SHAPES) as readonly ShapeName[]).filter((name) => name !== "v1");
const ID = "http://admin/openapi.json";
const nameOf = ({ content }: Content) =>
  Object.values(content)[0]?.schema.$ref.replace("#/components/schemas/", "") ??
    assert.fail("no content");

/** Bodies, and if they are accepted. */
const BODIES: readonly [operationId: string, body: unknown, isTaken: boolean][] = [
  ["createKey", {}, true],
  ["createKey", POLICY, true],
  ["createKey", { disabled: true, providers: [], expires: "2099-01-01T00:00:00+02:00" }, true],
  ["createKey", { name: null }, false],
  ["createKey", { nam: "x" }, false],
  ["createKey", [], false],
  ["createKey", null, false],
  ["createKey", { name: "" }, false],
  ["createKey", { providers: "a" }, false],
  ["createKey", { metadata: { a: 5 } }, false],
  ["createKey", { limits: { concurrency: 0 } }, false],
  ["createKey", { limits: { mode: "dream" } }, false],
  ["createKey", { limits: { speed: 1 } }, false],
  ["createKey", { expires: "2099-01-01" }, false],
  ["createKey", { expires: "2099-02-30T00:00:00Z" }, false],
  ["createKey", { expires: "2099-01-01T00:00:00+01" }, false],
  ["updateKey", {}, true],
  ["updateKey", POLICY, true],
  ["updateKey", { limits: { requests: null, mode: null } }, true],
  [
    "updateKey",
    Object.fromEntries(Object.keys({ ...POLICY, disabled: true }).map((name) => [name, null])),
    true,
  ],
  ["updateKey", { nam: null }, false],
  ["updateKey", { limits: { speed: null } }, false],
  ["rotateKey", {}, true],
  ["rotateKey", { overlap: "24h" }, true],
  ["rotateKey", { overlap: 24 }, false],
  ["rotateKey", { over: "24h" }, false],
];

describe("the description of the admin API", () => {
  let running: Running;
  let document: Description;
  let ajv: Ajv2020;
  let answered: Answered;
  beforeAll(async () => {
    running = await startAdmin(
      {
        prices: { "*": { input: 1, output: 1 } },
        teams: { search: { limits: { budget: "5 USD/month", concurrency: 5 } } },
      },
      undefined,
      {
        providers: (upstream) => ({
          a: { upstream, hosts: ["*"] },
          b: { upstream },
          ...Object.fromEntries(SHAPED.map((shape) => [
            shape,
            { shape, hosts: [`${shape}.localhost`], upstream: "http://127.0.0.1:9" },
          ])),
        }),
      },
    );
    answered = await running.call("GET", "/openapi.json", { authorization: "" });
    document = answered.json;
    ajv = new Ajv2020({ allErrors: true, strict: false });
    formats.default(ajv);
    ajv.addSchema({ ...document }, ID);
  });
  afterAll(() => running.stop());

  const described = () =>
    Object.entries(document.paths).flatMap(([path, methods]) =>
      Object.entries(methods).filter(([, { operationId }]) => operationId !== undefined)
        .map(([method, operation]) => ({ path, method, ...operation }))
    );
  const operations = () => described().filter(({ tags }) => tags === undefined);
  const assertFits = (name: string, value: unknown, fits = true) => {
    const validate = ajv.getSchema(`${ID}#/components/schemas/${name}`) ??
      assert.fail(`no schema ${name}`);
    assert.equal(
      validate(value),
      fits,
      `${JSON.stringify(value)} as ${name}: ${ajv.errorsText(validate.errors)}`,
    );
  };

  it("is valid OpenAPI 3.1, and needs no token", async () => {
    assert.equal(answered.status, 200);
    assert.equal(document.openapi, "3.1.0");
    const { valid, errors } = await new Validator().validate({ ...document });
    assert.ok(valid, JSON.stringify(errors));
    for (const requirement of document.security) {
      for (const scheme of Object.keys(requirement)) {
        assert.ok(scheme in document.components.securitySchemes);
      }
    }
  });

  it("describes the operations for callers, at a different listener from the admin API", () => {
    const rows = OPERATIONS.filter(({ group }) => group !== undefined);
    const toPath = (path: string) => `/v1${path.replace(/:(\w+)\+?/g, "{$1}")}`;
    for (const { name, group = "", method, path, body } of rows) {
      const item = document.paths[toPath(path)] ?? assert.fail(`no path of ${name}`);
      const { operationId, tags, requestBody } = item[method.toLowerCase()] ?? {};
      assert.ok("servers" in item, name);
      if (method === "*") assert.equal(operationId, undefined);
      else {assert.deepEqual([operationId, tags, requestBody === undefined], [
          name,
          [group],
          body === "none",
        ]);}
      assert.ok(document.tags.some((tag) => tag.name === group), group);
    }
    const [ofCallers, ofOperators] = [true, false].map((isTagged) =>
      described().filter(({ tags }) => (tags !== undefined) === isTagged)
    );
    const ofV1 = ofCallers?.filter(({ tags }) => tags?.length === 1);
    assert.equal(ofV1?.length, rows.filter(({ method }) => method !== "*").length);
    assert.deepEqual(
      ofOperators?.filter(({ path }) => "servers" in (document.paths[path] ?? {})),
      [],
    );
    assert.equal(
      new Set(described().map(({ operationId }) => operationId)).size,
      described().length,
    );
  });

  for (const shape of SHAPED) {
    it(`describes the operations of ${shape}, with the key's header and its errors`, async () => {
      const shaped = described().filter(({ tags }) => tags?.includes(`shape ${shape}`));
      const host = `${shape}.localhost`;
      const withKey = { host, "gateway-auth": "Bearer a-key-that-does-not-exist" };
      const seen = new Set<string>();
      for (const { path, method, security, responses, parameters = [], operationId } of shaped) {
        const [requirement = {}] = security ?? [];
        const [scheme = ""] = Object.keys(requirement);
        const found = Object(document.components.securitySchemes[scheme]);
        const name: string = found.name ?? "authorization";
        assert.equal(name, SHAPE_SETTINGS[shape].credential, operationId);
        const query = parameters.map(({ name }) => name).join();
        if (query !== "") seen.add(query);
        const target = path.replace("{version}", "v1beta").replace(/\{\w+\}/g, "m");
        const { status, body } = await callRaw(running.url, {
          method: method.toUpperCase(),
          path: target,
          headers: { ...withKey, [name]: name === "authorization" ? "Bearer sk-1" : "sk-1" },
        });
        assert.equal(status, 401, `${method} ${target}`);
        const form = nameOf(responses["4XX"] ?? assert.fail(operationId));
        assertFits(form, JSON.parse(body));
        if (form !== "Error") assertFits(form, { error: {} }, false);
      }
      assert.ok(shaped.length >= 5);
      const queries = { gemini: ["alt"], azure: ["api-version"] } as const;
      assert.deepEqual(Array.from(seen), Object(queries)[shape] ?? []);
    });
  }

  it("describes each operation of a shape exactly once for each of its paths", () => {
    for (const shape of SHAPED) {
      for (const { name, group, method, path } of SHAPES[shape].operations) {
        if (group === undefined) continue;
        const written = writePath(path, (parameter) => `{${parameter}}`, "{version}");
        const item = document.paths[written] ?? assert.fail(`no path ${written}`);
        const { tags = [] } = item[method.toLowerCase()] ?? assert.fail(`no method of ${name}`);
        assert.ok(tags.includes(group));
      }
    }
  });

  it("describes every route, and nothing else", () => {
    const described = operations().map((
      { path, method, operationId, requestBody, responses, parameters },
    ) => ({
      path,
      method,
      operationId,
      body: requestBody === undefined ? undefined : nameOf(requestBody),
      answers: Object.entries(responses).filter(([status]) => status !== "default")
        .map(([status, response]) => `${status} ${nameOf(response)}`).join(),
      query: parameters.filter((parameter) => parameter.in === "query").map(({ name }) => name)
        .sort(),
      inPath: parameters.filter((parameter) => parameter.in === "path").map(({ name }) =>
        `{${name}}`
      ),
    }));
    const routes = ADMIN_ROUTES.map((
      { path, method, operationId, body, status, response, query },
    ) => ({
      path,
      method,
      operationId,
      body: body?.name,
      answers: `${status} ${response.name}`,
      query: Object.keys(query?.means ?? {}).sort(),
      inPath: path.match(/\{\w+\}/g) ?? [],
    }));
    const inOrder = <T extends { operationId: string }>(all: readonly T[]) =>
      all.toSorted((one, other) => one.operationId.localeCompare(other.operationId));
    assert.deepEqual(inOrder(described), inOrder(routes));
    assert.equal(new Set(routes.map(({ operationId }) => operationId)).size, routes.length);
  });

  it("has every route that a file of the admin API exports", async () => {
    for (const file of readdirSync("src/admin/api").filter((name) => name !== "routes.ts")) {
      const exported: Record<string, unknown> = await import(`../../src/admin/api/${file}`);
      for (const [name, routes] of Object.entries(exported)) {
        if (!name.endsWith("_ROUTES")) continue;
        assert.ok(Array.isArray(routes), name);
        for (const route of routes) assert.ok(ADMIN_ROUTES.includes(route), `${name} in ${file}`);
      }
    }
  });

  it("has every route that the console calls", () => {
    const called = globSync("src/admin/console/*.{ts,tsx}").flatMap((file) => {
      const calls = readFileSync(file, "utf8").matchAll(
        /\bcall(?:<.*>)?\(\s*"([A-Z]+)",\s*["`](v1\/[^"`?]*)/g,
      );
      return Array.from(calls, ([, method = "", path = ""]) => ({ method, path }));
    });
    assert.ok(called.length > 10);
    for (const { method, path } of called) {
      const pattern = new RegExp(`^/${path.replace(/\$\{[^}]*\}/g, "[^/]+")}$`);
      const isServed = ADMIN_ROUTES.some((route) =>
        route.method.toUpperCase() === method && pattern.test(route.path)
      );
      assert.ok(isServed, `${method} ${path}`);
    }
  });

  it("lists the parameters of each query, which are all accepted", async () => {
    const { id } = (await running.call("POST", "/v1/keys", { body: {} })).json;
    await running.call("POST", "/v1/teams", { body: { name: "unused", limits: {} } });
    const values: Record<string, string> = {
      ...{ force: "true", reason: "launch" },
      ...{ limit: "1", after: id, search: "x", use: "true", team: "search", state: "active" },
      ...{
        by: "key",
        last: "7d",
        from: "2026-01-31",
        to: "2099-01-31",
        key: id,
        provider: "a",
        model: "x",
        payer: "gateway",
      },
      ...{ scope: "fleet", gateway: "all" },
    };
    const usageValues: Record<string, Record<string, string>> = {
      "/v1/usage": { after: '[1,1,"x"]', sort: "cost", top: "5" },
      "/v1/history": { step: "30m" },
      "/v1/usage/export": { by: "day", format: "csv" },
      "/v1/exchanges": {
        ...{
          outcome: "ok",
          status: "5xx",
          stream: "true",
          minDuration: "2s",
          minFirstToken: "500",
        },
        after: "1769853600000.5_x",
      },
    };
    const headers = { authorization: `Bearer ${TOKEN}` };
    const readers = operations().filter(({ method, operationId }) =>
      method === "get" || operationId === "deleteTeam"
    );
    for (const { path, method, parameters } of readers) {
      for (const { name } of parameters.filter((parameter) => parameter.in === "query")) {
        // Each of its queries deletes the team.
        await running.call("POST", "/v1/teams", { body: { name: "unused", limits: {} } });
        const query = new URLSearchParams([[
          name,
          usageValues[path]?.[name] ?? values[name] ?? "",
        ]]);
        const target = path.replace("/teams/{name}", "/teams/unused");
        const answer = await fetch(`${running.admin}${target}?${query}`, {
          method: method.toUpperCase(),
          headers,
        });
        assert.equal(answer.status, 200, `${path}: ${name}`);
        // That answer has no end.
        await (path === "/v1/live" ? answer.body?.cancel() : answer.text());
      }
    }
  });

  it("accepts a reason for each change of keys, teams and identity tokens", async () => {
    const changing = operations().filter(({ parameters }) =>
      parameters.some(({ name }) => name === "reason")
    );
    const made = changing.map(({ operationId }) => operationId).sort();
    assert.deepEqual(made, [
      ...["createKey", "createTeam", "deleteTeam", "disableKey", "enableKey", "revokeKey"],
      ...["revokeTokens", "rotateKey", "stopRun", "updateKey", "updateTeam"],
    ]);
    for (const { path, method, operationId } of changing) {
      // One needs an issuer (identity_test.ts). The other changes no key: its reason is in the audit.
      if (operationId === "revokeTokens" || operationId === "stopRun") continue;
      const { id } = (await running.call("POST", "/v1/keys", { body: {} })).json;
      const team = { name: operationId.toLowerCase(), limits: {} };
      if (operationId !== "createTeam") await running.call("POST", "/v1/teams", { body: team });
      const target = path.replace("{id}", id).replace("{name}", team.name);
      // An update without a change is not in the list.
      const changed = operationId.startsWith("update") ? { limits: { concurrency: 2 } } : {};
      const body = operationId === "createTeam" ? team : changed;
      const answer = await running.call(method.toUpperCase(), `${target}?reason=why`, { body });
      assert.ok(answer.status < 300, `${operationId} answered ${answer.text}`);
      const { changes } = (await running.call("GET", "/v1/changes?limit=1")).json;
      assert.equal(changes[0].reason, "why", operationId);
    }
  });

  it("matches the answers: each has the described form, without additional fields", async () => {
    const make = async () => (await running.call("POST", "/v1/keys", { body: POLICY })).json;
    const { id, key } = await make();
    await running.chat(key);
    const bodies: Record<string, unknown> = {
      createKey: { ...POLICY, operations: ["default"], team: "search" },
      updateKey: { name: "y" },
      rotateKey: { overlap: "1h" },
      createTeam: { name: "created", limits: { requests: "5/min" }, heldKeys: true },
      updateTeam: { limits: { requests: null, concurrency: 2 } },
    };
    const order = [
      "createTeam",
      "showTeam",
      "updateTeam",
      "deleteTeam",
      "createKey",
      "listKeys",
      "listTeams",
      "listBudgets",
      "listChanges",
      "listGateways",
      "showKey",
      "updateKey",
      "rotateKey",
      "showKey",
      "revokeKey",
      "showKey",
    ];
    const seen = new Set<string>();
    for (const operationId of order) {
      const { path, method, responses } = operations().find((each) =>
        each.operationId === operationId
      ) ??
        assert.fail();
      const body = bodies[operationId];
      const target = path.replace("{id}", id).replace("{name}", "created");
      const { status, json } = await running.call(method.toUpperCase(), target, {
        ...(body !== undefined && { body }),
      });
      const form = nameOf(responses[status] ?? assert.fail(`${operationId} answered ${status}`));
      assertFits(form, json);
      for (
        const [name, value] of form === "KeyList"
          ? json.keys.map((one: unknown) => ["Key", one])
          : [[form, json]]
      ) {
        const described = Object.keys(document.components.schemas[name]?.properties ?? {});
        for (const property of Object.keys(value)) {
          assert.ok(described.includes(property), `${property} of ${operationId} is not described`);
          seen.add(`${name}.${property}`);
        }
      }
    }
    // All described values can occur.
    // the last two: faults/key_records_test.ts
    const elsewhere = ["disabled", "unreadable", "unknown"];
    const properties = Object.keys(document.components.schemas.Key?.properties ?? {}).filter((
      name,
    ) => !elsewhere.includes(name));
    assert.deepEqual(properties.filter((name) => !seen.has(`Key.${name}`)), []);
  });

  it("matches the answers about the gateway and its traffic", async () => {
    await running.chat((await running.call("POST", "/v1/keys", { body: {} })).json.key);
    const named = [
      "showOperator",
      "listProviders",
      "showUsage",
      "listExchanges",
      "listRecordings",
      "drain",
      "resume",
    ];
    for (const operationId of named) {
      const { path, method, responses } = operations().find((each) =>
        each.operationId === operationId
      ) ??
        assert.fail();
      const { status, json } = await running.call(method.toUpperCase(), path);
      assertFits(nameOf(responses[status] ?? assert.fail(`${operationId}: ${status}`)), json);
    }
    const headers = { authorization: `Bearer ${TOKEN}` };
    const exported = await (await fetch(`${running.admin}/v1/usage/export`, { headers })).text();
    for (const line of exported.trim().split("\n")) assertFits("UsageRow", JSON.parse(line));
    const live = await fetch(`${running.admin}/v1/live`, { headers });
    const reader = live.body?.getReader() ?? assert.fail();
    const decoder = new TextDecoder();
    let event = "";
    while (!event.endsWith("\n\n")) {
      event += decoder.decode((await reader.read()).value, { stream: true });
    }
    await reader.cancel();
    assertFits("LiveReport", JSON.parse(event.replace(/^data: /, "")));
  });

  it("has one schema for each name", () => {
    const schemas = new Map<string, unknown>();
    for (const { body, response } of ADMIN_ROUTES) {
      for (const { name, schema } of body === undefined ? [response] : [body, response]) {
        assert.equal(schemas.get(name) ?? schema, schema, name);
        schemas.set(name, schema);
      }
    }
  });

  it("matches the refusals", async () => {
    for (const { operationId, path, method, responses } of operations()) {
      if (operationId === "listSignIns") continue; // open to all, and never refused
      const refused = await running.call(method.toUpperCase(), path, { authorization: "" });
      assert.equal(refused.status, operationId === "signIn" ? 400 : 401, operationId);
      assertFits(nameOf(responses.default ?? assert.fail()), refused.json);
    }
  });

  for (const [operationId, body, isTaken] of BODIES) {
    it(`${operationId} ${isTaken ? "accepts" : "refuses"} ${JSON.stringify(body).slice(0, 90)}, as described`, async () => {
      const { id } = (await running.call("POST", "/v1/keys", { body: {} })).json;
      const { path, method, requestBody } = operations().find((each) =>
        each.operationId === operationId
      ) ??
        assert.fail();
      const { status, text } = await running.call(method.toUpperCase(), path.replace("{id}", id), {
        body,
      });
      assert.equal(status < 300, isTaken, text);
      assert.ok(isTaken || status === 400, text);
      assertFits(nameOf(requestBody ?? assert.fail()), body, isTaken);
    });
  }
});
