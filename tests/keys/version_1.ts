/**
 * The first version of the form of records: samples that its build wrote (2026-11-22), in a file
 * and in Redis, and its rules for reading. It does not know `version`, and refuses every unknown
 * field.
 */
import assert from "node:assert/strict";

/** A file of keys: one with every setting and rotated, one revoked, one disabled. */
export const FILE = `{"keys":[
{"name":"Größe 値","providers":["a"],"models":["gpt-*","o3"],"operations":["chat","embeddings"],"metadata":{"team":"x"},"id":"HPo2nZnmE9Vv","digest":"092c25b46b508e779dd95a32c7ecfeb6e60f3af7f1a2f350d4a6fd82c738404e","limits":{"requests":"600/min","tokens":"100k/h","concurrency":20,"budget":"5M/month","mode":"observe"},"previous":{"digest":"158cf6c1d78b74082e94e530fcaf385ea9ff01c109598a0941d74507b22a897c","expires":"2026-11-23T11:54:23.674Z"},"expires":"2099-01-31T12:34:00.000Z","created":"2026-11-22T11:54:23.324Z"},
{"id":"r5cscU3V4smJ","digest":"a42e6a4278c8136b4fa8a1896d884ce7aabdaf190d32f5551d87a2a0e288dc23","revoked":"2026-11-22T11:54:25.559Z","created":"2026-11-22T11:54:24.013Z"},
{"disabled":true,"id":"gM3Tx6P9OB9K","digest":"c07ed8dc37ab110e37c0da9c8d7a982a75ea11525bcae23e9446c6c69f905e58","created":"2026-11-22T11:54:24.412Z"}
],"checksum":"5bd4f0ea40750219ac5fafa0e3427e481a322d9f1fc52e01f6a43e8a427b6054"}
`;

/** The records of that file. */
export const RECORDS: readonly Record<string, unknown>[] = JSON.parse(FILE).keys;

/**
 * The same keys in Redis: hash of id -> record, hash of digest -> id, ids by their times, last
 * uses.
 */
export const REDIS: {
  readonly keys: Readonly<Record<string, string>>;
  readonly digests: Readonly<Record<string, string>>;
  readonly created: readonly (readonly [score: number, id: string])[];
  readonly used: Readonly<Record<string, string>>;
} = {
  keys: Object.fromEntries(RECORDS.map((record) => [String(record["id"]), JSON.stringify(record)])),
  digests: {
    "092c25b46b508e779dd95a32c7ecfeb6e60f3af7f1a2f350d4a6fd82c738404e": "HPo2nZnmE9Vv",
    "158cf6c1d78b74082e94e530fcaf385ea9ff01c109598a0941d74507b22a897c": "HPo2nZnmE9Vv",
    "a42e6a4278c8136b4fa8a1896d884ce7aabdaf190d32f5551d87a2a0e288dc23": "r5cscU3V4smJ",
    "c07ed8dc37ab110e37c0da9c8d7a982a75ea11525bcae23e9446c6c69f905e58": "gM3Tx6P9OB9K",
  },
  created: [[1795348463324, "HPo2nZnmE9Vv"], [1795348464013, "r5cscU3V4smJ"], [
    1795348464412,
    "gM3Tx6P9OB9K",
  ]],
  used: { HPo2nZnmE9Vv: "1795348465000" },
};

type Check = (value: unknown) => boolean;

const isText: Check = (value) => typeof value === "string" && value !== "";
const matches = (form: RegExp): Check => (value) => typeof value === "string" && form.test(value);
const listOf = (check: Check): Check => (value) => Array.isArray(value) && value.every(check);
const isTime = matches(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z$/);
const isDigest = matches(/^[0-9a-f]{64}$/);
const isRate = matches(/^\d+[kMG]?\/(?:\d*)(?:s|min|h|d|day)$/);

/** Strict: every member is known and valid. */
const objectOf = (checks: Readonly<Record<string, Check>>): Check => (value) =>
  typeof value === "object" && value !== null && !Array.isArray(value) &&
  Object.entries(value).every(([name, each]) =>
    Object.hasOwn(checks, name) && checks[name]?.(each) === true
  );

const isRecord = objectOf({
  id: isText,
  digest: isDigest,
  name: isText,
  providers: listOf(isText),
  models: listOf(isText),
  operations: listOf(isText),
  metadata: (value) =>
    typeof value === "object" && value !== null && Object.values(value).every(isText),
  disabled: (value) => typeof value === "boolean",
  limits: objectOf({
    requests: isRate,
    tokens: isRate,
    budget: matches(/^\d+[kMG]?\/(?:day|month)$/),
    concurrency: (value) => Number.isInteger(value),
    mode: (value) => value === "enforce" || value === "observe",
  }),
  previous: objectOf({ digest: isDigest, expires: isTime }),
  expires: isTime,
  revoked: isTime,
  created: isTime,
});

/** Fails unless the first version reads a record. */
export function assertReadable(record: unknown): void {
  assert.ok(isRecord(record), `the first version does not read ${JSON.stringify(record)}`);
  const { id, digest } = record as Record<string, unknown>;
  assert.ok(isText(id) && isDigest(digest), "id and digest are needed");
}

/**
 * Fails unless the first version reads a file of keys, with one key per line, as it expects of a
 * gateway.
 */
export function assertFileReadable(text: string): void {
  assert.match(text, /^\{"keys":\[\n[^]*\n\],"checksum":"[0-9a-f]{64}"\}\n$/);
  for (const record of JSON.parse(text).keys) assertReadable(record);
}
