/**
 * The provider's list of models, reduced to the models that a key is allowed to use.
 *
 * @module
 */
import { GatewayError } from "../errors/gateway_error.ts";
import { fromBytes, readWhole, type ReadWholeOptions } from "./read_whole.ts";
import type { UpstreamResponse } from "./transport.ts";

/** Maximum size of a list: four times the longest known list, OpenRouter's. Bytes. */
const MAX_LIST_BYTES = 4_194_304;

const unreadable = () =>
  new GatewayError("upstream_bad_response", {
    detail: "its list of models is too large or has no known form",
  });

function assertListSize(byteLength: number): void {
  if (byteLength > MAX_LIST_BYTES) throw unreadable();
}

/**
 * The name of one entry, in the form of OpenAI and most others, of llama.cpp, of Ollama, or as a
 * plain name.
 */
function nameOf(entry: unknown): unknown {
  if (typeof entry !== "object" || entry === null) return entry;
  const { id, model, name } = entry as Record<string, unknown>;
  return id ?? model ?? name;
}

/**
 * Filters the lists in an answer. A list is the whole answer (Together), or a field such as `data`
 * or `models`, also in two fields (llama.cpp).
 */
function filterLists(text: string, isAllowed: (model: string) => boolean): unknown {
  const list: unknown = JSON.parse(text);
  const keep = (entries: readonly unknown[]) =>
    entries.filter((entry) => {
      const name = nameOf(entry);
      // Google's lists name models with their collection.
      return typeof name === "string" &&
        (isAllowed(name) || isAllowed(name.replace(/^models\//, "")));
    });
  if (Array.isArray(list)) return keep(list);
  const fields = Object.entries(list as object);
  if (!fields.some(([, value]) => Array.isArray(value))) throw unreadable();
  return Object.fromEntries(
    fields.map(([name, value]) => [name, Array.isArray(value) ? keep(value) : value]),
  );
}

/**
 * Rebuilds the provider's list of models without the models that a key is not allowed to use. The
 * rest of the list is unchanged. An error of the provider is unchanged too.
 *
 * @throws {GatewayError} `upstream_bad_response` for a list that cannot be read, because it could
 * contain any model
 */
export async function filterModelList(
  answer: UpstreamResponse,
  isAllowed: (model: string) => boolean,
  options: ReadWholeOptions,
): Promise<UpstreamResponse> {
  if (answer.status >= 400 || answer.body === null) return answer;
  const bytes = await readWhole(answer.body, { ...options, accept: assertListSize });
  let filtered: Uint8Array | undefined;
  try {
    filtered = new TextEncoder().encode(
      JSON.stringify(filterLists(new TextDecoder().decode(bytes), isAllowed)),
    );
  } catch {
    throw unreadable(); // not JSON, or nested too deeply for the runtime's parser
  }
  return { status: answer.status, headers: answer.headers, body: fromBytes(filtered) };
}
