/**
 * Content encodings: every body is whole however it is cut, no broken one passes as whole, and
 * nothing is read ahead.
 */
// runtimes: all, old node
import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { describe } from "@std/testing/bdd";
import * as zlib from "node:zlib";
import type { ByteSource } from "../../src/http/message.ts";
import { GatewayError } from "../../src/errors/gateway_error.ts";
import { toIdentityCoding, unpackGzip } from "../../src/upstream/unpack.ts";
import { unpackNode } from "../../src/upstream/http1/unpack.ts";
import { it } from "../support/cases.ts";
import { runtime } from "../support/runtimes.ts";
import { textOf } from "../support/upstream_call.ts";

/** A body in pieces of a size, and the number of pieces that were read. */
function inPieces(
  bytes: Uint8Array,
  size: number,
): ByteSource & { taken: number; isCancelled: boolean } {
  let at = 0;
  return {
    taken: 0,
    isCancelled: false,
    read() {
      if (at >= bytes.byteLength) return Promise.resolve(undefined);
      this.taken++;
      return Promise.resolve(bytes.subarray(at, at += size));
    },
    cancel() {
      this.isCancelled = true;
    },
  };
}

const hasZstd = runtime === "node" && "zstdCompressSync" in zlib;
/** A fast level. The default takes seconds. */
const FAST = { params: { [zlib.constants.BROTLI_PARAM_QUALITY]: 4 } };
const PACKINGS: Readonly<
  Record<string, readonly [coding: string, pack: (text: string) => Buffer]>
> = {
  "gzip": ["gzip", (text) => zlib.gzipSync(text)],
  "deflate": ["deflate", (text) => zlib.deflateSync(text)],
  "deflate without its header": ["deflate", (text) => zlib.deflateRawSync(text)],
  "br": ["br", (text) => zlib.brotliCompressSync(text, FAST)],
  ...(hasZstd && { "zstd": ["zstd", (text: string) => zlib.zstdCompressSync(text)] as const }),
};
const SHORT = '{"object":"chat.completion","choices":[{"index":0,"message":{"content":"Hello"}}]}';
/** A text that is partly compressible. */
const LONG = Array.from(
  { length: 3000 },
  (_, line) => `${SHORT}${Math.imul(line, 2654435761) >>> 0}`,
).join("\n");

const unpackWith = (unpack: typeof unpackNode, coding: string, source: ByteSource) =>
  textOf({
    status: 200,
    headers: new Map(),
    body: unpack(coding, source) ?? assert.fail(`no ${coding}`),
  });
const unpacked = (coding: string, packed: Uint8Array, size = packed.byteLength) =>
  unpackWith(unpackNode, coding, inPieces(packed, Math.max(1, size)));

describe("a packed body", () => {
  for (const [name, [coding, pack]] of Object.entries(PACKINGS)) {
    it.large(`in ${name} is read whole, however it is cut`, async () => {
      for (const size of [1, 3, 1000, Infinity]) {
        assert.equal(await unpacked(coding, pack(SHORT), size), SHORT);
        if (size > 1) {
          assert.ok(await unpacked(coding, pack(LONG), size) === LONG, `pieces of ${size}`);
        }
      }
      assert.equal(await unpacked(coding, pack("")), "");
    });

    it(`in ${name} that ends too early, or continues, never ends like a whole one`, async () => {
      const packed = pack(SHORT);
      for (const size of [1, Infinity]) {
        for (let length = 1; length < packed.byteLength; length++) {
          await assert.rejects(
            unpacked(coding, packed.subarray(0, length), size),
            `${length} of ${packed.byteLength}`,
          );
        }
        for (const more of ["\0", "x", "more of it", "\x1f"]) {
          await assert.rejects(
            unpacked(coding, Buffer.concat([packed, Buffer.from(more)]), size),
            `with ${more}`,
          );
        }
      }
    });

    it(`in ${name} is unpacked no faster than it is read`, async () => {
      const packed = pack("a".repeat(30_000_000));
      const source = inPieces(packed, 512);
      const body = unpackNode(coding, source) ?? assert.fail();
      let bytes = 0;
      while (bytes < 1_000_000) {
        bytes += (await body.read())?.byteLength ?? assert.fail("too short");
      }
      await new Promise((resolve) => setTimeout(resolve, 20));
      assert.ok(source.taken <= 8, `${source.taken} pieces taken`);
      body.cancel();
      assert.equal(source.isCancelled, true);
      assert.ok(await body.read() === undefined, "nothing is read from it any more");
    });
  }

  it("in gzip can have several members", async () => {
    const packed = Buffer.concat(["a", SHORT, "", "b"].map((text) => zlib.gzipSync(text)));
    for (const size of [1, 20, Infinity]) {
      assert.equal(await unpacked("gzip", packed, size), `a${SHORT}b`);
    }
  });

  it("without a byte is empty", async () => {
    for (const coding of ["gzip", "deflate", "br"]) {
      assert.equal(await unpacked(coding, new Uint8Array()), "");
    }
  });

  it("passes each event on as it arrives", async () => {
    const streams = {
      gzip: zlib.createGzip({ flush: zlib.constants.Z_SYNC_FLUSH }),
      deflate: zlib.createDeflate({ flush: zlib.constants.Z_SYNC_FLUSH }),
      br: zlib.createBrotliCompress({ flush: zlib.constants.BROTLI_OPERATION_FLUSH }),
    };
    for (const [coding, packer] of Object.entries(streams)) {
      const source: ByteSource = {
        read: () =>
          new Promise((resolve) => {
            const take = () => {
              const chunk = packer.read() as Uint8Array | null;
              if (chunk !== null) resolve(chunk);
              else packer.once("readable", take);
            };
            take();
          }),
        cancel() {},
      };
      const body = unpackNode(coding, source) ?? assert.fail();
      for (const event of ["data: one\n\n", "data: two\n\n", "data: three\n\n"]) {
        packer.write(event);
        let came = "";
        while (came.length < event.length) {
          came += Buffer.from(await body.read() ?? assert.fail()).toString();
        }
        assert.equal(came, event, coding);
      }
      body.cancel();
      packer.destroy();
    }
  });

  it("rejects with the error that broke it", async () => {
    const source: ByteSource = { read: () => Promise.reject(new Error("reset")), cancel() {} };
    await assert.rejects(unpackWith(unpackNode, "gzip", source), /reset/);
  });

  it("over fetch is unpacked if it is gzip of one member, and otherwise rejects", async () => {
    const packed = zlib.gzipSync(LONG);
    const read = (bytes: Uint8Array, size = 1000) =>
      unpackWith(unpackGzip, "gzip", inPieces(bytes, size));
    assert.ok(await read(packed) === LONG);
    assert.ok(await read(packed, Infinity) === LONG);
    assert.equal(await read(Buffer.from(SHORT)), SHORT, "fetch has unpacked it");
    await assert.rejects(read(packed.subarray(0, -1)));
    await assert.rejects(read(Buffer.concat([packed, Buffer.from("x")]), Infinity));
    const bomb = inPieces(zlib.gzipSync("a".repeat(30_000_000)), Infinity);
    const body = unpackGzip("gzip", bomb) ?? assert.fail();
    assert.ok(((await body.read())?.byteLength ?? 0) < 1_000_000, "in small pieces");
    body.cancel();
    assert.equal(unpackGzip("br", bomb), undefined);
  });

  it("is refused if its coding cannot be read", () => {
    for (
      const [coding, named] of [["gzip, br", true], ["ZSTD ", true], [
        "x".repeat(99),
        false,
      ]] as const
    ) {
      if (hasZstd && coding.startsWith("ZSTD")) continue;
      const body = inPieces(new Uint8Array(1), 1);
      const answer = { status: 200, headers: new Map([["content-encoding", coding]]), body };
      assert.throws(() => toIdentityCoding(answer, { unpack: unpackNode }), (error) => {
        assert.ok(GatewayError.is(error) && error.code === "upstream_unsupported_encoding");
        assert.equal(error.message.includes(coding.trim().toLowerCase()), named);
        return true;
      });
      assert.equal(body.isCancelled, true);
    }
    const plain = { status: 200, headers: new Map([["content-encoding", "identity"]]), body: null };
    assert.equal(toIdentityCoding(plain, {}), plain);
  });
});
