/**
 * Families of programs by their `User-Agent` (RFC 9110 §10.1.5), without versions, so that there
 * are few values.
 *
 * @module
 */

/** Beginnings of the field in lower case, and families. A longer beginning precedes a shorter one. */
const FAMILIES: readonly (readonly [begin: string, family: string])[] = [
  ["claude-cli/", "claude-code"],
  ["claude-code/", "claude-code"],
  ["codex", "codex"], // codex_cli_rs, codex_exec, codex-tui, codex_vscode
  ["opencode/", "opencode"],
  ["geminicli/", "gemini-cli"],
  ["geminicli-", "gemini-cli"],
  ["qwencode/", "qwen-code"],
  ["cline/", "cline"],
  ["roocode/", "roo-code"],
  ["kilo-code/", "kilo-code"],
  ["zed/", "zed"],
  ["charm-crush/", "crush"],
  ["githubcopilotchat/", "github-copilot"],
  ["litellm/", "litellm"],
  ["google-genai-sdk/", "google-genai"],
  ["ai-sdk/", "ai-sdk"],
  ["ai/", "ai-sdk"],
  ["python-httpx/", "python"],
  ["python-requests/", "python"],
  ["python/", "python"], // aiohttp, as in Open WebUI
  ["node", "node"],
  ["undici", "node"],
  ["axios/", "node"],
  ["bun/", "bun"],
  ["deno/", "deno"],
  ["go-http-client/", "go"],
  ["curl/", "curl"],
  ["mozilla/", "browser"],
];
/** Clients from the library generator of OpenAI and Anthropic, such as `AsyncOpenAI/Python 2.1`. */
const LIBRARY =
  /^(?:async)?(?:azure|bedrock|vertex)?(openai|anthropic)(?:bedrock|vertex)?\/(\w{1,12})/;
const LANGUAGES: readonly string[] = ["python", "js", "go", "java", "ruby", "php", "csharp"];

/** Family of all other programs. */
const OTHER = "other";

/** Returns the family of a program, such as `claude-code` or `openai-python`. */
export function familyOf(userAgent: string): string {
  const text = userAgent.slice(0, 64).toLowerCase();
  const found = FAMILIES.find(([begin]) => text.startsWith(begin));
  if (found !== undefined) return found[1];
  const [, library, language] = LIBRARY.exec(text) ?? [];
  if (library === undefined || language === undefined) return OTHER;
  return LANGUAGES.includes(language) ? `${library}-${language}` : library;
}
