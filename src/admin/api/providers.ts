/**
 * The route of providers at the admin API, with the schema of its answer.
 *
 * @module
 */
import type { ProviderReports, ProviderView } from "../provider_reports.ts";
import { type AdminRoute, route } from "./route.ts";
import { list, objectOf, optional, text } from "./schema.ts";
import { limitsSchema, useSchema } from "./teams.ts";

/** The answer about providers. */
export interface ProviderList {
  readonly providers: readonly ProviderView[];
}

/** The route of providers. */
export const PROVIDER_ROUTES: readonly AdminRoute<ProviderReports>[] = [route({
  method: "get",
  path: "/v1/providers",
  operationId: "listProviders",
  summary:
    "List the configured providers, and how much all keys together have used of the limits of each",
  status: 200,
  answers: {
    name: "ProviderList",
    schema: objectOf<ProviderList>({
      providers: list(objectOf<ProviderView>({
        name: text(),
        limits: optional(limitsSchema),
        use: useSchema,
      })),
    }),
  },
  run: async (providers) => ({ providers: await providers.list() }),
})];
