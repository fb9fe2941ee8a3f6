/**
 * A stand-in for Cloudflare's command `wrangler`, which is not among the packages of this checkout: what it does on this
 * machine, by miniflare, which it is built on. It reads `wrangler.jsonc`, and keeps what is local in `.wrangler/`.
 *
 * - `dev --port N` bundles and serves the Worker.
 * - `kv bulk put FILE --binding NAME --local` puts entries into a namespace.
 */
import { readFileSync } from "node:fs";
import process from "node:process";
import { parseArgs } from "node:util";
import { build } from "esbuild";
import { parse } from "jsonc-parser";
import { Miniflare, type MiniflareOptions } from "miniflare";

interface Settings {
  readonly main: string;
  readonly compatibility_date: string;
  readonly compatibility_flags?: string[];
  readonly vars?: Record<string, never>;
  readonly kv_namespaces?: readonly { binding: string; id: string }[];
  readonly durable_objects?: { bindings: readonly { name: string; class_name: string }[] };
  readonly migrations?: readonly { new_sqlite_classes?: readonly string[] }[];
}

const settings: Settings = parse(readFileSync("wrangler.jsonc", "utf8"));
const sqlite = settings.migrations?.flatMap(({ new_sqlite_classes = [] }) => new_sqlite_classes) ?? [];

/** The Worker of the settings; where it serves nothing, one that does nothing. */
async function toOptions(isServing: boolean): Promise<MiniflareOptions> {
  const { outputFiles: [bundle] = [] } = await build({
    entryPoints: [settings.main],
    bundle: true,
    format: "esm",
    write: false,
    external: ["cloudflare:*"],
  });
  return {
    modules: [{
      type: "ESModule",
      path: "main.js",
      contents: isServing ? bundle?.text ?? "" : "export default { fetch: () => new Response() };",
    }],
    compatibilityDate: settings.compatibility_date,
    compatibilityFlags: settings.compatibility_flags ?? [],
    kvNamespaces: Object.fromEntries(settings.kv_namespaces?.map(({ binding, id }) => [binding, id]) ?? []),
    kvPersist: ".wrangler/kv",
    ...(isServing && {
      bindings: settings.vars ?? {},
      durableObjects: Object.fromEntries(
        settings.durable_objects?.bindings.map((
          { name, class_name },
        ) => [name, { className: class_name, useSQLite: sqlite.includes(class_name) }]) ?? [],
      ),
    }),
  };
}

const { positionals, values: { port, binding } } = parseArgs({
  allowPositionals: true,
  options: { port: { type: "string" }, binding: { type: "string" }, local: { type: "boolean" } },
});
const command = positionals.join(" ");
if (command === "dev" && port !== undefined) {
  const miniflare = new Miniflare({ ...await toOptions(true), host: "127.0.0.1", port: Number(port) });
  await miniflare.ready;
  console.log(`Ready on http://localhost:${port}`);
} else if (command.startsWith("kv bulk put ") && binding !== undefined) {
  const miniflare = new Miniflare(await toOptions(false));
  // Of a namespace this is all that is used; miniflare's types need a package that is not installed.
  const namespace = await miniflare.getKVNamespace(binding) as unknown as {
    put(key: string, value: string): Promise<void>;
  };
  for (const { key, value } of JSON.parse(readFileSync(positionals[3] ?? "", "utf8"))) await namespace.put(key, value);
  await miniflare.dispose();
} else {
  console.error(`wrangler: this stand-in does not know ${command}`);
  process.exit(2);
}
