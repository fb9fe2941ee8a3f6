/**
 * Removes the content encoding of responses. None is requested. If a provider, or a proxy in front
 * of it, uses one, it is unpacked if the runtime can.
 *
 * @module
 */
import type { ByteSource, Unpack } from "../http/message.ts";
import { fromReadableStream, toByteSource, toReadableStream } from "../http/web.ts";
import { GatewayError } from "../errors/gateway_error.ts";
import type { Transport, UpstreamResponse } from "./transport.ts";

/** First byte of a gzip member (RFC 1952 §2.3.1). No JSON and no event stream begins with it. */
const GZIP_FIRST_BYTE = 0x1f;
/**
 * Size of the pieces for a `DecompressionStream`, which unpacks each piece (to up to 1032 times its
 * size) before it is read. Bytes.
 */
const SLICE_BYTES = 512;
/** Pattern of a `content-encoding` that can be shown to the caller. */
const CODINGS = /^[a-z0-9-]{1,16}(?:, ?[a-z0-9-]{1,16}){0,4}$/;

/** The DOM types accept any `BufferSource`. Only bytes are written here. */
type GzipStream = ReadableWritablePair<Uint8Array<ArrayBuffer>, Uint8Array>;

/** Splits a body into small pieces. */
function toSlices(first: Uint8Array, rest: ByteSource): ByteSource {
  let left = first;
  return {
    async read() {
      if (left.byteLength === 0) {
        const next = await rest.read();
        if (next === undefined) return undefined;
        left = next;
      }
      const slice = left.subarray(0, SLICE_BYTES);
      left = left.subarray(SLICE_BYTES);
      return slice;
    },
    cancel: (reason) => rest.cancel(reason),
  };
}

/**
 * Unpacks gzip of one member with `DecompressionStream`, which every runtime has. A body that the
 * runtime's `fetch` has unpacked already passes unchanged: `fetch` does not remove the header.
 *
 * @returns The unpacked body; `undefined` for another coding
 */
export function unpackGzip(coding: string, body: ByteSource): ByteSource | undefined {
  if (coding !== "gzip") return undefined;
  let unpacked: ByteSource | undefined;
  return {
    async read() {
      if (unpacked !== undefined) return await unpacked.read();
      const first = await body.read();
      if (first?.[0] !== GZIP_FIRST_BYTE) {
        unpacked = body;
        return first;
      }
      const packed = toReadableStream(toSlices(first, body));
      unpacked = fromReadableStream(
        packed.pipeThrough(new DecompressionStream("gzip") as GzipStream),
      );
      return await unpacked.read();
    },
    cancel: (reason) => (unpacked ?? body).cancel(reason),
  };
}

/** Returns the function that unpacks bodies for a transport. */
export function toUnpack(transport: Pick<Transport, "unpack">): Unpack {
  return transport.unpack?.bind(transport) ?? unpackGzip;
}

/**
 * Converts a response to identity coding. A response that cannot be unpacked is refused, so that no
 * answer has a wrong label.
 *
 * @throws {GatewayError} `upstream_unsupported_encoding`
 */
export function toIdentityCoding(
  response: UpstreamResponse,
  transport: Pick<Transport, "unpack">,
): UpstreamResponse {
  const { status, headers, body } = response;
  const coding = headers.get("content-encoding")?.trim().toLowerCase() ?? "";
  const isPlain = coding === "" || coding === "identity";
  if (isPlain || body === null) return response;
  const known = coding === "x-gzip" ? "gzip" : coding; // RFC 9110 §8.4.1.3
  const packed = toByteSource(body);
  const unpacked = toUnpack(transport)(known, packed);
  if (unpacked !== undefined) return { status, headers, body: unpacked };
  body.cancel();
  throw new GatewayError(
    "upstream_unsupported_encoding",
    CODINGS.test(coding) ? { detail: coding } : {},
  );
}
