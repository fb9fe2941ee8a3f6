/**
 * The route of providers at the admin API, with the schema of its answer.
 *
 * @module
 */
import type { ShapeName } from "../../config/shape.ts";
import type { ProviderList, ProviderReports, ProviderView } from "../provider_reports.ts";
import { type AdminRoute, route } from "./route.ts";
import { list, objectOf, optional, text } from "./schema.ts";
import { limitsSchema, useSchema } from "./teams.ts";

/** The route of providers. */
export const PROVIDER_ROUTES: readonly AdminRoute<ProviderReports>[] = [route({
  method: "get",
  path: "/v1/providers",
  operationId: "listProviders",
  summary:
    "List the configured providers, and how much all keys together have used of the limits of each",
  status: 200,
  response: {
    name: "ProviderList",
    schema: objectOf<ProviderList>({
      listeners: list(text(), "Where callers on this machine reach the gateway"),
      providers: list(objectOf<ProviderView>({
        name: text(),
        shape: optional(text<ShapeName>("Shape of its addresses, if it is another one than v1")),
        urls: list(text(), "Base URLs that work on this machine as they are"),
        limits: optional(limitsSchema),
        use: useSchema,
      })),
    }),
  },
  run: (providers) => providers.list(),
})];
