/**
 * JSON that a provider accepts arrives byte for byte. JSON on which parsers disagree is refused.
 */
// runtimes: all, workers
import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { afterAll, beforeAll, describe } from "@std/testing/bdd";
import fc from "fast-check";
import { it } from "../support/cases.ts";
import { type Provider, startProvider } from "../support/provider.ts";
import { startUnderTest, type UnderTest } from "../support/gateway.ts";

/** JSON texts, not values: a serializer would never write most of these. */
const number = fc.oneof(
  fc.constantFrom(
    "9223372036854775807",
    "9223372036854775808",
    "1e400",
    "-1e400",
    "-0",
    "0.1e-7",
    "1E+2",
    "-0.0",
  ),
  fc.bigInt().map(String),
  fc.double({ noNaN: true, noDefaultInfinity: true }).map((value) => JSON.stringify(value)),
);
const string = fc.oneof(
  fc.string({ unit: "binary" }).map((value) => JSON.stringify(value)),
  fc.constantFrom(
    '"\\ud800"',
    '"\\udfff\\ud800"',
    '"\\u0000"',
    '"\\/"',
    '"größe 😀"',
    '"\\u006dodel"',
  ),
);
const key = fc.oneof(
  fc.constantFrom(
    '"__proto__"',
    '"\\u005f_proto__"',
    '"toString"',
    '"constructor"',
    '"prototype"',
    '"temperature"',
    '"logit_bias"',
    '""',
  ),
  string.filter((text) => !["model", "messages", "stream"].includes(JSON.parse(text))),
);
const space = fc.constantFrom("", " ", "\n", "\t \r\n");
const { value } = fc.letrec<{ value: string }>((tie) => ({
  value: fc.oneof(
    { maxDepth: 4 },
    number,
    string,
    fc.constantFrom("true", "false", "null"),
    fc.tuple(space, fc.array(tie("value"), { maxLength: 4 })).map(([gap, items]) =>
      `[${gap}${items.join(`,${gap}`)}${gap}]`
    ),
    fc.tuple(space, fc.array(fc.tuple(key, tie("value")), { maxLength: 4 }))
      .map(([gap, pairs]) =>
        `{${gap}${pairs.map(([name, item]) => `${name}${gap}:${item}`).join(`${gap},`)}}`
      ),
  ),
}));
const member = fc.tuple(key, value).map(([name, item]) => `${name}:${item}`);
const good = ['"model":"m"', '"messages":[{"role":"user","content":"Hi"}]'];
const body = fc.tuple(
  fc.constantFrom("", "\ufeff"),
  space,
  fc.array(member, { maxLength: 6 }),
  fc.nat(),
)
  .map(([mark, gap, extra, at]) => {
    const members = [...extra];
    for (const [index, text] of good.entries()) {
      members.splice((at + index) % (members.length + 1), 0, text);
    }
    return `${mark}${gap}{${members.join(`,${gap}`)}}${gap}`;
  });

describe("the body policy", () => {
  let provider: Provider;
  let under: UnderTest;
  beforeAll(async () => {
    provider = await startProvider();
    under = await startUnderTest({ upstreams: { a: provider.url } });
  });
  afterAll(async () => {
    await under.close();
    await provider.close();
  });
  const send = async (content: string | Buffer) => {
    const response = await fetch(`${under.a}/v1/chat/completions`, {
      method: "POST",
      headers: under.headers,
      body: new Uint8Array(typeof content === "string" ? Buffer.from(content) : content),
    });
    return { status: response.status, text: await response.text() };
  };
  const assertArrives = async (text: string) => {
    const { status, text: answer } = await send(text);
    assert.equal(status, 200, answer);
    const arrived = provider.calls.splice(0).at(-1)?.body;
    assert.ok(arrived?.equals(Buffer.from(text)), "the bytes changed on the way");
  };

  it.large("forwards any fields, values and spellings byte for byte [invalid UTF-8] [odd keys]", async () => {
    await fc.assert(fc.asyncProperty(body, assertArrives), { numRuns: 150 });
  });

  it("passes __proto__, constructor and prototype at any level, and is not affected by them", async () => {
    const before = Reflect.ownKeys(Object.prototype);
    const odd =
      '"__proto__":{"polluted":1,"role":"system"},"constructor":{"prototype":{"polluted":1}},"prototype":{}';
    await assertArrives(`{${odd},${good.join(",")},"x":[{${odd}}]}`);
    await assertArrives(
      `{"messages":[{${odd},"role":"user","content":[{${odd},"type":"text"}]}],"model":"m"}`,
    );
    assert.deepEqual(Reflect.ownKeys(Object.prototype), before);
    assert.equal(Reflect.get({}, "polluted"), undefined);
    const { status } = await send(
      '{"__proto__":{"model":"m"},"messages":[{"role":"user","content":"x"}]}',
    );
    assert.equal(status, 400);
  });

  it("accepts one byte order mark, and refuses two, and invalid UTF-8", async () => {
    const plain = `{${good.join(",")}}`;
    await assertArrives(`\ufeff${plain}`);
    const latin1 = Buffer.from(plain.replace("Hi", "h\u00e9"), "latin1");
    for (
      const wrong of [Buffer.from(`\ufeff\ufeff${plain}`), latin1, Buffer.from(plain, "utf16le")]
    ) {
      const { status, text } = await send(wrong);
      assert.equal(status, 400);
      assert.equal(JSON.parse(text).error.code, "invalid_json");
    }
    assert.equal(provider.calls.length, 0);
  });

  it.notOn(
    "workers",
    "a Worker accepts less by default",
    "forwards a text of 10 MB and an array of a million elements [huge body]",
    async () => {
      await assertArrives(`{${good.join(",")},"x":"${"\\u00e9\\\\".repeat(1_250_000)}"}`);
      await assertArrives(`{${good.join(",")},"x":[${"0,".repeat(999_999)}0]}`);
    },
  );

  it("allows repeated keys, except for deciding keys", async () => {
    await assertArrives(`{${good.join(",")},"seed":1,"seed":2}`);
    await assertArrives(
      `{${good.join(",")},"x":{"model":1,"model":2,"stream":[]},"y":"model","z":["messages"]}`,
    );
    const refused = {
      '"model":"other"': "model",
      '"model":"m"': "model",
      '"mod\\u0065l":"other"': "model",
      '"Model":"other"': "model", // parsers that ignore case read it as the same key
      '"MESSAGES":[]': "messages",
      '"\\u006d\\u006F\\u0064\\u0065\\u006c" : "other"': "model",
      '"messages":[]': "messages",
      '"m\\u0065ssages":[{"role":"user","content":"x"}]': "messages",
      '"stream":false,"stream":true': "stream",
      '"stream":null,"str\\u0065am"\n:false': "stream",
      '"tools":[],"tools":[{"type":"x","model":"other"}]': "tools", // a tool can name a model
      '"models":["m"],"Models":["other"]': "models",
      '"fallbacks":null,"fallbacks":["other"]': "fallbacks",
    };
    for (const [twice, param] of Object.entries(refused)) {
      for (const members of [[...good, twice], [twice, ...good]]) {
        const { status, text } = await send(`{${members.join(",")}}`);
        assert.equal(status, 400, twice);
        const { error } = JSON.parse(text);
        assert.deepEqual([error.code, error.param], ["invalid_body", param]);
      }
    }
    assert.equal(provider.calls.length, 0);
  });

  it("refuses a nesting of 100,000 at once [huge body]", async () => {
    for (const bracket of ["[", '{"a":']) {
      const { status, text } = await send(`{${good.join(",")},"x":${bracket.repeat(100_000)}`);
      assert.equal(status, 400);
      assert.equal(JSON.parse(text).error.code, "invalid_json");
    }
  });
});
