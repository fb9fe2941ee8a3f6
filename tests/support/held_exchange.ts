/** Durable exchanges whose provider sends pieces when the test says so. */
import assert from "node:assert/strict";
import type { ServerResponse } from "node:http";
import { GOOD_BODY, startUnderTest, type UnderTest, type UnderTestOptions } from "./gateway.ts";
import { type Provider, startProvider } from "./provider.ts";

/** A running exchange. */
export interface HeldExchange {
  /** The URL of its recorded answer. */
  readonly url: string;
  readonly location: string;
  /** The first answer. */
  readonly answer: Response;
  /** The provider's side of the call. */
  readonly upstream: ServerResponse;
  /** Reads the recorded answer, with the keys of its caller. */
  get(query?: string, headers?: Record<string, string>, init?: RequestInit): Promise<Response>;
}

/** A gateway with durable exchanges, and its provider. */
export interface DurableStage {
  readonly under: UnderTest;
  readonly provider: Provider;
  /**
   * Starts an exchange. The first bytes should not be empty: Bun sends the head of an answer
   * together with them.
   */
  begin(
    type?: string,
    first?: string | Uint8Array,
    headers?: Record<string, string>,
  ): Promise<HeldExchange>;
  close(): Promise<void>;
}

/** Options of the gateway and of durable exchanges. */
export interface StageOptions extends Partial<UnderTestOptions> {
  /** Settings of durable exchanges, instead of the defaults. */
  readonly durable?: Record<string, string>;
  /** Path before `/v1` in the provider's address. */
  readonly prefix?: string;
}

/** Starts both. */
export async function startDurableStage(
  { durable = { keep: "1m", linger: "1m" }, prefix = "", ...options }: StageOptions = {},
): Promise<DurableStage> {
  const waiting: ((response: ServerResponse) => void)[] = [];
  const provider = await startProvider((response) => waiting.shift()?.(response));
  const only = { a: { hosts: [`*${prefix}`], upstream: provider.url, durable } };
  const under = await startUnderTest({
    upstreams: { a: provider.url },
    ...options,
    provider: { durable, ...options.provider },
    config: { ...(prefix !== "" && { providers: only }), ...options.config },
  });
  return {
    under,
    provider,
    async begin(type = "text/event-stream", first, headers = {}) {
      const called = new Promise<ServerResponse>((resolve) => waiting.push(resolve));
      const answering = fetch(`${under.a}${prefix}/v1/chat/completions`, {
        method: "POST",
        headers: { ...under.headers, "sallyport-durable": "?1", ...headers },
        body: GOOD_BODY,
      });
      const upstream = await called;
      upstream.writeHead(200, { "content-type": type });
      upstream.flushHeaders();
      if (first !== undefined) upstream.write(first);
      const answer = await answering;
      assert.equal(answer.status, 200);
      const location = answer.headers.get("location") ?? assert.fail("no address");
      const url = under.a + location;
      const get: HeldExchange["get"] = (query = "", headers = {}, init = {}) =>
        fetch(url + query, { ...init, headers: { ...under.headers, ...headers } });
      return { url, location, answer, upstream, get };
    },
    async close() {
      await under.close();
      await provider.close();
    },
  };
}
