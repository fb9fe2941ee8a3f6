/**
 * A stand-in provider that answers every operation of a client library in the form of that
 * operation: JSON, pages, streams of events, binary, or nothing. It refuses calls that are absent
 * from the library's list of methods, and unreadable forms.
 */
import type { ServerResponse } from "node:http";
import { type Arrived, type Provider, startProvider } from "./provider.ts";
import { type Answers, type LibraryName, readMethods, type Sends } from "./library_methods.ts";
import { BYTES, LINES, toObject, toPage, toStream } from "./stand_in_answers.ts";

/** An operation of the provider. */
interface Route {
  readonly method: string;
  readonly path: string;
  readonly pattern: RegExp;
  readonly sends: Sends;
  readonly answers: ReadonlySet<Answers>;
}

/** The operations that a library's methods call; routes with fewer parameters are first. */
function listRoutes(library: LibraryName): Route[] {
  const routes = new Map<string, Route>();
  for (const { calls, sends, answers } of readMethods(library)) {
    for (const { method, path } of calls) {
      const known = routes.get(`${method} ${path}`);
      // For several calls, a row describes only the answer of the last one.
      const forms = path === calls.at(-1)?.path ? answers : [];
      routes.set(`${method} ${path}`, {
        method,
        path,
        pattern: new RegExp(`^/v1${path.replace(/:\w+/g, "([^/]+)")}$`),
        sends: calls.length === 1 ? sends : known?.sends ?? "-",
        answers: new Set([...known?.answers ?? [], ...forms]),
      });
    }
  }
  const parameters = ({ path }: Route) => path.split(":").length;
  return [...routes.values()].sort((one, other) => parameters(one) - parameters(other));
}

/** The fields of a call's JSON or form. */
async function readFields({ headers, body }: Arrived): Promise<Map<string, unknown>> {
  const type = headers["content-type"] ?? "";
  if (body.length === 0) return new Map();
  if (type.startsWith("application/json")) {
    return new Map(Object.entries(JSON.parse(body.toString())));
  }
  // Throws for an unreadable form.
  return new Map(
    await new Response(new Uint8Array(body), { headers: { "content-type": type } }).formData(),
  );
}

/** True if a caller requests events, in one of the ways that the interfaces know. */
function asksForEvents(
  { headers }: Arrived,
  fields: ReadonlyMap<string, unknown>,
  query: URLSearchParams,
): boolean {
  const said = [
    fields.get("stream"),
    query.get("stream"),
    fields.get("stream_format"),
    headers.accept,
  ];
  return said.some((value) => ["true", "sse", "text/event-stream"].includes(`${value}`));
}

function answer(
  response: ServerResponse,
  status: number,
  type: string | undefined,
  body: string | Uint8Array,
): void {
  const own = { "x-request-id": "req-of-the-provider", "request-id": "req-of-the-provider" };
  response.writeHead(status, type === undefined ? own : { ...own, "content-type": type });
  response.end(body);
}

/** Starts the stand-in of a library's provider. */
export function startStandIn(library: LibraryName): Promise<Provider> {
  const routes = listRoutes(library);
  const answerJson = (response: ServerResponse, status: number, body: unknown) =>
    answer(response, status, "application/json", JSON.stringify(body));
  const refuse = (response: ServerResponse, status: number, message: string) =>
    answerJson(response, status, {
      type: "error",
      error: { message, type: "invalid_request_error" },
    });
  return startProvider(async (response, call) => {
    const { pathname, searchParams: query } = new URL(call.path, "http://localhost");
    const route = routes.find(({ method, pattern }) =>
      method === call.method && pattern.test(pathname)
    );
    if (route === undefined) return refuse(response, 404, "no such operation");
    const fields = await readFields(call).catch(() => undefined);
    if (fields === undefined) return refuse(response, 400, "a body that can't be read");
    const isForm =
      call.headers["content-type"]?.startsWith("multipart/form-data; boundary=") === true;
    if ((route.sends === "form") !== isForm) return refuse(response, 415, "a body of another form");
    const { answers, method, path } = route;
    const isStream = answers.has("sse") &&
      (answers.size === 1 || asksForEvents(call, fields, query));
    if (isStream) return answer(response, 200, "text/event-stream", toStream(path));
    if (answers.has("page")) return answerJson(response, 200, toPage(query));
    if (answers.has("binary")) return answer(response, 200, "application/octet-stream", BYTES);
    if (answers.has("lines")) return answer(response, 200, "application/x-jsonl", LINES);
    if (answers.has("empty")) return answer(response, 200, undefined, "");
    return answerJson(response, 200, toObject(method, path, pathname));
  });
}
