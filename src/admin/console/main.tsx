/**
 * The console: signs an operator in, and shows one view at a time.
 *
 * @module
 */
import { type JSX, render } from "preact";
import { useEffect, useMemo, useState } from "preact/hooks";
import {
  gatewayOfAddress,
  selectGateway,
  toAddress,
  useHashChange,
  viewOfAddress,
} from "./address.ts";
import { Changes } from "./changes.tsx";
import { resume, signOut, watch } from "./client.ts";
import { endSignIn } from "./code_sign_in.ts";
import { Exchanges } from "./exchanges.tsx";
import { FleetSwitch, type Scope } from "./fleet_switch.tsx";
import { Fleet } from "./fleet_view.tsx";
import { Keys } from "./keys.tsx";
import { Playground } from "./playground.tsx";
import { Providers } from "./providers.tsx";
import { Recordings } from "./recordings.tsx";
import { Runs } from "./runs.tsx";
import { SignIn } from "./sign_in.tsx";
import { SubjectPage } from "./subject_page.tsx";
import { Teams } from "./teams.tsx";
import { type Snapshot, Store } from "./store.ts";
import { readTheme, useTheme } from "./theme.tsx";
import { Banner, Top } from "./top.tsx";
import { Traffic } from "./traffic.tsx";
import { Usage } from "./usage_view.tsx";

interface ViewProps {
  readonly snapshot: Snapshot;
  readonly store: Store;
  readonly theme: string;
  readonly scope: Scope;
}

/** The views, in the order of the navigation. The playground keeps its state while it is hidden. */
const VIEWS = {
  traffic: Traffic,
  usage: Usage,
  exchanges: Exchanges,
  durable: Recordings,
  fleet: Fleet,
  providers: Providers,
  teams: Teams,
  keys: Keys,
  runs: Runs,
  changes: Changes,
  playground: undefined,
} as const satisfies Record<string, ((props: ViewProps) => JSX.Element) | undefined>;

/** The pages of one team, key or provider. Links lead to them, not the navigation. */
const PAGES = {
  team: ({ theme }: ViewProps): JSX.Element => <SubjectPage of="team" theme={theme} />,
  key: ({ theme }: ViewProps): JSX.Element => <SubjectPage of="key" theme={theme} />,
  provider: ({ theme }: ViewProps): JSX.Element => <SubjectPage of="provider" theme={theme} />,
} as const;

type Listed = keyof typeof VIEWS;
type View = Listed | keyof typeof PAGES;
const NAMES = Object.keys(VIEWS) as Listed[];
const ADDRESSES = [...NAMES, ...Object.keys(PAGES)] as View[];

function useView(): View {
  const read = () => ADDRESSES.find((view) => viewOfAddress() === view) ?? "traffic";
  const [view, setView] = useState<View>(read);
  useHashChange(() => setView(read()));
  return view;
}

const toTitle = (view: View): string => view.charAt(0).toUpperCase() + view.slice(1);

/** Moves the focus to the content. A link cannot do so: the hash of the address names the view. */
function skip(event: Event): void {
  event.preventDefault();
  document.getElementById("content")?.focus();
}

/** Views of traffic, which show one gateway or all. */
const SCOPED: readonly View[] = ["traffic", "exchanges", "providers"];

/**
 * Creates a store that receives reports while the page is open, a new one for each scope. Renders
 * once per report, but not while the page is hidden.
 */
function useStore(scope: Scope, onSignedOut: (reason: string) => void): Store {
  const [, setTurn] = useState(0);
  const store = useMemo(() => new Store(), [scope]);
  useEffect(() => {
    const renderNow = () => document.hidden || setTurn((turn) => turn + 1);
    document.addEventListener("visibilitychange", renderNow);
    const stop = watch(scope, {
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
  }, [scope]);
  return store;
}

function Console({ onSignedOut }: { onSignedOut: (reason: string) => void }): JSX.Element {
  const [scope, setScope] = useState<Scope>(gatewayOfAddress);
  const store = useStore(scope, onSignedOut);
  const view = useView();
  const { theme, shown, next } = useTheme();
  const { snapshot } = store;
  useEffect(() => void (document.title = `${toTitle(view)} · Sallyport`), [view]);
  const onScope = (gateway: Scope) => {
    selectGateway(view, gateway);
    setScope(gateway);
  };
  const Shown: ((props: ViewProps) => JSX.Element) | undefined = { ...VIEWS, ...PAGES }[view];
  return (
    <>
      <a class="skip" href="#content" onClick={skip}>Skip to the content</a>
      <Top snapshot={snapshot} theme={theme} onTheme={next} onSignedOut={onSignedOut} />
      <nav aria-label="Views">
        {NAMES.map((each) => (
          <a
            key={each}
            href={toAddress(each, SCOPED.includes(each) ? { gateway: scope } : {})}
            aria-current={each === view ? "page" : undefined}
          >
            {toTitle(each)}
          </a>
        ))}
      </nav>
      <Banner snapshot={snapshot} />
      {SCOPED.includes(view) && (
        <FleetSwitch scope={scope} live={snapshot.report?.scope} onScope={onScope} />
      )}
      <main id="content" tabIndex={-1}>
        {Shown !== undefined && (
          <Shown key={scope} snapshot={snapshot} store={store} theme={shown} scope={scope} />
        )}
        <Playground snapshot={snapshot} isHidden={view !== "playground"} />
      </main>
    </>
  );
}

function Page(): JSX.Element | null {
  /** `undefined` until it is known whether the session of this tab goes on. */
  const [isSignedIn, setSignedIn] = useState<boolean | undefined>(undefined);
  const [reason, setReason] = useState("");
  const onSignedOut = (why: string) => {
    signOut();
    setReason(why);
    setSignedIn(false);
  };
  useEffect(() => {
    const fail = (error: unknown): boolean => {
      setReason(error instanceof Error ? error.message : String(error));
      return false;
    };
    // An answer that belongs to no sign-in of this tab, such as in a foreign link, ends no session.
    const begin = async () => await endSignIn().catch(fail) || await resume();
    begin().catch(fail).then(setSignedIn);
  }, []);
  if (isSignedIn === undefined) return null;
  return isSignedIn
    ? <Console onSignedOut={onSignedOut} />
    : <SignIn reason={reason} onSignedIn={() => setSignedIn(true)} />;
}

document.documentElement.dataset.theme = readTheme();
const home = document.getElementById("page");
if (home !== null) render(<Page />, home);
