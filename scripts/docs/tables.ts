/**
 * The parts of pages that are made from the sources and from measurements only, without a test run
 * or a build.
 */
import { CLIENTS } from "./clients.ts";
import {
  makeAdminErrors,
  makeCauses,
  makeErrors,
  makeEvents,
  makeOutcomes,
  makeStreamErrors,
} from "./errors.ts";
import {
  makeAgentHeaders,
  makeAttributionPresets,
  makeBarredHeaders,
  makeRequestHeaders,
  makeResponseHeaders,
} from "./headers.ts";
import { FLEET } from "./fleet.ts";
import { REGIONS } from "./regions.ts";
import { makeGenAi, makeMetrics } from "./metrics.ts";
import { makeOperations, makeOtherOperations, makeShapes } from "./operations.ts";
import { makeCommands, makeOptions } from "./options.ts";
import type { Part } from "./parts.ts";
import { makePeers } from "./performance.ts";
import { makeCorrectness } from "./correctness.ts";
import { makePresets, makeSettings } from "./settings.ts";

const PERFORMANCE = ["docs/performance.md"];

/** A test compares each part with its pages. */
export const TABLES: readonly Part[] = [
  { name: "settings", files: ["docs/configuration.md"], make: makeSettings },
  { name: "presets", files: ["docs/configuration.md"], make: makePresets },
  { name: "operations", files: ["docs/interfaces.md"], make: makeOperations },
  { name: "other operations", files: ["docs/interfaces.md"], make: makeOtherOperations },
  { name: "shapes", files: ["docs/interfaces.md"], make: makeShapes },
  { name: "request headers", files: ["docs/configuration.md"], make: makeRequestHeaders },
  { name: "response headers", files: ["docs/configuration.md"], make: makeResponseHeaders },
  { name: "agent headers", files: ["docs/clients.md"], make: makeAgentHeaders },
  {
    name: "attribution presets",
    files: ["docs/observability.md"],
    make: makeAttributionPresets,
  },
  { name: "barred headers", files: ["docs/configuration.md"], make: makeBarredHeaders },
  { name: "commands", files: ["docs/operations.md"], make: makeCommands },
  { name: "options", files: ["docs/operations.md"], make: makeOptions },
  { name: "errors", files: ["docs/errors.md"], make: makeErrors },
  { name: "admin errors", files: ["docs/errors.md"], make: makeAdminErrors },
  { name: "stream errors", files: ["docs/errors.md"], make: makeStreamErrors },
  { name: "outcomes", files: ["docs/observability.md"], make: makeOutcomes },
  { name: "events", files: ["docs/observability.md"], make: makeEvents },
  { name: "causes", files: ["docs/observability.md"], make: makeCauses },
  { name: "metrics", files: ["docs/observability.md"], make: makeMetrics },
  { name: "gen_ai", files: ["docs/observability.md"], make: makeGenAi },
  { name: "peers", files: ["README.md", ...PERFORMANCE], make: () => makePeers() },
  { name: "correctness", files: PERFORMANCE, make: makeCorrectness },
  FLEET,
  REGIONS,
  ...CLIENTS,
];
