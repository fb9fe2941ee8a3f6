/** The table of behaviours: made from reports, complete, and with explained gaps. */
// runtimes: once
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { describe, it } from "@std/testing/bdd";
import { COLUMNS, ROWS, toBehaviours } from "../../scripts/docs/behaviours.ts";
import { readPart } from "../../scripts/docs/parts.ts";

const rows = Object.keys(ROWS);
const reportOf = (isTested: (row: string, column: string) => string | undefined): string =>
  rows.flatMap((row) =>
    COLUMNS.map((column) => {
      const content = isTested(row, column);
      return content === undefined
        ? ""
        : `<testcase name="behaviour: ${row} (${column})" time="0">${content}</testcase>`;
    })
  ).join("");
const all = reportOf(() => "");
const cellsOf = (line: string) => line.split("|").slice(2, -1).map((cell) => cell.trim());

describe("the table of behaviours", () => {
  it("contains yes for tested cases, and no for cases that failed in any report", () => {
    assert.equal(toBehaviours([all], []).match(/\byes\b/g)?.length, rows.length * COLUMNS.length);
    const failed = reportOf((row, column) =>
      row === "abort" && column === "h3" ? "<failure/>" : undefined
    );
    for (const reports of [[all, failed], [failed, all]]) {
      const [, , abort = ""] = toBehaviours(reports, []).split("\n");
      assert.deepEqual(cellsOf(abort), COLUMNS.map((column) => column === "h3" ? "no" : "yes"));
    }
  });

  it("is not written if it has an unexplained gap, or an explanation without a gap", () => {
    const skipped = reportOf((row, column) =>
      row === "drain" && column === "Workers" ? "<skipped/>" : ""
    );
    const without = reportOf((_, column) => column === "Astro" ? undefined : "");
    const [drain, astro] = [{ column: "Workers", row: "drain", why: "so" }, {
      column: "Astro",
      why: "so",
    }];
    assert.match(toBehaviours([skipped], [drain]), /– \(1\)[^]*\n\(1\) Workers, drain: so\.\n/);
    assert.match(toBehaviours([without], [astro]), /– \(1\)[^]*\n\(1\) Astro: so\.\n/);
    assert.throws(() => toBehaviours([skipped], []), /drain in Workers was not tested/);
    assert.throws(
      () => toBehaviours([skipped], [{ column: "Workers", why: "so" }]),
      /parts of Workers were not tested/,
    );
    assert.throws(() => toBehaviours([all], [drain]), /no gap any more at Workers/);
  });

  it("is in docs/embedding.md with every row and column, and no failure", () => {
    const [head = "", , ...lines] = readPart("docs/embedding.md", "behaviours").split("\n");
    assert.deepEqual(cellsOf(head), COLUMNS);
    const page = readFileSync("docs/embedding.md", "utf8");
    for (const [index, row] of rows.entries()) {
      assert.ok(lines[index]?.startsWith(`| ${row} `), row);
      const cells = cellsOf(lines[index] ?? "");
      assert.equal(cells.length, COLUMNS.length);
      for (const cell of cells) {
        assert.match(cell, /^(?:yes|– \(\d\))$/);
        if (cell !== "yes") {
          assert.ok(page.includes(`\n${cell.slice(2)} `), `${cell} is not explained`);
        }
      }
    }
  });
});
