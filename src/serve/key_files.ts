/**
 * The file of keys and the files next to it. Each is opened once, even if several configurations
 * name it.
 *
 * @module
 */
import type { ReportEvent } from "../exchange/reported_event.ts";
import { addCount } from "../exchange/count_map.ts";
import { type Clock, systemClock } from "../exchange/clock.ts";
import { FileKeyStore } from "../keys/key_store_file.ts";
import { FileKeyUsageState } from "../keys/key_usage_state_file.ts";
import { SharedFile } from "../storage/shared_file.ts";
import type { UsageStore } from "../usage/counts.ts";
import { FileHistory } from "../usage/history/history_file.ts";
import type { HistoryStore } from "../usage/history/rows.ts";
import { FileUsage } from "../usage/usage_file.ts";
import type { EngineReferences, Engines } from "./engines.ts";

/** Options for opening these files. */
export interface KeyFileOptions {
  /** Receives one-line messages for the operator. */
  readonly report: ReportEvent;
  /** True for a gateway, which watches files; false for a command. */
  readonly isServing: boolean;
  readonly engines: Engines;
  /** The references of the configuration to the engines that it uses. */
  readonly references: EngineReferences;
}

/**
 * The file of keys and the files next to it: teams, changes, the state of keys, such as spent
 * budgets, their usage and its history.
 */
export type KeyFiles = Readonly<
  Record<"keys" | "teams" | "changes" | "state" | "usage" | "history", SharedFile>
>;

/** Returns the files that belong to a file of keys. */
export function listKeyFiles(path: string): KeyFiles {
  const stem = path.replace(/\.json$/, "");
  return {
    keys: new SharedFile(path),
    teams: new SharedFile(`${stem}.teams.json`),
    changes: new SharedFile(`${stem}.changes.jsonl`),
    state: new SharedFile(`${stem}.state.json`),
    usage: new SharedFile(`${stem}.usage.jsonl`),
    history: new SharedFile(`${stem}.history.jsonl`),
  };
}

/** Opens the file of usage next to the file of keys. */
export async function usageNextTo(
  file: SharedFile,
  options: KeyFileOptions,
): Promise<UsageStore> {
  const { report, isServing, engines, references } = options;
  const open = async () => {
    const { listed, retention: keep } = engines;
    const failed = () => addCount(engines.failedWrites, "usage");
    const usage = new FileUsage(file, { clock: systemClock, report, failed, listed, keep });
    if (isServing) await usage.start();
    return usage;
  };
  return await references.use(`usage ${file.path}`, open, (usage) => usage.close());
}

/** Opens the file of the history next to the file of keys. */
export async function historyNextTo(
  file: SharedFile,
  { report, isServing, engines, references }: KeyFileOptions,
): Promise<HistoryStore> {
  const open = async () => {
    const failed = () => addCount(engines.failedWrites, "history");
    const history = new FileHistory(file, { clock: systemClock, report, failed });
    if (isServing) await history.start();
    return history;
  };
  return await references.use(`history ${file.path}`, open, (history) => history.close());
}

/** Opens a file of keys, and next to it the file of their state. */
export async function openKeyFile(
  files: KeyFiles,
  { report, isServing, engines }: KeyFileOptions,
): Promise<{ readonly store: FileKeyStore; readonly state: FileKeyUsageState }> {
  const clock: Clock = systemClock;
  const limiter = engines.remote.limiter === undefined ? engines.limiter : undefined;
  const failed = () => addCount(engines.failedWrites, "state");
  const state = new FileKeyUsageState(files.state, { clock, report, failed, limiter });
  const store = new FileKeyStore(files.keys, { clock, report, state });
  // For a worker, its supervisor has already done so.
  if (isServing && limiter !== undefined) {
    await Promise.all(Object.values(files).map((file) => file.tidy(report)));
  }
  if (isServing) {
    await store.start();
    await state.start().catch((error) => {
      store.close();
      throw error;
    });
  }
  return { store, state };
}
