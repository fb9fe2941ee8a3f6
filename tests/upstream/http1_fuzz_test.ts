/** Random responses are read as `node:http` reads them, or refused where its parser is too lenient. */
// runtimes: once
import assert from "node:assert/strict";
import { describe } from "@std/testing/bdd";
import { it } from "../support/cases.ts";
import { fuzzHttp1 } from "../support/http1_fuzz.ts";

const CASES = 1000;
const SEED = 20_261_122;

describe("the client of upstream/http1", () => {
  it.large("agrees with node:http on random responses, but for the differences that are meant", async () => {
    const { read, refused } = await fuzzHttp1(CASES, SEED);
    assert.ok(read > CASES / 5 && refused > CASES / 5, `${read} read and ${refused} refused: the mix tests both`);
  });
});
