/**
 * `npm run fuzz -- --cases 100000 [--seed N]`: random HTTP/1.1 responses, read by the gateway's client and by that of
 * `node:http`. Fails with the smallest response that it finds on which they disagree.
 */
import { parseArgs } from "node:util";
import { fuzzHttp1 } from "../tests/support/http1_fuzz.ts";

const { values } = parseArgs({
  options: { cases: { type: "string", default: "100000" }, seed: { type: "string" } },
});
const seed = Number(values.seed ?? Date.now() % 1_000_000);
console.log(`fuzz: ${values.cases} responses, --seed ${seed}`);
const { read, refused, differences } = await fuzzHttp1(Number(values.cases), seed);
console.log(`${read} were read alike, ${refused} refused by both; differences that are meant:`);
for (const [name, count] of Object.entries(differences)) console.log(`${String(count).padStart(9)} ${name}`);
