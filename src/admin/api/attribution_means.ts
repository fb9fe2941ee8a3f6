/**
 * Descriptions of the parameters that select calls by their attribution.
 *
 * @module
 */
import type { Dimension } from "../../config/dimensions.ts";

/** The meaning of each parameter. */
export const ATTRIBUTION_MEANS: Readonly<Record<Dimension, string>> = {
  user: "Only calls with this user, as the headers of attribution named it",
  session: "Only calls with this session",
  agent: "Only calls with this agent",
  client: "Only calls with this client, such as claude-code",
  project: "Only calls with this project",
};
