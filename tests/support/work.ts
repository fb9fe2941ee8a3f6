/**
 * Counts the work of a reader without a clock, on Node: the executions of each block of `src/`
 * (V8's precise coverage), and the bytes or characters that built-in searches, copies and decoders
 * processed.
 */
import { Buffer } from "node:buffer";
import { type Profiler, Session } from "node:inspector";

let builtInWork = 0;

/** A method whose cost is counted. `this` is the object that has the method. */
interface Counted {
  readonly owner: object;
  readonly names: readonly string[];
  cost(self: unknown, args: readonly unknown[], result: unknown): number;
}

const lengthOf = (value: unknown): number =>
  typeof value === "string" || value instanceof Uint8Array || Array.isArray(value)
    ? value.length
    : 0;

/** Bytes that a search read: up to its match, or to the end. */
function searchCost(self: unknown, args: readonly unknown[], result: unknown): number {
  const from = typeof args[1] === "number" ? args[1] : 0;
  const end = typeof result === "number" && result >= 0 ? result + 1 : lengthOf(self);
  return Math.max(0, end - from) + lengthOf(args[0]);
}

/**
 * Characters that a regular expression read. An expression that starts with `^` stops at its first
 * mismatch.
 */
function matchCost(self: unknown, args: readonly unknown[], result: unknown): number {
  if (!(self instanceof RegExp)) return 0;
  if (Array.isArray(result) && typeof result[0] === "string") return result[0].length;
  return self.source.startsWith("^") && result !== true ? 1 : lengthOf(args[0]);
}

const COUNTED: readonly Counted[] = [
  {
    owner: Object.getPrototypeOf(Uint8Array.prototype),
    names: ["indexOf", "includes", "lastIndexOf"],
    cost: searchCost,
  },
  {
    owner: Object.getPrototypeOf(Uint8Array.prototype),
    names: ["slice", "fill", "copyWithin"],
    cost: (_, args, result) => {
      const [, from, to] = args;
      return typeof from === "number" && typeof to === "number"
        ? Math.max(0, to - from)
        : lengthOf(result);
    },
  },
  {
    owner: Object.getPrototypeOf(Uint8Array.prototype),
    names: ["set"],
    cost: (_, [source]) => lengthOf(source),
  },
  { owner: Buffer.prototype, names: ["indexOf", "includes", "lastIndexOf"], cost: searchCost },
  {
    owner: Buffer.prototype,
    names: ["toString", "latin1Slice", "utf8Slice", "asciiSlice"],
    cost: (_, __, result) => lengthOf(result),
  },
  { owner: Buffer, names: ["concat", "from"], cost: (_, __, result) => lengthOf(result) },
  { owner: String.prototype, names: ["indexOf", "includes", "lastIndexOf"], cost: searchCost },
  {
    owner: String.prototype,
    names: ["split", "replace", "replaceAll", "match", "trim", "toLowerCase", "toUpperCase"],
    cost: (self) => lengthOf(self),
  },
  { owner: RegExp.prototype, names: ["exec", "test"], cost: matchCost },
  { owner: TextDecoder.prototype, names: ["decode"], cost: (_, [bytes]) => lengthOf(bytes) },
  { owner: JSON, names: ["parse"], cost: (_, [text]) => lengthOf(text) },
  { owner: JSON, names: ["stringify"], cost: (_, __, result) => lengthOf(result) },
  { owner: Array, names: ["from"], cost: (_, __, result) => lengthOf(result) },
  {
    owner: Array.prototype,
    names: ["sort", "toSorted", "concat", "slice", "toReversed", "reverse", "join"],
    cost: (self) => lengthOf(self),
  },
];

/** Replaces built-in methods with counting ones. @returns A function that restores them */
function countBuiltIns(): () => void {
  const undo = COUNTED.flatMap(({ owner, names, cost }) =>
    names.filter((name) => Object.hasOwn(owner, name)).map((name) => {
      const before = Object.getOwnPropertyDescriptor(owner, name);
      const method = Reflect.get(owner, name);
      Object.defineProperty(owner, name, {
        configurable: true,
        writable: true,
        value(this: unknown, ...args: unknown[]) {
          const result = Reflect.apply(method, this, args);
          builtInWork += cost(this, args, result);
          return result;
        },
      });
      return () => void Object.defineProperty(owner, name, before ?? {});
    })
  );
  return () => {
    for (const each of undo.reverse()) each();
  };
}

const session = new Session();

/** Executions of all blocks of `src/` since the last call. */
function takeBlocks(): number {
  let runs = 0;
  session.post("Profiler.takePreciseCoverage", (error, answer) => {
    if (error !== null) throw error;
    const { result } = answer as Profiler.TakePreciseCoverageReturnType;
    for (const { functions } of result.filter(({ url }) => url.includes("/src/"))) {
      for (const { count } of functions.flatMap(({ ranges }) => ranges)) runs += count;
    }
  });
  return runs;
}

/**
 * Starts to count. Modules that are loaded later are counted block by block. @returns A function
 * that ends it
 */
export function beginCounting(): () => void {
  session.connect();
  session.post("Profiler.enable");
  session.post("Profiler.startPreciseCoverage", { callCount: true, detailed: true });
  return () => {
    session.post("Profiler.stopPreciseCoverage");
    session.disconnect();
  };
}

/** The work of a function: executions of blocks, and bytes that built-in functions processed. */
export async function countWork(run: () => unknown): Promise<number> {
  return (await countWorkOfTurns(run)).reduce((sum, work) => sum + work, 0);
}

/** The work of each turn of a function. It ends a turn by the function that it gets. */
export async function countWorkOfTurns(
  run: (endTurn: () => void) => unknown,
): Promise<readonly number[]> {
  const turns: number[] = [];
  const endTurn = () => {
    const blocks = takeBlocks();
    turns.push(blocks + builtInWork);
    takeBlocks(); // to read the coverage is no work of the next turn
    builtInWork = 0;
  };
  const restore = countBuiltIns();
  takeBlocks();
  builtInWork = 0;
  try {
    await run(endTurn);
  } finally {
    restore();
    endTurn();
  }
  return turns;
}
