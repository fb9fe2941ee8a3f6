/** Random responses, read as `node:http` reads them, or refused if its parser is too lenient. */
// runtimes: once
import assert from "node:assert/strict";
import { describe } from "@std/testing/bdd";
import { it } from "../support/cases.ts";
import { fuzzEvents, fuzzPacked, fuzzParser } from "../support/answer_fuzz.ts";
import { fuzzHttp1 } from "../support/http1_fuzz.ts";

const CASES = 1000;
const SEED = 20_261_122;

describe("the client of upstream/http1", () => {
  it.large("agrees with node:http on random responses, except for the intended differences", async () => {
    const { read, refused } = await fuzzHttp1(CASES, SEED);
    assert.ok(
      read > CASES / 5 && refused > CASES / 5,
      `${read} read and ${refused} refused: the mix tests both`,
    );
  });
});

describe("random answers", () => {
  it.large("are parsed alike, however they are cut", () => {
    const refused = fuzzParser(CASES, SEED);
    assert.ok(
      refused > CASES / 10 && refused < CASES / 2,
      `${refused} refused: the mix tests both`,
    );
  });

  it.large("that are streams of events are scanned alike, however they are cut", () =>
    fuzzEvents(CASES, SEED));

  it.large("that are packed are unpacked as by node:zlib, or refused", () =>
    fuzzPacked(CASES, SEED));
});
