/** Which operation a method and a URL name: the usual one has a way of its own, which must end like the router's. */
// runtimes: once
import assert from "node:assert/strict";
import { describe, it } from "@std/testing/bdd";
import fc from "fast-check";
import { GatewayError } from "../../src/errors/gateway_error.ts";
import { resolveOperation, toUnknownError } from "../../src/operations/router.ts";

async function nameOf(method: string, url: string): Promise<string> {
  try {
    const operation = await resolveOperation(method, url);
    return operation.allow === undefined ? operation.name : toUnknownError(operation).code;
  } catch (error) {
    if (GatewayError.is(error)) return error.code;
    throw error;
  }
}

/** As a URL parser and the routes have it. */
function expectedName(method: string, url: string): string {
  const absolute = /^https?:/i.test(url) ? url : url.startsWith("/") ? `http://gateway${url}` : "http://gateway/";
  const path = URL.canParse(absolute) ? new URL(absolute).pathname : "";
  if (!/^\/v1\/chat\/completions\/*$/.test(path)) return "elsewhere";
  return ({ POST: "chat.completions", GET: "chat.completions.list" })[method] ?? "method_not_allowed";
}

describe("the operation", () => {
  it("of a URL is the same with and without an authority and a query", async () => {
    for (const start of ["", "http://a.localhost:8080", "https://a.test", "http://[::1]:1", "http://u:p@a.test"]) {
      for (const end of ["", "?", "?a=b&c", "?/v1/models", "#x", "/", "//"]) {
        assert.equal(await nameOf("POST", `${start}/v1/chat/completions${end}`), "chat.completions", start + end);
      }
    }
  });

  it("of a plain path is not one by an id, however the path ends", async () => {
    for (const end of ["", "/", "?x", "/?x"]) {
      assert.equal(await nameOf("POST", `/v1/responses/compact${end}`), "responses.compact");
      assert.equal(await nameOf("POST", `/v1/messages/batches${end}`), "messages.batches");
      assert.equal(await nameOf("GET", `/v1/responses/resp_1${end}`), "responses.get");
    }
  });

  it("is that of the parsed URL, whatever was written", async () => {
    const url = fc.tuple(
      fc.constantFrom("", "/", "http:", "http:/", "http://", "http:///", "HTTP://", "https://", "ftp://", " http://"),
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
      fc.asyncProperty(fc.constantFrom("POST", "GET", "post", "PUT"), url, async (method, written) => {
        const [name, expected] = [await nameOf(method, written), expectedName(method, written)];
        if (expected !== "elsewhere") assert.equal(name, expected, JSON.stringify(written));
        else assert.ok(!/^chat\.completions(?:\.list)?$/.test(name), `${name} for ${JSON.stringify(written)}`);
      }),
      { numRuns: 3000 },
    );
  });
});
