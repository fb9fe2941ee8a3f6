/** Fields of multipart bodies, beside the parser of the runtime: what one accepts, the other must not read differently. */
// runtimes: all
import assert from "node:assert/strict";
import { describe, it } from "@std/testing/bdd";
import fc from "fast-check";
import { GatewayError } from "../../src/errors/gateway_error.ts";
import { readFields } from "../../src/inbound/multipart.ts";

const NAMES = ["model", "stream", "user"] as const;
const name = fc.oneof(fc.constantFrom(...NAMES), fc.constantFrom("file", "Model", "prompt", 'a"b', "a\r\nb", "é"));
const value = fc.oneof(
  fc.string({ maxLength: 20 }),
  fc.constantFrom("\r\n", "--", "\r\n--", "gpt-4o", "a\r\nb", "\n", "-----"),
);

function read(bytes: Uint8Array, contentType: string): Readonly<Record<string, string>> | string {
  try {
    return readFields(bytes, contentType, NAMES).fields;
  } catch (error) {
    if (GatewayError.is(error)) return error.code;
    throw error;
  }
}

async function toBody(fields: readonly (readonly [string, string])[]) {
  const form = new FormData();
  for (const [field, text] of fields) {
    if (field === "file") form.append(field, new File([text], 'my "name"; model.mp3', { type: "audio/mpeg" }));
    else form.append(field, text);
  }
  const whole = new Response(form);
  const contentType = whole.headers.get("content-type") ?? ""; // first: Bun forgets it with the body
  return { bytes: new Uint8Array(await whole.arrayBuffer()), contentType };
}

/** Text as a form sends it: with line ends of CRLF. */
const normal = (text: string) => text.replace(/\r\n|\r|\n/g, "\r\n");

describe("the fields of a multipart body", () => {
  it("are what the runtime's own form states", async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(fc.tuple(name, value), { minLength: 1, maxLength: 8 }), async (fields) => {
        const { bytes, contentType } = await toBody(fields);
        const known = fields.map(([field, text]) => [field.toLowerCase(), text] as const)
          .filter(([field]) => (NAMES as readonly string[]).includes(field));
        const isTwice = new Set(known.map(([field]) => field)).size < known.length;
        const found = read(bytes, contentType);
        if (isTwice) return assert.equal(found, "invalid_body");
        assert.ok(typeof found === "object", `${found} for ${JSON.stringify(fields)}`);
        const expected = Object.fromEntries(known.map(([field, text]) => [field, normal(text)]));
        assert.deepEqual(
          Object.fromEntries(Object.entries(found).map(([field, text]) => [field, normal(text)])),
          expected,
        );
      }),
    );
  });

  it("of a damaged body are refused, or are those that the runtime reads", async () => {
    const change = fc.tuple(
      fc.nat(),
      fc.nat({ max: 3 }),
      fc.constantFrom("", "\r\n", "--", "\n", '"', ";", "x", "\r\n--"),
    );
    const fields = fc.array(fc.tuple(name, value), { minLength: 1, maxLength: 4 });
    await fc.assert(
      fc.asyncProperty(fields, fc.array(change, { minLength: 1, maxLength: 3 }), async (given, changes) => {
        const { bytes, contentType } = await toBody(given);
        let text = new TextDecoder("latin1").decode(bytes);
        for (const [place, length, put] of changes) {
          const at = place % text.length;
          text = text.slice(0, at) + put + text.slice(at + length);
        }
        const damaged = Uint8Array.from(text, (character) => character.charCodeAt(0) & 0xff);
        const found = read(damaged, contentType);
        if (typeof found === "string") return assert.equal(found, "invalid_body");
        const form = await new Response(damaged, { headers: { "content-type": contentType } }).formData().catch(() =>
          null
        );
        if (form === null) return;
        const models = form.getAll("model").filter((entry) => typeof entry === "string");
        assert.ok(models.length <= 1, "no second model");
        if (models.length === 1) assert.equal(normal(found.model ?? ""), normal(models[0] as string));
      }),
      { numRuns: 1000 },
    );
  });

  it("need a boundary of a known form", async () => {
    const { bytes } = await toBody([["model", "m"]]);
    for (
      const type of ["multipart/form-data", "multipart/form-data; boundary=", "multipart/form-data; boundary=a b", ""]
    ) {
      assert.equal(read(bytes, type), "invalid_body", type);
    }
  });
});
