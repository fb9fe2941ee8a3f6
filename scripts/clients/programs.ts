/**
 * The coding agents that `npm run clients` installs and runs: their versions, and how each is
 * pointed at a provider.
 */
import { Buffer } from "node:buffer";
import { mkdirSync, writeFileSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import process from "node:process";
import type { Interface } from "./answers.ts";

/** The folder of the installed programs. */
export const CACHE: string = resolve(".cache/clients");
/** The gateway key of all programs. */
export const GATEWAY_KEY = "gateway-key-of-the-agents";
/** Their provider key. */
export const PROVIDER_KEY = "sk-provider-key-of-the-agents";
/** The prompt of each run. */
export const PROMPT = "Run the command, then say what it printed";
const AUTH = `Bearer ${GATEWAY_KEY}`;

/** What a program is started with. */
export interface Invocation {
  readonly args: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  /** Files of its home, by their path. */
  readonly files?: Readonly<Record<string, string>>;
}

/** A coding agent. */
export interface Agent {
  readonly name: string;
  readonly package: string;
  readonly version: string;
  /** Its file below `node_modules`. A `.js` file runs on Node. */
  readonly file: string;
  readonly interface: Interface;
  /** True if it packs bodies with zstd. The gateway cannot unpack it on Node 20, and answers 415. */
  readonly usesZstd?: boolean;
  /** Returns how it is started for a provider at this origin. */
  invoke(origin: string): Invocation;
}

const platform = `${process.platform}-${process.arch}`;
const json = (value: unknown): string => JSON.stringify(value, null, 2);

const claudeCode: Agent = {
  name: "Claude Code",
  package: "@anthropic-ai/claude-code",
  version: "2.1.332",
  file: `@anthropic-ai/claude-code-${platform}/claude`,
  interface: "messages",
  invoke: (origin) => ({
    args: ["-p", PROMPT, "--allowedTools", "Bash", "--model", "claude-sonnet-4-5"],
    env: {
      ANTHROPIC_BASE_URL: origin,
      ANTHROPIC_API_KEY: PROVIDER_KEY,
      ANTHROPIC_CUSTOM_HEADERS: `Gateway-Auth: ${AUTH}`,
      CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: "1",
      CLAUDE_CODE_MAX_RETRIES: "1",
      DISABLE_AUTOUPDATER: "1",
    },
  }),
};

/** Writes Codex's configuration. @param credential The line that names its credential */
const codexConfig = (origin: string, name: string, credential: string): string =>
  [
    'model = "gpt-5.1-codex"',
    'model_provider = "stand_in"',
    "check_for_update_on_startup = false",
    'chatgpt_base_url = "http://127.0.0.1:9"',
    "[analytics]",
    "enabled = false",
    "[model_providers.stand_in]",
    `name = "${name}"`,
    `base_url = "${origin}/v1"`,
    credential,
    'wire_api = "responses"',
    "request_max_retries = 1",
    "stream_max_retries = 1",
    `http_headers = { "Gateway-Auth" = "${AUTH}" }`,
    "",
  ].join("\n");

const codex: Agent = {
  name: "Codex",
  package: "@openai/codex",
  version: "0.171.0",
  file: "@openai/codex/bin/codex.js",
  interface: "responses",
  invoke: (origin) => ({
    args: ["exec", "--skip-git-repo-check", "--sandbox", "danger-full-access", PROMPT],
    env: { STAND_IN_KEY: PROVIDER_KEY },
    files: { ".codex/config.toml": codexConfig(origin, "stand-in", 'env_key = "STAND_IN_KEY"') },
  }),
};

/** A token of no issuer, with the claims that Codex reads. It checks no signature. */
function unsignedToken(claims: object): string {
  const part = (value: object | string) => Buffer.from(json(value)).toString("base64url");
  const inAnHour = Math.floor(Date.now() / 1000) + 3600;
  return [part({ alg: "none" }), part({ exp: inAnHour, ...claims }), part("")].join(".");
}

/** Codex as it calls after a sign-in with ChatGPT, when it packs its bodies with zstd. */
const signedInCodex: Agent = {
  ...codex,
  name: "Codex, signed in",
  usesZstd: true,
  invoke(origin) {
    const account = {
      chatgpt_account_id: "account",
      chatgpt_user_id: "user",
      chatgpt_plan_type: "plus",
    };
    const token = unsignedToken({
      email: "somebody@example.com",
      "https://api.openai.com/auth": account,
    });
    const auth = {
      auth_mode: "chatgpt",
      OPENAI_API_KEY: null,
      tokens: {
        id_token: token,
        access_token: token,
        refresh_token: "none",
        account_id: account.chatgpt_account_id,
      },
      last_refresh: new Date().toISOString(),
    };
    return {
      ...codex.invoke(origin),
      env: {},
      files: {
        ".codex/config.toml": codexConfig(origin, "OpenAI", "requires_openai_auth = true"),
        ".codex/auth.json": json(auth),
      },
    };
  },
};

const opencode: Agent = {
  name: "opencode",
  package: "opencode-ai",
  version: "1.18.33",
  file: `opencode-${platform}/bin/opencode`,
  interface: "chat",
  invoke: (origin) => ({
    args: ["run", "--model", "stand-in/a-model", PROMPT],
    env: {
      OPENCODE_DISABLE_AUTOUPDATE: "1",
      OPENCODE_DISABLE_MODELS_FETCH: "1",
      OPENCODE_DISABLE_LSP_DOWNLOAD: "1",
      OPENCODE_CONFIG_CONTENT: json({
        autoupdate: false,
        share: "disabled",
        permission: "allow",
        small_model: "stand-in/a-model",
        provider: {
          "stand-in": {
            npm: "@ai-sdk/openai-compatible",
            options: {
              baseURL: `${origin}/v1`,
              apiKey: PROVIDER_KEY,
              headers: { "Gateway-Auth": AUTH },
            },
            models: { "a-model": { tool_call: true } },
          },
        },
      }),
    },
  }),
};

const gemini: Agent = {
  name: "Gemini CLI",
  package: "@google/gemini-cli",
  version: "0.61.0",
  file: "@google/gemini-cli/bundle/gemini.js",
  interface: "gemini",
  invoke: (origin) => ({
    args: ["-p", PROMPT, "--yolo", "-m", "gemini-2.5-flash"],
    env: {
      GEMINI_API_KEY: PROVIDER_KEY,
      GOOGLE_GEMINI_BASE_URL: origin,
      GEMINI_CLI_CUSTOM_HEADERS: `Gateway-Auth: ${AUTH}`,
      GEMINI_CLI_TRUST_WORKSPACE: "true",
    },
    files: {
      ".gemini/settings.json": json({
        general: { enableAutoUpdate: false },
        privacy: { usageStatisticsEnabled: false },
        security: { auth: { selectedType: "gemini-api-key" } },
      }),
    },
  }),
};

const qwen: Agent = {
  name: "Qwen Code",
  package: "@qwen-code/qwen-code",
  version: "0.24.4",
  file: "@qwen-code/qwen-code/cli.js",
  interface: "chat",
  invoke: (origin) => ({
    args: ["-p", PROMPT, "--yolo", "--auth-type", "openai", "-m", "a-model"],
    env: { OPENAI_API_KEY: PROVIDER_KEY, OPENAI_BASE_URL: `${origin}/v1`, OPENAI_MODEL: "a-model" },
    files: {
      ".qwen/settings.json": json({
        general: { enableAutoUpdate: false },
        privacy: { usageStatisticsEnabled: false },
        model: { generationConfig: { maxRetries: 1, customHeaders: { "Gateway-Auth": AUTH } } },
      }),
    },
  }),
};

/** All agents. */
export const AGENTS: readonly Agent[] = [claudeCode, codex, signedInCodex, opencode, gemini, qwen];

/** Writes the files of a program's home. */
export function writeHome(home: string, { files = {} }: Invocation): void {
  for (const [path, text] of Object.entries(files)) {
    const file = join(home, path);
    mkdirSync(dirname(file), { recursive: true });
    writeFileSync(file, text);
  }
}
