/** The tables of settings, from the schema of `gateway.jsonc`. */
import { toJsonSchema } from "@valibot/to-json-schema";
import { ConfigSchema } from "../../src/config/config.ts";
import { VARIABLES } from "../../src/config/environment.ts";
import { findCredentialHeader } from "../../src/config/credential.ts";
import { PRESETS } from "../../src/config/presets.ts";
import { toTable } from "./parts.ts";

/** The fields of JSON Schema that are read. */
interface Schema {
  readonly description?: string;
  readonly default?: unknown;
  readonly properties?: Readonly<Record<string, Schema>>;
  readonly items?: Schema;
  readonly additionalProperties?: Schema | boolean;
  readonly anyOf?: readonly Schema[];
  readonly required?: readonly string[];
}

/** One setting. */
export interface Setting {
  /** Such as `providers.NAME.deadlines.idle`. */
  readonly path: string;
  /** Empty if there is no default. */
  readonly default: string;
  readonly isRequired: boolean;
  /** Empty if there is no description. */
  readonly description: string;
  /** True if it is a group of settings, which needs no description. */
  readonly isGroup: boolean;
}

/**
 * The sections in the order of the page, some with sentences above their table. A path belongs to
 * the last prefix that matches.
 */
const SECTIONS: readonly (readonly [prefix: string, title: string, about?: string])[] = [
  [
    "",
    "At the top",
    "`redis` is a URL, or an object with the settings below: gateways that have the same Redis share\n" +
    "limits, usage and, if `keys` says so, keys. As a variable: `SALLYPORT_REDIS`. `teams.NAME.limits`\n" +
    "and `identity[].plans.NAME` have the form of `keys[].limits`.",
  ],
  ["listen[].", "`listen`: addresses to listen on, by default one: port 8787"],
  [
    "providers.NAME.",
    "`providers.NAME`: at least one",
    "`durable` records answers for callers that ask for it. As a variable: `SALLYPORT_DURABLE_A`, such as\n" +
    "`on` or `keep=1h,retries=true`. `limits` has the form of `keys[].limits`, and applies to all keys\n" +
    "together. As a variable: `SALLYPORT_SHARED_LIMITS_A`.",
  ],
  [
    "providers.NAME.deadlines.",
    "`providers.NAME.deadlines`",
    "The longest time for each part of a call to the provider.",
  ],
  [
    "providers.NAME.headers.",
    "`providers.NAME.headers`: in addition to the headers that are always forwarded",
  ],
  [
    "keys[].",
    "`keys[]`: an `id`, and either `key` or `digest`",
    "`durable` has the form of `providers.NAME.durable`.",
  ],
  [
    "keys[].limits.",
    "`keys[].limits`, and `providers.NAME.limits` in the same form",
    "A window begins with its first request.",
  ],
  [
    "prices.",
    "`prices`, and `providers.NAME.prices` in the same form",
    "`MODEL` is the name of a model, with `*` for any characters. Each rate is the price of the amount in\n" +
    "its description, in `currency`. If a rate is left out, and its description names no other rate, such\n" +
    "amounts have no price. The `rates` of a row have the same names. A factor has a `when` with `tier`,\n" +
    "`geo`, `since` and `until`.",
  ],
  ["attribution.", "`attribution`: headers that name the user, the session and other origins"],
  ["runs.", "`runs`: budgets for the runs of agents"],
  ["limits.", "`limits`: limits of the gateway itself"],
  ["cors.", "`cors`: web pages that can call the gateway, by default none"],
  ["admin.", "`admin`: the listener for operators"],
  ["drain.", "`drain`: how a gateway shuts down"],
];
/** Settings that are described once, elsewhere. */
const SAME_FORM = new RegExp(
  [
    /^providers\.NAME\.(?:limits|prices)\..|^keys\[\]\.metadata\.|^keys\[\]\.previous\./,
    /^prices\.file\..|^prices\.MODEL\.rows\[\]\.rates\..|^prices\.MODEL\.factors\[\]\.when\../,
    /^teams\.NAME\.(?:limits|upstreamKeys)\..|^keys\[\]\.durable\../,
    /^identity\[\]\.(?:plans\.|claims\.(?!id\.)\w+\.|admin\.role\.)/,
  ].map(({ source }) => source).join("|"),
);

function toDefault(value: unknown): string {
  if (typeof value !== "string" && typeof value !== "number") return "";
  return `\`${value}\``;
}

/** Yields the settings inside a schema. */
function* walk(schema: Schema, path: string): Generator<Setting> {
  const { properties = {}, items, additionalProperties, anyOf = [], required = [] } = schema;
  for (const [name, each] of Object.entries(properties)) {
    const inner = path === "" ? name : `${path}.${name}`;
    const own = Array.from(walk(each, inner));
    const { description = "", default: fallback } = each;
    const isRequired = required.includes(name);
    yield {
      path: inner,
      default: toDefault(fallback),
      isRequired,
      description,
      isGroup: own.length > 0,
    };
    yield* own;
  }
  if (items !== undefined) yield* walk(items, `${path}[]`);
  if (typeof additionalProperties === "object") {
    yield* walk(additionalProperties, `${path}.${path.endsWith("prices") ? "MODEL" : "NAME"}`);
  }
  for (const each of anyOf) yield* walk(each, path);
}

/** @returns Every setting that is described on the page, once */
export function listSettings(): Setting[] {
  const schema = toJsonSchema(ConfigSchema, { typeMode: "input", errorMode: "ignore" });
  return Array.from(walk(schema as Schema, "")).filter(({ path }) => !SAME_FORM.test(path));
}

const sectionOf = (path: string): string =>
  SECTIONS.filter(([prefix]) => path.startsWith(prefix)).toSorted(([a], [b]) =>
    b.length - a.length
  )[0]?.[0] ?? "";

/** Sorts required settings first, except those inside optional groups. */
const rankOf = ({ path, isRequired }: Setting, prefix: string): number =>
  Number(isRequired && !path.slice(prefix.length).includes("."));

/** The variables of a setting; a final `A` stands for the name of a provider. */
const variablesOf = (path: string): string =>
  VARIABLES.filter((each) => each.path === path).map(({ name }) =>
    `\`${name.replace(/_$/, "_A")}\``
  ).join(" ");

/** @returns A table for each section */
export function makeSettings(): string {
  const settings = listSettings().filter(({ description }) => description !== "");
  return SECTIONS.map(([prefix, title, about = ""]) => {
    const own = settings.filter(({ path }) => sectionOf(path) === prefix);
    const rows = own.toSorted((a, b) => rankOf(b, prefix) - rankOf(a, prefix)).map(
      ({ path, default: fallback, isRequired, description }) => [
        `\`${path.slice(prefix.length)}\``,
        description,
        isRequired ? "needed" : fallback,
        variablesOf(path),
      ],
    );
    // A list, or an object without a description, has no separate row.
    const whole = prefix.replace(/(?:\[\])?\.$/, "");
    const variables = settings.some(({ path }) => path === whole) ? "" : variablesOf(whole);
    return [
      `### ${title}`,
      ...about === "" ? [] : [about],
      ...variables === "" ? [] : [`As a variable: ${variables}.`],
      toTable(["setting", "meaning", "default", "variable"], rows),
    ].join("\n\n");
  }).join("\n\n");
}

/** @returns The names of known providers, their settings, and the header of their keys */
export function makePresets(): string {
  const rows = Object.entries(PRESETS).map((
    [name, url],
  ) => [name, url, findCredentialHeader([url])]);
  return toTable(
    ["name", "base URL", "`credential`"],
    rows.map((row) => row.map((text) => `\`${text}\``)),
  );
}
