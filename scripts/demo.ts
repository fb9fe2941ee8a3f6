/**
 * `npm run demo [-- --once]`: builds the one file and runs its demo.
 */
import { spawn, spawnSync } from "node:child_process";
import process from "node:process";

const { status } = spawnSync(process.execPath, ["scripts/build.ts", "--quiet", "--no-types"], {
  stdio: "inherit",
});
if (status !== 0) process.exit(status ?? 1);
const demo = spawn(process.execPath, ["dist/sallyport.js", "demo", ...process.argv.slice(2)], {
  stdio: "inherit",
});
// Ctrl-C also reaches the demo, which exits by itself; this process only waits.
process.on("SIGINT", () => {});
process.on("SIGTERM", () => demo.kill("SIGTERM"));
demo.on("exit", (code) => process.exit(code ?? 1));
