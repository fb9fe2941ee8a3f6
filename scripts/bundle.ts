/** How sources become one module that Deno, Bun and Node take alike. */
import type { BuildOptions } from "esbuild";

/** For the library. */
export const BUNDLE: BuildOptions = {
  bundle: true,
  format: "esm",
  platform: "neutral",
  mainFields: ["module", "main"],
  conditions: ["import", "module", "default"],
  target: "es2023",
  external: ["node:*"],
  logLevel: "warning",
};
/** First lines of a program: the Redis client is CommonJS and asks for the runtime's modules by `require`. */
export const REQUIRE_BANNER: string = `import { createRequire as __createRequire } from "node:module";
const require = __createRequire(import.meta.url);`;
/** For a program. */
export const PROGRAM_BUNDLE: BuildOptions = { ...BUNDLE, platform: "node", banner: { js: REQUIRE_BANNER } };
