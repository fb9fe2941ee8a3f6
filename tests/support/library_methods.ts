/**
 * The methods of the client libraries, as `tests/clients/methods/*.txt` lists them: one row a
 * method, with the calls it makes, what it sends and what it gets. The tests of the matrix call
 * each, and `npm run docs` writes the page from them.
 */
import { readFileSync } from "node:fs";
import process from "node:process";

/** A library that has a list. */
export type LibraryName = "openai" | "anthropic";

/** How a method sends what it is given besides identifiers. */
export type Sends = "-" | "query" | "body" | "form";

/** In which form a call is answered. */
export type Answers = "json" | "page" | "sse" | "binary" | "lines" | "empty";

/** A call that a method makes: its path begins after `/v1`, with parameters such as `:file_id`. */
export interface Call {
  readonly method: string;
  readonly path: string;
}

/** One row. */
export interface LibraryMethod {
  /** Such as `chat.completions.create`. */
  readonly name: string;
  /**
   * In their order; none where it calls nobody by itself, for the reason that the row states after
   * `none: `.
   */
  readonly calls: readonly Call[];
  readonly sends: Sends;
  /** How the last call is answered; in more than one form where the caller chooses. */
  readonly answers: readonly Answers[];
}

function toCall(text: string): Call {
  const [method = "", path = ""] = text.split(" ");
  return { method, path };
}

/** Reads the list of a library. */
export function readMethods(library: LibraryName): LibraryMethod[] {
  const text = readFileSync(`${process.cwd()}/tests/clients/methods/${library}.txt`, "utf8");
  return text.trim().split("\n").map((line) => {
    const [name = "", calls = "", sends = "-", answers = ""] = line.split(/ {2,}/);
    return {
      name,
      calls: calls.startsWith("none: ") ? [] : calls.split(" + ").map(toCall),
      sends: sends as Sends, // the rows are ours; a wrong word fails the matrix
      answers: answers === "-" ? [] : answers.split("|") as Answers[],
    };
  });
}

/**
 * Lists the methods that a library's client offers now: those of its resources, and of the
 * resources within them.
 */
export function listMethods(client: object): string[] {
  const isResource = (value: unknown): value is object =>
    typeof value === "object" && value !== null && "_client" in value;
  const within = (holder: object): [string, object][] =>
    Object.entries(holder).filter(([name, value]) => name !== "_client" && isResource(value));
  const walk = (name: string, resource: object): string[] => {
    const prototype = Object.getPrototypeOf(resource);
    const own = Object.getOwnPropertyNames(prototype)
      // A name that begins with _ is the library's own affair.
      .filter((each) =>
        !/^(?:constructor|_.*)$/.test(each) && typeof prototype[each] === "function"
      );
    return [
      ...own.map((each) => `${name}.${each}`),
      ...within(resource).flatMap(([inner, value]) => walk(`${name}.${inner}`, value)),
    ];
  };
  return within(client).flatMap(([name, value]) => walk(name, value));
}
