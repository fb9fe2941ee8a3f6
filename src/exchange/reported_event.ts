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
  | "client_secret_failed"
  | "change_not_listed"
  | "alert_lost"
  | "traces_unavailable"
  | "internal_error";

/** The meaning of each event, one sentence, for pages. */
export const EVENTS: Readonly<Record<EventName, string>> = {
  started: "It serves callers. Has the addresses, the version, the runtime and the workers",
  reloaded: "Another configuration is active. Has its digest",
  reload_failed: "A reload found mistakes: the previous configuration stays active",
  draining: "A signal began the shutdown. Has the signal, the open exchanges and the times",
  ended: "The shutdown is over. Has the signal and its duration",
  worker_failed: "A worker could not start while others serve, and ends. Has the reason",
  worker_ended: "A worker ended unexpectedly or could not be started: another one follows",
  worker_replaced: "A worker could not continue, drains, and is replaced",
  listener_failed: "A port could not be opened again for a new certificate: it is retried",
  configuration_warning: "Something in the configuration or among the keys is probably a mistake",
  redis_failed: "Redis does not answer as it should",
  redis_recovered: "Redis answers again",
  redis_refused: "Redis refused a change, or has data that this version cannot use",
  keys_changed: "Keys were changed outside of the gateway, and are used from now on",
  keys_unavailable: "Redis has lost its keys, or has none",
  file_unreadable: "A file is gone, broken or from a later version. Has the file",
  file_not_written: "A file cannot be written, for example on a full disk. Has the file",
  file_permissions: "Other users can read a file with secrets. Has the file",
  identity_failed: "The public keys of an issuer cannot be fetched",
  identity_recovered: "The public keys of an issuer were fetched again",
  identity_refused: "A token is valid, but its claims do not fit the configuration",
  held_key_failed: "A provider key that the gateway holds cannot be read. Has its source",
  client_secret_failed: "The client secret of a sign-in cannot be read. Has its source",
  change_not_listed: "A change of a key or a team was made, but is not in the list of changes",
  alert_lost: "A message about a budget could not be delivered",
  traces_unavailable: "The registered SDK for traces cannot be used",
  internal_error: "A bug of the gateway. At most one exchange failed",
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
