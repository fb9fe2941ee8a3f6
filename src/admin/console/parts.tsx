/**
 * Components that the views share.
 *
 * @module
 */
import type { ComponentChildren, JSX } from "preact";
import { useEffect, useId, useLayoutEffect, useRef, useState } from "preact/hooks";
import { Refused } from "./client.ts";

interface DialogProps {
  readonly title: string;
  readonly onClose: () => void;
  readonly children: ComponentChildren;
  /** Buttons, which stay visible while the content scrolls. */
  readonly actions: ComponentChildren;
  /** An error, shown above the buttons. */
  readonly error?: unknown;
  /** Makes the dialog a form. */
  readonly onSubmit?: (event: Event) => void;
  readonly isWide?: boolean;
}

/**
 * A window above the page, closed by Escape or its owner. The focus stays within it, and returns
 * when it closes.
 */
export function Dialog(
  { title, onClose, children, actions, error, onSubmit, isWide }: DialogProps,
): JSX.Element {
  const dialog = useRef<HTMLDialogElement>(null);
  const heading = useId();
  // The browser's `close` event follows one task after Escape, and would close a dialog that was
  // opened in between.
  const cancel = (event: Event) => {
    event.preventDefault();
    onClose();
  };
  // Before the next paint, so that no key press is lost.
  useLayoutEffect(() => {
    const before = document.activeElement;
    dialog.current?.showModal();
    // Elements below the window can be focused only after it is gone.
    return () => queueMicrotask(() => giveFocusBack(before));
  }, []);
  const content = (
    <>
      <div class="dialog-body">{children}</div>
      <Problem error={error} />
      <div class="actions">{actions}</div>
    </>
  );
  return (
    <dialog
      ref={dialog}
      class={isWide ? "wide" : ""}
      aria-labelledby={heading}
      onCancel={cancel}
      onClose={onClose}
    >
      <h2 id={heading}>{title}</h2>
      {onSubmit === undefined ? content : <form onSubmit={onSubmit}>{content}</form>}
    </dialog>
  );
}

/**
 * Focuses the element that had the focus before the window opened, or the content if that element
 * is gone.
 */
function giveFocusBack(before: Element | null): void {
  if (document.querySelector("dialog[open]") !== null) return;
  const home = before?.isConnected ? before : document.getElementById("content");
  if (home instanceof HTMLElement) home.focus();
}

/** Binds a control to the value of a field. */
export type Bind<Name> = (name: Name) => {
  value: string;
  onInput: (event: { currentTarget: HTMLInputElement | HTMLSelectElement }) => void;
};

/** Attributes of a field's control. */
interface ControlAttributes {
  readonly id: string;
  readonly "aria-describedby"?: string;
  readonly "aria-invalid"?: true;
}

/** A label, its control, and a hint about its values or the mistake in its value. */
export function Field({ label, hint, mistake, children }: {
  label: string;
  hint?: string;
  mistake?: string | undefined;
  children: (attributes: ControlAttributes) => ComponentChildren;
}): JSX.Element {
  const id = useId();
  const isWrong = mistake !== undefined;
  const text = mistake ?? hint;
  return (
    <div class="field">
      <label for={id}>{label}</label>
      {children({
        id,
        ...(text !== undefined && { "aria-describedby": `${id}-hint` }),
        ...(isWrong && { "aria-invalid": true }),
      })}
      {text !== undefined && (
        <span
          id={`${id}-hint`}
          class={isWrong ? "mistake" : "hint"}
          role={isWrong ? "alert" : undefined}
        >
          {text}
        </span>
      )}
    </div>
  );
}

/**
 * A field whose text takes effect when it is left, or with the Enter key. It keeps its own text
 * until then, because each reload of the view draws it again.
 */
export function SearchField({ label, text, onSearch }: {
  label: string;
  text: string;
  /** Gets the text without white space around it. */
  onSearch: (text: string) => void;
}): JSX.Element {
  const [draft, setDraft] = useState(text);
  useEffect(() => setDraft(text), [text]);
  return (
    <Field label={label}>
      {(attributes) => (
        <input
          {...attributes}
          type="search"
          value={draft}
          onInput={({ currentTarget }) => setDraft(currentTarget.value)}
          onChange={({ currentTarget }) => onSearch(currentTarget.value.trim())}
        />
      )}
    </Field>
  );
}

/** A checkbox and its label. */
export function Check({ isChecked, onToggle, children }: {
  isChecked: boolean;
  onToggle: () => void;
  children: ComponentChildren;
}): JSX.Element {
  return (
    <label>
      <input type="checkbox" checked={isChecked} onChange={onToggle} />
      {children}
    </label>
  );
}

/** An error, with the API's own message if it refused. */
export function Problem({ error }: { error: unknown }): JSX.Element | null {
  if (error === undefined) return null;
  const text = error instanceof Refused
    ? error.message
    : `Cannot go on: ${error instanceof Error ? error.message : error}`;
  return <p class="problem" role="alert">{text}</p>;
}

/** A word in a colour that fits its meaning. */
export function Pill({ kind, children }: {
  kind: "good" | "bad" | "warn" | "quiet";
  children: ComponentChildren;
}): JSX.Element {
  return <span class={`pill ${kind}`}>{children}</span>;
}

/** Runs an action at the gateway. Returns its progress and its error. */
export function useAct(): {
  isBusy: boolean;
  error: unknown;
  act: (run: () => Promise<void>) => Promise<void>;
} {
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>(undefined);
  const act = async (run: () => Promise<void>): Promise<void> => {
    setBusy(true);
    setError(undefined);
    try {
      await run();
    } catch (thrown) {
      setError(thrown);
    }
    setBusy(false);
  };
  return { isBusy, error, act };
}

const REFRESH_MS = 5000;

/**
 * Loads data from the admin API. Reloads it every few seconds while the page is visible, when the
 * page becomes visible, and when inputs change.
 */
export function usePolled<T>(load: () => Promise<T>, inputs: readonly unknown[]): {
  value: T | undefined;
  error: unknown;
  reload: () => void;
} {
  const [state, setState] = useState<{ value: T | undefined; error: unknown }>({
    value: undefined,
    error: undefined,
  });
  const latest = useRef(0);
  const reload = () => {
    const turn = ++latest.current;
    load().then(
      (value) => turn === latest.current && setState({ value, error: undefined }),
      (error: unknown) => turn === latest.current && setState((before) => ({ ...before, error })),
    );
  };
  useEffect(() => {
    const reloadIfSeen = () => document.hidden || reload();
    reload();
    const timer = setInterval(reloadIfSeen, REFRESH_MS);
    document.addEventListener("visibilitychange", reloadIfSeen);
    return () => {
      latest.current++;
      clearInterval(timer);
      document.removeEventListener("visibilitychange", reloadIfSeen);
    };
  }, inputs);
  return { ...state, reload };
}

/** Copies a text to the clipboard, even without a secure context. */
async function copy(text: string, from: HTMLElement): Promise<void> {
  if (navigator.clipboard !== undefined) return await navigator.clipboard.writeText(text);
  getSelection()?.selectAllChildren(from);
  if (!document.execCommand("copy")) {
    throw new Error("the browser refused; select the text and copy it by hand");
  }
}

/** A text with a button that copies it. */
export function CopyText({ label, text }: { label: string; text: string }): JSX.Element {
  const code = useRef<HTMLElement>(null);
  const [notice, setNotice] = useState("");
  const onClick = async () => {
    if (code.current === null) return;
    try {
      await copy(text, code.current);
      setNotice("Copied");
    } catch {
      getSelection()?.selectAllChildren(code.current);
      setNotice("Select it and copy it by hand");
    }
  };
  return (
    <div class="copy">
      <code ref={code} aria-label={label}>{text}</code>
      <button type="button" onClick={onClick}>Copy</button>
      <span class="told" role="status">{notice}</span>
    </div>
  );
}

/** Asks for confirmation of an action that cannot be undone or that affects others. */
export function Confirm({ title, act: verb, onAct, onClose, isDangerous = false, children }: {
  title: string;
  act: string;
  onAct: () => Promise<void>;
  onClose: () => void;
  isDangerous?: boolean;
  children: ComponentChildren;
}): JSX.Element {
  const { isBusy, error, act } = useAct();
  return (
    <Dialog
      title={title}
      onClose={onClose}
      error={error}
      actions={
        <>
          <button type="button" onClick={onClose}>Cancel</button>
          <button
            type="button"
            class={isDangerous ? "danger" : "primary"}
            disabled={isBusy}
            onClick={() => act(onAct)}
          >
            {verb}
          </button>
        </>
      }
    >
      {children}
    </Dialog>
  );
}

/** The head of a table, with a last column for buttons if its rows have any. */
export function TableHead({ titles, hasActions }: {
  titles: readonly string[];
  hasActions: boolean;
}): JSX.Element {
  return (
    <thead>
      <tr>
        {titles.map((title) => <th key={title} scope="col">{title}</th>)}
        {hasActions && (
          <th scope="col">
            <span class="sr">Actions</span>
          </th>
        )}
      </tr>
    </thead>
  );
}

/** The logo of Sallyport. */
export function Mark(): JSX.Element {
  return (
    <svg class="mark" viewBox="0 0 32 32" aria-hidden="true">
      <path class="outer" d="M6 27V13a10 10 0 0 1 20 0v14" />
      <path class="inner" d="M12 27V14a4 4 0 0 1 8 0v13z" />
    </svg>
  );
}

/** A figure with its label, in a list of them. */
export function Tile({ label, value, more, isBad = false }: {
  label: string;
  value: string;
  more: string;
  isBad?: boolean;
}): JSX.Element {
  return (
    <div class="tile">
      <dt>{label}</dt>
      <dd class={isBad ? "bad" : ""}>{value}</dd>
      <dd class="more">{more}</dd>
    </div>
  );
}

/** The button that opens the dialog to stop something. */
export function StopButton({ id, onStop }: { id: string; onStop: () => void }): JSX.Element {
  return (
    <button type="button" aria-haspopup="dialog" aria-label={`Stop ${id}`} onClick={onStop}>
      Stop
    </button>
  );
}
