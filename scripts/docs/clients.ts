/**
 * The methods of the client libraries, each with the operation that it calls and the group that
 * allows it.
 */
import { readFileSync } from "node:fs";
import { GROUPS } from "../../src/config/operation_groups.ts";
import { resolveOperation } from "../../src/operations/router.ts";
import {
  type LibraryMethod,
  type LibraryName,
  readMethods,
} from "../../tests/support/library_methods.ts";
import { type Part, toTable } from "./parts.ts";

/** The package of each library. */
const PACKAGES: Readonly<Record<LibraryName, string>> = {
  openai: "openai",
  anthropic: "@anthropic-ai/sdk",
};

/** A method, with the operation that the gateway recognises in its calls. */
interface Placed {
  readonly name: string;
  readonly operations: readonly string[];
  readonly groups: string;
}

function describeGroup(group: keyof typeof GROUPS | undefined): string {
  if (group === undefined) return "only `all`";
  return GROUPS[group] ? `\`${group}\`` : `\`${group}\` (off)`;
}

async function place({ name, calls }: LibraryMethod): Promise<Placed> {
  const found = await Promise.all(
    calls.map(({ method, path }) => resolveOperation(method, `/v1${path.replaceAll(":", "")}`)),
  );
  const groups = new Set(found.map(({ group }) => describeGroup(group)));
  return {
    name,
    operations: found.map((operation) => operation.name),
    groups: [...groups].join(", "),
  };
}

/**
 * Rows of a resource: one row for the methods that the same group allows, or one for the whole
 * resource if all methods have the same group.
 */
function toRows(resource: string, methods: readonly Placed[]): string[][] {
  const toRow = (label: string, of: readonly Placed[]) => [
    `\`${label}\``,
    `${of.length}`,
    [...new Set(of.flatMap(({ operations }) => operations))].map((name) => `\`${name}\``).join(
      ", ",
    ),
    of[0]?.groups ?? "",
  ];
  const rest = (name: string) => resource === "" ? name : name.slice(resource.length + 1);
  const isUniform = new Set(methods.map(({ groups }) => groups)).size === 1;
  if (isUniform && resource !== "") {
    return [toRow(methods.length > 1 ? `${resource}.*` : `${methods[0]?.name}`, methods)];
  }
  const own = Map.groupBy(
    methods.filter(({ name }) => !rest(name).includes(".")),
    ({ groups }) => groups,
  );
  const inner = Map.groupBy(
    methods.filter(({ name }) => rest(name).includes(".")),
    ({ name }) => rest(name).split(".")[0],
  );
  return [
    ...[...own.values()].map((of) => {
      const names = of.map(({ name }) => rest(name)).join(", ");
      return toRow(of.length === 1 ? `${resource}.${names}` : `${resource}.{${names}}`, of);
    }),
    ...[...inner].flatMap(([name, of]) => toRows([resource, name].filter(Boolean).join("."), of)),
  ];
}

async function makeTable(library: LibraryName): Promise<string> {
  const all = readMethods(library);
  const placed = await Promise.all(all.filter(({ calls }) => calls.length > 0).map(place));
  const { version } = JSON.parse(
    readFileSync(`node_modules/${PACKAGES[library]}/package.json`, "utf8"),
  );
  const idle = all.filter(({ calls }) => calls.length === 0).map(({ name }) => `- \`${name}\``);
  return [
    `\`${
      PACKAGES[library]
    }\` ${version}: ${all.length} methods, of which ${placed.length} are called.`,
    toTable(["methods", "number", "operations", "group"], toRows("", placed)),
    "Not called, because they make no call or repeat another method:",
    idle.join("\n"),
  ].join("\n\n");
}

// The router answers asynchronously.
const [openai, anthropic] = await Promise.all([makeTable("openai"), makeTable("anthropic")]);

/** The parts of the page. */
export const CLIENTS: readonly Part[] = [
  { name: "openai methods", files: ["docs/clients.md"], make: () => openai },
  { name: "anthropic methods", files: ["docs/clients.md"], make: () => anthropic },
];
