/**
 * JSON, deflated: what gateways leave in Redis for each other. It is packed and unpacked beside the event loop.
 *
 * @module
 */
import { Buffer } from "node:buffer";
import { promisify } from "node:util";
import { deflateRaw, inflateRaw } from "node:zlib";

const [deflate, inflate] = [promisify(deflateRaw), promisify(inflateRaw)];

/** Limit of an unpacked value, so that few bytes can't take much memory. Bytes. */
const MAX_UNPACKED_BYTES = 8_000_000;
/** Deflate's fastest level: it halves the time of the default one, and packs these values to a fifth all the same. */
const LEVEL = 1;

/** Packs a value. @param value Made of what JSON has */
export async function packJson(value: unknown): Promise<Uint8Array> {
  return await deflate(Buffer.from(JSON.stringify(value)), { level: LEVEL });
}

/** Unpacks a value. @returns `undefined` for what is no packed JSON */
export async function unpackJson(packed: Uint8Array): Promise<unknown> {
  try {
    return JSON.parse((await inflate(packed, { maxOutputLength: MAX_UNPACKED_BYTES })).toString());
  } catch {
    return undefined;
  }
}
