/** `sallyport explain` reads packed bodies exactly as the gateway does. */
// runtimes: all
import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterEach, beforeEach, describe } from "@std/testing/bdd";
import { it } from "../support/cases.ts";
import { runCommand } from "../support/command.ts";
import { freePort } from "../support/free_port.ts";
import { GOOD_BODY, STREAM_BODY } from "../support/gateway.ts";
import { PACKERS } from "../support/packers.ts";
import { makeFolder } from "../support/program.ts";

const KEY = "a-gateway-key-of-our-own";
const CODINGS = Object.entries(PACKERS);
const INVALID = "400 invalid_content_encoding";

describe("sallyport explain and a packed body", () => {
  let folder: ReturnType<typeof makeFolder>;
  beforeEach(() => {
    folder = makeFolder();
  });
  afterEach(() => folder.remove());

  /** Writes a configuration whose only provider has these settings. */
  async function configure(settings: Record<string, unknown> = {}): Promise<void> {
    const config = {
      listen: [{ port: await freePort() }],
      limits: { body: "1MB" },
      providers: { a: { hosts: ["a.localhost"], upstream: "http://127.0.0.1:9/v1", ...settings } },
      keys: [{ id: "me", key: KEY, models: ["test-*"] }],
    };
    writeFileSync(join(folder.path, "gateway.jsonc"), JSON.stringify(config));
  }
  async function explain(coding: string, body: Uint8Array) {
    const head = [
      "POST /v1/chat/completions HTTP/1.1",
      "Host: a.localhost",
      "Authorization: Bearer sk-of-the-caller",
      `Gateway-Auth: Bearer ${KEY}`,
      "Content-Type: application/json",
      `Content-Encoding: ${coding}`,
      "",
      "",
    ].join("\r\n");
    writeFileSync(join(folder.path, "request"), Buffer.concat([Buffer.from(head), body]));
    const { stdout, stderr } = await runCommand(["explain", "request", "--json"], {
      cwd: folder.path,
    });
    assert.ok(stdout.startsWith("{"), stderr);
    return JSON.parse(stdout);
  }
  const refusalOf = async (coding: string, body: Uint8Array) => {
    const { outcome, refusal } = await explain(coding, body);
    return outcome === "refused" ? `${refusal.status} ${refusal.code}` : outcome;
  };

  for (const [coding, pack] of CODINGS) {
    it(`in ${coding} shows the call with the caller's own bytes, by its content`, async () => {
      await configure();
      const packed = pack(STREAM_BODY);
      const { outcome, model, stream, call } = await explain(coding, packed);
      assert.deepEqual([outcome, model, stream], ["forwarded", "test-1", true]);
      assert.equal(call.bodyBytes, packed.byteLength);
      assert.equal(call.headers["content-encoding"], coding);
      const other = pack(GOOD_BODY.replace("test-1", "gpt-5"));
      assert.equal(await refusalOf(coding, other), "403 model_not_allowed");
    });

    it(`in ${coding} is refused if it is cut, or followed by other bytes`, async () => {
      await configure();
      const packed = pack(GOOD_BODY);
      assert.equal(await refusalOf(coding, packed.subarray(0, -1)), INVALID);
      for (const more of [Buffer.from("\0"), packed]) {
        assert.equal(await refusalOf(coding, Buffer.concat([packed, more])), INVALID);
      }
    });

    it(`in ${coding} is refused if it is a bomb`, async () => {
      await configure();
      const bomb = pack(Buffer.alloc(20_000_000, " "));
      assert.equal(await refusalOf(coding, bomb), "413 body_too_large");
      const padded = JSON.stringify({ ...JSON.parse(GOOD_BODY), padding: " ".repeat(900_000) });
      const { refusal } = await explain(coding, pack(padded));
      assert.match(refusal.message, /200 times the packed size/);
    });
  }

  it("in several codings is refused, and the codings are named", async () => {
    await configure();
    const expected = new RegExp(`expected one of ${Object.keys(PACKERS).join(", ")}$`);
    for (const coding of ["gzip, br", "gzip,gzip", "compress"]) {
      const { refusal } = await explain(coding, Buffer.from(GOOD_BODY));
      assert.deepEqual([refusal.status, refusal.code], [415, "unsupported_content_encoding"]);
      assert.match(refusal.message, expected);
    }
  });

  it("can have gzip alone for a provider that is called by fetch", async () => {
    await configure({ transport: "fetch" });
    const { gzip, br } = PACKERS;
    assert.ok(gzip !== undefined && br !== undefined);
    assert.equal(await refusalOf("gzip", gzip(GOOD_BODY)), "forwarded");
    const { refusal } = await explain("br", br(GOOD_BODY));
    assert.match(refusal.message, /expected one of gzip$/);
  });

  it("is read for a provider with its own egress", async () => {
    await configure({ egress: { proxy: "http://127.0.0.1:9" } });
    for (const [coding, pack] of CODINGS) {
      assert.equal(await refusalOf(coding, pack(GOOD_BODY)), "forwarded", coding);
    }
  });
});
