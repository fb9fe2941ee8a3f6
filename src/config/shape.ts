/**
 * Shapes of addresses: the paths that the clients of an interface use, where these do not begin
 * with `/v1`. The operations of each shape are in `operations/shapes.ts`.
 *
 * @module
 */
import * as v from "valibot";
import type { CredentialHeader } from "./credential.ts";
import { explainMissingPath } from "./presets.ts";
import { about } from "./schema.ts";

/** A shape of addresses. `v1` has the paths of OpenAI and Anthropic, all below `/v1`. */
export type ShapeName = "v1" | "gemini" | "azure" | "cohere" | "ollama" | "bedrock";

/** Settings of a shape. */
interface ShapeSettings {
  /** Header in which its clients send the key; left out if the upstream decides. */
  readonly credential?: CredentialHeader;
  /**
   * Parameters of the query in which its interface also accepts the key. They are refused. In lower
   * case, without `$`.
   */
  readonly queryKeys?: readonly string[];
  /** Parameters that replace the method. They are refused. */
  readonly queryMethods?: readonly string[];
  /** Parameters that can hide the usage in an answer. They are refused under a limit of it. */
  readonly answerParameters?: readonly string[];
  /** A base URL of its providers, for error messages. */
  readonly example: string;
}

/** All shapes. */
export const SHAPE_SETTINGS: Readonly<Record<ShapeName, ShapeSettings>> = {
  v1: { example: "https://api.openai.com/v1" },
  gemini: {
    credential: "x-goog-api-key",
    // https://cloud.google.com/apis/docs/system-parameters
    // Google's servers read `$httpHeaders` and `$httpMethod` too: Closure Library, goog.net.rpc.HttpCors
    queryKeys: ["key", "access_token", "oauth_token", "bearer_token", "httpheaders"],
    queryMethods: ["httpmethod"],
    answerParameters: ["fields", "callback", "alt"],
    example: "https://generativelanguage.googleapis.com",
  },
  azure: {
    credential: "api-key",
    // The second one is the default of Azure API Management
    queryKeys: ["api-key", "subscription-key"],
    example: "https://NAME.openai.azure.com",
  },
  cohere: { credential: "authorization", example: "https://api.cohere.com" },
  ollama: { credential: "authorization", example: "http://127.0.0.1:11434" },
  bedrock: {
    credential: "authorization",
    example: "https://bedrock-runtime.us-east-1.amazonaws.com",
  },
};

const names = Object.keys(SHAPE_SETTINGS) as readonly ShapeName[];
const others = names.filter((name) => name !== "v1").map((name) => `\`${name}\``);

/** @internal The setting. */
export const ShapeSchema: v.GenericSchema<ShapeName | undefined, ShapeName> = v.optional(
  about(
    v.picklist(names, `expected ${names.map((name) => `"${name}"`).join(", ")}`),
    "The interface whose paths callers use. `v1`: the paths of OpenAI and Anthropic, below `/v1`. " +
      `${others.join(", ")}: the paths of that interface, which are appended whole to \`upstream\``,
  ),
  "v1",
);

const AZURE_HOST = /\.azure\.(?:com|us|cn)$/;

/** Returns whether a provider is Azure: by its shape, or by the hosts of its newer addresses. */
export const isAtAzure = (
  { shape, upstreams }: { readonly shape: ShapeName; readonly upstreams: readonly string[] },
): boolean => shape === "azure" || upstreams.every((url) => AZURE_HOST.test(new URL(url).hostname));

/** The last segment of a base URL that belongs to the paths of clients. */
const CLIENT_SEGMENT = /\/(?:v\d\w*|api|openai|model)$/;

/**
 * Explains a base URL that cannot work with a shape, because its clients send the whole path, or
 * because they send only the path below `/v1`.
 *
 * @returns The message; `undefined` for a URL that can work
 */
function explainPath(shape: ShapeName, upstream: string): string | undefined {
  if (shape === "v1") return explainMissingPath(upstream);
  if (!CLIENT_SEGMENT.test(upstream)) return undefined;
  const { example } = SHAPE_SETTINGS[shape];
  return `expected the URL before the path that clients send, such as "${example}", ` +
    `with "shape": "${shape}"`;
}

/** Finds settings of a provider that cannot work with its shape. */
export function* findMisshaped(
  { shape, upstream, durable }: {
    readonly shape: ShapeName;
    readonly upstream: string | readonly string[];
    readonly durable?: unknown;
  },
): Generator<readonly [path: readonly (string | number)[], message: string]> {
  for (const [index, url] of [upstream].flat().entries()) {
    const path = Array.isArray(upstream) ? ["upstream", index] : ["upstream"];
    const message = explainPath(shape, url);
    if (message !== undefined) yield [path, message];
  }
  if (shape !== "v1" && durable !== undefined) {
    yield [["durable"], `expected no such setting with "shape": "${shape}"`];
  }
}
