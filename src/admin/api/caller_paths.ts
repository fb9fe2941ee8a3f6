/**
 * Paths of the operations that callers can use, for the API description at the admin listener. They
 * are generated from the table of operations and from the shapes of addresses.
 *
 * @module
 */
import type { CredentialHeader } from "../../config/credential.ts";
import { GROUPS } from "../../config/operation_groups.ts";
import { SHAPE_SETTINGS, type ShapeName } from "../../config/shape.ts";
import { OPAQUE } from "../../dialects/opaque.ts";
import { GEMINI_VERSIONS, SHAPES, writePath } from "../../operations/shapes.ts";
import type { Operation } from "../../operations/table.ts";
import { errorOf } from "./caller_schemas.ts";

const NAMES = Object.keys(SHAPES) as readonly ShapeName[];

/**
 * Returns the addresses of paths: the listeners for callers, not the listener that serves this
 * description.
 */
function toServers(shape: ShapeName): unknown[] {
  const description = "An address in providers.NAME.hosts" +
    (shape === "v1" ? "" : ` of a provider with the shape ${shape}`);
  return [{
    url: "https://{host}",
    variables: { host: { default: "a.example.com", description } },
  }];
}

/** Contents of a request by its kind of body. */
const CONTENTS: Readonly<
  Record<Exclude<Operation["body"], "none">, Readonly<Record<string, unknown>>>
> = {
  chat_completion: {
    "application/json": { schema: { $ref: "#/components/schemas/ChatCompletionRequest" } },
  },
  json: { "application/json": { schema: { type: "object" } } },
  untyped_json: { "*/*": { schema: { type: "object" } } },
  multipart: { "multipart/form-data": { schema: { type: "object" } } },
  any: { "*/*": {} },
};

/** Parameters of the query that clients of a shape send. */
function toQueryParameters(shape: ShapeName, { path, stream }: Operation): unknown[] {
  if (shape === "azure") {
    return [{
      name: "api-version",
      in: "query",
      required: !path.startsWith("/openai/v1/"),
      schema: { type: "string" },
    }];
  }
  const isStreamOfGemini = shape === "gemini" && path.endsWith(":streamGenerateContent");
  return isStreamOfGemini && stream === "always"
    ? [{
      name: "alt",
      in: "query",
      description: "Left out, the stream is a list of JSON, without events",
      schema: { type: "string", enum: ["sse"] },
    }]
    : [];
}

/** Returns the name of the security scheme for the key in a header. */
const toScheme = (header: CredentialHeader): string =>
  header === "authorization" ? "upstreamKey" : `upstreamKey.${header}`;

/** Returns the security schemes for the provider's key, by the headers of the shapes. */
export function toUpstreamSchemes(): Record<string, unknown> {
  const description = "The caller's key at the provider";
  const headers = NAMES.map((name) => SHAPE_SETTINGS[name].credential ?? "authorization");
  return Object.fromEntries(headers.map((header) => [
    toScheme(header),
    header === "authorization"
      ? { type: "http", scheme: "bearer", description }
      : { type: "apiKey", in: "header", name: header, description },
  ]));
}

function toResponses(shape: ShapeName, { dialect }: Operation): unknown {
  const error = errorOf(dialect === OPAQUE ? SHAPES[shape].dialect : dialect);
  if (error === undefined) {
    return {
      default: {
        description:
          "The provider's unchanged answer, or an error of the gateway in the interface's form",
      },
    };
  }
  const failure = {
    description: "The provider's unchanged answer, or an error of the gateway in this form",
    content: { "application/json": { schema: { $ref: `#/components/schemas/${error.name}` } } },
  };
  return {
    "4XX": failure,
    "5XX": failure,
    default: { description: "The provider's unchanged answer" },
  };
}

function describe(shape: ShapeName, operationId: string, operation: Operation): unknown {
  const { group, body } = operation;
  const parameters = toQueryParameters(shape, operation);
  const { credential = "authorization" } = SHAPE_SETTINGS[shape];
  return {
    operationId,
    tags: shape === "v1" ? [group] : [group, toTag(shape)],
    ...(parameters.length > 0 && { parameters }),
    ...(body !== "none" && { requestBody: { required: body !== "any", content: CONTENTS[body] } }),
    security: [{ [toScheme(credential)]: [], gatewayKey: [] }],
    responses: toResponses(shape, operation),
  };
}

const toTag = (shape: ShapeName): string => `shape ${shape}`;

/** Returns the groups of operations, and the shapes, as tags. */
export function toCallerTags(): unknown[] {
  const groups = Object.entries(GROUPS).map(([name, isOn]) => ({
    name,
    description: isOn ? "On by default" : "Off until providers.NAME.operations names it",
  }));
  const shapes = NAMES.filter((name) => name !== "v1").map((name) => ({
    name: toTag(name),
    description: `At providers with "shape": "${name}"`,
  }));
  return [...groups, ...shapes];
}

/** Path parameter of Google's versions. */
const VERSION_PARAMETER = "version";

function toPathParameters(path: string): unknown[] {
  return Array.from(path.matchAll(/\{(\w+)\}/g), ([, name]) => ({
    name,
    in: "path",
    required: true,
    schema: { type: "string", ...(name === VERSION_PARAMETER && { enum: GEMINI_VERSIONS }) },
  }));
}

/** Paths of the description so far, and the ids in use. */
interface Description {
  readonly paths: Record<string, Record<string, unknown>>;
  readonly ids: Set<string>;
}

/** Returns an id that no other operation has. An operation can have several paths. */
function toId(shape: ShapeName, { name }: Operation, ids: Set<string>): string {
  const isNamed = shape === "v1" || name.startsWith(`${shape}.`);
  const base = isNamed ? name : `${shape}.${name}`;
  let id = base;
  for (let count = 2; ids.has(id); count++) id = `${base}.${count}`;
  ids.add(id);
  return id;
}

function addOperation(shape: ShapeName, operation: Operation, { paths, ids }: Description): void {
  const { group, method } = operation;
  const toParameter = (name: string) => `{${name}}`;
  const below = operation.path.replace(":rest+", ":rest");
  const path = SHAPES[shape].base + writePath(below, toParameter, toParameter(VERSION_PARAMETER));
  const item = paths[path] ??= { servers: toServers(shape), parameters: toPathParameters(path) };
  if (method === "*") {
    item.summary = `Any method, where the group ${group} is allowed`;
    return;
  }
  const verb = method.toLowerCase();
  // A path of a shape can be one of /v1 too. A description has one operation for each path.
  if (item[verb] !== undefined) {
    const also = `Also at providers with "shape": "${shape}", whose errors have their own form`;
    Object.assign(Object(item[verb]), { description: also });
  } else item[verb] = describe(shape, toId(shape, operation, ids), operation);
}

/**
 * Returns the paths of operations. Paths that accept any method are described without operations.
 */
export function toCallerPaths(): Record<string, Record<string, unknown>> {
  const description: Description = { paths: {}, ids: new Set() };
  for (const shape of NAMES) {
    for (const operation of SHAPES[shape].operations) {
      const isOwn = operation.group === undefined;
      if (!isOwn) addOperation(shape, operation, description);
    }
  }
  return description.paths;
}
