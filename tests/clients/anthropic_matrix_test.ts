/**
 * Every method of the `@anthropic-ai/sdk` library has the same effect through the gateway as
 * directly at the provider.
 */
// runtimes: bun, node
import Anthropic from "@anthropic-ai/sdk";
import { describeMatrix, type Library } from "../support/client_matrix.ts";
import { UPSTREAM_KEY } from "../support/gateway.ts";

const HI = { model: "test-1", max_tokens: 5, messages: [{ role: "user" as const, content: "Hi" }] };

/**
 * Reads the results of a batch through the gateway. The library's own method would call the URL in
 * the provider's answer, which is the provider's own.
 */
async function readResults(
  client: Anthropic,
  retrieve: () => PromiseLike<unknown>,
): Promise<unknown> {
  await retrieve();
  return await client.get("/v1/messages/batches/batch_1/results", { __binaryResponse: true });
}

/** Helpers of the library, which call other methods. */
const HELPERS: Library<Anthropic>["own"] = {
  "messages.parse": ({ messages }) => messages.parse(HI),
  "messages.stream": ({ messages }) => messages.stream(HI),
  "messages.batches.results": (client) =>
    readResults(client, () => client.messages.batches.retrieve("batch_1")),
  "beta.messages.parse": ({ beta }) => beta.messages.parse(HI),
  "beta.messages.stream": ({ beta }) => beta.messages.stream(HI),
  "beta.messages.toolRunner": ({ beta }) => beta.messages.toolRunner({ ...HI, tools: [] }),
  "beta.messages.thread": ({ beta }) => {
    const { messages, ...rest } = HI;
    return beta.messages.thread(rest).send(messages);
  },
  "beta.messages.batches.results": (client) =>
    readResults(client, () => client.beta.messages.batches.retrieve("batch_1")),
};

describeMatrix<Anthropic>({
  name: "anthropic",
  provider: { credential: "x-api-key" },
  create: ({ url, ...options }) =>
    new Anthropic({ baseURL: url, apiKey: UPSTREAM_KEY, maxRetries: 0, ...options }),
  own: HELPERS,
});
