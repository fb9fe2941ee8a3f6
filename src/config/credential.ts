/**
 * Headers in which providers' interfaces take their keys, and which upstream takes its key where.
 *
 * @module
 */

/** Header in which an interface takes its key. */
export type CredentialHeader = "authorization" | "x-api-key" | "api-key" | "x-goog-api-key";

/** All of these headers. Only the pipeline's credentials step lets them through to a provider. */
export const CREDENTIAL_HEADERS: readonly CredentialHeader[] = [
  "authorization",
  "x-api-key", // Anthropic
  "api-key", // Azure
  "x-goog-api-key", // Google's own interface; its OpenAI-compatible one takes Authorization
];

/** Ends of the host names of Azure's resources. */
const AZURE_SUFFIXES = [
  ".openai.azure.com",
  ".cognitiveservices.azure.com",
  ".services.ai.azure.com",
];

/** Tells whether a host is a resource of Azure. @param hostname In lower case */
export function isAzure(hostname: string): boolean {
  return AZURE_SUFFIXES.some((suffix) => hostname.endsWith(suffix));
}

function headerOf(upstream: string): CredentialHeader {
  const { hostname } = new URL(upstream);
  if (hostname === "api.anthropic.com") return "x-api-key";
  return isAzure(hostname) ? "api-key" : "authorization";
}

/**
 * Returns the header for a provider's key where its configuration names none: the header that all
 * upstreams have in common, or `authorization`.
 *
 * @param upstreams Base URLs of the provider
 */
export function credentialOf(upstreams: readonly string[]): CredentialHeader {
  const [first = "authorization", ...others] = new Set(upstreams.map(headerOf));
  return others.length === 0 ? first : "authorization";
}

/** Writes a key as its interface takes it: name and value of the header. */
export function toCredential(header: CredentialHeader, key: string): Record<string, string> {
  return { [header]: header === "authorization" ? `Bearer ${key}` : key };
}
