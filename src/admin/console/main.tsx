/**
 * The console: signs an operator in, and shows one view at a time.
 *
 * @module
 */
import { type JSX, render } from "preact";
import { useEffect, useState } from "preact/hooks";
import type { LiveReport } from "../../observe/live/live_report.ts";
import { call, Refused, signIn, signOut, watch } from "./client.ts";
import { Exchanges } from "./exchanges.tsx";
import { Keys } from "./keys.tsx";
import { Confirm, Field, Pill, Problem, useAct } from "./parts.tsx";
import { Playground } from "./playground.tsx";
import { Providers } from "./providers.tsx";
import { type Snapshot, Store } from "./store.ts";
import { Traffic } from "./traffic.tsx";

const VIEWS = ["traffic", "exchanges", "providers", "keys", "playground"] as const;
type View = (typeof VIEWS)[number];

/** Themes in the order of the switch; `auto` follows the system. The choice is no secret, so it is remembered. */
const THEMES = ["auto", "light", "dark"] as const;
type Theme = (typeof THEMES)[number];
const THEME_ITEM = "sallyport-theme";

function readTheme(): Theme {
  try {
    const kept = localStorage.getItem(THEME_ITEM);
    return THEMES.find((theme) => theme === kept) ?? "auto";
  } catch {
    return "auto"; // storage is forbidden: the system's choice it is
  }
}

function useTheme(): { theme: Theme; shown: string; next: () => void } {
  const [theme, setTheme] = useState(readTheme);
  const system = matchMedia("(prefers-color-scheme: dark)");
  const [isSystemDark, setSystemDark] = useState(system.matches);
  useEffect(() => {
    const onChange = () => setSystemDark(system.matches);
    system.addEventListener("change", onChange);
    return () => system.removeEventListener("change", onChange);
  }, []);
  document.documentElement.dataset.theme = theme;
  const next = () => {
    const chosen = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length] ?? "auto";
    setTheme(chosen);
    try {
      localStorage.setItem(THEME_ITEM, chosen);
    } catch {
      // It is forgotten with the page then.
    }
  };
  return { theme, shown: theme === "auto" ? (isSystemDark ? "dark" : "light") : theme, next };
}

function useView(): View {
  const read = () => VIEWS.find((view) => location.hash === `#${view}`) ?? "traffic";
  const [view, setView] = useState<View>(read);
  useEffect(() => {
    const onChange = () => setView(read());
    addEventListener("hashchange", onChange);
    return () => removeEventListener("hashchange", onChange);
  }, []);
  return view;
}

function Mark(): JSX.Element {
  return (
    <svg class="mark" viewBox="0 0 32 32" aria-hidden="true">
      <path class="outer" d="M6 27V13a10 10 0 0 1 20 0v14" />
      <path class="inner" d="M12 27V14a4 4 0 0 1 8 0v13z" />
    </svg>
  );
}

function ThemeSwitch({ theme, next }: { theme: Theme; next: () => void }): JSX.Element {
  const label = { auto: "System", light: "Light", dark: "Dark" }[theme];
  return (
    <button type="button" class="quiet" onClick={next} aria-label={`Colours: ${label}. Change`}>
      <svg class="theme" viewBox="0 0 16 16" aria-hidden="true">
        <circle cx="8" cy="8" r="6" />
        <path d="M8 2a6 6 0 0 1 0 12z" />
      </svg>
      <span class="wide">{label}</span>
    </button>
  );
}

function SignIn({ told, onSignedIn }: { told: string; onSignedIn: () => void }): JSX.Element {
  const [shown, setShown] = useState("");
  const { isBusy, error, act } = useAct();
  const onSubmit = (event: Event) => {
    event.preventDefault();
    act(async () => {
      try {
        await signIn(shown.trim());
      } catch (thrown) {
        const isWrong = thrown instanceof Refused && thrown.status === 401;
        throw isWrong
          ? new Refused(401, "wrong", "This is not the admin token: it stands in admin.token of the configuration")
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
        <input class="sr" aria-hidden="true" tabIndex={-1} autocomplete="username" value="admin" readOnly />
        <Field label="Admin token" hint="Kept in this page's memory: a reload forgets it">
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
        {told !== "" && error === undefined && <p class="problem" role="alert">{told}</p>}
        <Problem error={error} />
        <button type="submit" class="primary" disabled={isBusy}>Sign in</button>
      </form>
    </main>
  );
}

const STATES: Readonly<Record<string, readonly ["good" | "warn" | "bad", string]>> = {
  starting: ["warn", "Starting"],
  ready: ["good", "Ready"],
  draining: ["warn", "Draining"],
  leaving: ["bad", "Leaving"],
};

function Drain({ isDrained, onClose }: { isDrained: boolean; onClose: () => void }): JSX.Element {
  const onAct = async () => {
    await call("POST", isDrained ? "v1/resume" : "v1/drain");
    onClose();
  };
  if (isDrained) {
    return (
      <Confirm title="Welcome callers again?" act="Resume" onAct={onAct} onClose={onClose}>
        <p>
          <code>/readyz</code> answers 200 again, and load balancers send callers here.
        </p>
      </Confirm>
    );
  }
  return (
    <Confirm title="Turn callers elsewhere?" act="Drain" onAct={onAct} onClose={onClose}>
      <p>
        <code>/readyz</code>{" "}
        answers 503 from now on, so that load balancers send callers elsewhere. Who calls all the same is served, open
        exchanges go on to their end, and Resume takes it back.
      </p>
      <p class="hint">When nothing is open any more, end the process with SIGTERM.</p>
    </Confirm>
  );
}

/** Moves the focus to the content. A link could not: the hash of the address names the view. */
function skip(event: Event): void {
  event.preventDefault();
  document.getElementById("content")?.focus();
}

/** Creates a store that takes reports while the page is open. Renders once a report, but not while it is hidden. */
function useStore(onSignedOut: (told: string) => void): Store {
  const [, setTurn] = useState(0);
  const [store] = useState(() => new Store());
  useEffect(() => {
    const renderNow = () => document.hidden || setTurn((turn) => turn + 1);
    document.addEventListener("visibilitychange", renderNow);
    const stop = watch({
      report(report) {
        store.add(report);
        renderNow();
      },
      connected(isConnected) {
        store.connected(isConnected);
        renderNow();
      },
      signedOut: ({ message }) => onSignedOut(message),
    });
    return () => {
      stop();
      document.removeEventListener("visibilitychange", renderNow);
    };
  }, []);
  return store;
}

interface TopProps {
  readonly snapshot: Snapshot;
  readonly theme: Theme;
  readonly onTheme: () => void;
  readonly onSignedOut: (told: string) => void;
}

function Top({ snapshot: { report, isConnected }, theme, onTheme, onSignedOut }: TopProps): JSX.Element {
  const [isAsking, setAsking] = useState(false);
  const isDrained = report?.state === "draining";
  const [kind, word] = STATES[isConnected ? report?.state ?? "" : ""] ?? ["warn", "Connecting"];
  return (
    <>
      <header class="top">
        <Mark />
        <strong class="wide">Sallyport</strong>
        <span role="status">
          <Pill kind={kind}>{word}</Pill>
        </span>
        <span class="hint wide">{report?.version}</span>
        <span class="grow" />
        <ThemeSwitch theme={theme} next={onTheme} />
        <button type="button" disabled={report?.state === "leaving"} onClick={() => setAsking(true)}>
          {isDrained ? "Resume" : "Drain"}
        </button>
        <button type="button" class="quiet" onClick={() => onSignedOut("")}>Sign out</button>
      </header>
      {isAsking && <Drain isDrained={isDrained} onClose={() => setAsking(false)} />}
    </>
  );
}

function Banner({ report }: { report: LiveReport | undefined }): JSX.Element | null {
  if (report === undefined || report.state === "ready") return null;
  const what = {
    starting: "Keys can't be looked up yet.",
    draining: "Load balancers are told to turn elsewhere.",
    leaving: "The gateway was told to end.",
  }[report.state];
  return (
    <p class="banner" role="status">
      {what} <b>{report.openExchanges} open</b>
    </p>
  );
}

function Console({ onSignedOut }: { onSignedOut: (told: string) => void }): JSX.Element {
  const store = useStore(onSignedOut);
  const view = useView();
  const { theme, shown, next } = useTheme();
  const { snapshot } = store;
  return (
    <>
      <a class="skip" href="#content" onClick={skip}>Skip to the content</a>
      <Top snapshot={snapshot} theme={theme} onTheme={next} onSignedOut={onSignedOut} />
      <nav aria-label="Views">
        {VIEWS.map((each) => (
          <a key={each} href={`#${each}`} aria-current={each === view ? "page" : undefined}>
            {each[0]?.toUpperCase()}
            {each.slice(1)}
          </a>
        ))}
      </nav>
      <Banner report={snapshot.report} />
      <main id="content" tabIndex={-1}>
        {view === "traffic" && <Traffic snapshot={snapshot} store={store} theme={shown} />}
        {view === "exchanges" && <Exchanges snapshot={snapshot} />}
        {view === "providers" && <Providers snapshot={snapshot} store={store} />}
        {view === "keys" && <Keys snapshot={snapshot} />}
        <Playground snapshot={snapshot} isHidden={view !== "playground"} />
      </main>
    </>
  );
}

function Page(): JSX.Element {
  const [isSignedIn, setSignedIn] = useState(false);
  const [told, setTold] = useState("");
  const onSignedOut = (why: string) => {
    signOut();
    setTold(why);
    setSignedIn(false);
  };
  return isSignedIn
    ? <Console onSignedOut={onSignedOut} />
    : <SignIn told={told} onSignedIn={() => setSignedIn(true)} />;
}

document.documentElement.dataset.theme = readTheme();
const home = document.getElementById("page");
if (home !== null) render(<Page />, home);
