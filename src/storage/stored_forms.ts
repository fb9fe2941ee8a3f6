/**
 * The version of the forms in which gateways store their state: names and values in Redis, and
 * files.
 *
 * A version reads all earlier forms. Fields, kinds of records and names that earlier versions
 * ignore, or refuse only for single keys, are added without a new number. A change that earlier
 * versions would misread raises the number.
 *
 * In Redis the number is a separate value. A file of a later form states it as `version`; without
 * it, the form is 1.
 *
 * @module
 */
/** Version of the stored forms that this version writes, and the latest that it can read. */
export const STORED_FORMS = 1;

/** A later version of Sallyport wrote this, in a form that this one would misread. */
export class LaterForms extends Error {
  override readonly name = "LaterForms";

  constructor(place: string) {
    super(
      `${place} is used by a later version, in a form that this one cannot read: run that version`,
    );
  }
}

/** Returns whether a parsed file states a later form than this version can read. */
export function isOfLaterForm(content: unknown): boolean {
  return typeof content === "object" && content !== null && "version" in content &&
    Number(content.version) > STORED_FORMS;
}
