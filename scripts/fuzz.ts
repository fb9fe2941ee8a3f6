/**
 * `npm run fuzz -- --what http1 --cases 100000 [--seed N]`: random HTTP/1.1 responses, read by the gateway's client and by
 * that of `node:http`. `--what body`: random JSON bodies, read in one pass and as a whole. Fails with the smallest input
 * that it finds on which the two disagree.
 */
import { parseArgs } from "node:util";
import { readView } from "../src/inbound/json_view.ts";
import { compareEdges, fuzzBodies } from "../tests/support/body_fuzz.ts";
import { fuzzHttp1 } from "../tests/support/http1_fuzz.ts";

const { values } = parseArgs({
  options: {
    what: { type: "string", default: "http1" },
    cases: { type: "string", default: "100000" },
    seed: { type: "string" },
  },
});
const cases = Number(values.cases);
const seed = Number(values.seed ?? Date.now() % 1_000_000);
console.log(`fuzz: ${cases} ${values.what === "body" ? "bodies" : "responses"}, --seed ${seed}`);
if (values.what === "body") {
  compareEdges(readView);
  console.log(`${fuzzBodies(readView, cases, seed)} were read alike, the others left to the slow way`);
} else {
  const { read, refused, differences } = await fuzzHttp1(cases, seed);
  console.log(`${read} were read alike, ${refused} refused by both; differences that are meant:`);
  for (const [name, count] of Object.entries(differences)) console.log(`${String(count).padStart(9)} ${name}`);
}
