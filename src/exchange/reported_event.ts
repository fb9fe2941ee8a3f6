/**
 * Events that a gateway reports to its operator, in addition to its exchanges: its start, reload
 * and end, and what fails while it runs.
 *
 * @module
 */

/** Name of an event, for filters and alerts. */
export type EventName =
  | "started"
  | "reloaded"
  | "reload_failed"
  | "draining"
  | "ended"
  | "worker_failed"
  | "worker_ended"
  | "worker_replaced"
  | "listener_failed"
  | "configuration_warning"
  | "redis_failed"
  | "redis_recovered"
  | "redis_refused"
  | "keys_changed"
  | "keys_unavailable"
  | "file_unreadable"
  | "file_not_written"
  | "file_permissions"
  | "identity_failed"
  | "identity_recovered"
  | "identity_refused"
  | "held_key_failed"
  | "held_key_refused"
  | "client_secret_failed"
  | "change_not_listed"
  | "alert_lost"
  | "traces_unavailable"
  | "internal_error";

/** The meaning of each event, one sentence, for pages. */
export const EVENTS: Readonly<Record<EventName, string>> = {
  started:
    "The gateway serves callers. The line has its addresses, version, runtime and number of workers",
  reloaded: "A changed configuration is active. The line has its digest",
  reload_failed: "A reload found mistakes. The previous configuration stays active",
  draining:
    "A signal began the shutdown. The line has the signal, the number of open exchanges, and the " +
    "times of `drain`",
  ended: "The shutdown is over. The line has the signal and the duration of the shutdown",
  worker_failed: "A worker could not start, and ends. Other workers serve. The line has the reason",
  worker_ended:
    "A worker ended unexpectedly, or its process could not be started. Another one is started",
  worker_replaced: "A worker cannot continue. It drains, and another one replaces it",
  listener_failed:
    "A port could not be opened again for a new certificate. The gateway tries again",
  configuration_warning: "A setting, or the record of a key, is probably a mistake",
  redis_failed: "Redis does not answer in time, or answers with an error",
  redis_recovered: "Redis answers again",
  redis_refused: "Redis refused a change, or has data that this version of the gateway cannot use",
  keys_changed:
    "The file of keys was changed, or the keys in Redis were confirmed. These keys are used from " +
    "now on",
  keys_unavailable: "Redis has lost its keys, or has none",
  file_unreadable: "A file is missing, broken or from a later version. The line has its name",
  file_not_written: "A file cannot be written, for example on a full disk. The line has its name",
  file_permissions: "Other users can read a file with secrets. The line has its name",
  identity_failed: "The public keys of an issuer cannot be fetched",
  identity_recovered: "The public keys of an issuer were fetched again",
  identity_refused: "An identity token is valid, but its claims do not fit the configuration",
  held_key_failed: "A provider key that the gateway holds cannot be read. The line has its source",
  held_key_refused:
    "A provider answered 401 to a call with a key that the gateway holds. The line has the " +
    "setting of the key. It is reported once, and again only after a call with the key succeeded",
  client_secret_failed:
    "The client secret for signing in to the console cannot be read. The line has its source",
  change_not_listed:
    "A change of a key or a team was made, but could not be added to the list of changes",
  alert_lost: "A message about a budget could not be delivered",
  traces_unavailable:
    "The gateway cannot use the registered OpenTelemetry API, for example because it is too old",
  internal_error: "A bug in the gateway. At most one exchange failed",
};

/** The name of an event and its facts. They contain no secrets. */
export interface EventFacts {
  readonly event: EventName;
  readonly [fact: string]: string | number | readonly string[] | undefined;
}

/**
 * Receives an event.
 *
 * @param text The event as one sentence for people, without a full stop. Only a bug has more lines
 */
export type ReportEvent = (text: string, facts: EventFacts) => void;
