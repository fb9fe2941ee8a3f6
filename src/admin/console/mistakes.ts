/**
 * Mistakes in forms: each is shown at its field, in the words of the form.
 *
 * @module
 */
import { useEffect, useState } from "preact/hooks";
import { Refused } from "./client.ts";

/** Texts of mistakes, by the names of fields. */
export type Mistakes<Name extends string> = Readonly<Partial<Record<Name, string>>>;

/** Returns the refusal's text for its field: the expected value, without the name of the setting. */
function toFieldText({ message }: Refused): string {
  const at = message.indexOf("expected");
  const text = at < 0 ? message : message.slice(at);
  return text.charAt(0).toUpperCase() + text.slice(1);
}

/** Control of a form's mistakes. */
export interface MistakeControl<Name extends string> {
  readonly mistakes: Mistakes<Name>;
  /** Shows these mistakes, and moves the focus to the first. Returns whether there are any. */
  show(found: Mistakes<Name>): boolean;
  /** Runs a request. Shows its refusal at the field that the API names, and throws other errors. */
  run(request: () => Promise<void>): Promise<void>;
}

/**
 * Creates the control.
 *
 * @param fieldOf Returns the field of a setting such as `limits.requests`
 */
export function useMistakes<Name extends string>(
  fieldOf: (param: string) => Name | undefined,
): MistakeControl<Name> {
  const [mistakes, setMistakes] = useState({} as Mistakes<Name>);
  useEffect(() => {
    const field = document.querySelector("dialog [aria-invalid]");
    if (field instanceof HTMLElement) field.focus();
  }, [mistakes]);
  return {
    mistakes,
    show(found) {
      setMistakes(found);
      return Object.keys(found).length > 0;
    },
    async run(request) {
      try {
        await request();
      } catch (thrown) {
        const param = thrown instanceof Refused ? thrown.param : undefined;
        const field = param === undefined ? undefined : fieldOf(param);
        if (!(thrown instanceof Refused) || field === undefined) throw thrown;
        setMistakes({ [field]: toFieldText(thrown) } as Mistakes<Name>);
      }
    },
  };
}
