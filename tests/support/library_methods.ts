/**
 * The methods of the client libraries, as `tests/clients/methods/*.txt` lists them: one row per
 * method, with its calls, its arguments and its answers. The tests of the matrix call each method,
 * and `npm run docs` makes the page from the list.
 */
import { readFileSync } from "node:fs";
import process from "node:process";

/** A library with a list. */
export type LibraryName = "openai" | "anthropic";

/** How a method sends its arguments other than identifiers. */
export type Sends = "-" | "query" | "body" | "form";

/** The form of a call's answer. */
export type Answers = "json" | "page" | "sse" | "binary" | "lines" | "empty";

/** A call of a method: its path starts after `/v1`, with parameters such as `:file_id`. */
export interface Call {
  readonly method: string;
  readonly path: string;
}

/** A row of the list. */
export interface LibraryMethod {
  /** Such as `chat.completions.create`. */
  readonly name: string;
  /**
   * In their order; empty if the method makes no call itself, for the reason in its row after
   * `none: `.
   */
  readonly calls: readonly Call[];
  readonly sends: Sends;
  /** The forms of the last call's answer; several if the caller chooses. */
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
      sends: sends as Sends, // the rows are our own; the matrix fails on a wrong word
      answers: answers === "-" ? [] : answers.split("|") as Answers[],
    };
  });
}

/** Lists the methods of a library's client, in its resources and in nested resources. */
export function listMethods(client: object): string[] {
  const isResource = (value: unknown): value is object =>
    typeof value === "object" && value !== null && "_client" in value;
  const within = (holder: object): [string, object][] =>
    Object.entries(holder).filter(([name, value]) => name !== "_client" && isResource(value));
  const walk = (name: string, resource: object): string[] => {
    const prototype = Object.getPrototypeOf(resource);
    const own = Object.getOwnPropertyNames(prototype)
      // A name that starts with _ is internal to the library.
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
