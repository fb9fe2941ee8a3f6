/**
 * The console's head: the gateway's state, the theme, draining, and signing out.
 *
 * @module
 */
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { call, mayChange } from "./client.ts";
import { Confirm, Mark, Pill } from "./parts.tsx";
import { clock, plural } from "./format.ts";
import type { Snapshot } from "./store.ts";
import { type Theme, ThemeSwitch } from "./theme.tsx";

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
        answers 503 from now on, so that load balancers send callers elsewhere. Calls that still
        arrive are served, open exchanges continue to their end, and Resume ends the drain.
      </p>
      <p class="hint">When nothing is open any more, end the process with SIGTERM.</p>
    </Confirm>
  );
}

interface TopProps {
  readonly snapshot: Snapshot;
  readonly theme: Theme;
  readonly onTheme: () => void;
  readonly onSignedOut: (reason: string) => void;
}

/** The head of each view. */
export function Top({ snapshot, theme, onTheme, onSignedOut }: TopProps): JSX.Element {
  const { report, isConnected } = snapshot;
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
        {mayChange()
          ? (
            <button
              type="button"
              aria-haspopup="dialog"
              disabled={!isConnected || report?.state === "leaving"}
              onClick={() => setAsking(true)}
            >
              {isDrained ? "Resume" : "Drain"}
            </button>
          )
          : <Pill kind="quiet">viewer</Pill>}
        <button type="button" class="quiet" onClick={() => onSignedOut("")}>Sign out</button>
      </header>
      {isAsking && <Drain isDrained={isDrained} onClose={() => setAsking(false)} />}
    </>
  );
}

/** A line below the head while the gateway is not ready or not reachable. */
export function Banner({ snapshot }: { snapshot: Snapshot }): JSX.Element | null {
  const { report, isConnected } = snapshot;
  if (report === undefined || (report.state === "ready" && isConnected)) return null;
  if (!isConnected) {
    return (
      <div class="banner" role="status">
        <span>
          <b>The gateway cannot be reached.</b> These are the figures of{" "}
          {clock(report.now)}; trying again.
        </span>
      </div>
    );
  }
  const what = {
    starting: "Keys can't be looked up yet.",
    draining: "Load balancers are told to turn elsewhere.",
    leaving: "The gateway was told to end.",
    ready: "",
  }[report.state];
  return (
    <div class="banner" role="status">
      <span>
        {what} <b>{plural(report.openExchanges, "exchange")} open</b>
      </span>
    </div>
  );
}
