/**
 * Reads the runs of a gateway key from Redis.
 *
 * @module
 */
import { ancestorsOf } from "../run_chain.ts";
import type { RunStatus } from "../run_registry.ts";

/** Positions in the text of a run. */
const STOPPED_AT = 6;
const PARENT_AT = 7;
const REPEATS_AT = 8;

/** A run without what the others decide. */
type ReadRun = Omit<RunStatus, "open">;

const orUnset = (limit: number): number | undefined => limit < 0 ? undefined : limit;

function readRun(keyId: string, id: string, text: string, usedAt: number): ReadRun {
  const words = text.split(" ");
  const numbers = words.slice(0, STOPPED_AT).map((word) => Number(word) || 0);
  const [budget = 0, calls = 0, spent = 0, reserved = 0, called = 0, openedAt = 0] = numbers;
  return {
    keyId,
    id,
    parent: words[PARENT_AT] || undefined,
    budget: orUnset(budget),
    calls: orUnset(calls),
    spent,
    reserved,
    called,
    openedAt,
    usedAt,
    isStopped: words[STOPPED_AT] === "1",
    repeats: Number(words[REPEATS_AT]) || undefined,
  };
}

/** Returns a run and the runs above it. */
function chainOf(run: ReadRun, runs: ReadonlyMap<string, ReadRun>): readonly ReadRun[] {
  return [run, ...ancestorsOf(runs, run)];
}

/** Reads the reply of the script that lists runs. @throws {Error} For another reply */
export function readStatuses(reply: unknown, keyId: string): readonly RunStatus[] {
  const texts = Array.isArray(reply) ? reply.map(String) : [];
  const end = texts.indexOf("");
  if (end < 0 || end % 3 !== 0) throw new Error("no list of runs");
  const runs = new Map<string, ReadRun>();
  for (let index = 0; index < end; index += 3) {
    const [id = "", text = "", usedAt = ""] = texts.slice(index, index + 3);
    runs.set(id, readRun(keyId, id, text, Number(usedAt)));
  }
  const open = new Map<string, number>();
  for (const name of texts.slice(end + 1)) {
    const run = runs.get(name.slice(name.indexOf(" ") + 1));
    for (const { id } of run === undefined ? [] : chainOf(run, runs)) {
      open.set(id, (open.get(id) ?? 0) + 1);
    }
  }
  return Array.from(runs.values(), (run) => {
    const isStopped = chainOf(run, runs).some((each) => each.isStopped);
    return { ...run, isStopped, open: open.get(run.id) ?? 0 };
  });
}
