/** Settings that bundle sources into one module, which Deno, Bun and Node all accept. */
import type { BuildOptions, Plugin } from "esbuild";

/** For all kinds of sources. */
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
/**
 * First lines of a program: the Redis client is CommonJS and loads the runtime's modules with
 * `require`.
 */
export const REQUIRE_BANNER: string =
  `import { createRequire as __createRequire } from "node:module";
const require = __createRequire(import.meta.url);`;
/**
 * Leaves out the certificates of Redis Cloud, which the Redis client includes: no setting uses
 * them. Saves 9 kB.
 */
const NO_TLS_PROFILES: Plugin = {
  name: "no-tls-profiles",
  setup(build) {
    build.onLoad({ filter: /[/\\]ioredis[/\\]built[/\\]constants[/\\]TLSProfiles\.js$/ }, () => ({
      contents: "exports.default = {};",
    }));
  },
};
/**
 * Loads `node:http` and `node:https` with `require`. An `import` of `node:http` also loads Node's
 * fetch and WebSocket, which a program does not need: a tenth of the CPU time of its start
 * (2026-11-28).
 */
const REQUIRED_HTTP: Plugin = {
  name: "required-http",
  setup(build) {
    build.onResolve(
      { filter: /^node:https?$/ },
      ({ path, kind }) =>
        kind === "require-call" ? { path, external: true } : { path, namespace: "required" },
    );
    build.onLoad({ filter: /.*/, namespace: "required" }, ({ path }) => ({
      contents: `module.exports = require(${JSON.stringify(path)});`,
    }));
  },
};
/**
 * For a program. The Redis client would print commands with their keys if the variable DEBUG is
 * set.
 */
export const PROGRAM_BUNDLE: BuildOptions = {
  ...BUNDLE,
  platform: "node",
  banner: { js: REQUIRE_BANNER },
  alias: { debug: "./scripts/silent_debug.cjs" },
  plugins: [NO_TLS_PROFILES, REQUIRED_HTTP],
};

/**
 * Node 20 has no `import.meta.main`. There the module's URL is compared with the real path of the
 * program.
 */
const MAIN_BANNER = `#!/usr/bin/env node
${REQUIRE_BANNER}
import { realpathSync as __realpath } from "node:fs";
import { pathToFileURL as __toUrl } from "node:url";
const __main = import.meta.main ?? (() => {
  try { return import.meta.url === __toUrl(__realpath(process.argv[1])).href; } catch { return false; }
})();`;

const ENTRY: BuildOptions = { entryPoints: ["mod.ts"], legalComments: "none" };
/** The one file: command line and library. */
export const ONE_FILE: BuildOptions = {
  ...PROGRAM_BUNDLE,
  ...ENTRY,
  minify: true,
  define: { "import.meta.main": "__main" },
  banner: { js: MAIN_BANNER },
};
/** The library alone. */
export const LIBRARY: BuildOptions = {
  ...BUNDLE,
  ...ENTRY,
  define: { "import.meta.main": "false" },
};
/** The library for `require`, which loads no ES modules before Node 20.19. */
export const COMMONJS_LIBRARY: BuildOptions = { ...LIBRARY, format: "cjs" };
/** The Cloudflare Worker. It must not import modules that only other runtimes have. */
export const WORKER: BuildOptions = {
  ...BUNDLE,
  entryPoints: ["src/cloudflare/entry.ts"],
  external: ["cloudflare:workers"],
  legalComments: "none",
};
