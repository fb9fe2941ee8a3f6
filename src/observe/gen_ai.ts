/**
 * OpenTelemetry's conventions for generative AI: the version that traces and metrics follow, and
 * the conventions' names of providers. The conventions are in development and have no release yet.
 *
 * @module
 */
import { isAzure } from "../config/credential.ts";
import { PRESETS } from "../config/presets.ts";

/**
 * Version of the conventions that the names of attributes and metrics are from. Read on 2026-11-22.
 */
export const GEN_AI_CONVENTIONS = {
  repository: "open-telemetry/semantic-conventions-genai",
  commit: "6f98aef121ae3d5f224c5084d9fb4433bc6f7f67",
} as const;

/** Names of providers in the conventions, where they differ from the names of the presets. */
const SPELLINGS: Readonly<Record<string, string>> = {
  gemini: "gcp.gemini",
  mistral: "mistral_ai",
  xai: "x_ai",
};
/** Names of known providers by their hosts. */
const KNOWN_PROVIDERS: ReadonlyMap<string, string> = new Map(
  Object.entries(PRESETS).filter(([, url]) => url.startsWith("https:"))
    .map(([name, url]) => [new URL(url).hostname, SPELLINGS[name] ?? name]),
);

/**
 * Returns the value of `gen_ai.provider.name`.
 *
 * @param provider Name of the provider in the configuration, for hosts that are not known
 */
export function toProviderName(hostname: string, provider: string): string {
  return KNOWN_PROVIDERS.get(hostname) ?? (isAzure(hostname) ? "azure.ai.openai" : provider);
}
