/**
 * Calls of a client library's methods, directly to the provider and through the gateway: the
 * provider must receive the same, and the library must return the same.
 */
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { afterAll, beforeAll, describe, it } from "@std/testing/bdd";
import { startUnderTest, type UnderTest } from "./gateway.ts";
import {
  type LibraryMethod,
  type LibraryName,
  listMethods,
  readMethods,
} from "./library_methods.ts";
import type { Arrived, Provider } from "./provider.ts";
import { startStandIn } from "./stand_in.ts";

/** A library, as its test file describes it. */
export interface Library<Client extends object> {
  readonly name: LibraryName;
  /** Settings that its provider needs. */
  readonly provider?: Record<string, unknown>;
  /** Makes a client for a base address without `/v1`. */
  create(options: ClientOptions): Client;
  /**
   * Calls for methods that the default arguments do not fit, such as helpers, by the method's name.
   */
  readonly own: Readonly<Record<string, (client: Client) => unknown>>;
}

/** The options of every client. */
export interface ClientOptions {
  readonly url: string;
  readonly defaultHeaders: Record<string, string>;
  readonly fetch: typeof fetch;
}

/** A client, and the calls that reach the provider. */
interface Side<Client> {
  readonly client: Client;
  readonly calls: readonly Arrived[];
  /** The headers that the library passed to fetch, for every call. */
  readonly sent: readonly Headers[];
}

/** The effect of a call. */
interface Effect {
  /** The calls that the provider received, in order. */
  readonly received: readonly object[];
  /** The return value of the library, as plain data. */
  readonly result: unknown;
}

const TEXT = "Grüße 👋";
const BODY = {
  model: "test-1",
  messages: [{ role: "user", content: TEXT }],
  input: TEXT,
  max_tokens: 5,
  target: { id: "x" },
};
const QUERY = { limit: 2, order: "asc", include: ["a.b", "ü&c"] };
/** Headers that a runtime's fetch or the gateway sets, and that do not matter to the provider. */
const ON_THE_WAY =
  /^(?:accept.*|connection|content-length|content-type|host|priority|sec-fetch-mode|transfer-encoding|user-agent|via)$/;
/** Headers that a provider must never receive. */
const OURS = ["gateway-auth", "cookie", "forwarded", "x-forwarded-for"];

/** A fetch that records the headers that a library passes to it. */
function listeningFetch(sent: Headers[]): typeof fetch {
  return (input, init) => {
    // With a data URL the openai library tests the features of a runtime's fetch.
    if (!`${input}`.startsWith("data:")) sent.push(new Headers(init?.headers));
    return fetch(input, init);
  };
}

/**
 * The identifier that a call uses for a parameter, with characters that must be encoded in a path.
 */
const idOf = (parameter: string) => `${parameter}:1 ü`;
const parametersOf = (path: string) =>
  Array.from(path.matchAll(/:(\w+)/g), ([, name = ""]) => name);

/**
 * The default arguments of a method: the last identifier, then an object with the other identifiers
 * and the fields to send.
 */
function toArguments({ calls: [call], sends }: LibraryMethod, isStream: boolean): unknown[] {
  const { path = "", method = "" } = call ?? {};
  const names = parametersOf(path);
  const last = names.pop();
  const file = () =>
    new File([new Uint8Array([0, 13, 10, 45, 45, 255])], "ä.bin", {
      type: "application/octet-stream",
    });
  const own = {
    "-": {},
    query: QUERY,
    body: BODY,
    form: {
      model: "test-1",
      prompt: TEXT,
      file: file(),
      image: file(),
      files: [file()],
      name: TEXT,
    },
  }[sends];
  const streaming = path === "/audio/speech" ? { stream_format: "sse" } : { stream: true };
  const given = {
    ...Object.fromEntries(names.map((name) => [name, idOf(name)])),
    ...own,
    ...(isStream ? { ...streaming, ...(method === "GET" ? { starting_after: 1 } : {}) } : {}),
  };
  // The options at the end show some methods that the argument before them is absent.
  return [
    ...(last === undefined ? [] : [idOf(last)]),
    ...(Object.keys(given).length === 0 ? [] : [given, {}]),
  ];
}

/** Converts a library's return value to data that can be compared. */
async function toData(returned: unknown): Promise<unknown> {
  const value = await returned;
  if (value instanceof Response) {
    const bytes = new Uint8Array(await value.arrayBuffer());
    return { status: value.status, type: value.headers.get("content-type"), sha256: hash(bytes) };
  }
  if (typeof value !== "object" || value === null) return value;
  if (Symbol.asyncIterator in value) {
    const items: unknown[] = [];
    for await (const item of value as AsyncIterable<unknown>) items.push(item);
    assert.ok(items.length > 0, "a stream or a list without anything");
    return JSON.parse(JSON.stringify(items));
  }
  return JSON.parse(JSON.stringify(value));
}

const hash = (bytes: Uint8Array) => createHash("sha256").update(bytes).digest("hex");

/**
 * The parts of a received call that must be the same. Each form has a random boundary, which is
 * replaced here.
 */
function toReceived({ method, path, headers, body }: Arrived, sent: Headers): object {
  const type = headers["content-type"];
  const [, boundary] = /boundary=(.+)$/.exec(type ?? "") ?? [];
  const same = (text: string) =>
    boundary === undefined ? text : text.replaceAll(boundary, "the-boundary");
  for (const name of OURS) assert.ok(!(name in headers), `${name} arrived`);
  const extra = Object.keys(headers).filter((name) => !sent.has(name) && !ON_THE_WAY.test(name));
  assert.deepEqual(extra, [], "headers that the library did not send");
  const own = [...sent.keys()].filter((name) => !/^(?:gateway-auth|content-length)$/.test(name))
    .sort();
  return {
    method,
    path,
    headers: Object.fromEntries([...own.map((name) => [name, headers[name]]), [
      "content-type",
      type && same(type),
    ]]),
    length: body.length,
    sha256: hash(new TextEncoder().encode(same(body.toString("latin1")))),
  };
}

/** Calls a method as its row describes. */
function call<Client extends object>(
  client: Client,
  row: LibraryMethod,
  own: Library<Client>["own"],
  isStream: boolean,
): unknown {
  const run = own[row.name];
  if (run !== undefined) return run(client);
  const names = row.name.split(".");
  const last = names.pop() ?? "";
  // deno-lint-ignore no-explicit-any -- resources and methods by their names
  const resource: any = names.reduce((holder: any, name) => holder[name], client);
  return resource[last](...toArguments(row, isStream));
}

async function effectOf<Client>(
  side: Side<Client>,
  title: string,
  run: () => unknown,
): Promise<Effect> {
  const [calls, sent] = [side.calls.length, side.sent.length];
  const result = await toData(run()).catch((cause) => {
    throw new Error(`${title}: ${cause}`, { cause });
  });
  const received = side.calls.slice(calls).map((arrived, index) =>
    toReceived(arrived, side.sent[sent + index] ?? new Headers())
  );
  return { received, result };
}

/** Asserts that a method has the same effect through the gateway as without it. */
async function assertSame<Client extends object>(
  row: LibraryMethod,
  own: Library<Client>["own"],
  direct: Side<Client>,
  through: Side<Client>,
): Promise<void> {
  // A helper chooses its own form.
  const forms = row.name in own ? [false] : row.answers.map((form) => form === "sse");
  for (const isStream of forms) {
    const title = `${row.name}${isStream ? ", streamed" : ""}`;
    const before = direct.calls.length;
    const expected = await effectOf(direct, title, () => call(direct.client, row, own, isStream));
    assertAsInRow(row, direct.calls.slice(before, before + row.calls.length));
    const effect = await effectOf(
      through,
      `${title}, through the gateway`,
      () => call(through.client, row, own, isStream),
    );
    assert.deepEqual(effect, expected, title);
  }
}

/** Asserts that the row correctly describes the calls and their content. */
function assertAsInRow({ name, calls, sends }: LibraryMethod, arrived: readonly Arrived[]): void {
  const pattern = calls.map(({ method, path }) => `${method} /v1${path.replace(/:\w+/g, "[^/]+")}`);
  const found = arrived.map(({ method, path }) => `${method} ${path.split("?")[0]}`);
  assert.match(found.join(", "), new RegExp(`^${pattern.join(", ")}$`), name);
  if (calls.length > 1) return;
  const [{ path = "", headers = {}, body = "" } = {}] = arrived;
  const isForm = headers["content-type"]?.startsWith("multipart/") === true;
  const type = isForm
    ? "form"
    : body.length > 0
    ? "body"
    : /limit=2|stream=true/.test(path)
    ? "query"
    : "-";
  assert.equal(type, sends, name);
}

/** Tests of every method of a library. */
export function describeMatrix<Client extends object>(
  { name, provider: settings, create, own }: Library<Client>,
): void {
  const rows = readMethods(name);
  let provider: Provider;
  let under: UnderTest;
  const sides: Side<Client>[] = [];
  const addSide = (url: string, defaultHeaders: Record<string, string>) => {
    const sent: Headers[] = [];
    const client = create({ url, defaultHeaders, fetch: listeningFetch(sent) });
    sides.push({ client, sent, calls: provider.calls });
  };

  describe(`every method of the ${name} library`, () => {
    beforeAll(async () => {
      provider = await startStandIn(name);
      const all = { operations: ["all"], ...settings };
      under = await startUnderTest({ upstreams: { a: provider.url }, provider: all });
      addSide(provider.url.replace(/\/v1$/, ""), {});
      addSide(under.a, { "Gateway-Auth": `Bearer ${under.key}` });
    });
    afterAll(async () => {
      await under.close();
      await provider.close();
    });

    it("has a row in the list", () => {
      const [{ client } = assert.fail()] = sides;
      assert.deepEqual(rows.map(({ name }) => name).sort(), listMethods(client).sort());
    });

    for (const [resource, methods] of Map.groupBy(rows, ({ name }) => name.split(".")[0])) {
      it(`does the same through the gateway: ${resource}`, async () => {
        const [direct = assert.fail(), through = assert.fail()] = sides;
        const failures: string[] = [];
        for (const row of methods.filter(({ calls }) => calls.length > 0)) {
          await assertSame(row, own, direct, through).catch((error) =>
            failures.push(`${row.name}: ${error}`)
          );
        }
        assert.deepEqual(failures, []);
      });
    }
  });
}
