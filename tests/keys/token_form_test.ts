/** Tokens in any text: they are found anywhere, at a cost that the text cannot raise. */
// runtimes: once
import assert from "node:assert/strict";
import { describe, it } from "@std/testing/bdd";
import { findClaims, MAX_TOKEN_LENGTH } from "../../src/keys/identity/token_form.ts";
import { toPart } from "../support/issuer.ts";

const token = (claims: Record<string, unknown>): string =>
  `${toPart({ alg: "ES256" })}.${toPart(claims)}.c2ln`;
const found = (text: string) => Array.from(findClaims(text));

describe("tokens in a text", () => {
  it("are found next to any other text", () => {
    const claims = { iss: "https://id.example", aud: "x" };
    const text = token(claims);
    for (
      const [before, after] of [["", ""], ["me:", ""], ["?key=", "&x=1"], ["a b\n", "\n"], [
        "x.y;",
        ".z",
      ], ["ä", "ö"]]
    ) {
      assert.deepEqual(
        found(`${before}${text}${after}`),
        [claims],
        JSON.stringify([before, after]),
      );
    }
    const other = { iss: "https://other.example" };
    assert.deepEqual(found(`${text} ${token(other)}`), [claims, other]);
    assert.deepEqual(found("example.com/.eslintrc .env .eyes sk-proj-1.e30"), []);
  });

  it("are decoded as long as they are few and short", () => {
    assert.deepEqual(found(token({ filler: "x".repeat(MAX_TOKEN_LENGTH) })), []);
    assert.equal(found(`${token({ iss: "a" })} `.repeat(10)).length, 10);
    assert.equal(found(`${token({ iss: "a" })} `.repeat(1000)).length, 20);
    // Failed attempts count too: each costs some microseconds, and a body has room for millions.
    assert.deepEqual(found(`${".eyJ".repeat(20)} ${token({ iss: "a" })}`), []);
  });
});
