/** Packers of content encodings, one for each coding that the runtime under test can unpack. */
import { Buffer } from "node:buffer";
import * as zlib from "node:zlib";
import { isWorkers } from "./runtimes.ts";

/** Packs content. */
export type Pack = (content: string | Uint8Array) => Buffer;

/** Node has Zstandard from 22.15 on. */
export const hasZstd: boolean = !isWorkers && "zstdCompressSync" in zlib;
const ZSTD_MAGIC = Buffer.from("28b52ffd", "hex");
/** Packs one frame. Deno 2.9 appends an empty frame to a large one. */
export function zstd(content: string | Uint8Array): Buffer {
  const packed = zlib.zstdCompressSync(content);
  const last = packed.lastIndexOf(ZSTD_MAGIC);
  return last > 0 ? packed.subarray(0, last) : packed;
}

/** A fast level of Brotli. The default takes seconds. */
const FAST = { params: { [zlib.constants.BROTLI_PARAM_QUALITY]: 4 } };
/** The codings that the runtime under test can unpack. Workers have `DecompressionStream` alone. */
export const PACKERS: Readonly<Record<string, Pack>> = {
  gzip: (content) => zlib.gzipSync(content),
  ...(!isWorkers && {
    deflate: (content: string | Uint8Array) => zlib.deflateSync(content),
    br: (content: string | Uint8Array) => zlib.brotliCompressSync(content, FAST),
  }),
  ...(hasZstd && { zstd }),
};
