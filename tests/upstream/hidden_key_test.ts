/** The removal of a held key from bodies, however they are divided. */
import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { describe, it } from "@std/testing/bdd";
import type { ByteSource } from "../../src/http/message.ts";
import { hideKey } from "../../src/upstream/hidden_key.ts";

/** Begins and ends with the same letter, so that its end could begin another one. */
const KEY = "abacabxa";
const TEXTS = ["", KEY, `${KEY}${KEY}`, `abac${KEY}abacab`, `aba${KEY.slice(1)}xa`, `a${KEY}ab`];

function toSource(text: string, cuts: readonly number[]): ByteSource {
  const ends = [...cuts, text.length];
  const pieces = ends.map((end, index) => text.slice(ends[index - 1] ?? 0, end));
  return sourceOf(pieces.map((piece) => new TextEncoder().encode(piece)));
}

/** A body of these chunks. */
function sourceOf(chunks: readonly Uint8Array[]): ByteSource {
  const remaining = chunks.values();
  return { read: () => Promise.resolve(remaining.next().value), cancel() {} };
}

/** Reads a body. @param isSlow True to request each piece */
function read(body: ByteSource, isSlow: boolean): Promise<string> {
  const hidden = hideKey({ status: 200, headers: new Headers(), body }, KEY).body;
  assert.ok(hidden !== null && "pushTo" in hidden);
  return new Promise((resolve, reject) => {
    let text = "";
    let askForMore = (): void => {};
    askForMore = hidden.pushTo({
      write(bytes) {
        text += new TextDecoder().decode(bytes);
        if (isSlow) queueMicrotask(() => askForMore());
        return !isSlow;
      },
      end: () => resolve(text),
      fail: reject,
    });
  });
}

describe("a held key in a body", () => {
  it("is replaced by asterisks, wherever the body is divided", async () => {
    for (const text of TEXTS) {
      const wanted = text.replaceAll(KEY, "*".repeat(KEY.length));
      for (let first = 0; first <= text.length; first++) {
        for (let second = first; second <= text.length; second++) {
          const cuts = [first, second];
          assert.equal(await read(toSource(text, cuts), false), wanted, `${text} ${cuts}`);
          assert.equal(await read(toSource(text, cuts), true), wanted, `${text} ${cuts}, slowly`);
        }
      }
    }
  });

  it("does not change the bytes of the transport, which can be parts of one Buffer", async () => {
    const text = `before ${KEY} and ${KEY.slice(0, 4)}`;
    const shared = Buffer.from(text);
    const wanted = text.replace(KEY, "*".repeat(KEY.length));
    assert.equal(await read(sourceOf([shared]), false), wanted);
    assert.equal(shared.toString(), text);
  });

  it("keeps the bytes that wait for the next chunk, if the transport uses their memory again", async () => {
    const shared = Buffer.from(`before ${KEY.slice(0, 4)}`);
    const chunks = [shared, Buffer.from("another end")];
    const body: ByteSource = {
      read() {
        const chunk = chunks.shift();
        if (chunk !== shared) shared.fill(0);
        return Promise.resolve(chunk);
      },
      cancel() {},
    };
    assert.equal(await read(body, false), `before ${KEY.slice(0, 4)}another end`);
  });

  it("ends a stream of frames with checksums, wherever the body is divided", async () => {
    const text = `before ${KEY} after`;
    const headers = new Headers({ "content-type": "application/vnd.amazon.eventstream" });
    for (let cut = 0; cut <= text.length; cut++) {
      const source = toSource(text, [cut]);
      let isCancelled = false;
      const body = { ...source, cancel: () => void (isCancelled = true) };
      const hidden = hideKey({ status: 200, headers, body }, KEY).body;
      assert.ok(hidden !== null && "pushTo" in hidden);
      let passed = "";
      const failures: unknown[] = [];
      await new Promise<void>((resolve) => {
        hidden.pushTo({
          write(bytes) {
            passed += new TextDecoder().decode(bytes);
            return true;
          },
          end: () => assert.fail("a clean end"),
          fail(error) {
            failures.push(error);
            resolve();
          },
        });
      });
      assert.ok("before ".startsWith(passed), passed);
      assert.deepEqual([failures.length, isCancelled], [1, true]);
    }
  });
});
