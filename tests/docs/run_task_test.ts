/** The runner of tests: the child processes of a test process end with it. */
// runtimes: once
import assert from "node:assert/strict";
import process from "node:process";
import { describe, it } from "@std/testing/bdd";
import { run } from "../../scripts/test/run_task.ts";
import { isRunning } from "../support/program.ts";
import { until } from "../support/until.ts";

/** Starts a program that prints its id, keeps its parent's output open, and outlives it. */
const STARTS_ANOTHER = `
  const { spawn } = require("node:child_process");
  const child = spawn(process.execPath, ["-e", "setInterval(() => {}, 1000)"], { stdio: "inherit" });
  console.log(child.pid);
`;

describe("a process of tests", () => {
  it("ends with all of its child processes", async () => {
    const { code, output } = await run(process.execPath, [
      "-e",
      `${STARTS_ANOTHER} setTimeout(process.exit, 100, 3);`,
    ]);
    assert.equal(code, 3);
    await until(() => !isRunning(Number(output)), "the other has ended");
  });

  it("is killed with all of its child processes after a timeout", async () => {
    const { code, output } = await run(process.execPath, ["-e", STARTS_ANOTHER], {}, false, 2000);
    assert.equal(code, 1);
    await until(() => !isRunning(Number(output)), "the other has ended");
  });
});
