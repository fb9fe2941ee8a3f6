/**
 * The operation of a method and a URL: the usual one has a faster way, which must give the router's
 * result.
 */
// runtimes: once
import assert from "node:assert/strict";
import { describe, it } from "@std/testing/bdd";
import fc from "fast-check";
import { GatewayError } from "../../src/errors/gateway_error.ts";
import { resolveOperation, toUnknownError } from "../../src/operations/router.ts";
import { OPERATIONS } from "../../src/operations/table.ts";

async function nameOf(method: string, url: string): Promise<string> {
  try {
    const operation = await resolveOperation(method, url);
    return operation.allow === undefined ? operation.name : toUnknownError(operation).code;
  } catch (error) {
    if (GatewayError.is(error)) return error.code;
    throw error;
  }
}

/** The result of a URL parser and the routes. */
function expectedName(method: string, url: string): string {
  const absolute = /^https?:/i.test(url)
    ? url
    : url.startsWith("/")
    ? `http://gateway${url}`
    : "http://gateway/";
  const path = URL.canParse(absolute) ? new URL(absolute).pathname : "";
  if (!/^\/v1\/chat\/completions\/*$/.test(path)) return "elsewhere";
  return ({ POST: "chat.completions", GET: "chat.completions.list" })[method] ??
    "method_not_allowed";
}

describe("the operation", () => {
  it("of a URL is the same with and without an authority and a query", async () => {
    for (
      const start of [
        "",
        "http://a.localhost:8080",
        "https://a.test",
        "http://[::1]:1",
        "http://u:p@a.test",
      ]
    ) {
      for (const end of ["", "?", "?a=b&c", "?/v1/models", "#x", "/", "//"]) {
        assert.equal(
          await nameOf("POST", `${start}/v1/chat/completions${end}`),
          "chat.completions",
          start + end,
        );
      }
    }
  });

  it("of a plain path is never an operation by id, however the path ends", async () => {
    for (const end of ["", "/", "?x", "/?x"]) {
      assert.equal(await nameOf("POST", `/v1/responses/compact${end}`), "responses.compact");
      assert.equal(await nameOf("POST", `/v1/messages/batches${end}`), "messages.batches");
      assert.equal(await nameOf("GET", `/v1/responses/resp_1${end}`), "responses.get");
    }
  });

  it("is the operation of the parsed URL, for any spelling", async () => {
    const url = fc.tuple(
      fc.constantFrom(
        "",
        "/",
        "http:",
        "http:/",
        "http://",
        "http:///",
        "HTTP://",
        "https://",
        "ftp://",
        " http://",
      ),
      fc.constantFrom(
        "",
        "a.test",
        "a.test:80",
        "a.test:99999",
        "[::1]",
        "[",
        "u@a",
        "a b",
        "a%",
        "a\\b",
        "a?b",
        "a#b",
        "\t",
        ".",
        ":",
        "a:",
      ),
      fc.constantFrom(
        "/v1/chat/completions",
        "/V1/chat/completions",
        "/v1/./chat/completions",
        "/v1/chat%2Fcompletions",
      ),
      fc.oneof(
        fc.constantFrom("", "?", "?x", "/", "#", " ", "\n", "s", "?x\n", "\\", "/..", ";"),
        fc.string({ maxLength: 3 }),
      ),
    ).map((pieces) => pieces.join(""));
    await fc.assert(
      fc.asyncProperty(
        fc.constantFrom("POST", "GET", "post", "PUT"),
        url,
        async (method, written) => {
          const [name, expected] = [await nameOf(method, written), expectedName(method, written)];
          if (expected !== "elsewhere") assert.equal(name, expected, JSON.stringify(written));
          else {assert.ok(
              !/^chat\.completions(?:\.list)?$/.test(name),
              `${name} for ${JSON.stringify(written)}`,
            );}
        },
      ),
      { numRuns: 3000 },
    );
  });

  /** Ways in which servers change a path before they look it up. */
  const READINGS: readonly ((path: string) => string)[] = [
    (path) =>
      path.replace(
        /%[0-9a-f]{2}/gi,
        (escape) => String.fromCharCode(parseInt(escape.slice(1), 16)),
      ),
    (path) => path.replace(/;[^/]*/g, ""),
    (path) => path.replaceAll("\\", "/"),
    (path) => path.replace(/\/+/g, "/"),
    (path) => new URL(`http://x${path.startsWith("/") ? "" : "/"}${path}`).pathname,
    (path) => path.toLowerCase(),
    (path) => path.split(/[?#]/, 1).join(""),
    (path) => path.replace(/[\s.]+(?=\/|$)/g, ""),
    (path) => path.replace(/\/+$/, ""),
  ];
  it("is not another one for a server that reads the path differently", async () => {
    const metered = OPERATIONS.filter(({ cost }) => cost === "tokens");
    const byPath = new Map(metered.map(({ path, name }) => [`/v1${path}`, name]));
    const pieces = [
      ...[
        "/",
        "/",
        "/",
        "//",
        "\\",
        ".",
        "..",
        ";",
        ";x",
        "?",
        "#",
        " ",
        "%",
        "x",
        "files",
        "models",
        "v1",
      ],
      ...[
        "%2F",
        "%2f",
        "%5C",
        "%2e",
        "%2E%2e",
        "%3B",
        "%3bx",
        "%3F",
        "%23",
        "%20",
        "%25",
        "%2525",
        "%252F",
        "%252e",
      ],
      ...[
        "chat",
        "completions",
        "Chat",
        "completion%73",
        "completion%2573",
        "responses",
        "embeddings",
        "%63hat",
      ],
      ...[
        "/chat/completions",
        "chat%2Fcompletions",
        "/..",
        "/../",
        "/..%2F",
        "..;/",
        "%2F..%2F",
        "%252F..%252F",
      ],
    ];
    const written = fc.array(fc.constantFrom(...pieces), { maxLength: 7 }).map((parts) =>
      `/v1/${parts.join("")}`
    );
    const readings = fc.array(fc.constantFrom(...READINGS), { maxLength: 8 });
    await fc.assert(
      fc.asyncProperty(written, readings, async (url, read) => {
        let operation;
        try {
          operation = await resolveOperation("POST", url);
        } catch (error) {
          if (GatewayError.is(error)) return;
          throw error;
        }
        const found = read.reduce((path, change) => change(path), `/v1${operation.path}`);
        const name = byPath.get(found);
        if (name !== undefined) assert.equal(operation.name, name, `${url} was read as ${found}`);
      }),
      { numRuns: 30_000 },
    );
  });
});
