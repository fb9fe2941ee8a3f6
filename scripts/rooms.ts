/**
 * `npm run rooms`: prints the size and the density of the code, for each folder of `src`.
 *
 * Only lines with code count. Tokens per line show how dense the code is: Hono has 6.7, h3 6.9
 * (2026-11).
 */
import {
  closeSources,
  countNestedParameters,
  listSources,
  parseSource,
  tokenStarts,
} from "./sources.ts";

const WIDTH = 100;
/** The built module of the console's page. */
const BUILT = "src/admin/page_assets.ts";

/** Measures of one folder. */
interface Room {
  files: number;
  lines: number;
  tokens: number;
  wideLines: number;
  nestedParameters: number;
  docstrings: number;
  docstringTags: number;
}

const createRoom = (): Room => ({
  files: 0,
  lines: 0,
  tokens: 0,
  wideLines: 0,
  nestedParameters: 0,
  docstrings: 0,
  docstringTags: 0,
});

const countMatches = (text: string, pattern: RegExp): number =>
  Array.from(text.matchAll(pattern)).length;

function add(room: Room, file: string): void {
  const source = parseSource(file);
  const { text } = source;
  const starts = tokenStarts(source);
  const lineStarts = [0, ...Array.from(text.matchAll(/\n/g), ({ index }) => index + 1)];
  const linesWithCode = new Set<number>();
  let line = 0;
  for (const start of starts) {
    while ((lineStarts[line + 1] ?? Infinity) <= start) line++;
    linesWithCode.add(line);
  }
  room.files++;
  room.lines += linesWithCode.size;
  room.tokens += starts.length;
  room.wideLines += text.split("\n").filter(({ length }) => length > WIDTH).length;
  room.nestedParameters += countNestedParameters(source);
  room.docstrings += countMatches(text, /\/\*\*/g);
  room.docstringTags += countMatches(text, /^\s*(?:\/\*)?\*.*@(?:param|returns)\b/gm);
}

function toRow(name: string, room: Room): string {
  const { files, lines, tokens, wideLines, nestedParameters, docstrings, docstringTags } = room;
  const perLine = (tokens / lines).toFixed(1);
  const perThousand = ((docstrings * 1000) / lines).toFixed(0);
  const cells = [
    files,
    lines,
    tokens,
    perLine,
    wideLines,
    nestedParameters,
    perThousand,
    docstringTags,
  ];
  return name.padEnd(16) + cells.map((cell) => String(cell).padStart(12)).join("");
}

const rooms = new Map<string, Room>();
const total = createRoom();
for (const file of listSources("src").filter((file) => file !== BUILT)) {
  const [, folder = ""] = file.split("/");
  const name = folder.includes(".") ? "(top)" : folder;
  let room = rooms.get(name);
  if (room === undefined) rooms.set(name, room = createRoom());
  add(room, file);
  add(total, file);
}
closeSources();

const HEADS = [
  "files",
  "lines",
  "tokens",
  "tokens/line",
  `over ${WIDTH}`,
  "nested",
  "docs/1000",
  "tags",
];
console.log("folder".padEnd(16) + HEADS.map((head) => head.padStart(12)).join(""));
for (
  const [name, room] of Array.from(rooms).sort(([, one], [, other]) => other.tokens - one.tokens)
) {
  console.log(toRow(name, room));
}
console.log(toRow("all", total));
