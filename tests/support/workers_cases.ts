/**
 * Which files of tests run against a Worker in workerd (`npm test -- --runtime workers`), and which of their cases make
 * no sense there. `docs/workers.md` says the same to people.
 */

/** Why a case is left out. */
export type Reason =
  | "parts"
  | "drain"
  | "listener"
  | "half-close"
  | "connect"
  | "break"
  | "pieces"
  | "memory"
  | "log"
  | "process"
  | "wait";

/** The reasons, as they stand in `docs/workers.md`. */
export const REASONS: Readonly<Record<Reason, string>> = {
  parts: "it puts a part of its own into the gateway, and a Worker takes none",
  drain: "it drains or closes the gateway, which the platform does to a Worker without asking",
  listener: "bytes on the wire are read by workerd, and in production by the edge, before the Worker is asked",
  "half-close": "workerd by itself takes the end of what a caller sends (FIN) for half a close, until its next write",
  connect: "fetch there does not tell a connection that never was from one that broke: no connect deadline, no retry",
  break: "workerd ends a body that breaks off like a whole one when its length was not announced",
  pieces: "workerd may cut an event in two on its way: the bytes and their order are the same",
  memory: "it sends more than a Worker takes by default",
  process: "it measures the process of the gateway, which is another one there",
  wait: "it waits 14 s for what listeners of other runtimes do; the behaviour `silent stream` has a case of its own",
  log: "records of a Worker are lines of its log, which hold less and come a moment later",
};

/** Files, and the names of the cases that are left out. */
export const WORKERS_CASES: Readonly<Record<string, Readonly<Record<string, Reason>>>> = {
  "tests/exchange/plain_test.ts": {},
  "tests/exchange/stream_test.ts": {
    "breaks the connection when a plain answer can't be completed": "break",
    "hands on each event before the next one is sent": "pieces",
    "lets a stream be silent for longer than any default of the runtime's listener": "wait",
    "the record tells when the first event came that is no comment": "log",
  },
  "tests/exchange/host_test.ts": {
    "refuses a Host that is no plain host before anything looks at the URL": "listener",
    "row 36: sends nowhere else, however the target is written": "listener",
  },
  "tests/exchange/credentials_test.ts": {},
  "tests/exchange/body_test.ts": {
    "rows 26 and 27: over the limit is refused before it is read, and as soon as it is over in chunks": "listener",
  },
  "tests/exchange/headers_test.ts": {
    "tell in Server-Timing what the gateway took and what the provider, until the answer's header": "parts",
  },
  "tests/exchange/models_test.ts": {},
  "tests/exchange/limits_test.ts": {
    "takes both secrets of a key while a rotation overlaps, and none of a disabled or revoked one": "parts",
  },
  "tests/exchange/properties_test.ts": {
    "row 32: lets a text of 10 MB and an array of a million elements through": "memory",
  },
  "tests/exchange/errors_test.ts": {
    "gateway_draining answers 503": "drain",
    "internal_error answers 500": "parts",
    "invalid_host answers 400": "listener",
    "key_store_unavailable answers 503": "parts",
    "upstream_connect_timeout answers 504": "connect",
  },
  "tests/faults/upstream_test.ts": {
    "row 1: a refused connection answers 502 at once, and goes to another replica where there is one": "connect",
    "row 3: a black hole answers 504 at the connect deadline, and goes to another replica where there is one":
      "connect",
    "row 56: 16 callers that do not read what 130 kB unpack to cost no more than their buffers": "process",
    "row 56: packed answers are unpacked, plain and streamed, and one that is cut or goes on never looks whole":
      "break",
  },
  "tests/faults/streams_test.ts": {
    "row 60: ten minutes of comments, by default": "parts",
    "row 61: a plain answer after nine minutes, by default": "parts",
    "row 62: a caller's clock in whole seconds ends with the second that was cut off": "parts",
    "row 63: a cut between the finish and the usage is one for the caller too": "break",
    "row 63: a cut after an error event of the provider's own is one for the caller too": "break",
  },
  "tests/faults/caller_test.ts": {
    "row 19: a caller that reads nothing is let go after a while, and the upstream with it": "break",
    "row 21: a flood of wrong keys costs malformed ones no look-up, and good callers nothing": "parts",
    "row 37: half a header, a dripping header and a dripping body end in bounded time, and nobody else notices":
      "listener",
  },
  "tests/faults/gateway_test.ts": {
    "row 38: closing lets open exchanges finish, refuses new ones, and tells the rest": "drain",
    "row 42: a wall clock that jumps moves no deadline, and only the expiry of keys": "parts",
    "row 49: no key and no prompt is told, whatever goes wrong": "listener",
    "row 50: a tracer that throws costs its own exchange": "parts",
    "row 50: what throws anywhere costs its own exchange and tells nothing": "parts",
  },
  "tests/clients/openai_test.ts": {
    "aborts before an answer on host ${host}, and the provider sees the connection close": "half-close",
    "aborts in mid-stream on host ${host}, and the provider sees the connection close": "half-close",
  },
  "tests/clients/ai_sdk_test.ts": {
    "aborts in mid-stream on host ${host}, and the provider sees the connection close": "half-close",
    "waits as long as the provider says, and tries again": "log",
  },
};
