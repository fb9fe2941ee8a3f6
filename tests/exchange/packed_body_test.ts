/**
 * Packed bodies of callers: they are read unpacked and forwarded as they came, and whatever a
 * provider could read differently is refused.
 */
// runtimes: all, workers, old node
import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { afterEach, describe } from "@std/testing/bdd";
import * as zlib from "node:zlib";
import { it } from "../support/cases.ts";
import { GOOD_BODY, startUnderTest, STREAM_BODY, type UnderTest } from "../support/gateway.ts";
import { hasZstd, PACKERS, zstd } from "../support/packers.ts";
import { answerAsAsked, type Provider, startProvider } from "../support/provider.ts";
import { isWorkers } from "../support/runtimes.ts";

const CODINGS = Object.entries(PACKERS);
const gzip = (content: string | Uint8Array) => zlib.gzipSync(content);
/** A body with a text that hardly shrinks. */
const bodyOf = (fields: object) => JSON.stringify({ ...JSON.parse(GOOD_BODY), ...fields });
const noise = (bytes: number) =>
  Array.from({ length: bytes / 8 }, (_, at) => (Math.imul(at, 2654435761) >>> 0).toString(36))
    .join(" ");

describe("a packed body", () => {
  let provider: Provider;
  let under: UnderTest;
  const start = async (config: object = {}, settings: Record<string, unknown> = {}) => {
    provider = await startProvider(answerAsAsked);
    under = await startUnderTest({
      upstreams: { a: provider.url },
      config: { ...config },
      provider: settings,
    });
  };
  afterEach(async () => {
    await under.close();
    await provider.close();
  });
  const send = async (coding: string, body: Uint8Array, headers: Record<string, string> = {}) => {
    const response = await fetch(`${under.a}/v1/chat/completions`, {
      method: "POST",
      headers: { ...under.headers, "content-encoding": coding, ...headers },
      body: new Uint8Array(body),
    });
    return { status: response.status, text: await response.text() };
  };
  const refusal = async (coding: string, body: Uint8Array, headers = {}) => {
    const { status, text } = await send(coding, body, headers);
    return `${status} ${JSON.parse(text).error?.code}`;
  };

  for (const [coding, pack] of CODINGS) {
    it(`in ${coding} is read, and forwarded byte for byte with its header`, async () => {
      await start();
      const bodies = [GOOD_BODY, STREAM_BODY, bodyOf({ padding: noise(400_000) })];
      for (const [index, body] of bodies.entries()) {
        const packed = pack(body);
        assert.equal((await send(coding.toUpperCase(), packed)).status, 200);
        const call = provider.calls[index] ?? assert.fail("no call");
        assert.ok(packed.equals(call.body), "the bytes differ");
        assert.equal(call.headers["content-encoding"], coding);
        assert.equal(call.headers["content-length"], String(packed.byteLength));
      }
      await under.settled(3);
      assert.deepEqual(under.records.map(({ model, stream }) => [model, stream]), [
        ["test-1", false],
        ["test-1", true],
        ["test-1", false],
      ]);
      assert.equal(under.records[0]?.bytesIn, pack(GOOD_BODY).byteLength);
    });

    it(`in ${coding} is checked like any other body`, async () => {
      await start();
      for (
        const [body, code] of [
          ['{"model":', "400 invalid_json"],
          ["", "400 invalid_json"],
          [bodyOf({ model: 7 }), "400 invalid_body"],
          [bodyOf({ messages: [] }), "400 invalid_body"],
        ] as const
      ) assert.equal(await refusal(coding, pack(body)), code, body);
      assert.equal(provider.calls.length, 0);
    });

    it(`in ${coding} that is cut, damaged or followed by bytes is refused [packed body]`, async () => {
      await start();
      const body = bodyOf({ padding: noise(300) });
      const packed = pack(body);
      for (let length = 1; length < packed.byteLength; length += length < 30 ? 1 : 41) {
        assert.equal(
          await refusal(coding, packed.subarray(0, length)),
          "400 invalid_content_encoding",
          `${length} of ${packed.byteLength}`,
        );
      }
      const last = packed.subarray(0, -1);
      assert.equal(await refusal(coding, last), "400 invalid_content_encoding");
      for (const more of [Buffer.from("\0"), Buffer.from("more"), packed, pack("")]) {
        assert.equal(
          await refusal(coding, Buffer.concat([packed, more])),
          "400 invalid_content_encoding",
          `followed by ${more.byteLength} bytes`,
        );
      }
      for (const empties of [[pack("")], [pack(""), pack("")]]) {
        assert.equal(
          await refusal(coding, Buffer.concat([...empties, packed])),
          "400 invalid_content_encoding",
          `after ${empties.length} without content`,
        );
      }
      for (let at = 0; at < packed.byteLength; at += 23) {
        const damaged = Buffer.from(packed);
        damaged[at] = (damaged[at] ?? 0) ^ 0x10;
        const { status } = await send(coding, damaged);
        assert.ok(status === 400 || status === 413 || status === 200, `${status} at ${at}`);
      }
      assert.equal((await send(coding, packed)).status, 200, "the gateway still works");
    });

    it(`in ${coding} that is a bomb, or too large, is refused early [packed body]`, async () => {
      await start({ limits: { body: "1MB" } });
      const bomb = pack(Buffer.alloc(20_000_000, " "));
      assert.ok(bomb.byteLength < 100_000);
      assert.equal(await refusal(coding, bomb), "413 body_too_large");
      const large = pack(bodyOf({ padding: noise(3_000_000) }));
      assert.equal(await refusal(coding, large), "413 body_too_large");
      const thin = pack(bodyOf({ padding: " ".repeat(900_000) }));
      const { status, text } = await send(coding, thin);
      assert.equal(status, 413);
      assert.match(text, /200 times the packed size/);
      assert.equal((await send(coding, pack(bodyOf({ padding: " ".repeat(50_000) })))).status, 200);
      assert.equal(provider.calls.length, 1);
    });

    it(`in ${coding} needs memory for its content too`, async () => {
      await start({ limits: { body: "1MB", bodies: "1MB" } });
      const body = pack(bodyOf({ padding: noise(400_000) + " ".repeat(600_000) }));
      assert.ok(body.byteLength < 1_000_000);
      assert.equal(await refusal(coding, body), "503 gateway_overloaded");
      assert.equal((await send(coding, pack(GOOD_BODY))).status, 200, "the memory is free again");
    });

    it(`in ${coding} under the name of another coding is refused`, async () => {
      await start();
      for (const named of Object.keys(PACKERS).filter((each) => each !== coding)) {
        assert.match(
          await refusal(named, pack(GOOD_BODY)),
          /^400 invalid_content_encoding$|^413/,
          named,
        );
      }
      assert.equal(await refusal(coding, Buffer.from(GOOD_BODY)), "400 invalid_content_encoding");
      assert.equal(await refusal("identity", pack(GOOD_BODY)), "400 invalid_json");
      assert.equal(provider.calls.length, 0);
    });
  }

  it("in gzip is refused after an empty member of any form", async () => {
    await start();
    const header = Buffer.from("1f8b0800000000000003", "hex");
    const end = Buffer.alloc(8);
    const named = Buffer.from("1f8b08080000000000036100", "hex"); // with a file name
    for (
      const member of [
        [header, Buffer.from("0300", "hex"), end], // a block with fixed codes
        [header, Buffer.from("010000ffff", "hex"), end], // a stored block
        [header, Buffer.from("000000ffff010000ffff", "hex"), end], // two of them
        [named, zlib.deflateRawSync("", { level: 0 }), end],
      ]
    ) {
      const empty = Buffer.concat(member);
      assert.equal(await refusal("gzip", empty), "400 invalid_json", empty.toString("hex"));
      assert.equal(
        await refusal("gzip", Buffer.concat([empty, gzip(GOOD_BODY)])),
        "400 invalid_content_encoding",
        empty.toString("hex"),
      );
    }
    const damaged = Buffer.concat([header, Buffer.from("0300", "hex"), Buffer.alloc(8, 1)]);
    assert.equal(
      await refusal("gzip", Buffer.concat([damaged, gzip(GOOD_BODY)])),
      "400 invalid_content_encoding",
      "with a wrong checksum and size",
    );
    assert.equal(provider.calls.length, 0);
  });

  it("is not packed if the header lists no coding, which is then not forwarded", async () => {
    await start();
    const body = Buffer.from(GOOD_BODY);
    for (const coding of ["", ",", "identity"]) {
      assert.equal((await send(coding, body)).status, 200, coding);
      assert.equal(provider.calls.at(-1)?.headers["content-encoding"], undefined, coding);
    }
    assert.equal(await refusal("", gzip(GOOD_BODY)), "400 invalid_json");
  });

  it("in another coding, or in several, is refused, and the codings are named", async () => {
    await start();
    const several = ["gzip, br", "gzip,gzip", "gzip, identity", "compress", "x-gzip", "aes128gcm"];
    for (const coding of several) {
      const { status, text } = await send(coding, gzip(gzip(GOOD_BODY)));
      assert.deepEqual([status, JSON.parse(text).error.code], [
        415,
        "unsupported_content_encoding",
      ]);
      assert.match(text, new RegExp(`expected one of ${Object.keys(PACKERS).join(", ")}"`), coding);
    }
    assert.equal(provider.calls.length, 0);
  });

  it("of another type than JSON is refused, because servers read packed forms differently", async () => {
    await start();
    const form = gzip('--x\r\ncontent-disposition: form-data; name="model"\r\n\r\nm\r\n--x--\r\n');
    const response = await fetch(`${under.a}/v1/audio/transcriptions`, {
      method: "POST",
      headers: {
        ...under.headers,
        "content-type": "multipart/form-data; boundary=x",
        "content-encoding": "gzip",
      },
      body: new Uint8Array(form),
    });
    assert.equal(response.status, 415);
    assert.match(await response.text(), /only a body of JSON/);
  });

  if (!isWorkers) {
    it("in raw deflate, or in Brotli that could be JSON or has a large window, is refused", async () => {
      await start();
      const raw = zlib.deflateRawSync(GOOD_BODY);
      assert.equal(await refusal("deflate", raw), "400 invalid_content_encoding");
      // An uncompressed block of Brotli with a small window, whose first byte is a space.
      for (const first of [0x20, 0x0a, 0x00, 0xef]) {
        const text = Buffer.concat([Buffer.of(first), zlib.brotliCompressSync(GOOD_BODY)]);
        assert.equal(await refusal("br", text), "400 invalid_content_encoding");
      }
      const { BROTLI_PARAM_LARGE_WINDOW, BROTLI_PARAM_LGWIN } = zlib.constants;
      const params = { [BROTLI_PARAM_LARGE_WINDOW]: 1, [BROTLI_PARAM_LGWIN]: 30 };
      const large = zlib.brotliCompressSync(GOOD_BODY, { params });
      assert.equal(await refusal("br", large), "400 invalid_content_encoding", "a large window");
    });
  }

  if (hasZstd) {
    it("in zstd with several frames, or a window that needs much memory, is refused", async () => {
      await start();
      const frame = zstd(GOOD_BODY);
      const skippable = Buffer.from("502a4d1804000000abcdefab", "hex");
      for (const parts of [[skippable, frame], [frame, skippable]]) {
        assert.equal(
          await refusal("zstd", Buffer.concat(parts)),
          "400 invalid_content_encoding",
        );
      }
      // A window of 128 MB in the descriptor (RFC 8878 §3.1.1.1.2), and one raw block.
      const size = Buffer.byteLength(GOOD_BODY);
      const header = Buffer.from("28b52ffd0000000000", "hex");
      header[5] = (27 - 10) << 3;
      header.writeUIntLE((size << 3) | 1, 6, 3);
      const raw = Buffer.concat([header, Buffer.from(GOOD_BODY)]);
      assert.equal(await refusal("zstd", raw), "400 invalid_content_encoding");
      raw[5] = (20 - 10) << 3;
      assert.equal((await send("zstd", raw)).status, 200, "a window of 1 MB");
    });
  }

  it("decides about models and limits by its content", async () => {
    const key = "a-key-with-a-strict-limit";
    const limits = { tokens: "20k/h", mode: "strict" };
    const keys = [{ id: "strict", key, models: ["test-1"], limits }];
    await start({ keys }, { maxOutput: 50_000 });
    const own = { "gateway-auth": `Bearer ${key}` };
    const ask = (fields: object) => refusal("gzip", gzip(bodyOf(fields)), own);
    assert.equal(await ask({ model: "other" }), "403 model_not_allowed");
    assert.equal(await ask({}), "400 request_exceeds_limit");
    assert.equal(await ask({ max_tokens: 30_000 }), "400 request_exceeds_limit");
    assert.equal(await ask({ max_tokens: 100, n: 500 }), "400 request_exceeds_limit");
    assert.equal(await ask({ max_tokens: 10 }), "200 undefined");
  });

  it("is read for the other interfaces too", async () => {
    await start();
    const packed = gzip(JSON.stringify({ model: "test-2", input: "Hi", max_tokens: 5 }));
    for (const path of ["responses", "messages", "embeddings"]) {
      const response = await fetch(`${under.a}/v1/${path}`, {
        method: "POST",
        headers: { ...under.headers, "content-encoding": "gzip" },
        body: new Uint8Array(packed),
      });
      await response.text();
      assert.ok(packed.equals(provider.calls.at(-1)?.body ?? assert.fail()), path);
    }
    await under.settled(3);
    assert.deepEqual(under.records.map(({ model }) => model), ["test-2", "test-2", "test-2"]);
  });

  it("of a provider that is called by fetch can have gzip alone", async () => {
    await start({}, { transport: "fetch" });
    const packed = gzip(GOOD_BODY);
    assert.equal((await send("gzip", packed)).status, 200);
    assert.ok(packed.equals(provider.calls[0]?.body ?? assert.fail()));
    assert.equal(provider.calls[0]?.headers["content-encoding"], "gzip");
    const { status, text } = await send("br", packed);
    assert.equal(status, 415);
    assert.match(text, /expected one of gzip"/);
    for (const broken of [packed.subarray(0, -1), Buffer.concat([packed, packed])]) {
      assert.equal(await refusal("gzip", broken), "400 invalid_content_encoding");
    }
    const bomb = gzip(Buffer.alloc(50_000_000));
    assert.equal(await refusal("gzip", bomb), "413 body_too_large");
  });

  it("has the recorded answer of its content, packed or not", async () => {
    await start({}, { durable: { keep: "1m" } });
    const named = { "idempotency-key": "one" };
    assert.equal((await send("gzip", gzip(GOOD_BODY), named)).status, 200);
    assert.equal((await send("gzip", gzip(GOOD_BODY), named)).status, 200);
    assert.equal((await send("identity", Buffer.from(GOOD_BODY), named)).status, 200);
    assert.equal(
      await refusal("gzip", gzip(bodyOf({ seed: 1 })), named),
      "422 idempotency_key_reused",
    );
    assert.equal(provider.calls.length, 1);
  });

  it("is not edited: the gateway does not ask for the usage of its stream", async () => {
    await start({}, { usage: "ask" });
    const packed = gzip(STREAM_BODY);
    assert.equal((await send("gzip", packed)).status, 200);
    assert.ok(packed.equals(provider.calls[0]?.body ?? assert.fail()));
    assert.equal((await send("identity", Buffer.from(STREAM_BODY))).status, 200);
    assert.match(String(provider.calls[1]?.body), /include_usage/);
    assert.equal(provider.calls[1]?.headers["content-encoding"], undefined);
  });
});
