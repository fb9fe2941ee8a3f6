/**
 * Limits of the JSON that callers send, and the keys that it may have only once.
 *
 * @module
 */

/**
 * The deepest nesting that is accepted. No provider's schema needs more; parsers of some fail or
 * recurse beyond it.
 */
export const MAX_DEPTH = 128;
/**
 * The most keys, objects and arrays in one body, all together. Thousands of messages and hundreds
 * of tools stay far below. JSON.parse blocks all other requests meanwhile: this many take 0.1 s to
 * 0.3 s, a million keys 0.6 s to 1 s (measured; all different, in objects of 1 to 200,000).
 */
export const MAX_MEMBERS = 200_000;
/**
 * The most values in one body, counted by its commas; a string counts for {@link STRING_WEIGHT},
 * since a parser takes that much longer over it. A million numbers pass. JSON.parse takes 0.1 s to
 * 0.3 s for this many, as for the keys above (measured: numbers of 17 digits, short strings that
 * all differ).
 */
export const MAX_VALUES = 1_100_000;
/** Values for which a string counts. */
export const STRING_WEIGHT = 3;
/**
 * Keys on which a policy decides. If one is given twice, parsers differ in which one wins: a way
 * around the policy.
 */
export const SINGLE_KEYS: ReadonlySet<string> = new Set([
  ...["model", "messages", "input", "stream"],
  // Other models than `model`, see `operations/other_models.ts`.
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
  // What strict limits reserve.
  ...["n", "best_of", "prompt", "max_tokens", "max_completion_tokens", "max_output_tokens"],
  // Input that does not stand in the body.
  ...["previous_response_id", "conversation"],
  // End users, in which gateway keys are searched.
  ...["user", "safety_identifier", "metadata"],
]);
