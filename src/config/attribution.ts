/**
 * The setting `attribution`: headers of requests that name the user, the session and other origins
 * of a call. Callers choose their values, so they describe calls and decide nothing.
 *
 * @module
 */
import * as v from "valibot";
import { type Dimension, DIMENSIONS } from "./dimensions.ts";
import { reasonToBar, TOKEN } from "./headers.ts";
import { about, strictObject } from "./schema.ts";

/** Special source of a value: the family of the program in `User-Agent`, such as `claude-code`. */
export const USER_AGENT_FAMILY: string = "user-agent family";

/**
 * Sources of the values of a call: names of headers in lower case, or {@link USER_AGENT_FAMILY}. The
 * first source with a value is used.
 */
export type Sources = { readonly [Name in Dimension]?: readonly string[] | undefined };

/** Name of a well-known client. */
export type AttributionPreset = "claude-code" | "codex" | "opencode" | "gemini-cli" | "open-webui";
/** Headers in which well-known clients name these dimensions. */
export const ATTRIBUTION_PRESETS: Readonly<Record<AttributionPreset, Sources>> = {
  "claude-code": {
    session: ["x-claude-code-session-id"],
    agent: ["x-claude-code-agent-id"],
  },
  "codex": { session: ["session-id", "thread-id"], agent: ["x-openai-subagent"] },
  "opencode": {
    session: ["x-opencode-session", "x-session-id", "x-session-affinity"],
    project: ["x-opencode-project"],
  },
  "gemini-cli": { user: ["x-gemini-api-privileged-user-id"] },
  "open-webui": { user: ["x-openwebui-user-id"], session: ["x-openwebui-chat-id"] },
};

/** Attribution of calls, checked. */
export interface AttributionConfig {
  /** Sources by dimension, those of the presets last. */
  readonly sources: Sources;
  /** Dimensions that usage is counted by. */
  readonly usage: readonly Dimension[];
  /** Maximum number of rows with attribution that a gateway key has in an hour or day of usage. */
  readonly maxRows: number;
  /** Dimensions with metrics of each value. */
  readonly metrics: readonly Dimension[];
}

/** Attribution of calls, as written in the configuration. */
export type AttributionInput =
  & {
    readonly [
      /** The name of a header, or several, tried in order; or `user-agent family`. */
      Name in Dimension
    ]?: string | readonly string[] | undefined;
  }
  & {
    /** Well-known clients, whose headers are tried last. */
    readonly presets?: readonly AttributionPreset[] | undefined;
    /** Dimensions that usage is counted by. Default: none. */
    readonly usage?: readonly Dimension[] | undefined;
    /** Maximum number of rows with attribution of a gateway key in an hour or day of usage. */
    readonly maxRows?: number | undefined;
    /** Dimensions with metrics of each value. Default: none. */
    readonly metrics?: readonly Dimension[] | undefined;
  };

const PRESET_NAMES = Object.keys(ATTRIBUTION_PRESETS) as AttributionPreset[]; // keys of a constant

/** Default of the setting `maxRows`. */
export const DEFAULT_MAX_ROWS: number = 1000;
const MOST_ROWS = 100_000;
/** The largest number of headers for one dimension. Each is looked up at every call. */
const MAX_SOURCES = 8;

/** Identities that a proxy in front of the gateway adds. Their prefix is otherwise for addresses. */
const FORWARDED_IDENTITY = /^x-forwarded-(?:user|email|groups|preferred-username)$/;
/** Names that look like credentials. `x-auth-request-user` names a user. */
const CREDENTIAL_NAME =
  /auth(?:orization)?$|bearer|cookie|credential|jwt|key|pass(?:code|ph|w)|secret|signature|token/;

/** Returns the reason why no value of a header can be shown; `undefined` if it can. */
function reasonAgainst(name: string): string | undefined {
  if (name === USER_AGENT_FAMILY || FORWARDED_IDENTITY.test(name)) return undefined;
  const reason = reasonToBar(name);
  if (reason !== undefined) return reason;
  return CREDENTIAL_NAME.test(name) ? "has the name of a credential" : undefined;
}

const sourceForm = `expected the name of a header, such as "x-user-id", or "${USER_AGENT_FAMILY}"`;

const source = v.pipe(
  v.string(sourceForm),
  v.toLowerCase(),
  v.check((text) => text === USER_AGENT_FAMILY || TOKEN.test(text), sourceForm),
  v.check(
    (name) => reasonAgainst(name) === undefined,
    ({ input }) =>
      `expected a header that can be shown to operators: this one ${reasonAgainst(input)}`,
  ),
);

const sourcesForm = `${sourceForm}, or an array of 1 to ${MAX_SOURCES} of them`;
const sources = v.pipe(
  v.union([
    source,
    v.pipe(
      v.array(source, sourcesForm),
      v.minLength(1, sourcesForm),
      v.maxLength(MAX_SOURCES, sourcesForm),
    ),
  ], sourcesForm),
  v.transform((names) => [names].flat()),
);

const namesForm = `expected an array of at most ${MAX_SOURCES} names of headers`;
/** @internal A list of headers whose values can be shown to operators. */
export const HeaderNamesSchema: v.GenericSchema<readonly string[], readonly string[]> = v.pipe(
  v.array(
    v.pipe(source, v.check((name) => name !== USER_AGENT_FAMILY, namesForm)),
    namesForm,
  ),
  v.maxLength(MAX_SOURCES, namesForm),
);

const listForm = `expected an array of dimensions: ${DIMENSIONS.join(", ")}`;
const dimensions = v.optional(v.array(v.picklist(DIMENSIONS, listForm), listForm), []);

const presetForm = `expected an array of known clients: ${PRESET_NAMES.join(", ")}`;
const rowsForm = `expected a whole number from 1 to ${MOST_ROWS}`;

/** Adds the sources of presets to those of the configuration, each name once. */
function mergeSources(own: Sources, presets: readonly AttributionPreset[]): Sources {
  const all: Sources[] = [own, ...presets.map((name) => ATTRIBUTION_PRESETS[name])];
  if (presets.length > 0 && own.client === undefined) all.push({ client: [USER_AGENT_FAMILY] });
  const merged = DIMENSIONS.map((name) => [name, all.flatMap((each) => each[name] ?? [])] as const);
  const found = merged.filter(([, names]) => names.length > 0);
  return Object.fromEntries(found.map(([name, names]) => [name, [...new Set(names)]]));
}

const withoutSource = "expected dimensions that have a header, or a preset with one";

function haveSources(
  { presets, ...own }: Sources & { readonly presets: readonly AttributionPreset[] },
  listed: readonly Dimension[],
): boolean {
  const found = mergeSources(own, presets);
  return listed.every((name) => found[name] !== undefined);
}

/** @internal The schema of attribution. */
export const AttributionSchema: v.GenericSchema<AttributionInput, AttributionConfig> = v.pipe(
  strictObject({
    user: about(
      v.optional(sources),
      "Header that names the user of a call, or several headers, of which the first with a value counts",
    ),
    session: about(v.optional(sources), "Header with the conversation or the session"),
    agent: about(v.optional(sources), "Header with the agent or the sub-agent"),
    client: about(
      v.optional(sources),
      `Header with the program, or \`${USER_AGENT_FAMILY}\`: the family of its User-Agent`,
    ),
    project: about(v.optional(sources), "Header with a project, a department or a feature"),
    presets: about(
      v.optional(v.array(v.picklist(PRESET_NAMES, presetForm), presetForm), []),
      "Known clients, whose own headers are tried last. They also set `client`. Known are " +
        PRESET_NAMES.join(", "),
    ),
    usage: about(
      dimensions,
      "Usage is also counted by these: some of `user`, `session`, `agent`, `client` and `project`",
    ),
    maxRows: about(
      v.optional(
        v.pipe(
          v.number(rowsForm),
          v.integer(rowsForm),
          v.minValue(1, rowsForm),
          v.maxValue(MOST_ROWS, rowsForm),
        ),
        DEFAULT_MAX_ROWS,
      ),
      "The most rows that `usage` adds for one key in an hour or a day. Further values count as " +
        "`(other)`",
    ),
    metrics: about(
      dimensions,
      "Labels of metrics: some of the same five, with at most 100 values each",
    ),
  }, "expected an object"),
  v.forward(v.check((input) => haveSources(input, input.usage), withoutSource), ["usage"]),
  v.forward(v.check((input) => haveSources(input, input.metrics), withoutSource), ["metrics"]),
  v.transform(({ presets, usage, maxRows, metrics, ...own }) => ({
    sources: mergeSources(own, presets),
    usage,
    maxRows,
    metrics,
  })),
);

/** Attribution without any source. */
export const NO_ATTRIBUTION: AttributionConfig = v.parse(AttributionSchema, {});
