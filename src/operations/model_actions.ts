/**
 * Paths that call an action of a model, at addresses of Gemini
 * (https://ai.google.dev/api/generate-content), Vertex AI and Bedrock
 * (https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_Converse.html). They are
 * recognized at every shape, also where no row of the table has them: `shapes.ts` has the rows.
 *
 * @module
 */

/** Actions of a Bedrock model that make an answer. */
const BEDROCK_ACTION = "(?:converse|invoke)[a-z-]*";

/** A model of Google with any action, or a model of Bedrock with an action that makes an answer. */
const MODEL_AND_ACTION = new RegExp(
  `/(?:models/([^/:]+):\\w+|model/([^/]+)/${BEDROCK_ACTION})$`,
);

/**
 * Actions that only use a model. They begin with Google's version at an address with the shape of
 * Gemini. Other actions on a model, such as `:setIamPolicy`, manage the account.
 */
const MODEL_USE = new RegExp(
  [
    "^(?:/v1(?:beta1|beta|alpha)?)?(?:/projects/[^/]+/locations/[^/]+)?(?:/publishers/[^/]+)?" +
    "/models/[^/]+:\\w*(?:generate|embed|predict|tokens)\\w*$",
    `^/model/[^/]+/${BEDROCK_ACTION}$`,
  ].join("|"),
  "i",
);

/** Returns the model that a path names before an action; `undefined` for other paths. */
export function readActionModel(path: string): string | undefined {
  const [, ofGoogle, ofBedrock] = MODEL_AND_ACTION.exec(path) ?? [];
  const model = ofGoogle ?? ofBedrock;
  return model === undefined ? undefined : decodeURIComponent(model);
}

/** Returns whether a path only uses a model, and does not manage the account. */
export function isModelUse(path: string): boolean {
  return MODEL_USE.test(path);
}
