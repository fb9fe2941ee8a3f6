/**
 * The version of the forms in which gateways store their state: names and values in Redis, and
 * files.
 *
 * A version reads all earlier forms. It adds fields, kinds of records and names that earlier
 * versions ignore, or refuse for one key alone, without another number. A change that earlier
 * versions would misread raises the number.
 *
 * In Redis the number is a separate value. A file of a later form states it as `version`; without
 * it, the form is 1.
 *
 * @module
 */
/** Version of the stored forms that this version writes, and the latest that it reads. */
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

/** Tells whether a parsed file states a later form than this version reads. */
export function isOfLaterForm(content: unknown): boolean {
  return typeof content === "object" && content !== null && "version" in content &&
    Number(content.version) > STORED_FORMS;
}
