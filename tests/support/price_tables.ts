/**
 * Small price tables in the forms of LiteLLM, models.dev and genai-prices. The numbers are examples;
 * together the models have every key that an import understands.
 */

type Entry = Record<string, unknown>;
const chat = (provider: string, more: Entry): Entry => ({
  litellm_provider: provider,
  mode: "chat",
  max_tokens: 128000,
  max_input_tokens: 1000000,
  supports_vision: true,
  supported_endpoints: ["/v1/chat/completions"],
  ...more,
});

const GPT_62: Entry = chat("openai", {
  input_cost_per_token: 2e-6,
  input_cost_per_token_above_272k_tokens: 4e-6,
  input_cost_per_token_above_272k_tokens_priority: 8e-6,
  input_cost_per_token_flex: 1e-6,
  input_cost_per_token_priority: 4e-6,
  input_cost_per_token_ultrafast: 6e-6,
  input_cost_per_token_batches: 1e-6,
  output_cost_per_token: 1.2e-5,
  output_cost_per_token_above_272k_tokens: 1.8e-5,
  output_cost_per_token_above_272k_tokens_priority: 3.6e-5,
  output_cost_per_token_flex: 6e-6,
  output_cost_per_token_priority: 2.4e-5,
  output_cost_per_token_ultrafast: 3.6e-5,
  output_cost_per_token_batches: 6e-6,
  cache_read_input_token_cost: 1e-7,
  cache_read_input_token_cost_above_272k_tokens: 2e-7,
  cache_read_input_token_cost_flex: 5e-8,
  cache_read_input_token_cost_priority: 2e-7,
  cache_creation_input_token_cost: 2.5e-6,
  regional_processing_uplift_multiplier_eu: 1.1,
  regional_processing_uplift_multiplier_us: 1.1,
  search_context_cost_per_query: {
    search_context_size_low: 0.01,
    search_context_size_medium: 0.01,
    search_context_size_high: 0.01,
  },
  web_search_billing_unit: "query",
  file_search_cost_per_1k_calls: 2.5,
  file_search_cost_per_gb_per_day: 0.1,
  code_interpreter_cost_per_session: 0.03,
});

/** LiteLLM's table. */
export const LITELLM: Record<string, Entry> = {
  "sample_spec": chat("openai", { input_cost_per_token: 1 }),
  "gpt-6.2-sol": GPT_62,
  "gpt-5.6-fast-key": chat("openai", {
    input_cost_per_token: 1.25e-6,
    output_cost_per_token: 1e-5,
    input_cost_per_token_fast: 2.5e-6,
    output_cost_per_token_fast: 2e-5,
  }),
  "gpt-4o-mini": chat("openai", { input_cost_per_token: 1.5e-7, output_cost_per_token: 6e-7 }),
  "gpt-tiny": chat("openai", { input_cost_per_token: 1e-13, output_cost_per_token: 1.5e-12 }),
  "gpt-too-fine": chat("openai", { input_cost_per_token: 1.23456789012e-7 }),
  "gpt-noise": chat("openai", { input_cost_per_token: 0.1 + 0.2 }),
  "gpt-negative": chat("openai", { input_cost_per_token: -1e-6, output_cost_per_token: 1e-6 }),
  "gpt-free": chat("openai", { input_cost_per_token: 0, output_cost_per_token: 0 }),
  "gpt-new-keys": chat("openai", {
    input_cost_per_token: 1e-6,
    output_cost_per_token: 2e-6,
    input_cost_per_smell: 1e-6,
    output_cost_per_token_above_1hr: 3e-6,
    lunar_phase: "full",
  }),
  "gpt-4o-audio-preview": chat("openai", {
    input_cost_per_token: 2.5e-6,
    output_cost_per_token: 1e-5,
    input_cost_per_audio_token: 4e-5,
    output_cost_per_audio_token: 8e-5,
    cache_read_input_audio_token_cost: 2.5e-6,
  }),
  "gpt-image-1": {
    litellm_provider: "openai",
    mode: "image_generation",
    input_cost_per_token: 5e-6,
    input_cost_per_image_token: 1e-5,
    cache_read_input_image_token_cost: 2.5e-6,
    output_cost_per_image_token: 4e-5,
  },
  "1024-x-1024/dall-e-2": {
    litellm_provider: "openai",
    mode: "image_generation",
    input_cost_per_pixel: 1.9e-8,
    output_cost_per_pixel: 0,
  },
  "hd/1024-x-1792/dall-e-3": {
    litellm_provider: "openai",
    mode: "image_generation",
    output_cost_per_image: 0.12,
  },
  "dall-e-3": {
    litellm_provider: "openai",
    mode: "image_generation",
    input_cost_per_image: 0.04,
  },
  "whisper-1": {
    litellm_provider: "openai",
    mode: "audio_transcription",
    input_cost_per_second: 0.0001,
    output_cost_per_second: 0.0001,
  },
  "whisper-differs": {
    litellm_provider: "openai",
    mode: "audio_transcription",
    input_cost_per_second: 0.0001,
    output_cost_per_second: 0.0002,
  },
  "tts-1": { litellm_provider: "openai", mode: "audio_speech", input_cost_per_character: 1.5e-5 },
  "sora-2": {
    litellm_provider: "openai",
    mode: "video_generation",
    output_cost_per_video_per_second: 0.1,
  },
  "text-embedding-3-small": {
    litellm_provider: "openai",
    mode: "embedding",
    input_cost_per_token: 2e-8,
    output_cost_per_token: 0.0,
    output_vector_size: 1536,
  },
  "claude-opus-5-5": chat("anthropic", {
    input_cost_per_token: 4e-6,
    output_cost_per_token: 2e-5,
    cache_read_input_token_cost: 2e-7,
    cache_creation_input_token_cost: 5e-6,
    cache_creation_input_token_cost_above_1hr: 8e-6,
    provider_specific_entry: { us: 1.1, fast: 2.0 },
    tool_use_system_prompt_tokens: 346,
  }),
  "claude-sonnet-4-5": chat("anthropic", {
    input_cost_per_token: 3e-6,
    input_cost_per_token_above_200k_tokens: 6e-6,
    output_cost_per_token: 1.5e-5,
    output_cost_per_token_above_200k_tokens: 2.25e-5,
    cache_creation_input_token_cost: 3.75e-6,
    cache_creation_input_token_cost_above_200k_tokens: 7.5e-6,
    cache_creation_input_token_cost_above_1hr: 6e-6,
    cache_creation_input_token_cost_above_1hr_above_200k_tokens: 1.2e-5,
    deprecation_date: "2026-09-29",
  }),
  "xai/grok-4": chat("xai", {
    input_cost_per_token: 2e-6,
    input_cost_per_token_above_200k_tokens: 4e-6,
    output_cost_per_token: 1e-5,
    output_cost_per_token_above_200k_tokens: 2e-5,
    output_cost_per_reasoning_token: 1e-5,
  }),
  "deepseek/deepseek-chat": chat("deepseek", {
    input_cost_per_token: 5.6e-7,
    output_cost_per_token: 1.68e-6,
    cache_read_input_token_cost: 7e-8,
    cache_creation_input_token_cost: 0.0,
    off_peak_pricing: {
      hours_utc: "16:30-00:30",
      windows: [{ weekdays: [6, "sunday"], hours_utc: ["15:00-17:00"] }],
      weekday_timezone: "Asia/Shanghai",
      input_cost_per_token: 2.8e-7,
      output_cost_per_token: 8.4e-7,
    },
  }),
  "deepseek/deepseek-lunar": chat("deepseek", {
    input_cost_per_token: 1e-6,
    off_peak_pricing: { hours_utc: "at night", input_cost_per_token: 5e-7 },
  }),
  "dashscope/qwen-plus": chat("dashscope", {
    tiered_pricing: [
      { range: [0, 256000], input_cost_per_token: 4e-7, output_cost_per_token: 1.2e-6 },
      { range: [256000, 1000000], input_cost_per_token: 1.2e-6, output_cost_per_token: 3.6e-6 },
    ],
  }),
  "perplexity/sonar-deep": chat("perplexity", {
    input_cost_per_token: 2e-6,
    output_cost_per_token: 8e-6,
    citation_cost_per_token: 2e-6,
    search_context_cost_per_query: {
      search_context_size_low: 0.005,
      search_context_size_medium: 0.008,
      search_context_size_high: 0.012,
    },
  }),
  "cohere/rerank-v4": { litellm_provider: "cohere", mode: "rerank", input_cost_per_query: 0.002 },
  "mistral/mistral-ocr": {
    litellm_provider: "mistral",
    mode: "ocr",
    ocr_cost_per_page: 0.001,
    annotation_cost_per_page: 0.003,
    file_search_cost_per_gb_per_day: 0.1,
  },
  "vertex_ai/gemini-3-video": chat("vertex_ai-language-models", {
    input_cost_per_token: 1e-6,
    input_cost_per_video_token: 2e-6,
    output_cost_per_video_token: 3e-6,
    output_cost_per_token: 4e-6,
    input_cost_per_request: 0.01,
    input_cost_per_video_per_second: 0.002,
    regional_endpoint_uplift_multiplier: 1.1,
  }),
  "azure/gpt-4o": chat("azure", { input_cost_per_token: 2.5e-6, output_cost_per_token: 1e-5 }),
  "gpt-4o": chat("azure", { input_cost_per_token: 3e-6, output_cost_per_token: 1e-5 }),
};

/** The table of models.dev. */
export const MODELS_DEV: Record<string, unknown> = {
  openai: {
    id: "openai",
    models: {
      "gpt-6.2-sol": {
        id: "gpt-6.2-sol",
        cost: {
          input: 2,
          output: 12,
          cache_read: 0.1,
          cache_write: 2.5,
          reasoning: 12,
          input_audio: 40,
          output_audio: 80,
          tiers: [{
            input: 4,
            output: 18,
            cache_read: 0.2,
            tier: { type: "context", size: 272000 },
          }],
          context_over_200k: { input: 4, output: 18, cache_read: 0.2 },
        },
        experimental: {
          modes: {
            fast: {
              cost: { input: 4, output: 24 },
              provider: { body: { service_tier: "priority" } },
            },
            odd: { cost: { input: 5, output: 25 } },
          },
        },
        limit: { context: 1000000 },
        horoscope: "lion",
      },
      "old-long": { cost: { input: 1, output: 2, context_over_200k: { input: 2, output: 3 } } },
      "by-night": { cost: { input: 1, tiers: [{ input: 2, tier: { type: "moon", size: 1 } }] } },
      "gpt-free": { cost: { input: 0, output: 0 } },
    },
  },
};

/** The table of genai-prices. */
export const GENAI_PRICES: unknown[] = [{
  id: "anthropic",
  models: [
    {
      id: "claude-sonnet-5-5",
      match: { starts_with: "claude-sonnet-5-5" },
      prices: [
        {
          prices: { input_mtok: 3, output_mtok: 15, cache_read_mtok: 0.3, cache_write_mtok: 3.75 },
        },
        {
          constraint: { type: "start_date", start_date: "2026-10-07" },
          prices: {
            input_mtok: { base: 3, tiers: [{ start: 200000, price: 6 }] },
            output_mtok: 15,
            cache_read_mtok: 0.15,
            cache_write_mtok: 3.75,
            cache_write_1h_mtok: 6,
            web_searches_kcount: 10,
          },
        },
      ],
    },
    {
      id: "night-owl",
      prices: [
        { prices: { input_mtok: 2, output_mtok: 4 } },
        {
          constraint: { type: "time_of_date", start_time: "16:30:00Z", end_time: "00:30:00Z" },
          prices: { input_mtok: 1, output_mtok: 2, sausage_mtok: 1 },
        },
      ],
    },
  ],
}];
