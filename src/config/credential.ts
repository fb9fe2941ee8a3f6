/**
 * Headers in which providers' interfaces expect keys, and the header of each known upstream.
 *
 * @module
 */

/** Header in which an interface expects the key. */
export type CredentialHeader = "authorization" | "x-api-key" | "api-key" | "x-goog-api-key";

/** All of these headers. Only the pipeline's credentials step forwards them to a provider. */
export const CREDENTIAL_HEADERS: readonly CredentialHeader[] = [
  "authorization",
  "x-api-key", // Anthropic
  "api-key", // Azure
  "x-goog-api-key", // Google's own interface; its OpenAI-compatible one uses Authorization
];

/** Suffixes of the host names of Azure's resources. */
const AZURE_SUFFIXES = [
  ".openai.azure.com",
  ".cognitiveservices.azure.com",
  ".services.ai.azure.com",
];

/** Returns whether a host is a resource of Azure. @param hostname In lower case */
export function isAzure(hostname: string): boolean {
  return AZURE_SUFFIXES.some((suffix) => hostname.endsWith(suffix));
}

function headerOf(upstream: string): CredentialHeader {
  const { hostname } = new URL(upstream);
  if (hostname === "api.anthropic.com") return "x-api-key";
  return isAzure(hostname) ? "api-key" : "authorization";
}

/**
 * Returns the default header for a provider's key: the common header of all its upstreams, or
 * `authorization`.
 *
 * @param upstreams Base URLs of the provider
 */
export function findCredentialHeader(upstreams: readonly string[]): CredentialHeader {
  const [first = "authorization", ...others] = new Set(upstreams.map(headerOf));
  return others.length === 0 ? first : "authorization";
}

/** Writes a key in the form of its interface: name and value of the header. */
export function writeCredential(header: CredentialHeader, key: string): Record<string, string> {
  return { [header]: header === "authorization" ? `Bearer ${key}` : key };
}
