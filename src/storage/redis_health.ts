/**
 * The health of one Redis server: decides when it receives no calls, and when it is probed again.
 * An unstable server must be healthy for increasingly long times before it receives calls again.
 *
 * @module
 */
import type { Clock } from "../exchange/clock.ts";

/**
 * Pause before a failing server is probed. It is short at first, because most failures are brief,
 * and doubles up to {@link MAX_PAUSE_MS}. Milliseconds.
 */
const FIRST_PAUSE_MS = 20;
const MAX_PAUSE_MS = 250;
/**
 * Number of consecutive probes that must be answered in time after an outage. It doubles with each
 * outage that begins within {@link STEADY_MS} of the previous one, up to {@link MAX_PROBES}. The
 * pauses between probes grow in the same way. So there are at most two changes of health in about
 * ten seconds.
 */
const PROBES = 3;
const MAX_PROBES = 48;
/** Time after which a server that is up has recovered. Milliseconds. */
const STEADY_MS = 60_000;
/**
 * Number of tolerated late replies while other replies arrive, and the part of a late reply that
 * each reply in time compensates. A server that is late for fewer than one in ten calls stays up.
 */
const MAX_LATE = 3;
const MADE_GOOD = 0.1;
/**
 * Time without a reply after which connections are reopened, because the other end can be gone
 * without closing them. Milliseconds.
 */
const SILENCE_MS = 5000;
/** Time without a reply after which a server counts as silent, not as slow. Milliseconds. */
const SILENT_MS = 1000;

/**
 * Returns a random duration, so that gateways do not act at the same time: at least half of the
 * given one.
 */
export function jitter(ms: number): number {
  return ms * (0.5 + Math.random() / 2);
}

/** Parts of a {@link ServerHealth}. */
export interface ServerHealthOptions {
  readonly clock: Clock;
  /** True for a server that is not probed before the first call. */
  readonly isUp: boolean;
  /** Probes the server. Throws unless the reply arrives in time. */
  readonly probe: () => Promise<unknown>;
  /** Opens the connection again after a long silence. */
  readonly reopen: () => void;
  /** Called at each failed probe, and when the server is up again. */
  readonly changed: (cause: unknown) => void;
}

/** The health of one server. */
export class ServerHealth {
  readonly #options: ServerHealthOptions;
  #isUp: boolean;
  /**
   * The number of outages so far. A failed call that began before the latest outage does not start
   * another one.
   */
  outages = 0;
  /** The number of replies so far, including late ones. */
  replies = 0;
  #late = 0;
  /** Duration of the last late reply of this outage. Milliseconds. */
  #lateMs: number | undefined;
  #upSince: number;
  #silentSince: number;
  #needed = 1;
  #good = 0;
  #pauseMs = FIRST_PAUSE_MS;
  #isClosed = false;
  #cancelProbe = (): void => {};

  constructor(options: ServerHealthOptions) {
    this.#options = options;
    this.#isUp = options.isUp;
    this.#upSince = this.#silentSince = options.clock.monotonic();
  }

  /** True if calls can be made. */
  get isUp(): boolean {
    return this.#isUp;
  }

  /** Notes a reply in time. */
  answered(): void {
    this.replies++;
    if (this.#late > 0) this.#late = Math.max(0, this.#late - MADE_GOOD);
  }

  /** Notes a reply that arrived too late, after `ms` milliseconds. */
  answeredLate(ms: number): void {
    this.replies++;
    this.#silentSince = this.#options.clock.monotonic();
    if (!this.#isUp) this.#lateMs = ms;
  }

  /**
   * Notes that a call has had no reply in time.
   *
   * @param replies The number of replies before the call was sent
   * @param outages The number of outages before the call was sent
   */
  missed(replies: number, outages: number): void {
    if (outages !== this.outages) return;
    // While other calls are answered, Redis is up.
    if (replies !== this.replies && ++this.#late <= MAX_LATE) return;
    this.leaveAlone();
  }

  /**
   * Describes an outage: slow or silent; `undefined` without an outage, and while the kind is not
   * known yet.
   */
  describe(): string | undefined {
    if (this.#isUp) return undefined;
    const silentMs = this.#options.clock.monotonic() - this.#silentSince;
    if (silentMs >= SILENT_MS) return `silent for ${Math.round(silentMs)} ms`;
    return this.#lateMs === undefined
      ? undefined
      : `slow: it answers after ${Math.ceil(this.#lateMs)} ms`;
  }

  /** Probes the server. No caller waits for this. */
  probe(): void {
    this.#cancelProbe();
    if (this.#isClosed) return;
    const { outages } = this;
    this.#options.probe().then(
      () => {
        if (outages === this.outages) this.#succeeded();
      },
      (cause) => {
        if (outages !== this.outages || this.#isClosed) return;
        this.leaveAlone();
        this.#options.changed(cause);
      },
    );
  }

  /**
   * Begins or extends an outage: from now on calls fail at once, and probes check if the server is
   * back.
   */
  leaveAlone(): void {
    if (this.#isClosed) return;
    const now = this.#options.clock.monotonic();
    if (this.#isUp) {
      this.#silentSince = now;
      this.#lateMs = undefined;
      this.#pauseMs = FIRST_PAUSE_MS;
      const isUnsteady = now - this.#upSince < STEADY_MS;
      this.#needed = isUnsteady ? Math.min(Math.max(PROBES, 2 * this.#needed), MAX_PROBES) : PROBES;
    }
    this.#isUp = false;
    this.#late = 0;
    this.#good = 0;
    this.outages++;
    if (now - this.#silentSince >= SILENCE_MS) {
      this.#silentSince = now;
      this.#options.reopen();
    }
    this.#probeAfter(this.#pauseMs);
    this.#pauseMs = Math.min(2 * this.#pauseMs, MAX_PAUSE_MS);
  }

  /** Ends the probes. */
  close(): void {
    this.#isClosed = true;
    this.#cancelProbe();
  }

  #succeeded(): void {
    this.#cancelProbe();
    this.replies++;
    if (this.#isUp || this.#isClosed) return;
    this.#silentSince = this.#options.clock.monotonic();
    this.#pauseMs = Math.min(FIRST_PAUSE_MS * this.#needed / PROBES, MAX_PAUSE_MS);
    if (++this.#good < this.#needed) return this.#probeAfter(this.#pauseMs);
    this.#isUp = true;
    this.#upSince = this.#silentSince;
    this.#options.changed(undefined);
  }

  #probeAfter(ms: number): void {
    this.#cancelProbe();
    this.#cancelProbe = this.#options.clock.timer(jitter(ms), () => this.probe());
  }
}
