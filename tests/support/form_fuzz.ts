/**
 * Forms (multipart bodies), intact and damaged, read by the gateway and by the parser of the
 * runtime: both read the same fields, or the form is refused.
 */
import assert from "node:assert/strict";
import fc from "fast-check";
import { GatewayError } from "../../src/errors/gateway_error.ts";
import { readFields } from "../../src/inbound/multipart.ts";

const NAMES = ["model", "stream", "user"] as const;
const name = fc.oneof(
  fc.constantFrom(...NAMES),
  fc.constantFrom("file", "Model", "prompt", 'a"b', "a\r\nb", "é"),
);
const value = fc.oneof(
  fc.string({ maxLength: 20 }),
  fc.constantFrom("\r\n", "--", "\r\n--", "gpt-4o", "a\r\nb", "\n", "-----"),
);
const change = fc.tuple(
  fc.nat(),
  fc.nat({ max: 3 }),
  fc.constantFrom("", "\r\n", "--", "\n", '"', ";", "x", "\r\n--"),
);

/** A form as it is sent. */
interface SentForm {
  readonly bytes: Uint8Array;
  readonly contentType: string;
}

/** Reads the fields of a form. @returns The fields, or the code of the error */
export function readForm(
  { bytes, contentType }: SentForm,
): Readonly<Record<string, string>> | string {
  try {
    return readFields(bytes, contentType, NAMES).fields;
  } catch (error) {
    if (GatewayError.is(error)) return error.code;
    throw error;
  }
}

/** Encodes a form with the runtime. */
export async function toForm(fields: readonly (readonly [string, string])[]): Promise<SentForm> {
  const form = new FormData();
  for (const [field, text] of fields) {
    if (field === "file") {
      form.append(field, new File([text], 'my "name"; model.mp3', { type: "audio/mpeg" }));
    } else form.append(field, text);
  }
  const whole = new Response(form);
  // First: Bun loses it together with the body.
  const contentType = whole.headers.get("content-type") ?? "";
  return { bytes: new Uint8Array(await whole.arrayBuffer()), contentType };
}

/** Text in the form in which it is sent: with CRLF line ends. */
const normal = (text: string) => text.replace(/\r\n|\r|\n/g, "\r\n");

const normalFields = (fields: Readonly<Record<string, string>>) =>
  Object.fromEntries(Object.entries(fields).map(([field, text]) => [field, normal(text)]));

/** Compares forms that the runtime writes. */
export async function fuzzForms(numRuns: number, seed?: number): Promise<void> {
  await fc.assert(
    fc.asyncProperty(
      fc.array(fc.tuple(name, value), { minLength: 1, maxLength: 8 }),
      async (fields) => {
        const known = fields.map(([field, text]) => [field.toLowerCase(), text] as const)
          .filter(([field]) => (NAMES as readonly string[]).includes(field));
        const isTwice = new Set(known.map(([field]) => field)).size < known.length;
        const found = readForm(await toForm(fields));
        if (isTwice) return assert.equal(found, "invalid_body");
        assert.ok(typeof found === "object", `${found} for ${JSON.stringify(fields)}`);
        assert.deepEqual(normalFields(found), normalFields(Object.fromEntries(known)));
      },
    ),
    { numRuns, ...(seed !== undefined && { seed }) },
  );
}

/** Compares forms with up to three changes. */
export async function fuzzDamagedForms(numRuns: number, seed?: number): Promise<void> {
  const fields = fc.array(fc.tuple(name, value), { minLength: 1, maxLength: 4 });
  await fc.assert(
    fc.asyncProperty(
      fields,
      fc.array(change, { minLength: 1, maxLength: 3 }),
      async (given, changes) => {
        const { bytes, contentType } = await toForm(given);
        let text = new TextDecoder("latin1").decode(bytes);
        for (const [place, length, put] of changes) {
          const at = place % text.length;
          text = text.slice(0, at) + put + text.slice(at + length);
        }
        const damaged = Uint8Array.from(text, (character) => character.charCodeAt(0) & 0xff);
        const found = readForm({ bytes: damaged, contentType });
        if (typeof found === "string") return assert.equal(found, "invalid_body");
        const form = await new Response(damaged, { headers: { "content-type": contentType } })
          .formData()
          .catch(() => null);
        if (form === null) return;
        const models = form.getAll("model").filter((entry) => typeof entry === "string");
        assert.ok(models.length <= 1, "no second model");
        if (models.length === 1) {
          assert.equal(
            normal(found.model ?? ""),
            normal(models[0] as string),
          );
        }
      },
    ),
    { numRuns, ...(seed !== undefined && { seed }) },
  );
}
