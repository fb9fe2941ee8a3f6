/**
 * The call to a provider, as the gateway needs it: bytes out, bytes back, identity-coded, no redirect followed.
 *
 * @module
 */
import { type ByteSource, fromReadableStream, toReadableStream } from "../byte_source.ts";
import { GatewayError } from "../errors.ts";

/** One call. */
export interface UpstreamCall {
  /** Built from config alone, but for the encoded id of a model. */
  readonly url: URL;
  /** `GET` or `POST`. */
  readonly method: string;
  /** Lower-case names. */
  readonly headers: Record<string, string>;
  /** The caller's bytes; `null` where there are none, and from {@link releaseBody} on. */
  readonly body: Uint8Array | null;
  /** Milliseconds for the connection to be there. */
  readonly connectMs: number;
  /** Why the call is to end, at whatever stage it is; nothing as long as it may go on. */
  readonly reason: Error | undefined;
  /** The same as a signal, for those who take nothing else: made when it is asked for. */
  readonly signal: AbortSignal;
  /** Registers what ends the call. @returns Takes it back */
  onAbort(act: () => void): () => void;
  /**
   * Lets go of the body's bytes, for all have left or no more of them will. Without it they are held, and counted, until
   * the exchange is over. A call that throws {@link NeverSent} is made again with them.
   */
  releaseBody(): void;
  /** Ends the call with the transport's own finding: the connect deadline. */
  abort(reason: GatewayError): void;
}

/** What came back, from its header on. */
export interface UpstreamAnswer {
  /** HTTP status. */
  readonly status: number;
  /** Lower-case names. */
  readonly headers: Iterable<readonly [string, string]> & { get(name: string): string | null | undefined };
  /** The body, unread. */
  readonly body: ByteSource | null;
}

/** What a transport throws when not a byte of the call can have reached the upstream: it may be made again. */
export class NeverSent extends Error {
  override readonly name = "NeverSent";
  /** What went wrong. */
  readonly reason: unknown;

  /** @param reason What went wrong */
  constructor(reason: unknown) {
    super("The call never left");
    this.reason = reason;
  }
}

/** Port: how calls reach a provider. */
export interface Transport {
  /**
   * Sends a call.
   *
   * @param call The call
   * @returns The answer, as soon as its header is there
   * @throws {GatewayError} `upstream_bad_response` for what is no readable HTTP
   * @throws {NeverSent} When not a byte of the call can have arrived; anything else it throws means that no answer began
   */
  send(call: UpstreamCall): Promise<UpstreamAnswer>;
}

/**
 * Calls over the global `fetch`, which works anywhere. It does not tell connecting from waiting, so that no call counts
 * as one that never left and the connect deadline is not watched: the one for the first byte is. It holds a body until the
 * end of the answer (measured on Bun, Deno and Node), so that the body is not released before.
 *
 * @returns The transport
 */
export function createFetchTransport(): Transport {
  return {
    async send({ url, method, headers, body, signal }) {
      const response = await fetch(url, {
        method,
        headers,
        body: body as Uint8Array<ArrayBuffer> | null, // never in shared memory: it comes from a network read
        redirect: "manual",
        signal,
      });
      return {
        status: response.status,
        headers: response.headers,
        body: response.body && fromReadableStream(response.body),
      };
    },
  };
}

/** First byte of a gzip member (RFC 1952 §2.3.1); no JSON and no event stream begins with it. */
const GZIP_FIRST_BYTE = 0x1f;

/** Unpacks gzip, unless the runtime's fetch has done so already: it leaves the header as it was. */
function gunzip(source: ByteSource): ByteSource {
  let unpacked: ByteSource | undefined;
  return {
    async read() {
      if (unpacked !== undefined) return unpacked.read();
      const first = await source.read();
      if (first?.[0] !== GZIP_FIRST_BYTE) {
        unpacked = source;
        return first;
      }
      let head: Uint8Array | undefined = first;
      const whole = toReadableStream({
        read() {
          const chunk = head;
          head = undefined;
          return chunk === undefined ? source.read() : Promise.resolve(chunk);
        },
        cancel: (reason) => source.cancel(reason),
      });
      unpacked = fromReadableStream(whole.pipeThrough(new DecompressionStream("gzip") as GzipStream));
      return unpacked.read();
    },
    cancel: (reason) => (unpacked ?? source).cancel(reason),
  };
}

/** The DOM types say `BufferSource` for what is written; bytes are all we write. */
type GzipStream = ReadableWritablePair<Uint8Array<ArrayBuffer>, Uint8Array>;

/**
 * The answer in identity coding. It was asked for; an upstream that sends gzip all the same is understood, anything
 * else is refused rather than passed on mislabelled.
 *
 * @param answer As the transport gave it
 * @returns The same, its body decoded
 * @throws {GatewayError} `upstream_bad_response`
 */
export function toIdentityCoding(answer: UpstreamAnswer): UpstreamAnswer {
  const coding = (answer.headers.get("content-encoding") ?? "identity").trim().toLowerCase();
  if (coding === "identity" || coding === "" || answer.body === null) return answer;
  if (coding !== "gzip") {
    answer.body.cancel();
    throw new GatewayError("upstream_bad_response");
  }
  return { status: answer.status, headers: answer.headers, body: gunzip(answer.body) };
}
