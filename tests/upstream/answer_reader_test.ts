/** The reader of answers: however an answer is cut, the result is the same, or it is refused. */
// runtimes: all
import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { describe, it } from "@std/testing/bdd";
import {
  IncompleteBytes,
  MalformedResponse,
  MAX_HEADER_BYTES,
  MAX_INTERIM_RESPONSES,
} from "../../src/upstream/http1/head_reader.ts";
import { ResponseParser } from "../../src/upstream/http1/response_parser.ts";

/** The results of a reader. */
interface Told {
  heads: [status: number, headers: [string, string][]][];
  body: string;
  ends: number;
  isReusable: boolean;
}

/** A reader, and its results so far. Bytes are latin-1: one character each. */
function startReading(): { reader: ResponseParser; told(): Told } {
  const heads: Told["heads"] = [];
  const chunks: Uint8Array[] = [];
  let ends = 0;
  const reader: ResponseParser = new ResponseParser({
    head(status, headers) {
      assert.deepEqual(
        [heads.length, chunks.length, ends],
        [0, 0, 0],
        "a head comes first, and once",
      );
      heads.push([status, [...headers]]);
    },
    data(bytes) {
      assert.notEqual(bytes.byteLength, 0);
      assert.deepEqual([heads.length, ends], [1, 0], "a body comes between head and end");
      chunks.push(bytes);
    },
    end: () => void ends++,
  });
  const told = () => ({
    heads,
    body: Buffer.concat(chunks).toString("latin1"),
    ends,
    isReusable: reader.isReusable,
  });
  return { reader, told };
}

/** Returns the results of an answer in these pieces, each in separate memory. */
function read(pieces: readonly string[], isClosed = false): Told {
  const { reader, told } = startReading();
  for (const piece of pieces) reader.feed(Buffer.from(piece, "latin1"));
  if (isClosed) reader.close();
  return told();
}

/** The same text whole, cut in two at each position, and byte by byte. */
function* cuts(text: string): Generator<string[]> {
  yield [text];
  for (let at = 1; at < text.length; at++) yield [text.slice(0, at), text.slice(at)];
  yield [...text];
}

const OK = "HTTP/1.1 200 OK\r\n";
const CHUNKED = `${OK}transfer-encoding: chunked\r\n\r\n`;

type Expected = [
  head: string,
  body: string,
  more?: { status?: number; closes?: boolean; isReusable?: boolean },
];

/** Name, bytes, and the expected headers (as lines), body and other results. */
const VALID: Record<string, [answer: string, ...expected: Expected]> = {
  "a length": [`${OK}Content-Length: 5\r\n\r\nhello`, "content-length: 5", "hello"],
  "a length with leading zeros": [
    `${OK}content-length: 005\r\n\r\nhello`,
    "content-length: 005",
    "hello",
  ],
  "no body": [`${OK}content-length: 0\r\n\r\n`, "content-length: 0", ""],
  "no reason": ["HTTP/1.1 200 \r\ncontent-length: 1\r\n\r\nx", "content-length: 1", "x"],
  "neither reason nor space": [
    "HTTP/1.1 200\r\ncontent-length: 1\r\n\r\nx",
    "content-length: 1",
    "x",
  ],
  "obs-text, tabs and no space": [
    `HTTP/1.1 200 \xe9\r\na:\t\xa0b\xff \t\r\nb:\r\nc: d  e\tf\r\ncontent-length:1\r\n\r\n\x00`,
    "a: \xa0b\xff\nb: \nc: d  e\tf\ncontent-length: 1",
    "\x00",
  ],
  "a field that comes twice": [
    `${OK}A: 1\r\nb: 2\r\na: 3\r\ncontent-length: 0\r\n\r\n`,
    "a: 1, 3\nb: 2\ncontent-length: 0",
    "",
  ],
  "names of objects": [
    `${OK}__proto__: 1\r\nconstructor: 2\r\ncontent-length: 0\r\n\r\n`,
    "__proto__: 1\nconstructor: 2\ncontent-length: 0",
    "",
  ],
  "chunks": [
    `${CHUNKED}5\r\nhello\r\n1\r\n \r\n5\r\nworld\r\n0\r\n\r\n`,
    "transfer-encoding: chunked",
    "hello world",
  ],
  "chunks that hold what looks like framing": [
    `${CHUNKED}9\r\n\r\n0\r\n\r\n\r\n\r\n7\r\nHTTP/1.\r\n0\r\n\r\n`,
    "transfer-encoding: chunked",
    "\r\n0\r\n\r\n\r\nHTTP/1.",
  ],
  "no chunk": [`${CHUNKED}000\r\n\r\n`, "transfer-encoding: chunked", ""],
  "sizes in either case": [
    `${OK}Transfer-Encoding: Chunked\r\n\r\nA\r\n0123456789\r\n00b\r\n0123456789a\r\n0\r\n\r\n`,
    "transfer-encoding: Chunked",
    "01234567890123456789a",
  ],
  "extensions": [
    `${CHUNKED}3;a\r\nabc\r\n3 ; a="\xe9;" \r\ndef\r\n1 \r\ng\r\n0;z=1\r\n\r\n`,
    "transfer-encoding: chunked",
    "abcdefg",
  ],
  "a trailer": [`${CHUNKED}1\r\nx\r\n0\r\na: b\r\nC:\r\n\r\n`, "transfer-encoding: chunked", "x"],
  "up to the close": [`${OK}a: b\r\n\r\nhello\r\n0\r\n\r\n`, "a: b", "hello\r\n0\r\n\r\n", {
    closes: true,
  }],
  "nothing up to the close": [`${OK}\r\n`, "", "", { closes: true }],
  "no content": ["HTTP/1.1 204 No Content\r\na: b\r\n\r\n", "a: b", "", { status: 204 }],
  "not modified": ["HTTP/1.1 304 Not Modified\r\n\r\n", "", "", { status: 304 }],
  "no content, framed nevertheless": [
    "HTTP/1.1 204 No Content\r\ntransfer-encoding: chunked\r\n\r\n",
    "transfer-encoding: chunked",
    "",
    { status: 204, isReusable: false },
  ],
  "not modified, with the length it would have": [
    "HTTP/1.1 304 Not Modified\r\ncontent-length: 5\r\n\r\n",
    "content-length: 5",
    "",
    { status: 304, isReusable: false },
  ],
  "interim answers before it": [
    "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n" +
    "HTTP/1.1 404 Not Found\r\ncontent-length: 1\r\n\r\nx",
    "content-length: 1",
    "x",
    { status: 404 },
  ],
  "HTTP/1.0": [
    "HTTP/1.0 200 OK\r\nconnection: keep-alive\r\ncontent-length: 1\r\n\r\nx",
    "connection: keep-alive\ncontent-length: 1",
    "x",
    { isReusable: false },
  ],
  "HTTP/1.0 up to the close": ["HTTP/1.0 200 OK\r\n\r\nx", "", "x", { closes: true }],
  "a body that looks like an answer": [
    `${OK}content-length: 38\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n`,
    "content-length: 38",
    "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
  ],
};

for (
  const [value, isReusable] of Object.entries({
    "close": false,
    "Close": false,
    "keep-alive, CLOSE": false,
    "a,close ,b": false,
    "a\r\nconnection: close": false,
    "closed": true,
    "keep-alive": true,
    "not-close": true,
  })
) {
  const joined = value.replace("\r\nconnection: ", ", ");
  VALID[`connection: ${joined}`] = [
    `${OK}connection: ${value}\r\ncontent-length: 1\r\n\r\nx`,
    `connection: ${joined}\ncontent-length: 1`,
    "x",
    { isReusable },
  ];
}

/** Answers whose meaning must not be guessed. */
const GARBLED: Readonly<Record<string, string>> = {
  "another protocol": "SSH-2.0-OpenSSH_9.2\r\n\r\n",
  "HTTP/2.0": "HTTP/2.0 200 OK\r\ncontent-length: 0\r\n\r\n",
  "HTTP/1.2": "HTTP/1.2 200 OK\r\ncontent-length: 0\r\n\r\n",
  "HTTP/1.10": "HTTP/1.10 200 OK\r\ncontent-length: 0\r\n\r\n",
  "a small protocol": "http/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
  "HTTP/0.9": "{}\r\n\r\n",
  "an empty line first": `\r\n${OK}content-length: 0\r\n\r\n`,
  "a space first": ` ${OK}content-length: 0\r\n\r\n`,
  "a status of two digits": "HTTP/1.1 20 OK\r\ncontent-length: 0\r\n\r\n",
  "a status of four digits": "HTTP/1.1 2000 OK\r\ncontent-length: 0\r\n\r\n",
  "a status below 100": "HTTP/1.1 099 OK\r\ncontent-length: 0\r\n\r\n",
  "two spaces before the status": "HTTP/1.1  200 OK\r\ncontent-length: 0\r\n\r\n",
  "a control character in the reason": "HTTP/1.1 200 O\x07K\r\ncontent-length: 0\r\n\r\n",
  "a header only": "content-length: 0\r\n\r\n",
  "lines that end in LF": "HTTP/1.1 200 OK\ncontent-length: 2\n\n{}",
  "a field that ends in LF": `${OK}a: b\ncontent-length: 2\r\n\r\n{}`,
  "a header that ends in LF": `${OK}content-length: 2\n\n{}`,
  "another protocol from here on": "HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\n\r\n",
  "a garbled interim answer":
    `HTTP/1.1 100 Continue\r\na b: c\r\n\r\n${OK}content-length: 0\r\n\r\n`,
  "a space before the colon": `${OK}content-length : 2\r\n\r\n{}`,
  "a space in a name": `${OK}a b: c\r\ncontent-length: 0\r\n\r\n`,
  "no name": `${OK}: b\r\ncontent-length: 0\r\n\r\n`,
  "no colon": `${OK}a\r\ncontent-length: 0\r\n\r\n`,
  "a name beyond ASCII": `${OK}\xe9: b\r\ncontent-length: 0\r\n\r\n`,
  "a folded field": `${OK}a: b\r\n c\r\ncontent-length: 2\r\n\r\n{}`,
  "a folded first field": `${OK} a: b\r\ncontent-length: 2\r\n\r\n{}`,
  "NUL in a value": `${OK}a: b\x00c\r\ncontent-length: 0\r\n\r\n`,
  "CR in a value": `${OK}a: b\rc\r\ncontent-length: 0\r\n\r\n`,
  "CR at the end of a value": `${OK}content-length: 2\r\r\n\r\n{}`,
  "CR at the end of the header": `${OK}content-length: 2\r\r\n\r\n{}`,
  "a vertical tab before a value": `${OK}transfer-encoding: \x0bchunked\r\n\r\n0\r\n\r\n`,
  "a form feed after a value": `${OK}content-length: 2\x0c\r\n\r\n{}`,
  "a space of latin-1 before a coding": `${OK}transfer-encoding: \xa0chunked\r\n\r\n0\r\n\r\n`,
  "a space of latin-1 after a length": `${OK}content-length: 2\xa0\r\n\r\n{}`,
  "DEL in a value": `${OK}a: \x7f\r\ncontent-length: 0\r\n\r\n`,
  "two lengths": `${OK}content-length: 2\r\ncontent-length: 3\r\n\r\n{}`,
  "the same length twice": `${OK}content-length: 2\r\ncontent-length: 2\r\n\r\n{}`,
  "lengths in a list": `${OK}content-length: 2, 2\r\n\r\n{}`,
  "an empty length": `${OK}content-length:\r\n\r\n`,
  "a length with a sign": `${OK}content-length: +2\r\n\r\n{}`,
  "a length below nothing": `${OK}content-length: -2\r\n\r\n{}`,
  "a length in hexadecimal": `${OK}content-length: 0x2\r\n\r\n{}`,
  "a broken length": `${OK}content-length: 2.0\r\n\r\n{}`,
  "a length beyond counting": `${OK}content-length: 9999999999999999\r\n\r\n{}`,
  "no length for no content": "HTTP/1.1 204 No Content\r\ncontent-length: none\r\n\r\n",
  "a length next to chunks":
    `${OK}content-length: 2\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n`,
  "chunks next to a length":
    `${OK}transfer-encoding: chunked\r\ncontent-length: 2\r\n\r\n2\r\n{}\r\n0\r\n\r\n`,
  "compression below chunks": `${OK}transfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n`,
  "chunks in chunks":
    `${OK}transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n`,
  "chunks with parameters": `${OK}transfer-encoding: chunked;a\r\n\r\n0\r\n\r\n`,
  "chunks that are not last": `${OK}transfer-encoding: chunked, gzip\r\n\r\n0\r\n\r\n`,
  "no known coding": `${OK}transfer-encoding: identity\r\n\r\n{}`,
  "an empty coding": `${OK}transfer-encoding:\r\n\r\n{}`,
  "chunks in HTTP/1.0": "HTTP/1.0 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
  "a chunk size with a sign": `${CHUNKED}+2\r\n{}\r\n0\r\n\r\n`,
  "a chunk size below nothing": `${CHUNKED}-2\r\n{}\r\n0\r\n\r\n`,
  "a chunk size with a prefix": `${CHUNKED}0x10\r\n{}\r\n0\r\n\r\n`,
  "no chunk size": `${CHUNKED}\r\n{}\r\n0\r\n\r\n`,
  "an extension alone": `${CHUNKED};a\r\n{}\r\n0\r\n\r\n`,
  "a space before a chunk size": `${CHUNKED} 2\r\n{}\r\n0\r\n\r\n`,
  "no hexadecimal": `${CHUNKED}g\r\n{}\r\n0\r\n\r\n`,
  "between the digits of a chunk size": `${CHUNKED}1:\r\n{}\r\n0\r\n\r\n`,
  "a list of chunk sizes": `${CHUNKED}2,2\r\n{}\r\n0\r\n\r\n`,
  "a chunk size and a word": `${CHUNKED}2 a\r\n{}\r\n0\r\n\r\n`,
  "a chunk size beyond counting": `${CHUNKED}fffffffffffffffff\r\n{}`,
  "a chunk size that wraps around": `${CHUNKED}10000000000000002\r\n{}\r\n0\r\n\r\n`,
  "CR in an extension": `${CHUNKED}2;\r\r\n{}\r\n0\r\n\r\n`,
  "a chunk size that ends in LF": `${CHUNKED}2\n{}\n0\n\n`,
  "LF in an extension": `${CHUNKED}2;a\nb\r\n{}\r\n0\r\n\r\n`,
  "a chunk without CRLF": `${CHUNKED}2\r\n{}0\r\n\r\n`,
  "a chunk with LF": `${CHUNKED}2\r\n{}\n0\r\n\r\n`,
  "a chunk with CR": `${CHUNKED}2\r\n{}\r0\r\n\r\n`,
  "a chunk that is longer": `${CHUNKED}1\r\n{}\r\n0\r\n\r\n`,
  "a trailer that is none": `${CHUNKED}0\r\nHTTP/1.1 200 OK\r\n\r\n`,
  "a folded trailer": `${CHUNKED}0\r\na: b\r\n c\r\n\r\n`,
  "a trailer that ends in LF": `${CHUNKED}0\r\na: b\n\n`,
  "LF for a trailer": `${CHUNKED}0\r\n\n`,
};

/** Counts the bytes that the reader reads or copies. */
function countWork(act: () => void): number {
  let work = 0;
  const counted = (bytes: Buffer): Buffer =>
    new Proxy(bytes, {
      get(target, key) {
        if (key === "toString") {
          return (encoding: BufferEncoding, start = 0, end = target.length) => {
            work += Math.min(end, target.length) - start;
            return target.toString(encoding, start, end);
          };
        }
        if (typeof key === "string" && /^\d/.test(key)) work++;
        const value: unknown = Reflect.get(target, key, target);
        return typeof value === "function" ? value.bind(target) : value;
      },
    });
  const { join } = IncompleteBytes.prototype;
  const { allocUnsafeSlow } = Buffer;
  IncompleteBytes.prototype.join = function (received) {
    return counted(join.call(this, received));
  };
  Buffer.allocUnsafeSlow = (size) => {
    work += size;
    return allocUnsafeSlow(size);
  };
  try {
    act();
  } finally {
    IncompleteBytes.prototype.join = join;
    Buffer.allocUnsafeSlow = allocUnsafeSlow;
  }
  return work;
}

describe("the reader of answers", () => {
  for (const [name, [answer, head, body, more = {}]] of Object.entries(VALID)) {
    it(`reads, however it is cut: ${name}`, () => {
      const { status = 200, closes = false, isReusable = !closes } = more;
      const lines = head === "" ? [] : head.split("\n");
      const headers = lines.map((line): [string, string] => {
        const colon = line.indexOf(": ");
        return [line.slice(0, colon), line.slice(colon + 2)];
      });
      const expected: Told = { heads: [[status, headers]], body, ends: 1, isReusable };
      for (const pieces of cuts(answer)) {
        assert.deepEqual(read(pieces, closes), expected, JSON.stringify(pieces));
      }
      if (!closes) assert.equal(read([`${answer}x`]).isReusable, false, "bytes after the answer");
      for (let at = 0; at < answer.length; at++) {
        const { ends } = read([answer.slice(0, at)]);
        assert.equal(ends, 0, "it is not complete");
      }
    });
  }

  for (const [name, answer] of Object.entries(GARBLED)) {
    it(`refuses, however it is cut: ${name}`, () => {
      for (const pieces of cuts(answer)) {
        assert.throws(() => read(pieces), MalformedResponse, JSON.stringify(pieces));
      }
    });
  }

  it("bounds a header, a line between chunks and a trailer, wherever they are cut", () => {
    const most = "a".repeat(MAX_HEADER_BYTES);
    const rest = "\r\n\r\n";
    const field = (bytes: number) => `${OK}content-length: 0\r\na: ${most}`.slice(0, bytes);
    const trailer = `${CHUNKED}0\r\na: ${most.slice(4)}\r\n`;
    const cases: [name: string, begin: string, rest: string, isTooLarge: boolean][] = [
      ["header", field(MAX_HEADER_BYTES), rest, false],
      ["header", field(MAX_HEADER_BYTES + 1), rest, true],
      ["line", `${CHUNKED}0;${most.slice(2)}`, rest, false],
      ["line", `${CHUNKED}0;${most.slice(1)}`, rest, true],
      ["trailer", `${trailer}`, "b\r\n\r\n", true],
      ["trailer", `${trailer}b`, ":\r\n\r\n", true],
      ["trailer", trailer, "\r\n", false],
    ];
    for (const [name, begin, end, isTooLarge] of cases) {
      for (let at = 0; at <= end.length; at++) {
        const reading = () =>
          read([begin + end.slice(0, at), end.slice(at)].filter((piece) => piece !== ""));
        if (isTooLarge) assert.throws(reading, MalformedResponse, name);
        else assert.equal(reading().ends, 1, name);
      }
    }
    assert.throws(() => read([`${OK}a: ${most}`]), MalformedResponse, "its end is not awaited");
    assert.throws(() => read([`${CHUNKED}0;${most}`]), MalformedResponse, "its end is not awaited");
  });

  it("counts interim answers and their bytes against the limit of the header", () => {
    const final = `${OK}content-length: 0\r\n\r\n`;
    const small = "HTTP/1.1 102 Processing\r\n\r\n";
    const large = `HTTP/1.1 103 Early Hints\r\nlink: ${"a".repeat(MAX_HEADER_BYTES / 2)}\r\n\r\n`;
    const isRead = (text: string) => {
      for (
        const pieces of [
          [text],
          [text.slice(0, -1), text.slice(-1)],
          text.match(/[^]{1,1000}/g) ?? [],
        ]
      ) {
        assert.equal(read(pieces).ends, 1);
      }
    };
    isRead(small.repeat(MAX_INTERIM_RESPONSES) + final);
    isRead(large + final);
    assert.throws(() => read([small.repeat(MAX_INTERIM_RESPONSES + 1)]), MalformedResponse);
    assert.throws(() => read([large + large]), MalformedResponse);
    assert.throws(
      () => read([large, large.slice(0, -1)]),
      MalformedResponse,
      "its end is not awaited",
    );
    const { reader, told } = startReading();
    for (let number = 0; number < 3; number++) {
      reader.next();
      reader.feed(Buffer.from(small.repeat(MAX_INTERIM_RESPONSES)));
    }
    reader.feed(Buffer.from(final));
    assert.equal(told().ends, 1, "each answer has a limit for itself");
  });

  it("does no more work per byte for bytes that arrive one by one than for bytes that arrive at once", () => {
    const bytes = 20_000;
    const dripped: Record<string, string> = {
      "a header": `${OK}a: ${"x".repeat(bytes)}`,
      "fields": OK + "a: b\r\n".repeat(bytes / 6),
      "a line between chunks": `${CHUNKED}1;${"x".repeat(bytes)}`,
      "a trailer": `${CHUNKED}0\r\na: ${"x".repeat(bytes)}`,
    };
    for (const [name, text] of Object.entries(dripped)) {
      const work = countWork(() => void read([...text]));
      assert.ok(work < 20 * bytes, `${name}: ${work / bytes} bytes of work for each byte`);
    }
  });

  it("ends an answer at the close only if nothing else states its end", () => {
    const cut = [
      "",
      "HTTP/1.1 2",
      `${OK}content-length: 5\r\n\r\nhell`,
      CHUNKED,
      `${CHUNKED}5\r\nhello\r\n`,
      `${CHUNKED}5\r\nhello\r\n0\r\n`,
      "HTTP/1.1 100 Continue\r\n\r\n",
    ];
    for (const answer of cut) {
      const { reader, told } = startReading();
      if (answer !== "") reader.feed(Buffer.from(answer, "latin1"));
      assert.equal(reader.close(), false, answer);
      assert.deepEqual([told().ends, reader.isReusable], [0, false]);
    }
    const { reader, told } = startReading();
    reader.feed(Buffer.from(`${OK}\r\nhello`));
    assert.equal(told().ends, 0);
    assert.equal(reader.close(), true);
    assert.deepEqual([told().ends, reader.isReusable], [1, false]);
    assert.equal(reader.close(), false, "it has ended");
    assert.equal(told().ends, 1);
    const whole = startReading();
    whole.reader.feed(Buffer.from(`${OK}content-length: 0\r\n\r\n`));
    assert.equal(whole.reader.isReusable, true);
    assert.equal(whole.reader.close(), false);
    assert.deepEqual(
      [whole.told().ends, whole.reader.isReusable],
      [1, false],
      "nothing goes over a closed connection",
    );
  });

  it("reads one answer after another, and keeps no state of an earlier answer", () => {
    const statuses: number[] = [];
    let body = "";
    const reader: ResponseParser = new ResponseParser({
      head: (status) => void statuses.push(status),
      data: (bytes) => void (body += Buffer.from(bytes).toString("latin1")),
      end: () => {},
    });
    const answers = [
      `${CHUNKED}3\r\nabc\r\n0\r\na: b\r\n\r\n`,
      "HTTP/1.1 204 No Content\r\n\r\n",
      `${OK}content-length: 2\r\n\r\nde`,
      `${OK}transfer-encoding: chunked\r\n\r\n0\r\n\r\n`,
      `${OK}connection: close\r\ncontent-length: 1\r\n\r\nf`,
    ];
    for (const [index, answer] of answers.entries()) {
      reader.next();
      assert.equal(reader.isReusable, false);
      for (const byte of answer) reader.feed(Buffer.from(byte, "latin1"));
      assert.equal(reader.isReusable, index < answers.length - 1);
    }
    assert.deepEqual([statuses, body], [[200, 204, 200, 200, 200], "abcdef"]);
  });

  it("reads the answer to a HEAD without a body, for any header", () => {
    const toHead = (answer: string) => {
      let ends = 0;
      const reader: ResponseParser = new ResponseParser({
        head() {},
        data: () => assert.fail(),
        end: () => void ends++,
      });
      reader.next(true);
      reader.feed(Buffer.from(answer));
      return [ends, reader.isReusable];
    };
    for (const fields of ["content-length: 5\r\n", "transfer-encoding: chunked\r\n", ""]) {
      assert.deepEqual(toHead(`${OK}${fields}\r\n`), [1, true], fields);
    }
    assert.deepEqual(
      toHead(`${OK}content-length: 5\r\n\r\nhello`),
      [1, false],
      "a body that comes nevertheless",
    );
  });

  it("keeps no large block of memory for a few bytes of a body", () => {
    const kept: unknown[] = [];
    const reader: ResponseParser = new ResponseParser({
      head: () => {},
      data: (bytes) => void kept.push(bytes.buffer),
      end: () => {},
    });
    const came = [CHUNKED, `1;${"a".repeat(60_000)}\r\nx\r\n`].map((text) =>
      Buffer.from(new TextEncoder().encode(text).buffer)
    );
    for (const bytes of came) reader.feed(bytes);
    assert.equal(kept.length, 1);
    assert.notEqual(kept[0], came[1]?.buffer);
  });

  it("finds the same bytes in chunks of any size, cut anywhere", () => {
    let seed = 20_260_801; // mulberry32: the same inputs on each run
    const random = (below: number) => {
      seed = (seed + 0x6d2b79f5) | 0;
      let mixed = Math.imul(seed ^ (seed >>> 15), 1 | seed);
      mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
      return ((mixed ^ (mixed >>> 14)) >>> 0) % below;
    };
    const extensions = ["", "", ";a", ' ; a="b"', ";\t\xe9"];
    for (let round = 0; round < 300; round++) {
      const largest = [3, 40, 3000][round % 3] ?? 3;
      let body = "";
      let framed = `HTTP/1.1 100 Continue\r\n\r\n${CHUNKED}`;
      for (let left = random(30); left > 0; left--) {
        const chunk = Array.from({ length: 1 + random(largest) }, () => "\r\n0;aF \xff"[random(8)])
          .join("");
        const size = chunk.length.toString(16).padStart(random(4), "0");
        framed += `${random(2) === 0 ? size : size.toUpperCase()}${
          extensions[random(5)]
        }\r\n${chunk}\r\n`;
        body += chunk;
      }
      framed += `0${extensions[random(5)]}\r\n${random(2) === 0 ? "" : "a: b\r\n"}\r\n`;
      const pieces: string[] = [];
      for (let at = 0; at < framed.length;) {
        const next = at + 1 + random(random(2) === 0 ? 5 : largest * 2);
        pieces.push(framed.slice(at, next));
        at = next;
      }
      const told = read(pieces);
      assert.ok(told.body === body, `round ${round}`);
      assert.deepEqual([told.ends, told.isReusable], [1, true], `round ${round}`);
    }
  });
});
