/**
 * Paths of the operations that callers can use, for the API description at the admin listener. They
 * are generated from the table of operations.
 *
 * @module
 */
import { GROUPS } from "../../config/operation_groups.ts";
import { type Operation, OPERATIONS } from "../../operations/table.ts";

/**
 * Addresses of these paths: the listeners for callers, not the listener that serves this
 * description.
 */
const SERVERS = [{
  url: "https://{host}",
  variables: {
    host: { default: "a.example.com", description: "An address in providers.NAME.hosts" },
  },
}];

/** Contents of a request by its kind of body. */
const CONTENTS: Readonly<
  Record<Exclude<Operation["body"], "none">, Readonly<Record<string, unknown>>>
> = {
  chat_completion: {
    "application/json": { schema: { $ref: "#/components/schemas/ChatCompletionRequest" } },
  },
  json: { "application/json": { schema: { type: "object" } } },
  multipart: { "multipart/form-data": { schema: { type: "object" } } },
  any: { "*/*": {} },
};

function describe({ name, group, body }: Operation): unknown {
  return {
    operationId: name,
    tags: [group],
    ...(body !== "none" && { requestBody: { required: body !== "any", content: CONTENTS[body] } }),
    security: [{ upstreamKey: [], gatewayKey: [] }],
    responses: {
      default: {
        description:
          "The provider's unchanged answer, or an error of the gateway in the interface's form",
      },
    },
  };
}

/** Returns the groups of operations as tags. */
export function toCallerTags(): unknown[] {
  return Object.entries(GROUPS).map(([name, isOn]) => ({
    name,
    description: isOn ? "On by default" : "Off until providers.NAME.operations names it",
  }));
}

/**
 * Returns the paths of operations. Paths that accept any method are described without operations.
 */
export function toCallerPaths(): Record<string, Record<string, unknown>> {
  const paths: Record<string, Record<string, unknown>> = {};
  for (const operation of OPERATIONS) {
    const { group, method, path } = operation;
    if (group === undefined) continue;
    const parameters = Array.from(path.matchAll(/:(\w+)/g), ([, name]) => ({
      name,
      in: "path",
      required: true,
      schema: { type: "string" },
    }));
    const item = paths[`/v1${path.replace(/:(\w+)\+?/g, "{$1}")}`] ??= {
      servers: SERVERS,
      parameters,
    };
    if (method === "*") item.summary = `Any method, where the group ${group} is allowed`;
    else item[method.toLowerCase()] = describe(operation);
  }
  return paths;
}
