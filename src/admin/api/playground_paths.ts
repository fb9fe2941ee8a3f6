/**
 * Paths of the playground's calls: where the clients of each shape call for text.
 *
 * @module
 */
import * as v from "valibot";
import type { ShapeName } from "../../config/shape.ts";
import type { RouteQuery } from "./route.ts";

/** Facts of a call that are in the path at some shapes. */
export interface TrialQuery {
  readonly model?: string | undefined;
  readonly stream?: "true" | undefined;
}

/** The query of a trial. */
export const TRIAL_QUERY: RouteQuery<TrialQuery> = {
  schema: v.strictObject({
    model: v.optional(v.pipe(v.string(), v.minLength(1))),
    stream: v.optional(v.literal("true")),
  }),
  means: {
    model: "The model, if the paths of the provider's shape name it",
    stream: "true for a stream, if the paths of the provider's shape say so",
  },
};

/** Version of Azure's interface at its classic paths. */
const AZURE_VERSION = "2024-10-21";

const PATHS: Readonly<Record<ShapeName, (model: string, isStream: boolean) => string>> = {
  v1: () => "/v1/chat/completions",
  gemini: (model, isStream) =>
    `/v1beta/models/${model}:${isStream ? "streamGenerateContent?alt=sse" : "generateContent"}`,
  azure: (model) => `/openai/deployments/${model}/chat/completions?api-version=${AZURE_VERSION}`,
  cohere: () => "/v2/chat",
  ollama: () => "/api/chat",
  bedrock: (model, isStream) => `/model/${model}/${isStream ? "converse-stream" : "converse"}`,
};

/** Returns the path and the query of a trial, after the prefix of the provider's address. */
export function toTrialPath(shape: ShapeName, { model = "", stream }: TrialQuery): string {
  return PATHS[shape](encodeURIComponent(model), stream === "true");
}
