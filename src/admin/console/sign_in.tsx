/**
 * The console's first page: asks for the admin token.
 *
 * @module
 */
import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { Refused, signIn } from "./client.ts";
import { beginSignIn, listIssuers } from "./code_sign_in.ts";
import { Field, Mark, Problem, useAct } from "./parts.tsx";

const HINT = "Or a token of your identity provider. " +
  "Kept for this tab only, until you sign out or close it";
const WRONG = "This is not the admin token of the configuration, nor a token with a role here";

/** A button for each issuer at which operators sign in. */
function Issuers({ act }: { act: ReturnType<typeof useAct>["act"] }): JSX.Element | null {
  const [names, setNames] = useState<readonly string[]>([]);
  useEffect(() => void act(async () => setNames(await listIssuers())), []);
  if (names.length === 0) return null;
  return (
    <div class="issuers">
      {names.map((name) => (
        <button
          key={name}
          type="button"
          class="primary"
          onClick={() => act(() => beginSignIn(name))}
        >
          Sign in with {name}
        </button>
      ))}
      <p class="hint">or with a token</p>
    </div>
  );
}

/**
 * A form that signs an operator in. `reason` is the reason why the last session ended, shown above
 * it.
 */
export function SignIn(
  { reason, onSignedIn }: { reason: string; onSignedIn: () => void },
): JSX.Element {
  const [shown, setShown] = useState("");
  const { isBusy, error, act } = useAct();
  const onSubmit = (event: Event) => {
    event.preventDefault();
    act(async () => {
      try {
        await signIn(shown.trim());
      } catch (thrown) {
        throw thrown instanceof Refused && thrown.status === 401
          ? new Refused(401, "wrong", WRONG)
          : thrown;
      }
      onSignedIn();
    });
  };
  return (
    <main class="signin">
      <form class="card" onSubmit={onSubmit}>
        <Mark />
        <h1>Sallyport</h1>
        <Issuers act={act} />
        <input
          class="sr"
          aria-hidden="true"
          tabIndex={-1}
          autocomplete="username"
          value="admin"
          readOnly
        />
        <Field
          label="Admin token"
          hint={HINT}
        >
          {(attributes) => (
            <input
              {...attributes}
              type="password"
              required
              autofocus
              autocomplete="current-password"
              value={shown}
              onInput={(event) => setShown(event.currentTarget.value)}
            />
          )}
        </Field>
        {reason !== "" && error === undefined && <p class="problem" role="alert">{reason}</p>}
        <Problem error={error} />
        <button type="submit" class="primary" disabled={isBusy}>Sign in</button>
      </form>
    </main>
  );
}
