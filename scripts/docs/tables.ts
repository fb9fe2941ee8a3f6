/**
 * The parts of pages that are made from the sources and from measurements only, without a test run
 * or a build.
 */
import { CLIENTS } from "./clients.ts";
import {
  makeAdminErrors,
  makeCauses,
  makeErrors,
  makeOutcomes,
  makeStreamErrors,
} from "./errors.ts";
import { makeBarredHeaders, makeRequestHeaders, makeResponseHeaders } from "./headers.ts";
import { FLEET } from "./fleet.ts";
import { makeGenAi, makeMetrics } from "./metrics.ts";
import { makeOperations, makeOtherOperations } from "./operations.ts";
import { makeCommands, makeOptions } from "./options.ts";
import type { Part } from "./parts.ts";
import { makeConnections, makeCosts, makeKeys, makeObservers, makePeers } from "./performance.ts";
import { makeCorrectness } from "./correctness.ts";
import { makeGoals, makePaced } from "./stream_performance.ts";
import { makePresets, makeSettings } from "./settings.ts";

const PERFORMANCE = ["docs/performance.md"];

/** A test compares each part with its pages. */
export const TABLES: readonly Part[] = [
  { name: "settings", files: ["docs/configuration.md"], make: makeSettings },
  { name: "presets", files: ["docs/configuration.md"], make: makePresets },
  { name: "operations", files: ["docs/interfaces.md"], make: makeOperations },
  { name: "other operations", files: ["docs/interfaces.md"], make: makeOtherOperations },
  { name: "request headers", files: ["docs/configuration.md"], make: makeRequestHeaders },
  { name: "response headers", files: ["docs/configuration.md"], make: makeResponseHeaders },
  { name: "barred headers", files: ["docs/configuration.md"], make: makeBarredHeaders },
  { name: "commands", files: ["docs/operations.md"], make: makeCommands },
  { name: "options", files: ["docs/operations.md"], make: makeOptions },
  { name: "errors", files: ["docs/errors.md"], make: makeErrors },
  { name: "admin errors", files: ["docs/errors.md"], make: makeAdminErrors },
  { name: "stream errors", files: ["docs/errors.md"], make: makeStreamErrors },
  { name: "outcomes", files: ["docs/observability.md"], make: makeOutcomes },
  { name: "causes", files: ["docs/observability.md"], make: makeCauses },
  { name: "metrics", files: ["docs/observability.md"], make: makeMetrics },
  { name: "gen_ai", files: ["docs/observability.md"], make: makeGenAi },
  { name: "peers", files: ["README.md", ...PERFORMANCE], make: () => makePeers() },
  { name: "costs", files: PERFORMANCE, make: makeCosts },
  { name: "connections", files: PERFORMANCE, make: makeConnections },
  { name: "keys", files: PERFORMANCE, make: makeKeys },
  { name: "observers", files: PERFORMANCE, make: makeObservers },
  { name: "paced streams", files: PERFORMANCE, make: makePaced },
  { name: "correctness", files: PERFORMANCE, make: makeCorrectness },
  { name: "goals", files: PERFORMANCE, make: makeGoals },
  FLEET,
  ...CLIENTS,
];
