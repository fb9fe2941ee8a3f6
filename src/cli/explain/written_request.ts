/**
 * Requests in common written forms: raw HTTP, an entry of a HAR file saved by a browser, or a curl
 * command copied from a browser or from documentation.
 *
 * @module
 */
import { Buffer } from "node:buffer";
import type { ByteSource, GatewayRequest } from "../../http/message.ts";
import { CommandLineError } from "../command.ts";
import { splitWords } from "./shell_words.ts";

/** A parsed request. */
export interface WrittenRequest {
  readonly method: string;
  /** Absolute, or the path with its query. */
  readonly url: string;
  /** In the order of the source. Names in any case. */
  readonly headers: readonly (readonly [name: string, value: string])[];
  readonly body: Uint8Array | undefined;
}

const FORMS = "raw HTTP, an entry of a HAR file, or a command line of curl";

function refuse(what: string): never {
  throw new CommandLineError(`cannot read the request: ${what}; expected ${FORMS}`);
}

/** The first line of a request. The version is optional, for requests typed by hand. */
const REQUEST_LINE = /^([A-Z]+) (\S+)(?: HTTP\/[\d.]+)?$/;
// RFC 9110 §5.6.2
const HEADER_LINE = /^([!#$%&'*+\-.^_`|~0-9A-Za-z]+):[ \t]*(.*?)[ \t]*$/;

function readRaw(bytes: Uint8Array): WrittenRequest {
  const text = Buffer.from(bytes).toString("latin1"); // one character per byte
  const end = /\r?\n\r?\n/.exec(text);
  const [first = "", ...lines] = text.slice(0, end?.index).trimEnd().split(/\r?\n/);
  const [, method, url] = REQUEST_LINE.exec(first) ?? [];
  if (method === undefined || url === undefined) return refuse("its first line is no request line");
  const headers = lines.map((line): [string, string] => {
    const [, name, value] = HEADER_LINE.exec(line) ?? [];
    return name === undefined || value === undefined
      ? refuse("a line of its header is no field")
      : [name, value];
  });
  if (
    headers.some(([name, value]) => /^transfer-encoding$/i.test(name) && /chunked/i.test(value))
  ) {
    return refuse("its body is chunked: write it down whole, without Transfer-Encoding");
  }
  const body = end === null ? undefined : bytes.subarray(end.index + end[0].length);
  return { method, url, headers, body: body?.byteLength === 0 ? undefined : body };
}

interface Har {
  readonly method?: unknown;
  readonly url?: unknown;
  readonly headers?: readonly { readonly name?: unknown; readonly value?: unknown }[];
  readonly postData?: { readonly text?: unknown };
}

/** Reads an entry, only the request of an entry, or the first entry of a whole file. */
function readHar(text: string): WrittenRequest {
  let content;
  try {
    content = JSON.parse(text);
  } catch {
    return refuse("it is no JSON");
  }
  const entry = content?.log?.entries?.[0] ?? content;
  const { method, url, headers, postData }: Har = entry?.request ?? entry ?? {};
  if (typeof method !== "string" || typeof url !== "string") {
    return refuse("its JSON has no method and url");
  }
  const fields = (Array.isArray(headers) ? headers : []).map((field): [string, string] => {
    const { name, value } = Object(field);
    return typeof name === "string" && typeof value === "string"
      ? [name, value]
      : refuse("a header of its JSON has no name and value");
  });
  const authority = fields.find(([name]) => name === ":authority")?.[1]; // HTTP/2 has no Host
  const hasHost = fields.some(([name]) => /^host$/i.test(name));
  return {
    method,
    url,
    headers: [
      ...fields.filter(([name]) => !name.startsWith(":")),
      ...(authority !== undefined && !hasHost ? [["host", authority] as const] : []),
    ],
    body: typeof postData?.text === "string" ? Buffer.from(postData.text) : undefined,
  };
}

/** Options of curl that have a value and are ignored. */
const IGNORED_WITH_VALUE =
  /^(?:-[mowxbcE]|--(?:max-time|output|write-out|proxy|cookie-jar|connect-timeout|cacert|cert|key|resolve|retry))$/;

/** Options of curl that are not supported: bodies in other forms, and credentials. */
const NOT_UNDERSTOOD = /^(?:-F|--form|-T|--upload-file|-u|--user)/;
const DATA = /^(?:-d|--data(?:-raw|-binary|-ascii)?|--json)$/;

/** The parts of a request from the options of curl so far. */
interface CurlRequest {
  method: string | undefined;
  url: string | undefined;
  readonly headers: [name: string, value: string][];
  readonly data: string[];
}

function hasType({ headers }: CurlRequest): boolean {
  return headers.some(([name]) => name.toLowerCase() === "content-type");
}

/** Splits an option from a joined value, as in `--request=POST` and `-XPOST`. */
function splitOption(word: string): readonly [option: string, value: string | undefined] {
  const [, long, assigned] = /^(--[\w-]+)=([^]*)$/.exec(word) ?? [];
  if (long !== undefined) return [long, assigned];
  const [, short = word, joined] = /^(-[XHdA])([^]+)$/.exec(word) ?? [];
  return [short, joined];
}

function addData(request: CurlRequest, option: string, text: string): void {
  if (text.startsWith("@") && option !== "--data-raw") {
    refuse("its data is in a file: write it down here");
  }
  request.data.push(text);
  if (option === "--json" && !hasType(request)) {
    request.headers.push(["content-type", "application/json"]);
  }
}

/** Reads one option, or an argument, which is the URL. */
function addOption(request: CurlRequest, option: string, value: () => string): void {
  if (option === "-X" || option === "--request") request.method = value();
  else if (option === "--url") request.url = value();
  else if (option === "-H" || option === "--header") {
    const [, name = "", text = ""] = HEADER_LINE.exec(value()) ?? [];
    if (text !== "") request.headers.push([name, text]);
  } else if (option === "-A" || option === "--user-agent") {
    request.headers.push(["user-agent", value()]);
  } else if (DATA.test(option)) addData(request, option, value());
  else if (NOT_UNDERSTOOD.test(option)) refuse(`curl's ${option} is not understood here`);
  else if (IGNORED_WITH_VALUE.test(option)) value();
  else if (!option.startsWith("-")) request.url ??= option;
}

/** Reads the curl options that describe the request. */
function readCurl(words: readonly string[]): WrittenRequest {
  const request: CurlRequest = { method: undefined, url: undefined, headers: [], data: [] };
  const rest = words.slice(1);
  for (let word = rest.shift(); word !== undefined; word = rest.shift()) {
    const [option, joined] = splitOption(word);
    const value = () => joined ?? rest.shift() ?? refuse(`curl's ${option} has no value`);
    addOption(request, option, value);
  }
  const { method, url, headers, data } = request;
  if (url === undefined) return refuse("curl's command line has no URL");
  const body = data.length === 0 ? undefined : Buffer.from(data.join("&"));
  if (body !== undefined && !hasType(request)) {
    headers.push(["content-type", "application/x-www-form-urlencoded"]);
  }
  const isBare = !/^[a-z]+:\/\//i.test(url);
  return {
    method: method ?? (body === undefined ? "GET" : "POST"),
    url: isBare ? `http://${url}` : url,
    headers,
    body,
  };
}

/** Reads a request from the content of a file. @throws {CommandLineError} For another form */
export function readWrittenRequest(bytes: Uint8Array): WrittenRequest {
  const text = Buffer.from(bytes).toString("utf8").trimStart();
  if (text === "") return refuse("it is empty");
  if (text.startsWith("{")) return readHar(text);
  if (/^(?:\$ )?curl\s/.test(text)) return readCurl(splitWords(text.replace(/^\$ /, "")));
  return readRaw(bytes);
}

/** Returns a body that is completely in memory. */
function toSource(bytes: Uint8Array): ByteSource {
  let isRead = false;
  return {
    isWhole: true,
    read() {
      const chunk = isRead ? undefined : bytes;
      isRead = true;
      return Promise.resolve(chunk);
    },
    cancel() {},
  };
}

/**
 * Converts a request to the form that a listener creates. The length is computed from the body and
 * the stated one is ignored: the body can have been edited.
 */
export function toGatewayRequest(written: WrittenRequest): GatewayRequest {
  const { method, url, headers: given, body } = written;
  const headers = new Map<string, string>();
  const absolute = /^https?:\/\//i.test(url) && URL.canParse(url) ? new URL(url) : undefined;
  if (absolute !== undefined) headers.set("host", absolute.host);
  const seen = new Set<string>();
  for (const [field, value] of given) {
    const name = field.toLowerCase();
    const before = seen.has(name) ? headers.get(name) : undefined;
    headers.set(name, before === undefined ? value : `${before}, ${value}`);
    seen.add(name);
  }
  headers.delete("content-length");
  if (body !== undefined) headers.set("content-length", String(body.byteLength));
  return {
    method,
    url: absolute === undefined ? url : absolute.pathname + absolute.search,
    headers: {
      get: (name) => headers.get(name) ?? null,
      forEach: (act) => headers.forEach(act),
    },
    body: body === undefined ? null : toSource(body),
  };
}
