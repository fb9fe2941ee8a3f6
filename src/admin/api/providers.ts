/**
 * The route of providers at the admin API, with the schema of its answer.
 *
 * @module
 */
import type { ProviderReports } from "../provider_reports.ts";
import type { AdminRoute } from "./route.ts";
import { useSchema } from "./teams.ts";

/** JSON Schema of the answer, for the description. */
export const providerListSchema: Readonly<Record<string, unknown>> = {
  type: "object",
  required: ["providers"],
  properties: {
    providers: {
      type: "array",
      items: {
        type: "object",
        required: ["name", "use"],
        properties: {
          name: { type: "string" },
          limits: { type: "object", description: "As they are configured" },
          use: useSchema,
        },
      },
    },
  },
};

/** The route of providers. */
export const PROVIDER_ROUTES: readonly AdminRoute<ProviderReports>[] = [{
  method: "get",
  path: "/v1/providers",
  operationId: "listProviders",
  summary:
    "List the configured providers, and what all keys together have taken of the limits of each",
  status: 200,
  answers: "ProviderList",
  run: async (providers) => ({ providers: await providers.list() }),
}];
