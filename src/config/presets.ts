/**
 * Short names of known providers, each the base URL of its chat-completion interface, and
 * explanations of base URLs that cannot work.
 *
 * @module
 */
import { isAzure } from "./credential.ts";
import { findNearest } from "./nearest.ts";

/** Name to base URL, as each provider documents it for the OpenAI client libraries. */
export const PRESETS: Readonly<Record<string, string>> = {
  openai: "https://api.openai.com/v1",
  groq: "https://api.groq.com/openai/v1",
  mistral: "https://api.mistral.ai/v1",
  deepseek: "https://api.deepseek.com/v1",
  xai: "https://api.x.ai/v1",
  together: "https://api.together.xyz/v1",
  fireworks: "https://api.fireworks.ai/inference/v1",
  openrouter: "https://openrouter.ai/api/v1",
  cerebras: "https://api.cerebras.ai/v1",
  anthropic: "https://api.anthropic.com/v1",
  // its OpenAI-compatible interface
  gemini: "https://generativelanguage.googleapis.com/v1beta/openai",
  ollama: "http://127.0.0.1:11434/v1",
  vllm: "http://127.0.0.1:8000/v1",
  "llama.cpp": "http://127.0.0.1:8080/v1",
};

/** Error message for a text that is neither a URL nor a short name. */
export const UPSTREAM_FORM =
  'expected an http or https URL, or the short name of a known provider such as "openai"';
const AZURE_FORM =
  'expected the URL of an Azure resource: "https://NAME.openai.azure.com/openai/v1"';

/** Explains an upstream that is not an http or https URL. The message never quotes it. */
export function explainUpstream(text: string): string {
  if (/^azure/i.test(text)) return AZURE_FORM;
  const isHost = /^(?:localhost|[\w-]+(?:\.[\w-]+)+|\[[\da-f:]+\])(?::\d+)?(?:\/|$)/i.test(text);
  if (isHost && URL.canParse(`https://${text}`)) {
    return "expected a URL with its scheme: put https:// before the host, or http:// for a local one";
  }
  const nearest = findNearest(text.toLowerCase(), Object.keys(PRESETS));
  return nearest === undefined ? UPSTREAM_FORM : `${UPSTREAM_FORM}. Did you mean ${nearest}?`;
}

/** Known providers that also have an interface without a path before it. */
const PATHLESS: readonly string[] = ["deepseek", "gemini"];
/**
 * Hosts of known providers with the base URL of each. Local servers are left out: they can have any
 * path.
 */
const BASE_URLS: ReadonlyMap<string, string> = new Map(
  Object.entries(PRESETS)
    .filter(([name, url]) => !PATHLESS.includes(name) && url.startsWith("https:"))
    .map(([, url]) => [new URL(url).hostname, url]),
);

/**
 * Explains the URL of a known provider without its path, such as `https://api.openai.com`. Each
 * call would end with a 404 of the provider.
 *
 * @returns The message; `undefined` if the URL has a path, or its provider is not known
 */
export function explainMissingPath(upstream: string): string | undefined {
  if (!URL.canParse(upstream)) return undefined;
  const { hostname, pathname } = new URL(upstream);
  if (pathname !== "/") return undefined;
  if (isAzure(hostname)) return "expected the path of the interface after the host: /openai/v1";
  const url = BASE_URLS.get(hostname);
  return url === undefined ? undefined : `expected the whole base URL, with its path: "${url}"`;
}
