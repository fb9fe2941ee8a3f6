/**
 * Content encodings, unpacked by `node:zlib`.
 *
 * @module
 */
import type { Transform } from "node:stream";
import * as zlib from "node:zlib";
import type { ByteSource } from "../../http/message.ts";
import { runtime } from "../../runtime.ts";

type Inflater = Transform & zlib.Zlib;

/**
 * Returns whether a body has the zlib format. Its first byte names the method "deflate" (RFC 1950
 * §2.2). Some servers send raw deflate instead.
 */
const isZlibFormat = (first: number | undefined): boolean => ((first ?? 0) & 0x0f) === 8;
/** Largest Zstandard window for HTTP, 8 MB (RFC 9659), as a power of two. */
const ZSTD_WINDOW_LOG = 23;
// Node has zstd since 22.15. Bun 1.4 and Deno 2.9 accept a truncated body as complete.
const hasZstd = "createZstdDecompress" in zlib;
const findsTruncatedZstd = hasZstd && runtime === "node";
const ZSTD_OPTIONS = {
  params: { [zlib.constants.ZSTD_d_windowLogMax]: ZSTD_WINDOW_LOG },
};

/**
 * Byte that is written after a Brotli body. A complete body does not consume it. Without it, Deno
 * 2.9 accepts a truncated body as complete.
 */
const PROBE = new Uint8Array(1);

/**
 * Functions by coding, which create the decompressor for a body that begins with the given byte.
 */
const INFLATERS: Readonly<Record<string, (first: number | undefined) => Inflater>> = {
  gzip: () => zlib.createGunzip(),
  deflate: (first) => isZlibFormat(first) ? zlib.createInflate() : zlib.createInflateRaw(),
  br: () => zlib.createBrotliDecompress(),
  ...(hasZstd && {
    zstd: () => zlib.createZstdDecompress(ZSTD_OPTIONS),
  }),
};

/**
 * A body that is unpacked while it is read. The next chunk is written only when all output of the
 * one before has been read. So the unread output is bounded by the stream's own buffers (64 KB),
 * regardless of the unpacked size of a chunk.
 */
class Unpacked implements ByteSource {
  readonly #packed: ByteSource;
  readonly #coding: string;
  #inflater: Inflater | undefined;
  #fedBytes = 0;
  #isBusy = false;
  /** True once the packed body was read to its end. */
  #isFed = false;
  #isOver = false;
  #failure: Error | undefined;
  #wake = (): void => {};

  constructor(coding: string, packed: ByteSource) {
    this.#coding = coding;
    this.#packed = packed;
  }

  async read(): Promise<Uint8Array | undefined> {
    while (true) {
      if (this.#failure !== undefined) throw this.#failure;
      if (this.#isOver) return undefined;
      const chunk = this.#inflater?.read() as Uint8Array | null | undefined;
      const isFromProbe = this.#isFed && this.#coding === "br";
      if (chunk && isFromProbe) throw new Error("The packed body is cut");
      if (chunk) return chunk;
      const happened = new Promise<void>((resolve) => this.#wake = resolve);
      if (!this.#isBusy && !this.#isFed) await this.#feed();
      if (!this.#isOver) await happened;
    }
  }

  cancel(reason?: unknown): void {
    this.#isOver = true;
    this.#inflater?.destroy();
    this.#packed.cancel(reason);
    this.#wake();
  }

  async #feed(): Promise<void> {
    const packed = await this.#packed.read();
    if (this.#isOver) return;
    if (packed === undefined) {
      this.#isFed = true;
      if (this.#inflater === undefined) this.#isOver = true; // no body at all
      else this.#inflater.end(this.#coding === "br" ? PROBE : undefined);
      return;
    }
    if (packed.byteLength === 0) return this.#wake();
    this.#isBusy = true;
    this.#fedBytes += packed.byteLength;
    this.#inflater ??= this.#start(packed[0]);
    this.#inflater.write(packed, (error) => {
      this.#isBusy = false;
      this.#told(error);
    });
  }

  #start(first: number | undefined): Inflater {
    const inflater = INFLATERS[this.#coding]?.(first);
    if (inflater === undefined) throw new TypeError("Cannot unpack this coding");
    return inflater.on("readable", () => this.#wake()).on("error", (error) => this.#told(error)).on(
      "end",
      () => {
        this.#isOver = true;
        // Bytes that zlib did not consume are not part of the body. Most decoders stop before them
        // without an error.
        const isWhole = inflater.bytesWritten === this.#fedBytes;
        this.#told(
          isWhole ? undefined : new Error("The packed body is cut, or followed by something else"),
        );
      },
    );
  }

  #told(error: Error | null | undefined): void {
    this.#failure ??= error ?? undefined;
    this.#wake();
  }
}

/**
 * Unpacks zstd in one step. On Deno 2.9, the stream throws errors that no code can catch
 * (2026-11-27).
 */
function unpackZstdAtOnce(body: ByteSource, maxOutputLength: number): ByteSource {
  return {
    async read() {
      const packed = await body.read();
      return packed && zlib.zstdDecompressSync(packed, { ...ZSTD_OPTIONS, maxOutputLength });
    },
    cancel: (reason) => body.cancel(reason),
  };
}

/**
 * Unpacks gzip (of any number of members), deflate and Brotli, and Zstandard: on Node from 22.15
 * on, and elsewhere in bodies that are known to be complete.
 */
export function unpackNode(
  coding: string,
  body: ByteSource,
  mostBytes?: number,
): ByteSource | undefined {
  if (!Object.hasOwn(INFLATERS, coding)) return undefined;
  if (coding !== "zstd" || findsTruncatedZstd) return new Unpacked(coding, body);
  if (mostBytes === undefined) return undefined;
  return runtime === "deno" ? unpackZstdAtOnce(body, mostBytes) : new Unpacked(coding, body);
}
