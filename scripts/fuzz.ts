/**
 * `npm run fuzz -- --what http1 --cases 100000 [--seed N]`. Reports the smallest failing input.
 *
 * - `http1`: random HTTP/1.1 responses, read by the gateway's client and by the client of
 *   `node:http`
 * - `parser`: the same responses, parsed without a network, whole and split at random places
 * - `events`: random streams of events, scanned in each dialect, whole and split at random places
 * - `packed`: random compressed bodies, whole and damaged, unpacked by the gateway and by
 *   `node:zlib`
 * - `body`: random JSON bodies, read in one pass and as a whole
 * - `form`: random forms (multipart), whole and damaged, read by the gateway and by the runtime's
 *   `Response.formData`
 */
import { parseArgs } from "node:util";
import { readView } from "../src/inbound/json_view.ts";
import { fuzzEvents, fuzzPacked, fuzzParser } from "../tests/support/answer_fuzz.ts";
import { compareEdges, fuzzBodies } from "../tests/support/body_fuzz.ts";
import { fuzzDamagedForms, fuzzForms } from "../tests/support/form_fuzz.ts";
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

async function fuzzClient(): Promise<string> {
  const { read, refused, differences } = await fuzzHttp1(cases, seed);
  const lines = Object.entries(differences).map(([name, count]) =>
    `${String(count).padStart(9)} ${name}`
  );
  return `${read} were read alike, ${refused} refused by both; differences that are meant:\n${
    lines.join("\n")
  }`;
}

function fuzzReader(): string {
  compareEdges(readView);
  return `${fuzzBodies(readView, cases, seed)} were read alike, the others left to the slow way`;
}

async function fuzzUnpackers(): Promise<string> {
  await fuzzPacked(cases, seed);
  return "All were unpacked as `node:zlib` does, or refused";
}

function fuzzScanners(): string {
  fuzzEvents(cases, seed);
  return "All were read alike, however they were cut";
}

async function fuzzFormReader(): Promise<string> {
  await fuzzForms(cases, seed);
  await fuzzDamagedForms(cases, seed);
  return "All were read as the runtime does, or refused";
}

const KINDS: Readonly<Record<string, () => string | Promise<string>>> = {
  http1: fuzzClient,
  parser: () =>
    `All were read alike, however they were cut; ${fuzzParser(cases, seed)} were refused`,
  events: fuzzScanners,
  packed: fuzzUnpackers,
  body: fuzzReader,
  form: fuzzFormReader,
};

const fuzz = KINDS[values.what];
if (fuzz === undefined) {
  throw new Error(`Cannot fuzz ${values.what}: name one of ${Object.keys(KINDS).join(", ")}`);
}
console.log(`fuzz: ${values.what}, ${cases} cases, --seed ${seed}`);
console.log(await fuzz());
