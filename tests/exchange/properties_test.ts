/** Any JSON that a provider accepts arrives byte for byte; what parsers disagree on is refused. */
import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { afterAll, beforeAll, describe, it } from "@std/testing/bdd";
import fc from "fast-check";
import { type Provider, startProvider } from "../support/provider.ts";
import { startUnderTest, type UnderTest } from "../support/gateway.ts";

/** JSON texts, not values: a serialiser would never write most of these. */
const number = fc.oneof(
  fc.constantFrom("9223372036854775807", "9223372036854775808", "1e400", "-1e400", "-0", "0.1e-7", "1E+2", "-0.0"),
  fc.bigInt().map(String),
  fc.double({ noNaN: true, noDefaultInfinity: true }).map((value) => JSON.stringify(value)),
);
const string = fc.oneof(
  fc.string({ unit: "binary" }).map((value) => JSON.stringify(value)),
  fc.constantFrom('"\\ud800"', '"\\udfff\\ud800"', '"\\u0000"', '"\\/"', '"größe 😀"', '"\\u006dodel"'),
);
const key = fc.oneof(
  fc.constantFrom('"__proto__"', '"constructor"', '"prototype"', '"temperature"', '"tools"', '""'),
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
      .map(([gap, pairs]) => `{${gap}${pairs.map(([name, item]) => `${name}${gap}:${item}`).join(`${gap},`)}}`),
  ),
}));
const member = fc.tuple(key, value).map(([name, item]) => `${name}:${item}`);
const good = ['"model":"m"', '"messages":[{"role":"user","content":"Hi"}]'];
const body = fc.tuple(fc.constantFrom("", "\ufeff"), space, fc.array(member, { maxLength: 6 }), fc.nat())
  .map(([mark, gap, extra, at]) => {
    const members = [...extra];
    for (const [index, text] of good.entries()) members.splice((at + index) % (members.length + 1), 0, text);
    return `${mark}${gap}{${members.join(`,${gap}`)}}${gap}`;
  });

describe("the body policy through the front door", () => {
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
  const send = async (text: string) => {
    const response = await fetch(`${under.a}/v1/chat/completions`, {
      method: "POST",
      headers: under.headers,
      body: Buffer.from(text),
    });
    return { status: response.status, text: await response.text() };
  };
  const assertArrives = async (text: string) => {
    const { status, text: answer } = await send(text);
    assert.equal(status, 200, answer);
    const arrived = provider.calls.splice(0).at(-1)?.body;
    assert.ok(arrived?.equals(Buffer.from(text)), "the bytes changed on the way");
  };

  it("rows 31 and 33: lets any fields, values and spellings through byte for byte", async () => {
    await fc.assert(fc.asyncProperty(body, assertArrives), { numRuns: 150 });
    assert.equal(Object.hasOwn(Object.prototype, "polluted"), false);
  });

  it("row 32: lets a text of 10 MB and an array of a million elements through", async () => {
    await assertArrives(`{${good.join(",")},"x":"${"\\u00e9\\\\".repeat(1_250_000)}"}`);
    await assertArrives(`{${good.join(",")},"x":[${"0,".repeat(999_999)}0]}`);
  });

  it("lets other keys come twice, but not those that decide", async () => {
    await assertArrives(`{${good.join(",")},"seed":1,"seed":2}`);
    for (const twice of ['"model":"other"', '"mod\\u0065l":"other"', '"messages":[]', '"stream":1,"stream":2']) {
      const { status, text } = await send(`{${good.join(",")},${twice}}`);
      assert.equal(status, 400);
      assert.equal(JSON.parse(text).error.code, "invalid_body");
    }
    assert.equal(provider.calls.length, 0);
  });

  it("row 32: refuses a nesting of 100,000 at once", async () => {
    for (const bracket of ["[", '{"a":']) {
      const { status, text } = await send(`{${good.join(",")},"x":${bracket.repeat(100_000)}`);
      assert.equal(status, 400);
      assert.equal(JSON.parse(text).error.code, "invalid_json");
    }
  });
});
