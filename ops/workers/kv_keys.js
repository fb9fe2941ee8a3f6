/**
 * `node kv_keys.js gateway-keys.json [listed.json]`: converts the file of `sallyport keys` for Workers KV.
 *
 * It writes put.json for `wrangler kv bulk put`. With the output of `wrangler kv key list` it also writes delete.json for
 * `wrangler kv bulk delete`: the secrets from before the last rotations, which would stay valid otherwise.
 */
import { readFileSync, writeFileSync } from "node:fs";
import process from "node:process";

const [file, listed] = process.argv.slice(2);
const read = (path) => JSON.parse(readFileSync(path, "utf8"));
if (file === undefined) {
  console.error("kv_keys: expected the file of keys, such as gateway-keys.json");
  process.exit(2);
}
const entries = read(file).keys.flatMap((key) =>
  [key.digest, key.previous?.digest].filter((digest) => digest !== undefined)
    .map((digest) => ({ key: digest, value: JSON.stringify(key) }))
);
const known = new Set(entries.map(({ key }) => key));
const gone = listed === undefined
  ? []
  : read(listed).map(({ name }) => name).filter((name) => !known.has(name));
writeFileSync("put.json", JSON.stringify(entries));
if (listed !== undefined) writeFileSync("delete.json", JSON.stringify(gone));
console.log(`${entries.length} to put, ${gone.length} to delete`);
