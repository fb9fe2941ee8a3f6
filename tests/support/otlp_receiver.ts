/**
 * A receiver for OpenTelemetry exporters, over real HTTP (OTLP,
 * https://opentelemetry.io/docs/specs/otlp/, as JSON).
 */
import { Buffer } from "node:buffer";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";

/** An exported span. */
export interface ReceivedSpan {
  readonly name: string;
  readonly kind: "internal" | "server" | "client" | "other";
  readonly traceId: string;
  readonly spanId: string;
  /** Empty for a root. */
  readonly parentSpanId: string;
  /** Nanoseconds since 1970. */
  readonly start: bigint;
  readonly end: bigint;
  readonly isError: boolean;
  readonly attributes: Readonly<Record<string, unknown>>;
  /** Names of attributes that were set more than once. */
  readonly doubled: readonly string[];
  /** Trace ids. */
  readonly links: readonly string[];
  /** Name of the instrumentation. */
  readonly scope: string;
  /** `service.name` of the sender. */
  readonly service: unknown;
}

/** A receiver that listens. */
export interface OtlpReceiver {
  readonly url: string;
  readonly spans: ReceivedSpan[];
  /** All received payloads, including signals other than traces. */
  readonly payloads: string[];
  close(): Promise<void>;
}

interface Attribute {
  readonly key: string;
  readonly value: Readonly<Record<string, unknown>>;
}

interface ExportedSpan {
  readonly name: string;
  readonly kind: number;
  readonly traceId: string;
  readonly spanId: string;
  readonly parentSpanId?: string;
  readonly startTimeUnixNano: string;
  readonly endTimeUnixNano: string;
  readonly attributes?: readonly Attribute[];
  readonly links?: readonly { readonly traceId: string }[];
  readonly status?: { readonly code?: number };
}

interface Exported {
  readonly resourceSpans?: readonly {
    readonly resource?: { readonly attributes?: readonly Attribute[] };
    readonly scopeSpans: readonly {
      readonly scope?: { readonly name?: string };
      readonly spans: readonly ExportedSpan[];
    }[];
  }[];
}

const KINDS = ["other", "internal", "server", "client"] as const;
const ERROR = 2;

/** 64-bit integers are text in JSON. */
function toValue({ intValue, doubleValue, ...other }: Attribute["value"]): unknown {
  if (intValue !== undefined || doubleValue !== undefined) return Number(intValue ?? doubleValue);
  return Object.values(other)[0];
}

const toAttributes = (attributes: readonly Attribute[] = []) =>
  Object.fromEntries(attributes.map(({ key, value }) => [key, toValue(value)]));

function toSpan(span: ExportedSpan): Omit<ReceivedSpan, "scope" | "service"> {
  const { name, kind, traceId, spanId, parentSpanId = "", attributes = [], links = [], status } =
    span;
  const keys = attributes.map(({ key }) => key);
  return {
    name,
    kind: KINDS[kind] ?? "other",
    traceId,
    spanId,
    parentSpanId,
    start: BigInt(span.startTimeUnixNano),
    end: BigInt(span.endTimeUnixNano),
    isError: status?.code === ERROR,
    attributes: toAttributes(attributes),
    doubled: keys.filter((key, index) => keys.indexOf(key) !== index),
    links: links.map((link) => link.traceId),
  };
}

/** Starts a receiver. */
export async function startOtlpReceiver(): Promise<OtlpReceiver> {
  const spans: ReceivedSpan[] = [];
  const payloads: string[] = [];
  const server = createServer(async (request, response) => {
    const chunks: Uint8Array[] = [];
    for await (const chunk of request) chunks.push(chunk);
    const text = Buffer.concat(chunks).toString();
    payloads.push(text);
    const { resourceSpans = [] }: Exported = JSON.parse(text);
    for (const { resource, scopeSpans } of resourceSpans) {
      const service = toAttributes(resource?.attributes)["service.name"];
      for (const { scope, spans: exported } of scopeSpans) {
        spans.push(
          ...exported.map((span) => ({ ...toSpan(span), scope: scope?.name ?? "", service })),
        );
      }
    }
    response.writeHead(200, { "content-type": "application/json" });
    response.end("{}");
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  return {
    url: `http://127.0.0.1:${port}`,
    spans,
    payloads,
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}
