/**
 * Every operation passes the same steps: two keys, permissions of the key, limits and tripwires.
 * Its bytes stay unchanged.
 */
// runtimes: bun, node
import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { createHash } from "node:crypto";
import { afterEach, beforeEach, describe, it } from "@std/testing/bdd";
import { generateGatewayKey } from "../../src/keys/key_format.ts";
import { type Operation, OPERATIONS as ALL } from "../../src/operations/table.ts";
import { type Provider, startProvider } from "../support/provider.ts";
import { startUnderTest, type UnderTest, UPSTREAM_KEY } from "../support/gateway.ts";
import { callRaw, type RawAnswer, startTcpPeer } from "../support/tcp_peer.ts";
import { until } from "../support/until.ts";

/** Operations that are forwarded to the provider. */
const OPERATIONS = ALL.filter(({ isOfGateway }) => !isOfGateway);
const BOUNDARY = "----form-boundary-0123";
const OWN_KEY = "own-key-of-a-team";

function form(...fields: readonly (readonly [name: string, value: string])[]): string {
  const parts = fields.map(([name, value]) =>
    `--${BOUNDARY}\r\nContent-Disposition: form-data; name="${name}"${
      name === "file" ? '; filename="a.mp3"\r\nContent-Type: audio/mpeg' : ""
    }\r\n\r\n${value}\r\n`
  );
  return `${parts.join("")}--${BOUNDARY}--\r\n`;
}

const FILE = "\r\n--not the boundary\r\n\u0000\u00ff\r\r\n".repeat(50);
const MULTIPART = { "content-type": `multipart/form-data; boundary=${BOUNDARY}` };

interface Call {
  readonly method: string;
  readonly path: string;
  readonly body: string;
  readonly headers: Record<string, string | undefined>;
}

/** A good call of an operation. */
function toCall({ method, path, body, model }: Operation): Call {
  const filled = `/v1${
    path.replace(":model+", "m-1").replace(":rest+", "x/y").replaceAll(":id", "id_1")
  }?limit=2&a%20b=%2F`;
  const verb = method === "*" ? "GET" : method;
  if (verb === "GET" || body === "none") {
    return { method: verb, path: filled, body: "", headers: { "content-type": undefined } };
  }
  if (body === "multipart") {
    return {
      method: verb,
      path: filled,
      body: form(["model", "m-1"], ["file", FILE]),
      headers: MULTIPART,
    };
  }
  const named = model === "body" || model === "optional" ? { model: "m-1" } : {};
  const messages = body === "chat_completion"
    ? { messages: [{ role: "user", content: "Hi" }] }
    : {};
  return {
    method: verb,
    path: filled,
    body: ` ${JSON.stringify({ ...named, ...messages, input: "Hi" })}\n`,
    headers: {},
  };
}

describe("operations", () => {
  let provider: Provider;
  let under: UnderTest;
  beforeEach(async () => {
    provider = await startProvider((response) =>
      response.setHeader("content-type", "application/json").end('{"a":1}')
    );
    await start({});
  });
  afterEach(async () => {
    await under.close();
    await provider.close();
  });
  const start = async (key: Record<string, unknown>, operations: readonly string[] = ["all"]) => {
    await under?.close();
    const config = { keys: [{ id: "team", key: OWN_KEY, ...key }] };
    under = await startUnderTest({
      upstreams: { a: provider.url },
      provider: { operations },
      config,
    });
  };
  const call = ({ headers, ...rest }: Parameters<typeof callRaw>[1]): Promise<RawAnswer> =>
    callRaw(under.a, {
      ...rest,
      headers: { ...under.headers, "gateway-auth": `Bearer ${OWN_KEY}`, ...headers },
    });

  it("reach the provider with the same method, path, query and bytes", async () => {
    for (const operation of OPERATIONS) {
      const { method, path, body, headers } = toCall(operation);
      const { status } = await call({ method, path, body, headers });
      assert.equal(status, 200, `${operation.name} answered ${status}`);
      const sent = provider.calls.at(-1);
      assert.deepEqual([sent?.method, sent?.path, sent?.body.toString("latin1")], [
        method,
        path,
        body,
      ], operation.name);
      assert.equal(sent?.headers.authorization, `Bearer ${UPSTREAM_KEY}`);
      assert.equal(sent?.headers["gateway-auth"], undefined);
      assert.equal((await under.settled(provider.calls.length)).operation, operation.name);
    }
  });

  it("skip no limit and no tripwire", async () => {
    for (const operation of OPERATIONS) {
      const { method, path, body, headers } = toCall(operation);
      const good = { method, path, body, headers };
      const name = operation.name;
      const seen = provider.calls.length;
      const codeOf = async (change: Partial<Call>) =>
        (await call({ ...good, ...change, headers: { ...good.headers, ...change.headers } }))
          .headers["sallyport-error"];
      assert.equal(
        await codeOf({ headers: { "gateway-auth": undefined } }),
        "missing_gateway_key",
        name,
      );
      assert.equal(
        await codeOf({ headers: { authorization: undefined } }),
        "missing_upstream_key",
        name,
      );
      assert.equal(
        await codeOf({ headers: { authorization: `Bearer ${OWN_KEY}` } }),
        "gateway_key_in_authorization",
        name,
      );
      assert.equal(
        await codeOf({ path: `${path}&key=${under.key}` }),
        "gateway_key_misplaced",
        name,
      );
      assert.equal(provider.calls.length, seen, name);
    }
    await start({ limits: { requests: "1/h" } });
    const { headers } = await call(toCall(OPERATIONS[0] ?? assert.fail()));
    assert.match(headers["ratelimit"] ?? "", /r=0/);
    for (const operation of OPERATIONS) {
      const refused = await call(toCall(operation));
      assert.equal(refused.headers["sallyport-error"], "rate_limit_exceeded", operation.name);
    }
    assert.equal(provider.calls.length, 1);
  });

  it("search the fields that name an end user for a gateway key", async () => {
    const marked = generateGatewayKey();
    const withBody = OPERATIONS.filter(({ body, method }) => method === "POST" && body !== "none");
    assert.ok(withBody.length > 15);
    for (const operation of withBody) {
      const good = toCall(operation);
      const isForm = operation.body === "multipart";
      const body = isForm
        ? form(["user", marked], ["model", "m-1"])
        : JSON.stringify({ ...JSON.parse(good.body), metadata: { user_id: marked }, user: marked });
      const { headers } = await call({ ...good, body });
      assert.equal(headers["sallyport-error"], "gateway_key_misplaced", operation.name);
    }
    assert.equal(provider.calls.length, 0);
  });

  it("skip no deadline", async () => {
    const silent = await startTcpPeer(() => {});
    await under.close();
    const config = { keys: [{ id: "team", key: OWN_KEY }] };
    const settings = { operations: ["all"], deadlines: { firstByte: "150ms" } };
    under = await startUnderTest({ upstreams: { a: silent.url }, provider: settings, config });
    await Promise.all(OPERATIONS.map(async (operation) => {
      const { status, headers } = await call(toCall(operation));
      assert.deepEqual(
        [status, headers["sallyport-error"]],
        [504, "upstream_first_byte_timeout"],
        operation.name,
      );
    }));
    await silent.close();
  });

  it("count against concurrency and the provider's limits", async () => {
    let answer = () => {};
    await provider.close();
    provider = await startProvider((response) => {
      answer = () => void response.setHeader("content-type", "application/json").end("{}");
    });
    await under.close();
    const config = { keys: [{ id: "team", key: OWN_KEY, limits: { concurrency: 1 } }] };
    under = await startUnderTest({
      upstreams: { a: provider.url },
      provider: { operations: ["all"] },
      config,
    });
    for (const operation of OPERATIONS) {
      const seen = provider.calls.length;
      const first = call(toCall(operation));
      await until(() => provider.calls.length > seen, "the first call is open");
      const { headers } = await call(toCall(operation));
      assert.equal(headers["sallyport-error"], "concurrency_limit_exceeded", operation.name);
      answer();
      assert.equal((await first).status, 200);
      await until(() => under.gateway.openExchanges === 0, "its place is free again");
    }
  });

  it("that are not enabled are refused, and the error names the setting", async () => {
    await start({}, ["default"]);
    for (
      const operation of OPERATIONS.filter(({ group }) =>
        group === "files" || group === "fine_tuning"
      )
    ) {
      const { status, body } = await call(toCall(operation));
      assert.equal(status, 403, operation.name);
      assert.match(body, /providers\.a\.operations/);
    }
    assert.equal((await call({ method: "GET", path: "/v1/nothing", body: "" })).status, 404);
    await start({ operations: ["embeddings"] });
    const embeddings = OPERATIONS.find(({ name }) => name === "embeddings") ?? assert.fail();
    assert.equal((await call(toCall(embeddings))).status, 200);
    const { headers, body } = await call(toCall(OPERATIONS[0] ?? assert.fail()));
    assert.equal(headers["sallyport-error"], "operation_not_allowed");
    assert.match(body, /key's operations/);
  });

  it("with an unknown model are refused to a key that is limited to models", async () => {
    await start({ models: ["m-*"] });
    for (const operation of OPERATIONS) {
      const { headers, status } = await call(toCall(operation));
      if (operation.model === "none") {
        assert.equal(headers["sallyport-error"], "model_not_allowed", operation.name);
      } else if (operation.model !== "answer") assert.equal(status, 200, operation.name);
      if (operation.body !== "json" && operation.body !== "multipart") continue;
      const other = toCall(operation);
      const refused = await call({ ...other, body: other.body.replaceAll("m-1", "n-1") });
      assert.equal(refused.headers["sallyport-error"], "model_not_allowed", operation.name);
    }
    const bodiless = await call({ path: "/v1/responses", body: "" });
    assert.equal(bodiless.headers["sallyport-error"], "invalid_json", "its model can't be known");
    const unnamed = await call({ path: "/v1/responses", body: '{"input":"Hi"}' });
    assert.equal(unnamed.headers["sallyport-error"], "model_not_allowed");
  });

  it("that do not exist are not found, with an error body in the form of similar operations", async () => {
    await start({}, ["default"]);
    const bodyOf = async (path: string, headers: Record<string, string> = {}) => {
      const { status, body } = await call({ method: "GET", path, body: "", headers });
      assert.equal(status, 404);
      return JSON.parse(body);
    };
    assert.equal((await bodyOf("/v1/nothing")).error.type, "invalid_request_error");
    assert.equal((await bodyOf("/v1/messages/id_1/nothing")).error.type, "not_found_error");
    assert.equal(
      (await bodyOf("/v1/nothing", { "anthropic-version": "2023-06-01" })).type,
      "error",
    );
  });

  it("accept HEAD wherever they accept GET", async () => {
    for (let turn = 0; turn < 3; turn++) {
      const { status, body } = await call({ method: "HEAD", path: "/v1/models", body: "" });
      assert.deepEqual([status, body], [200, ""]);
    }
    assert.deepEqual(provider.calls.map(({ method }) => method), ["HEAD", "HEAD", "HEAD"]);
  });

  it("carry files in both directions, byte by byte", async () => {
    await provider.close();
    const bytes = Buffer.from(Array.from({ length: 200_000 }, (_, index) => (index * 7919) % 256));
    provider = await startProvider((response) =>
      response.setHeader("content-type", "audio/mpeg").end(bytes)
    );
    await start({});
    const answer = await fetch(`${under.a}/v1/audio/speech`, {
      method: "POST",
      headers: { ...under.headers, "gateway-auth": `Bearer ${OWN_KEY}` },
      body: '{"model":"tts","input":"Hi","voice":"x"}',
    });
    const digest = (data: Uint8Array) => createHash("sha256").update(data).digest("hex");
    assert.equal(digest(new Uint8Array(await answer.arrayBuffer())), digest(bytes));
    assert.equal(answer.headers.get("content-type"), "audio/mpeg");
  });

  const transcribe = (body: string, contentType = MULTIPART["content-type"]) =>
    call({ path: "/v1/audio/transcriptions", body, headers: { "content-type": contentType } });
  const whole = form(["file", FILE], ["model", "m-1"]);
  const WRONG: Readonly<Record<string, string>> = {
    "no model": form(["file", FILE]),
    "two models": form(["model", "m-1"], ["file", FILE], ["model", "m-2"]),
    "a second model in capitals": form(["model", "m-1"], ["Model", "m-2"]),
    "no closing boundary": whole.slice(0, whole.lastIndexOf(`\r\n--${BOUNDARY}--`)),
    "text after the closing boundary": `${whole}${form(["model", "m-2"])}`,
    "another boundary": whole.replaceAll(BOUNDARY, "other"),
    "a boundary with more behind it": whole.replace(`--${BOUNDARY}\r\n`, `--${BOUNDARY}x\r\n`),
    "a name in two forms": whole.replace('name="model"', "name=\"file\"; name*=utf-8''model"),
    "a boundary after a line feed alone": whole.replace(
      "\r\n--not the boundary",
      `\n--${BOUNDARY}\r\nContent-Disposition: form-data; name="model"\r\n\r\nm-2`,
    ),
    "a boundary within a line": whole.replace("not the boundary", `--${BOUNDARY}`),
    "a second name": whole.replace('name="model"', 'name="x"; filename="y"; name="model"'),
    "a second name in its extended form": whole.replace(
      'name="model"',
      'name="x"; filename="y"; name*0*=utf-8\'\'mod',
    ),
    "a folded header": whole.replace(
      'form-data; name="model"',
      'form-data; name="x"\r\n ; name="model"',
    ),
    "a line feed in a header": whole.replace(
      "Content-Type: audio",
      'X: a\nContent-Disposition: form-data; name="model"\r\nContent-Type: audio',
    ),
    "a transfer encoding": whole.replace(
      'name="model"',
      'name="model"\r\nContent-Transfer-Encoding: base64',
    ),
    "a name without quotes": whole.replace('name="model"', "name=model"),
    "a field in another charset": whole.replace(
      'name="model"',
      'name="model"\r\nContent-Type: text/plain; charset=utf-7',
    ),
    "a field that states another charset": form(["_charset_", "utf-7"], ["model", "m-1"]),
    ...Object.fromEntries(["\t", "\v", "\f", "\xa0"].map((blank) => [
      `a second name after ${JSON.stringify(blank)}`,
      whole.replace('name="model"', `name="user2"; name${blank}="model"`),
    ])),
    ...Object.fromEntries([
      ...[" model", "model ", "model[]", "model[0]", "model\0", "=?UTF-8?Q?model?="],
      ...["model[a][b]", "models[0][model]", "fallbacks[0][model]", "[model]", "model.name"],
    ].map((name) => [
      `a field called ${JSON.stringify(name)}`,
      form(["file", FILE], ["model", "m-1"], [name, "m-2"]),
    ])),
    "a parameter that ends with filename": whole.replace(
      'name="model"',
      'name="model"; x-filename="a"',
    ),
    "a header line that begins with a control": whole.replace(
      'Content-Disposition: form-data; name="model"',
      'Content-Disposition: form-data; name="user2"\r\n\x0bContent-Disposition: form-data; name="model"',
    ),
    "a packed part": whole.replace('name="model"', 'name="model"\r\nContent-Encoding: gzip'),
    "a closing boundary with more behind it": whole.replace(/--\r\n$/, "--x\r\n"),
  };
  const WRONG_TYPES: readonly string[] = [
    `multipart/form-data; boundary=other; boundary=${BOUNDARY}`,
    `multipart/form-data; boundary=${BOUNDARY}; boundary=other`,
    `multipart/form-data; boundary=${BOUNDARY}; boundary=${BOUNDARY}`,
    `multipart/form-data; Boundary=other; boundary=${BOUNDARY}`,
    `multipart/form-data; boundary=${BOUNDARY}; BOUNDARY="other"`,
    `multipart/form-data; boundary=${BOUNDARY}; boundary*=utf-8''other`,
    `multipart/form-data; boundary*=utf-8''${BOUNDARY}`,
    `multipart/form-data; boundary*0=oth; boundary*1=er; boundary=${BOUNDARY}`,
    `multipart/form-data; x="; boundary=other; y="; boundary=${BOUNDARY}; boundary=z`,
    `multipart/form-data; boundary=${BOUNDARY}, multipart/form-data; boundary=other`,
    `multipart/form-data; boundary = ${BOUNDARY}`,
    `multipart/form-data; boundary=${BOUNDARY}; charset=utf-7`,
    `multipart/form-data; charset=utf-16; boundary=${BOUNDARY}`,
    `multipart/form-data; boundary=${BOUNDARY}; charset=utf-8; charset=utf-7`,
  ];
  it("with an ambiguous multipart body are refused", async () => {
    assert.equal((await transcribe(whole)).status, 200);
    for (const [name, body] of Object.entries(WRONG)) {
      const { status, headers } = await transcribe(body);
      assert.deepEqual([status, headers["sallyport-error"]], [400, "invalid_body"], name);
    }
    for (const type of WRONG_TYPES) {
      const { status, headers } = await transcribe(whole, type);
      assert.deepEqual([status, headers["sallyport-error"]], [400, "invalid_body"], type);
    }
    assert.equal((await transcribe("")).status, 400);
    assert.equal((await transcribe(whole, "text/plain")).status, 415);
    assert.equal(provider.calls.length, 1);
  });

  const GOOD: Readonly<Record<string, readonly [body: string, contentType?: string]>> = {
    "a blank line at the end": [`${whole}\r\n`],
    "an epilogue": [`${whole}text that every parser ignores`],
    "no line end at the end": [whole.slice(0, -2)],
    "file names as curl and Python write them": [
      whole.replace('filename="a.mp3"', 'filename="a \\"b\\".mp3"; filename*=UTF-8\'\'a%20b.mp3'),
    ],
    "a binary file": [
      whole.replace("audio/mpeg", "audio/mpeg\r\nContent-Transfer-Encoding: binary"),
    ],
    "an 8bit file": [whole.replace("audio/mpeg", "audio/mpeg\r\ncontent-transfer-encoding:8BIT")],
    "a 7bit field": [
      whole.replace('name="model"', 'name="model"\r\nContent-Transfer-Encoding: 7bit'),
    ],
    "a field in UTF-8": [
      whole.replace('name="model"', 'name="model"\r\nContent-Type: text/plain; charset=UTF-8'),
    ],
    "a charset": [whole, `multipart/form-data; charset=UTF-8; boundary=${BOUNDARY}`],
    "a boundary in quotes": [whole, `multipart/form-data; boundary="${BOUNDARY}"; x=y`],
  };
  for (const [name, [body, contentType]] of Object.entries(GOOD)) {
    it(`with a multipart body that has ${name} pass byte by byte`, async () => {
      assert.equal((await transcribe(body, contentType)).status, 200);
      assert.deepEqual(provider.calls.map((each) => each.body.toString("latin1")), [body]);
    });
  }
});
