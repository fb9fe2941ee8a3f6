/**
 * The path of an operation: it is looked up as it is forwarded, so no spelling evades the limits.
 */
// runtimes: all
import assert from "node:assert/strict";
import { afterEach, beforeEach, describe, it } from "@std/testing/bdd";
import { answerPlain, type Provider, startProvider } from "../support/provider.ts";
import { GOOD_BODY, startUnderTest, type UnderTest } from "../support/gateway.ts";
import { callRaw, type RawAnswer } from "../support/tcp_peer.ts";

const OWN_KEY = "own-key-of-a-team";
const BODY = JSON.stringify({ ...JSON.parse(GOOD_BODY), input: "Hi", prompt: "Hi", max_tokens: 9 });

/** Operations that cost tokens. */
const METERED: Readonly<Record<string, string>> = {
  "chat.completions": "/v1/chat/completions",
  "responses": "/v1/responses",
  "responses.compact": "/v1/responses/compact",
  "completions": "/v1/completions",
  "embeddings": "/v1/embeddings",
  "messages": "/v1/messages",
};

const encode = (text: string): string => `%${text.charCodeAt(0).toString(16)}`;

/** Other spellings of a path. */
function spellingsOf(path: string): readonly string[] {
  const [, ...segments] = path.split("/");
  const [last = ""] = segments.slice(-1);
  const before = path.slice(0, -last.length);
  const letters = [last.slice(0, -1) + encode(last.slice(-1)), encode(last) + last.slice(1)];
  const ends = [
    ";",
    ";x",
    ";x=1",
    "/;x",
    "/;",
    "/%3B",
    "%3B",
    "%3Bx",
    "%253Bx",
    "/",
    "//",
    "/.",
    "/./",
    "/x/..",
    "#x",
  ];
  const odd = [
    "%20",
    "%00",
    "%0a",
    "%0d%0ax",
    "%3F",
    "%3Fx",
    "%23",
    "%2523",
    ".",
    "/%2e",
    "/x/%2e%2e",
    "/x/..;",
    "/.;",
  ];
  const worse = [
    "\\",
    "/\\",
    "%5C",
    "%5c",
    "%2F",
    "%2f",
    "%252F",
    "%25252F",
    "%2525252F",
    "%FF",
    "%C0%AF",
    "%",
    "%z",
  ];
  const inner = [
    ".",
    "x/..",
    "%2e",
    "x/%2e%2e",
    "x/%2E.",
    ".;",
    "x/..;",
    "x/..;x",
    "%2e;",
    "",
    ";",
    "%3B",
    "%252e",
    "%5C",
  ];
  return [
    ...letters.map((spelled) => before + spelled),
    ...[...ends, ...odd, ...worse].map((end) => path + end),
    ...inner.map((segment) => `${before}${segment}/${last}`),
    ...inner.map((segment) => `/v1/${segment}${path.slice("/v1".length)}`),
    ...["..", "..;", "%2e%2e;", "..%2F", "..%5C", "..%252F", "%252e%252e"].map((up) =>
      `/v1/x/${up}${path.slice(3)}`
    ),
    before + last.toUpperCase(),
    before + last.slice(0, 1).toUpperCase() + last.slice(1),
    `/v1/${path.slice("/v1/".length).replaceAll("/", "%2F")}`,
    `/v1/${path.slice("/v1/".length).replaceAll("/", "%252f")}`,
    `/v1/${path.slice("/v1/".length).replaceAll("/", "\\")}`,
    `/v1/${path.slice("/v1/".length).replaceAll("/", "%5c")}`,
    `/v1/${path.slice("/v1/".length).replaceAll("/", "//")}`,
    `/v1/${path.slice("/v1/".length).replaceAll("/", ";x/")}`,
    `/%761${path.slice(3)}`,
    `/v1;x${path.slice(3)}`,
    Array.from(path, (letter) => /\w/.test(letter) ? encode(letter) : letter).join(""),
  ];
}

describe("a path", () => {
  let provider: Provider;
  let under: UnderTest;
  beforeEach(async () => {
    provider = await startProvider(answerPlain);
    await start({ limits: { tokens: "100M/h" } });
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
  const call = (
    path: string,
    method = "POST",
    headers: Record<string, string | undefined> = {},
  ): Promise<RawAnswer> =>
    callRaw(under.a, {
      method,
      path,
      headers: { ...under.headers, "gateway-auth": `Bearer ${OWN_KEY}`, ...headers },
      body: ["GET", "HEAD"].includes(method) ? "" : BODY,
    });

  for (const [name, plain] of Object.entries(METERED)) {
    it(`of ${name} is metered like the plain path or refused, however it is spelled`, async () => {
      let [metered, refused] = [0, 0];
      for (const path of spellingsOf(plain)) {
        const before = provider.calls.length;
        const { status } = await call(path);
        if (status !== 200) {
          assert.ok([400, 404].includes(status), `${path} answered ${status}`);
          assert.equal(provider.calls.length, before, `${path} reached the provider`);
          refused++;
          continue;
        }
        assert.equal(
          provider.calls.at(-1)?.path,
          plain,
          `${path} was forwarded in another spelling`,
        );
        const record = under.records.at(-1);
        assert.deepEqual([record?.operation, record?.isMetered], [name, true], path);
        metered++;
      }
      assert.ok(metered > 5 && refused > 40, `${metered} metered, ${refused} refused`);
    });
  }

  it("with an encoded letter is metered like the plain path", async () => {
    for (
      const path of [
        "/v1/chat/completion%73",
        "/v1/%63hat/completions",
        "/v1/%63%68%61%74/completions",
      ]
    ) {
      const { status } = await call(path);
      assert.equal(status, 200, path);
      assert.equal(provider.calls.at(-1)?.path, "/v1/chat/completions");
      const { operation, usage } = await under.settled(provider.calls.length);
      assert.deepEqual([operation, usage?.total], ["chat.completions", 2], path);
    }
  });

  it("that servers could read in another way is refused with 400 and a code", async () => {
    for (
      const path of [
        "/v1/chat/completions/%3B",
        "/v1/chat/completions;x",
        "/v1/models/..;/..;/admin",
        "/v1/files/.;/x",
        "/v1/files/%252e%252e/chat/completions",
        "/v1/files/a%5C..%5C..%5Cchat%5Ccompletions",
        "/v1/x%3Fy/..%2Fchat/completions",
        "/v1/Chat/completions",
        "/v1/chat/completions%20%2e",
        "/v1/files//x",
        "/v1/completions;chat%2Fcompletions",
        "/v1/v1/chat/completions",
        "/v1/v1/v%31/chat/completions",
        "/v1/V1/Chat/Completions",
        "/v1/v1/messages",
      ]
    ) {
      const { status, headers } = await call(path);
      assert.deepEqual([status, headers["sallyport-error"]], [400, "ambiguous_path"], path);
    }
    assert.equal(provider.calls.length, 0);
  });

  it("keeps its reserved characters in their encoding", async () => {
    for (
      const path of [
        "/v1/files/a%2Fb%5Cc",
        "/v1/files/a%3Bb",
        "/v1/files/a%25b",
        "/v1/files/a:b@c,d=e&f+g$h!i'j(k)*l",
        "/v1/files/a%3Ab%40c",
        "/v1/unknown/Name_1.2~3/",
        "/v1/files/%C3%A9",
      ]
    ) {
      assert.equal((await call(path, "GET")).status, 200, path);
      assert.equal(provider.calls.at(-1)?.path, path);
    }
  });

  it("of a model names the same model to the gateway and to any server", async () => {
    await start({ models: ["m-*", "*-good"] });
    for (
      const [id, sent] of [["m-%31", "m-1"], ["m-1%2Fx", "m-1%2Fx"], ["m-1/", "m-1"], [
        "m-1%20b",
        "m-1%20b",
      ]] as const
    ) {
      assert.equal((await call(`/v1/models/${id}`, "GET")).status, 200, id);
      assert.equal(provider.calls.at(-1)?.path, `/v1/models/${sent}`);
    }
    const seen = provider.calls.length;
    for (
      const id of [
        "bad;x-good",
        "bad%3Bx-good",
        "bad%3Fx-good",
        "bad%253Bx-good",
        "m-1%252Fx",
        "m-1/..%2Fbad",
      ]
    ) {
      const { status, headers } = await call(`/v1/models/${id}`, "GET");
      assert.deepEqual([status, headers["sallyport-error"]], [400, "ambiguous_path"], id);
    }
    assert.equal(provider.calls.length, seen);
  });

  it("below /v1 passes under `all` with every method, also if the table lists it with other methods", async () => {
    const cases = [
      ["POST", "/v1/models/M:generateContent"],
      ["POST", "/v1/models/M:streamGenerateContent?alt=sse"],
      ["PUT", "/v1/chat/completions/id_1"],
      ["PATCH", "/v1/responses/id_1"],
      ["GET", "/v1/responses"],
      ["DELETE", "/v1/models"],
      ["POST", "/v1/rerank"],
      ["PATCH", "/v1/rerank/x/y"],
    ] as const;
    for (const [method, path] of cases) {
      assert.equal((await call(path, method)).status, 200, path);
      const sent = provider.calls.at(-1);
      assert.deepEqual([sent?.method, sent?.path], [method, path]);
      assert.equal((await under.settled(provider.calls.length)).operation, "other", path);
    }
    await start({}, ["default"]);
    const { status, headers } = await call("/v1/chat/completions", "PUT");
    assert.deepEqual([status, headers.allow], [405, "POST, GET, HEAD"]);
    assert.equal((await call("/v1/rerank")).status, 404);
    await start({ operations: ["chat"] });
    assert.equal(
      (await call("/v1/chat/completions", "PUT")).headers["sallyport-error"],
      "operation_not_allowed",
    );
  });
});
