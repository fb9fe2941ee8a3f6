/**
 * Fields of multipart bodies, compared with the parser of the runtime: both must read them alike.
 */
// runtimes: all
import assert from "node:assert/strict";
import { describe, it } from "@std/testing/bdd";
import { fuzzDamagedForms, fuzzForms, readForm, toForm } from "../support/form_fuzz.ts";

describe("the fields of a multipart body", () => {
  it("are the fields that the runtime's own parser returns", () => fuzzForms(100));

  it("of a damaged body are refused, or equal the fields that the runtime reads", () =>
    fuzzDamagedForms(1000));

  it("need a boundary of a known form", async () => {
    const { bytes } = await toForm([["model", "m"]]);
    const types = [
      "multipart/form-data",
      "multipart/form-data; boundary=",
      "multipart/form-data; boundary=a b",
      "",
    ];
    for (const contentType of types) {
      assert.equal(readForm({ bytes, contentType }), "invalid_body", contentType);
    }
  });
});
