/**
 * Limits of the JSON that callers send, and the keys that it can contain only once.
 *
 * @module
 */

/**
 * The deepest accepted nesting. No provider's schema needs more, and the parsers of some fail or
 * recurse beyond it.
 */
export const MAX_DEPTH = 128;
/**
 * The most keys, objects and arrays in one body, in total. Thousands of messages and hundreds of
 * tools are far below. JSON.parse blocks all other requests while it runs: 0.1 s to 0.3 s for this
 * number, 0.6 s to 1 s for a million keys (measured; all different, in objects of 1 to 200,000).
 */
export const MAX_MEMBERS = 200_000;
/**
 * The most values in one body, counted by its commas; a string counts as {@link STRING_WEIGHT}
 * values, because parsing it is that much slower. A million numbers are accepted. JSON.parse needs
 * 0.1 s to 0.3 s for this number, as for the keys above (measured: numbers of 17 digits, short
 * strings that all differ).
 */
export const MAX_VALUES = 1_100_000;
/** Number of values for which a string counts. */
export const STRING_WEIGHT = 3;
/**
 * Keys that policies read. If one occurs twice, parsers disagree about its value, which would be a
 * way around the policy.
 */
export const SINGLE_KEYS: ReadonlySet<string> = new Set([
  ...["model", "messages", "input", "stream"],
  // Models in addition to `model`, see `operations/other_models.ts`.
  ...[
    "models",
    "fallbacks",
    "fallback_models",
    "context_window_fallbacks",
    "content_policy_fallbacks",
    "tools",
  ],
  ...[
    "route",
    "preset",
    "plugins",
    "extra_body",
    "provideroptions",
    "provider_options",
    "compound_custom",
  ],
  ...["user_config", "model_list", "draft_model", "safety_model", "deployment_id"],
  ...["data_sources", "datasources", "requests"],
  // Amounts for strict limits.
  ...["n", "best_of", "prompt", "max_tokens", "max_completion_tokens", "max_output_tokens"],
  // The same at Google, Bedrock and Ollama, in lower case.
  ...["generationconfig", "generation_config", "inferenceconfig", "textgenerationconfig"],
  ...["max_gen_len", "max_tokens_to_sample", "options"],
  // Input that is not in the body.
  ...["previous_response_id", "conversation"],
  // End users, which are searched for gateway keys.
  ...["user", "safety_identifier", "metadata"],
]);
