/**
 * Groups of operations, with which an operator allows them for a provider or a key.
 *
 * @module
 */
import * as v from "valibot";

/** A group of operations. */
export type OperationGroup =
  | "chat"
  | "responses"
  | "completions"
  | "embeddings"
  | "moderations"
  | "images"
  | "audio"
  | "messages"
  | "models"
  | "files"
  | "uploads"
  | "batches"
  | "fine_tuning"
  | "vector_stores"
  | "conversations"
  | "containers"
  | "evals"
  | "videos"
  | "assistants"
  | "realtime"
  | "skills"
  | "chatkit"
  | "admin";

/**
 * A group in the configuration. `default` means all groups that are on by default, `all` means
 * every path below `/v1`.
 */
export type WrittenGroup = OperationGroup | "default" | "all";

/**
 * All groups, each with true if it is on by default. Groups that are off create, read or change
 * objects that are stored at the provider.
 */
export const GROUPS: Readonly<Record<OperationGroup, boolean>> = {
  chat: true,
  responses: true,
  completions: true,
  embeddings: true,
  moderations: true,
  images: true,
  audio: true,
  messages: true,
  models: true,
  files: false,
  uploads: false,
  batches: false,
  fine_tuning: false,
  vector_stores: false,
  conversations: false,
  containers: false,
  evals: false,
  videos: false,
  assistants: false,
  realtime: false,
  skills: false,
  chatkit: false,
  admin: false,
};

/** All names of groups that are valid in settings. */
export const GROUP_NAMES: readonly WrittenGroup[] = [
  "default",
  "all",
  ...Object.keys(GROUPS) as OperationGroup[],
];
const form = `expected an array of ${GROUP_NAMES.join(", ")}`;

/** @internal The schema of allowed operations. */
export const OperationsSchema: v.GenericSchema<readonly WrittenGroup[], readonly WrittenGroup[]> = v
  .pipe(
    v.array(v.picklist(GROUP_NAMES, `expected one of ${GROUP_NAMES.join(", ")}`), form),
    v.nonEmpty("expected at least one group"),
  );
