/**
 * Short names of known providers, each the base URL of its chat-completion interface.
 *
 * @module
 */

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
