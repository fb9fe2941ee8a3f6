/**
 * Compares the gateway's HTTP/1.1 client with the client of `node:http`: both read the same random
 * responses, valid and invalid, from a server that splits them at random places.
 * `tests/upstream/http1_fuzz_test.ts` runs a few, `npm run fuzz` many.
 */
import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { type IncomingMessage, request as requestHttp } from "node:http";
import { type AddressInfo, createServer, type Socket } from "node:net";
import { setImmediate as turn } from "node:timers/promises";
import { isDeepStrictEqual } from "node:util";
import fc from "fast-check";
import { runtimeParts } from "../../src/serve/compose.ts";
import { MAX_HEADER_BYTES } from "../../src/upstream/http1/head_reader.ts";
import { bytesOf, toUpstreamCall } from "./upstream_call.ts";

/**
 * A response as its server sends it: latin-1, one character for each byte. The connection ends
 * after it.
 */
export interface SentResponse {
  readonly text: string;
  /** Places at which it is split, as fractions of its length. */
  readonly cuts: readonly number[];
}

/** A response as a client read it; `undefined` for an error at any place. */
type ReadResponse = { status: number; headers: Record<string, string>; body: string } | undefined;

const weighted = (
  ...weights: [weight: number, text: fc.Arbitrary<string> | string][]
): fc.Arbitrary<string> =>
  fc.oneof(
    ...weights.filter(([weight]) => weight > 0).map(([weight, text]) => ({
      weight,
      arbitrary: typeof text === "string" ? fc.constant(text) : text,
    })),
  );
const joined = (...parts: (fc.Arbitrary<string> | string)[]): fc.Arbitrary<string> =>
  fc.tuple(...parts.map((part) => typeof part === "string" ? fc.constant(part) : part)).map((
    texts,
  ) => texts.join(""));
const many = (part: fc.Arbitrary<string>, maxLength: number): fc.Arbitrary<string> =>
  fc.array(part, { maxLength }).map((parts) => parts.join(""));
const textOf = (characters: string, maxLength: number): fc.Arbitrary<string> =>
  fc.string({ unit: fc.constantFrom(...characters), maxLength });

const bytes = weighted([6, textOf("{}\r\n0;aF\0\xff", 60)], [
  1,
  fc.nat(3000).map((size) => "x\r\n".repeat(size)),
]);
const blanks = weighted([6, " "], [2, ""], [1, "\t "], [1, "   "]);

/** A framing of the body: its header fields, and the body as it is sent. */
interface Framed {
  readonly framing: string;
  readonly body: string;
}

/**
 * Fields of a header or a trailer. @param odd Weight of forms that RFC 9110 forbids, relative to 30
 * of those it allows
 */
function fieldsOf(odd: number): fc.Arbitrary<string> {
  const end = weighted([60, "\r\n"], [odd, "\n"], [odd, "\r"], [odd, "\r\r\n"]);
  const name = weighted(
    [
      30,
      fc.constantFrom(
        "a",
        "X-B",
        "content-type",
        "Set-Cookie",
        "keep-alive",
        "__proto__",
        "constructor",
        "Date",
      ),
    ],
    [5, textOf("aZ09!#$%&'*+-.^_`|~", 8).map((text) => `x${text}`)],
    [odd, textOf("a :()\xe9\0/,", 4)],
  );
  const value = weighted([30, textOf('aB 9,;="\t\xe9\x80\xff', 20)], [
    odd,
    textOf("a\0\x01\x0b\x7f\r\n", 3),
  ]);
  const field = weighted(
    [30, joined(name, ":", blanks, value, blanks, end)],
    [2, joined("connection: ", fc.constantFrom("close", "keep-alive", "Close, x"), end)],
    [odd, joined(name, " : ", value, end)],
    [odd, joined(fc.constantFrom(" ", "\t"), value, end)],
    [odd, joined(value, end)],
  );
  return many(field, 4);
}

function chunkedOf(odd: number): fc.Arbitrary<Framed> {
  const extension = weighted(
    [40, ""],
    [2, ";a"],
    [2, ";a=b"],
    [2, ';a="b c"'],
    ...EXTENSIONS.map((text): [number, string] => [odd, text]),
  );
  const chunk = fc.tuple(
    bytes.filter((data) => data !== ""),
    extension,
    fc.boolean(),
    fc.nat(3),
    weighted([40, "\r\n"], [odd, "\n"], [odd, ""], [odd, "x\r\n"]),
  ).map(([data, extension, isUpper, zeros, end]) => {
    const size = "0".repeat(zeros) + data.length.toString(16);
    return `${isUpper ? size.toUpperCase() : size}${extension}\r\n${data}${end}`;
  });
  const last = joined(
    weighted([20, "0"], [2, "00"], [odd, "-0"]),
    extension,
    "\r\n",
    weighted([3, ""], [1, fieldsOf(odd)]),
    "\r\n",
  );
  const coding = weighted(
    [20, "chunked"],
    [2, "Chunked"],
    ...CODINGS.map((text): [number, string] => [odd, text]),
  );
  return fc.tuple(coding, many(chunk, 4), last).map(([coding, chunks, last]) => ({
    framing: `Transfer-Encoding: ${coding}\r\n`,
    body: chunks + last,
  }));
}
const EXTENSIONS = ["; a", " ", ";", ";\xe9\t", ";a\x01", "x"];
const CODINGS = [
  "gzip, chunked",
  "chunked, gzip",
  "identity",
  "",
  "chunked;a",
  "chunked, chunked",
  "xchunked",
];

function sizedOf(odd: number): fc.Arbitrary<Framed> {
  const size = (length: number) =>
    weighted(
      [20, `${length}`],
      [2, `00${length}`],
      ...["+", "-", "0x"].map((sign): [number, string] => [odd, sign + length]),
      ...[" 1", ", 5", "x", `, ${length}`, ".0", "0".repeat(16), "1", "\x0b"].map((
        more,
      ): [number, string] => [odd, length + more]),
    );
  return bytes.chain((body) =>
    size(body.length).map((size) => ({ framing: `Content-Length: ${size}\r\n`, body }))
  );
}

function framedOf(odd: number): fc.Arbitrary<Framed> {
  const [sized, chunked] = [sizedOf(odd), chunkedOf(odd)];
  const both = fc.tuple(sized, chunked, fc.boolean()).map(([one, other, isFirst]) => ({
    framing: one.framing + other.framing,
    body: isFirst ? one.body : other.body,
  }));
  const twice = sized.map(({ framing, body }) => ({ framing: framing + framing, body }));
  return fc.oneof(
    { weight: 8, arbitrary: sized },
    { weight: 12, arbitrary: chunked },
    { weight: 3, arbitrary: bytes.map((body) => ({ framing: "", body })) },
    ...odd === 0 ? [] : [{ weight: odd, arbitrary: both }, { weight: odd, arbitrary: twice }],
  );
}

/** A response. @param odd Weight of forms that RFC 9112 forbids; 0 for none of them */
function responseOf(odd: number): fc.Arbitrary<string> {
  const reason = weighted([20, " OK"], [3, ""], [3, " "], [3, " Not \xe9\t found"], [odd, "  x"], [
    odd,
    " \x01",
  ]);
  const version = weighted(
    [30, "HTTP/1.1"],
    [3, "HTTP/1.0"],
    [odd, "HTTP/2.0"],
    [odd, "HTTP/1.2"],
    [odd, "http/1.1"],
  );
  const status = weighted(
    [20, "200"],
    [3, "204"],
    [3, "304"],
    [5, fc.integer({ min: 200, max: 599 }).map(String)],
    [odd, fc.constantFrom("99", "099", "1000", "101", "600", "2 0")],
  );
  const fields = fieldsOf(odd);
  const interim = joined(
    "HTTP/1.1 ",
    fc.constantFrom("100", "102", "103", "199"),
    reason,
    "\r\n",
    fields,
    "\r\n",
  );
  return fc.tuple(
    weighted([20, ""], [3, interim], [1, joined(interim, interim)], [
      odd,
      fc.constantFrom("\r\n", "\n", " "),
    ]),
    joined(
      version,
      weighted([30, " "], [odd, "  "], [odd, ""]),
      status,
      reason,
      weighted([30, "\r\n"], [odd, "\n"]),
    ),
    fields,
    framedOf(odd),
    fields,
    weighted([30, "\r\n"], [odd, "\n"]),
    weighted([20, ""], [1, "x"], [1, "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"], [1, "\r\n"]),
  ).map(([before, start, some, { framing, body }, more, end, after]) =>
    before + start + some + framing + more + end + body + after
  );
}

/** A place in a text, as a fraction of its length. */
const place = fc.noBias(fc.nat(9999)).map((part) => part / 10_000);

/** Any response: mostly as built, otherwise with one byte changed, or truncated. */
export const anyResponse: fc.Arbitrary<SentResponse> = fc.record({
  text: fc.tuple(
    fc.oneof({ weight: 3, arbitrary: responseOf(0) }, { weight: 1, arbitrary: responseOf(1) }),
    weighted([12, "none"], [1, "insert"], [1, "replace"], [1, "delete"], [1, "cut off"]),
    place,
    fc.constantFrom(..."\r\n\0 :;,\t09aFx\x7f\xff"),
  ).map(([text, change, place, byte]) => {
    const at = Math.floor(place * text.length);
    if (change === "none") return text;
    if (change === "cut off") return text.slice(0, at);
    return text.slice(0, at) + (change === "delete" ? "" : byte) +
      text.slice(change === "insert" ? at : at + 1);
  }),
  cuts: fc.array(place, { maxLength: 6 }),
});

/** Splits a text into pieces, none of them empty. */
function toPieces({ text, cuts }: SentResponse): string[] {
  const edges = [
    0,
    ...cuts.map((cut) => Math.floor(cut * text.length)).sort((one, other) => one - other),
    text.length,
  ];
  return edges.slice(1).map((edge, index) => text.slice(edges[index], edge)).filter((piece) =>
    piece !== ""
  );
}

async function sendPieces(socket: Socket, pieces: readonly string[]): Promise<void> {
  for (const piece of pieces) {
    if (socket.destroyed) return;
    socket.write(piece, "latin1");
    await turn();
  }
  socket.end();
}

/** Reads a response with the gateway's client. */
async function readOwn(url: string): Promise<ReadResponse> {
  try {
    const response = await runtimeParts().transport.send(toUpstreamCall(url, { method: "GET" }));
    const headers: Record<string, string> = {};
    response.headers.forEach((value, name) => headers[`${name}:`] = value);
    return {
      status: response.status,
      headers,
      body: Buffer.from(await bytesOf(response)).toString("latin1"),
    };
  } catch {
    return undefined;
  }
}

/** Reads a response with `node:http`. */
async function readReference(url: string): Promise<ReadResponse> {
  try {
    const response = await new Promise<IncomingMessage>((resolve, reject) => {
      const request = requestHttp(url, { agent: false, maxHeaderSize: MAX_HEADER_BYTES }, resolve);
      request.on("error", reject).on("close", () => reject(new Error("No response"))).end();
    });
    const headers: Record<string, string> = {};
    const { rawHeaders } = response;
    for (let at = 0; at < rawHeaders.length; at += 2) {
      // The colon avoids property names of Object.prototype.
      const name = `${rawHeaders[at]?.toLowerCase()}:`;
      const value = rawHeaders[at + 1] ?? "";
      headers[name] = name in headers ? `${headers[name]}, ${value}` : value;
    }
    const chunks: Buffer[] = [];
    for await (const chunk of response) chunks.push(chunk);
    return {
      status: response.statusCode ?? 0,
      headers,
      body: Buffer.concat(chunks).toString("latin1"),
    };
  } catch {
    return undefined;
  }
}

/** An intended difference from `node:http`: the reason, and the responses that it explains. */
type Difference = readonly [reason: string, explained: RegExp];

/** Responses that the gateway's client refuses although `node:http` accepts them. */
const STRICTER: readonly Difference[] = [
  [
    "an empty line before a status, also behind an interim response, may be the rest of another response",
    /^(?:HTTP\/1\.[01] 1\d\d[^]*?\r\n\r\n)*[\r\n]/,
  ],
  ["only HTTP/1.0 and HTTP/1.1 are spoken", /(?:^|\r\n)HTTP\/(?!1\.[01] )/],
  ["a status has three digits from 100 on", /(?:^|\r\n)HTTP\/1\.[01] 0/],
  [
    "a reason is field text (RFC 9112 §4)",
    // deno-lint-ignore no-control-regex -- control characters are what it looks for
    /(?:^|\r\n)HTTP\/1\.[01] \d{3} [^\r\n]*(?:[\0-\x08\x0b\x0c\x0e-\x1f\x7f]|\r(?!\n))/,
  ],
  ["no other protocol is spoken after a 101", /(?:^|\r\n)HTTP\/1\.[01] 101/],
  [
    "the only coding is chunked, once (RFC 9112 §6.1)",
    /\r\ntransfer-encoding:(?![\t ]*chunked[\t ]*\r\n)/i,
  ],
  ["HTTP/1.0 has no codings (RFC 9112 §6.1)", /(?:^|\r\n)HTTP\/1\.0 [^]*\r\ntransfer-encoding:/i],
  [
    "a length has at most 15 digits, which a number holds exactly",
    /\r\ncontent-length:[\t ]*\d{16}/i,
  ],
];
/** Responses that the gateway's client accepts although `node:http` refuses them. */
const LOOSER: readonly Difference[] = [
  [
    "extensions of chunks are ignored, whatever their form (RFC 9112 §7.1.1)",
    /\r\n[0-9a-f]+(?:[\t ]|;(?!a(?:=b|="b c")?\r\n))/i,
  ],
  ["an interim response of HTTP/1.0 does not announce a close", /(?:^|\r\n)HTTP\/1\.0 1\d\d/],
  [
    "an interim response does not announce a close",
    /(?:^|\r\n)HTTP\/1\.[01] 1\d\d[^]*\r\nconnection:[^\r\n]*close/i,
  ],
];

const EMPTY = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
/** Responses on which the two once disagreed: they are compared first. */
const FOUND: readonly string[] = [
  `HTTP/1.1 100\r\n\r\n\r${EMPTY}`,
  `HTTP/1.1 100 OK\r\n\r\nHTTP/1.0 100 OK\r\n\r\n${EMPTY}`,
  "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\t\r\n\r\n0\r\n\r\n",
];

/** Responses that both accept, but read differently. */
const OTHERWISE: readonly Difference[] = [
  [
    "a tab after a coding is white space (RFC 9110 §5.6.3)",
    /\r\ntransfer-encoding:[\t ]*chunked *\t/i,
  ],
];

/** Returns the differences that can explain the two results; none if they agree. */
function differencesOf(own: ReadResponse, reference: ReadResponse): readonly Difference[] {
  if (isDeepStrictEqual(own, reference)) return [];
  if (own === undefined) return STRICTER;
  return reference === undefined ? LOOSER : OTHERWISE;
}

/** Counts of a run. */
export interface FuzzCounts {
  /** Responses that both clients read in the same way. */
  readonly read: number;
  /** Responses that both refused. */
  readonly refused: number;
  /** Responses that one client refuses and the other reads, by the reason. */
  readonly differences: Readonly<Record<string, number>>;
}

/**
 * Sends random responses to both clients, and fails with the smallest response found on which they
 * disagree.
 *
 * @param cases The number of responses
 * @param seed The same seed produces the same responses
 */
export async function fuzzHttp1(cases: number, seed: number): Promise<FuzzCounts> {
  let pieces: readonly string[] = [];
  const server = createServer({ noDelay: true }, (socket) => {
    socket.on("error", () => {}).once("data", () => void sendPieces(socket, pieces)).resume();
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/`;
  const counts = { read: 0, refused: 0, differences: {} as Record<string, number> };
  try {
    await fc.assert(
      fc.asyncProperty(anyResponse, async (sent) => {
        pieces = toPieces(sent);
        const [own, reference] = [await readOwn(url), await readReference(url)];
        const [reason] = differencesOf(own, reference).find(([, explained]) =>
          explained.test(sent.text)
        ) ?? [];
        if (reason !== undefined) {
          counts.differences[reason] = (counts.differences[reason] ?? 0) + 1;
        } else {
          assert.deepEqual(own, reference, JSON.stringify(sent.text));
          counts[own === undefined ? "refused" : "read"]++;
        }
      }),
      { numRuns: cases, seed, examples: FOUND.map((text): [SentResponse] => [{ text, cuts: [] }]) },
    );
  } finally {
    server.close();
  }
  return counts;
}
