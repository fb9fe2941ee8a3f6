/**
 * Scripts for Redis whose keys and arguments have names: a single layout defines the order of a
 * call's arguments and the variables of the script.
 *
 * @module
 */
import type { Buffer } from "node:buffer";

/** Start of a script that needs the time: `now`, milliseconds by the clock of the server. */
export const NOW = `local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
`;

/** Kinds of arguments, as scripts read them. A flag is true or false. */
type ArgumentKind = "text" | "number" | "flag";
type Fields = Readonly<Record<string, ArgumentKind>>;
type KindOf<Value> = [Value] extends [boolean] ? "flag" : "text" | "number";

/**
 * The members of a call: a key, an argument, or the fields of each item of a list. A list of texts
 * has one field, the text.
 */
export type ScriptLayout<Call> = {
  readonly [Name in keyof Call]-?: Call[Name] extends readonly (infer Item)[]
    ? Item extends object ? { readonly [Field in keyof Item]-?: KindOf<Item[Field]> } : Fields
    : "key" | KindOf<Call[Name]>;
};

/** Names of the lists of a call. */
type ListOf<Call> = {
  [Name in keyof Call]: Call[Name] extends readonly unknown[] ? Name : never;
}[keyof Call];

type Value = string | number | boolean | Buffer;
type Item = string | Readonly<Record<string, Value>>;
/** A call, as its layout reads it. */
type Members = Readonly<Record<string, Value | readonly Item[] | undefined>>;

/** A script, and the keys and arguments of its calls. */
export interface RedisScript<Call> {
  readonly name: string;
  readonly lua: string;
  readonly keysOf: (call: Call) => string[];
  readonly argumentsOf: (call: Call) => (string | number | Buffer)[];
}

const READ: Readonly<Record<ArgumentKind, (argument: string) => string>> = {
  text: (argument) => argument,
  number: (argument) => `tonumber(${argument})`,
  flag: (argument) => `${argument} == '1'`,
};

/** Declares variables for fields. @param at Returns the index of an argument */
function declare(fields: Fields, at: (place: number) => string): string {
  const values = Object.values(fields).map((kind, place) => READ[kind](`ARGV[${at(place)}]`));
  return values.length === 0 ? "" : `local ${Object.keys(fields)} = ${values}\n`;
}

/**
 * Defines a script.
 *
 * @param layout The members of a call. Their names are variables of the script. The fields of a
 * list are variables in its loops. Keys that a call leaves out are nil, and are last
 * @param write Writes the script. It receives a function that returns the head of a loop over a
 * list, which `end` ends
 */
export function defineScript<Call extends object>(
  name: string,
  layout: ScriptLayout<NoInfer<Call>>,
  write: (each: (list: ListOf<NoInfer<Call>>) => string) => string,
): RedisScript<Call> {
  const kinds = Object.entries<"key" | ArgumentKind | Fields>(layout);
  const keys: string[] = [];
  const single: Record<string, ArgumentKind> = {};
  const lists: [name: string, fields: Fields][] = [];
  for (const [member, kind] of kinds) {
    if (kind === "key") keys.push(member);
    else if (typeof kind === "string") single[member] = kind;
    else lists.push([member, kind]);
  }
  const loops = new Map<unknown, string>();
  let lua = declare(single, (place) => `${place + 1}`);
  if (keys.length > 0) lua += `local ${keys} = unpack(KEYS)\n`;
  // The length of a list precedes it. The last list has no length.
  let start = `${Object.keys(single).length}`;
  for (const [index, [list, fields]] of lists.entries()) {
    const stride = Object.keys(fields).length;
    const isLast = index === lists.length - 1;
    const end = isLast ? "#ARGV" : `${list}End`;
    if (!isLast) {
      start += " + 1";
      lua += `local ${end} = ${start} + ${stride} * ARGV[${start}]\n`;
    }
    const head = `for i = ${start} + 1, ${end}, ${stride} do\n`;
    loops.set(list, head + declare(fields, (place) => `i + ${place}`));
    start = end;
  }
  const singleNames = Object.keys(single);
  const listNames = lists.map(([list, fields]) => ({ list, names: Object.keys(fields) }));
  return {
    name,
    lua: lua + write((list) => loops.get(list) ?? fail(String(list))),
    keysOf: (call) => toKeys(call as Members, keys),
    argumentsOf: (call) => toArguments(call as Members, singleNames, listNames),
  };
}

function toKeys(call: Members, names: readonly string[]): string[] {
  const keys: string[] = [];
  for (const name of names) {
    const key = call[name];
    if (typeof key === "string") keys.push(key);
  }
  return keys;
}

function toArguments(
  call: Members,
  single: readonly string[],
  lists: readonly { readonly list: string; readonly names: readonly string[] }[],
): (string | number | Buffer)[] {
  const args: (string | number | Buffer)[] = [];
  for (const name of single) args.push(toArgument((call[name] ?? fail(name)) as Value));
  for (let index = 0; index < lists.length; index++) {
    const { list, names } = lists[index] ?? fail("list");
    const items = call[list] as readonly Item[];
    if (index < lists.length - 1) args.push(items.length);
    for (const item of items) {
      if (typeof item === "string") args.push(item);
      else for (const name of names) args.push(toArgument(item[name] ?? fail(name)));
    }
  }
  return args;
}

function toArgument(value: Value): string | number | Buffer {
  if (typeof value !== "boolean") return value;
  return value ? 1 : 0;
}

function fail(name: string): never {
  throw new Error(`No argument of the script: ${name}`);
}
