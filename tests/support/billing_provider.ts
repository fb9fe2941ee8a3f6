/**
 * A stand-in provider that keeps a bill: it chooses the usage of each call at random, states it in
 * the form of its interface, and adds its cost to an account. It computes with whole units of 10^-9
 * USD and own code, so that it does not share the mistakes of the gateway.
 */
import type { ServerResponse } from "node:http";
import { setImmediate } from "node:timers";
import type { Random } from "../../scripts/chaos/random.ts";
import type { Prices } from "../../src/config/prices.ts";
import type { Arrived } from "./provider.ts";

/** Amounts by billing class. */
export type Amounts = Record<string, number>;

/** Rates of a token, in 10^-9 USD, and the rate of a search. */
const RATES: Readonly<Record<string, Amounts>> = {
  "claude-opus": {
    input: 4000,
    cacheRead: 200,
    cacheWrite: 5000,
    cacheWriteLong: 8000,
    output: 20_000,
    reasoning: 20_000,
    webSearches: 10_000_000,
  },
  "gpt-sol": {
    input: 2000,
    cacheRead: 100,
    cacheWrite: 2500,
    output: 10_000,
    reasoning: 10_000,
  },
  "gpt-sol, long": {
    input: 4000,
    cacheRead: 200,
    cacheWrite: 5000,
    output: 15_000,
    reasoning: 15_000,
  },
};
const LONG = 272_000;
const INPUTS = ["input", "cacheRead", "cacheWrite", "cacheWriteLong"] as const;
const TIERS: Readonly<Record<string, number>> = { standard: 10, fast: 20, priority: 20, flex: 5 };
const REGIONS: Readonly<Record<string, number>> = { global: 10, us: 11 };

/** The same prices, as an operator writes them. */
export const PRICES: Prices = {
  "claude-opus": {
    input: 4,
    cacheRead: 0.2,
    cacheWrite: 5,
    cacheWriteLong: 8,
    output: 20,
    webSearches: 10,
    factors: [{ when: { tier: "fast" }, times: 2 }, { when: { geo: "us" }, times: "1.1" }],
  },
  "gpt-sol": {
    rows: [
      { rates: { input: 2, cacheRead: "0.1", cacheWrite: 2.5, output: 10 } },
      {
        when: { over: LONG },
        rates: { input: 4, cacheRead: "0.2", cacheWrite: 5, output: 15 },
      },
    ],
    factors: [
      { when: { tier: "priority" }, times: 2 },
      { when: { tier: "flex" }, times: "0.5" },
    ],
  },
};

/** How a call ends. */
export type End = "whole" | "broken" | "failed";

/** One entry of the bill. */
export interface Entry {
  readonly classes: Amounts;
  /** Cost in 10^-9 USD. */
  readonly cost: number;
  readonly end: End;
  readonly isStream: boolean;
}

/** How a provider chooses. */
export interface Choices {
  /** Returns how the next call ends. */
  readonly end: () => End;
  /** True if the input has at most a token for each byte of the request, as at real providers. */
  readonly isBoundedByBytes: boolean;
}

/** A provider with a bill. */
export class BillingProvider {
  readonly bill: Entry[] = [];
  readonly #random: Random;
  readonly #choices: Choices;
  /** The most input of the call that is answered. Tokens. */
  #mostInput = Infinity;

  constructor(random: Random, choices: Choices) {
    this.#random = random;
    this.#choices = choices;
  }

  /** Answers a call of one of the interfaces. */
  answer(response: ServerResponse, { path, body }: Arrived): void {
    const request = JSON.parse(body.toString("utf8"));
    const end = this.#choices.end();
    if (this.#choices.isBoundedByBytes) this.#mostInput = body.byteLength;
    if (end === "failed") {
      response.writeHead(429, { "content-type": "application/json", "x-should-retry": "true" });
      return void response.end('{"error":{"message":"busy"}}');
    }
    const most = request.max_tokens ?? request.max_completion_tokens ?? request.max_output_tokens;
    const isLong = request.long === true;
    if (path.endsWith("/messages")) this.#message(response, request, most, end);
    else if (path.endsWith("/responses")) this.#response(response, request, { most, isLong }, end);
    else this.#chat(response, request, { most, isLong }, end);
  }

  #below(limit: number): number {
    return this.#random.below(Math.max(1, Math.floor(limit)));
  }

  /** Reduces the classes of input in proportion, so that their sum is possible. */
  #bounded(classes: Amounts): Amounts {
    const sum = INPUTS.reduce((total, name) => total + (classes[name] ?? 0), 0);
    if (sum <= this.#mostInput) return classes;
    const reduced = INPUTS.filter((name) => classes[name] !== undefined).map((name) => [
      name,
      Math.floor((classes[name] ?? 0) * this.#mostInput / sum),
    ]);
    return { ...classes, ...Object.fromEntries(reduced) };
  }

  #pick<Item>(items: readonly Item[]): Item {
    return items[this.#below(items.length)] as Item;
  }

  #charge(model: string, tariff: { tier: string; geo: string }, entry: Omit<Entry, "cost">): void {
    const rates = RATES[model] ?? {};
    let tokens = 0;
    let calls = 0;
    for (const [name, amount] of Object.entries(entry.classes)) {
      if (name === "webSearches") calls += amount * (rates[name] ?? NaN);
      else tokens += amount * (rates[name] ?? NaN);
    }
    const times = (TIERS[tariff.tier] ?? NaN) * (REGIONS[tariff.geo] ?? NaN);
    this.bill.push({ ...entry, cost: tokens * times / 100 + calls });
  }

  #message(response: ServerResponse, request: Fields, most: number, end: End): void {
    const isStream = request.stream === true;
    const classes = this.#bounded({
      input: this.#below(200),
      cacheRead: this.#below(80_000),
      cacheWrite: this.#below(9000),
      cacheWriteLong: this.#below(9000),
      output: 1 + this.#below(most / 2),
      reasoning: this.#below(most / 2),
      webSearches: this.#below(3),
    });
    const tier = request.speed === "fast" ? "fast" : "standard";
    const geo = this.#pick(["global", "us"]);
    const { input = 0, cacheRead = 0, cacheWrite = 0, cacheWriteLong = 0 } = classes;
    const { output = 0, reasoning = 0, webSearches = 0 } = classes;
    const begun = {
      input_tokens: input,
      cache_read_input_tokens: cacheRead,
      cache_creation_input_tokens: cacheWrite + cacheWriteLong,
      cache_creation: {
        ephemeral_5m_input_tokens: cacheWrite,
        ephemeral_1h_input_tokens: cacheWriteLong,
      },
      service_tier: "standard",
      speed: tier,
      inference_geo: geo,
      output_tokens: 1,
    };
    const done = {
      output_tokens: output + reasoning,
      output_tokens_details: { thinking_tokens: reasoning },
      server_tool_use: { web_search_requests: webSearches },
    };
    this.#charge("claude-opus", { tier, geo }, { classes, end, isStream });
    if (!isStream) return sendJson(response, { type: "message", usage: { ...begun, ...done } });
    const events = [
      { type: "message_start", message: { type: "message", usage: begun } },
      { type: "content_block_delta", index: 0, delta: { type: "text_delta", text: "Hi" } },
      { type: "message_delta", delta: { stop_reason: "end_turn" }, usage: done },
      { type: "message_stop" },
    ];
    sendEvents(response, events.map((event) => ({ name: event.type, event })), end);
  }

  /** Chooses the usage of OpenAI's interfaces, where the input contains all of its classes. */
  #openai(most: number, isLong: boolean): Amounts {
    return this.#bounded({
      input: this.#below(isLong ? 200_000 : 2000),
      cacheRead: this.#below(80_000) + (isLong ? LONG : 0),
      cacheWrite: this.#below(5000),
      output: 1 + this.#below(most / 2),
      reasoning: this.#below(most / 2),
    });
  }

  #response(response: ServerResponse, request: Fields, size: Size, end: End): void {
    const isStream = request.stream === true;
    const classes = this.#openai(size.most, size.isLong);
    const { input = 0, cacheRead = 0, cacheWrite = 0, output = 0, reasoning = 0 } = classes;
    const tier = this.#serve(request);
    const usage = {
      input_tokens: input + cacheRead + cacheWrite,
      input_tokens_details: { cached_tokens: cacheRead, cache_write_tokens: cacheWrite },
      output_tokens: output + reasoning,
      output_tokens_details: { reasoning_tokens: reasoning },
      total_tokens: input + cacheRead + cacheWrite + output + reasoning,
    };
    this.#openaiCharge(classes, tier, { classes, end, isStream });
    const whole = {
      object: "response",
      status: "completed",
      service_tier: tier,
      output: [],
      usage,
    };
    if (!isStream) return sendJson(response, whole);
    const events = [
      { type: "response.created", response: { status: "in_progress", service_tier: "auto" } },
      { type: "response.output_text.delta", delta: "Hi" },
      { type: "response.completed", response: whole },
    ];
    sendEvents(response, events.map((event) => ({ name: event.type, event })), end);
  }

  #chat(response: ServerResponse, request: Fields, size: Size, end: End): void {
    const isStream = request.stream === true;
    const classes = this.#openai(size.most, size.isLong);
    const { input = 0, cacheRead = 0, cacheWrite = 0, output = 0, reasoning = 0 } = classes;
    const tier = this.#serve(request);
    const usage = {
      prompt_tokens: input + cacheRead + cacheWrite,
      prompt_tokens_details: { cached_tokens: cacheRead, cache_write_tokens: cacheWrite },
      completion_tokens: output + reasoning,
      completion_tokens_details: { reasoning_tokens: reasoning },
      total_tokens: input + cacheRead + cacheWrite + output + reasoning,
    };
    this.#openaiCharge(classes, tier, { classes, end, isStream });
    const message = { role: "assistant", content: "Hi" };
    const choice = { index: 0, finish_reason: "stop" };
    if (!isStream) {
      return sendJson(response, {
        object: "chat.completion",
        choices: [{ ...choice, message }],
        service_tier: tier,
        usage,
      });
    }
    const events = [
      { choices: [{ index: 0, delta: message, finish_reason: null }], service_tier: tier },
      { choices: [{ ...choice, delta: {} }], service_tier: tier },
      { choices: [], usage, service_tier: tier },
    ];
    sendEvents(response, events.map((event) => ({ event })), end, "data: [DONE]\n\n");
  }

  /** Chooses the tier that serves a call: not always the requested one. */
  #serve({ service_tier: asked }: Fields): string {
    if (asked === "flex") return "flex";
    return asked === "fast" && this.#random.chance(0.7) ? "priority" : "default";
  }

  #openaiCharge(classes: Amounts, tier: string, entry: Omit<Entry, "cost">): void {
    const { input = 0, cacheRead = 0, cacheWrite = 0 } = classes;
    const model = input + cacheRead + cacheWrite > LONG ? "gpt-sol, long" : "gpt-sol";
    this.#charge(model, { tier: tier === "default" ? "standard" : tier, geo: "global" }, entry);
  }
}

type Fields = Readonly<Record<string, unknown>>;
interface Size {
  readonly most: number;
  readonly isLong: boolean;
}

function sendJson(response: ServerResponse, body: unknown): void {
  response.writeHead(200, { "content-type": "application/json" });
  response.end(JSON.stringify(body));
}

/** Sends events. A broken stream ends before the event that states the usage. */
function sendEvents(
  response: ServerResponse,
  events: readonly { readonly name?: string; readonly event: unknown }[],
  end: End,
  last = "",
): void {
  response.writeHead(200, { "content-type": "text/event-stream" });
  const sent = end === "broken" ? events.slice(0, 2) : events;
  for (const { name, event } of sent) {
    response.write(`${name ? `event: ${name}\n` : ""}data: ${JSON.stringify(event)}\n\n`);
  }
  if (end === "broken") return void setImmediate(() => response.destroy());
  response.end(last);
}
