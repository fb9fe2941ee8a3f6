/**
 * Calls over undici's `Client`, one to a connection: half of what `node:http` costs. It tells connecting from waiting,
 * decompresses nothing and follows nothing.
 *
 * @module
 */
import { Buffer } from "node:buffer";
import type { IncomingMessage } from "node:http";
import { connect, type Socket } from "node:net";
import type { buildConnector, Client, Dispatcher } from "undici";
import type { ByteSource } from "../byte_source.ts";
import { GatewayError } from "../errors.ts";
import { NeverSent, type Transport, type UpstreamAnswer, type UpstreamCall } from "./transport.ts";

/** Upstream headers beyond this are no readable answer. Bytes. */
const MAX_HEADER_BYTES = 65536;
/** Idle connections kept for each upstream, and how long: less than common load balancers keep them (60 s). */
const MAX_IDLE_CONNECTIONS = 1024;
const IDLE_CONNECTION_MS = 50_000;
/** Bytes of an answer that wait for their reader before the upstream has to wait too. */
const MAX_QUEUED_BYTES = 65536;

/**
 * A Node stream as a {@link ByteSource}: paused, so that a reader that stops also stops the sender.
 *
 * @param stream A request's or an answer's body
 * @returns The source
 */
export function fromIncomingMessage(stream: IncomingMessage): ByteSource {
  let isWatched = false;
  let isOver = false;
  let failure: Error | undefined;
  let wake = (): void => {};
  const end = (error?: Error | null) => {
    isOver = true;
    failure ??= error ?? undefined;
    wake();
  };
  const onClose = () => end(stream.complete ? undefined : new Error("The connection closed before the end"));
  /** Not before somebody reads: a body with listeners that nobody reads would never be thrown away by the server. */
  const watch = () => {
    isWatched = true;
    stream.on("readable", () => wake());
    stream.on("end", () => end());
    stream.on("error", end);
    stream.on("close", onClose);
    if (stream.destroyed) onClose();
  };
  return {
    async read() {
      if (!isWatched) watch();
      while (true) {
        const chunk: Uint8Array | null = isOver ? null : stream.read();
        if (chunk !== null) return chunk;
        if (failure !== undefined) throw failure;
        if (isOver) return undefined;
        await new Promise<void>((resolve) => wake = resolve);
      }
    },
    cancel() {
      isOver = true;
      stream.on("error", () => {}); // destroying may report what nobody waits for
      stream.destroy();
      wake();
    },
  };
}

/** The parts of undici that are used. */
interface Engine {
  readonly Client: typeof Client;
  readonly buildConnector: typeof buildConnector;
}

/**
 * Not the whole package, which brings a fetch, a cache and WebSockets along; and only where calls are made with it.
 * undici declares types for its main module only: `tsconfig.json` says where those of these two are, Deno infers others.
 */
async function loadEngine(): Promise<Engine> {
  const [client, connector] = await Promise.all([
    import("undici/lib/dispatcher/client.js"),
    import("undici/lib/core/connect.js"),
  ]);
  return {
    Client: client.default as unknown as Engine["Client"],
    buildConnector: connector.default as unknown as Engine["buildConnector"],
  };
}

/** What undici says of an answer that is no readable HTTP: llhttp's findings, and its own. */
function isGarbled(error: Error): boolean {
  const code = "code" in error ? String(error.code) : "";
  return error.name === "HTTPParserError" ||
    /^UND_ERR_(?:HEADERS_OVERFLOW|RES_CONTENT_LENGTH_MISMATCH)$/.test(code) ||
    (code === "UND_ERR_SOCKET" && error.message.startsWith("bad ")); // "bad response", "bad upgrade": a 1xx nobody asked for
}

const ignore = (): void => {};

/** A connection to an upstream, and the call that has it. */
class Connection {
  /** The call that has it; none while it is idle. */
  call: Call | undefined;
  readonly #client: Client;
  #socket: Socket | undefined;

  constructor({ Client }: Engine, origin: string, connector: buildConnector.connector, onClosed: () => void) {
    this.#client = new Client(origin, {
      pipelining: 1,
      maxHeaderSize: MAX_HEADER_BYTES,
      keepAliveTimeout: IDLE_CONNECTION_MS,
      headersTimeout: 0, // the gateway's own deadlines count
      bodyTimeout: 0,
      connect: (options, callback) => {
        this.call?.connecting();
        // Types say that a connector returns nothing; undici's own returns its socket.
        this.#socket = connector(options, callback) as unknown as Socket;
      },
    });
    this.#client.on("disconnect", onClosed);
  }

  send(call: Call, { url, method, headers, body }: UpstreamCall): void {
    this.call = call;
    const path = url.pathname + url.search;
    this.#client.dispatch({ path, method: method as Dispatcher.HttpMethod, headers, body }, call);
  }

  /** The error that broke it. */
  get broken(): Error | null {
    return this.#socket?.errored ?? null;
  }

  /** Closes it at whatever stage it is, and fails the call that has it. */
  close(reason: Error): void {
    queueMicrotask(() => { // not while undici still deals with an answer or an error
      this.#client.destroy(reason, ignore);
      this.#socket?.destroy();
    });
  }
}

/** The connections to an upstream: as many as there are calls at the same time, and some that wait for the next. */
class Pool {
  readonly #idle: Connection[] = [];
  readonly #open: () => Connection;

  constructor(engine: Engine, origin: string) {
    const connector = engine.buildConnector({ timeout: 0 }); // the call's own deadline counts
    this.#open = () => {
      const connection: Connection = new Connection(engine, origin, connector, () => this.#forget(connection));
      return connection;
    };
  }

  /** The one that was used last: the others may grow old and close. */
  take(): Connection {
    return this.#idle.pop() ?? this.#open();
  }

  giveBack(connection: Connection): void {
    connection.call = undefined;
    if (this.#idle.length < MAX_IDLE_CONNECTIONS) this.#idle.push(connection);
    else connection.close(new Error("Enough connections are idle"));
  }

  #forget(connection: Connection): void {
    const index = connection.call === undefined ? this.#idle.lastIndexOf(connection) : -1;
    if (index !== -1) this.#idle.splice(index, 1);
  }
}

/** A call on its way, what undici tells of it, and the body of its answer. */
class Call implements Dispatcher.DispatchHandler, ByteSource {
  readonly answered: Promise<UpstreamAnswer>;
  #resolve: (answer: UpstreamAnswer) => void = ignore;
  #reject: (error: unknown) => void = ignore;

  readonly #call: UpstreamCall;
  readonly #pool: Pool;
  readonly #connection: Connection;
  #connectTimer: ReturnType<typeof setTimeout> | undefined;
  #controller: Dispatcher.DispatchController | undefined;
  #chunks: Uint8Array[] = [];
  #queuedBytes = 0;
  #isOver = false;
  #failure: Error | undefined;
  #wake = ignore;

  constructor(call: UpstreamCall, pool: Pool) {
    this.#call = call;
    this.#pool = pool;
    this.#connection = pool.take();
    this.answered = new Promise((resolve, reject) => {
      this.#resolve = resolve;
      this.#reject = reject;
    });
    call.signal.addEventListener("abort", this.#onAbort);
    this.#connection.send(this, call);
  }

  /** No kept connection was there, or it has just closed without a byte of this call. */
  connecting(): void {
    const { abort, connectMs } = this.#call;
    this.#connectTimer ??= setTimeout(() => abort(new GatewayError("upstream_connect_timeout")), connectMs);
  }

  /** From here on bytes may have left. */
  onRequestStart(controller: Dispatcher.DispatchController): void {
    clearTimeout(this.#connectTimer);
    this.#controller = controller;
  }

  onResponseStart(_: Dispatcher.DispatchController, status: number, fields: Record<string, string | string[]>): void {
    if (status < 200) return;
    const headers = new Map<string, string>();
    for (const name in fields) {
      const value = fields[name] ?? "";
      headers.set(name, typeof value === "string" ? value : value.join(", "));
    }
    this.#resolve({ status, headers, body: this });
  }

  onResponseData(controller: Dispatcher.DispatchController, chunk: Uint8Array): void {
    if (this.#isOver) return;
    this.#chunks.push(chunk);
    this.#queuedBytes += chunk.byteLength;
    if (this.#queuedBytes >= MAX_QUEUED_BYTES) controller.pause();
    this.#wake();
  }

  onResponseEnd(): void {
    if (this.#isOver) return;
    // An answer that ends where its connection does is complete at a FIN only; undici takes a reset for one as well.
    if (this.#connection.broken !== null) return this.#fail(this.#connection.broken);
    this.#end();
    this.#pool.giveBack(this.#connection);
  }

  /** Also for what undici finds wrong before it connects. */
  onResponseError(_: unknown, error: Error): void {
    if (this.#isOver) return;
    const hasLeft = this.#controller !== undefined;
    if (isGarbled(error)) this.#fail(error, new GatewayError("upstream_bad_response", { cause: error }));
    else this.#fail(error, hasLeft ? error : new NeverSent(error));
  }

  /** All that has come, in one piece. */
  async read(): Promise<Uint8Array | undefined> {
    while (this.#chunks.length === 0) {
      if (this.#failure !== undefined) throw this.#failure;
      if (this.#isOver) return undefined;
      await new Promise<void>((resolve) => this.#wake = resolve);
    }
    const [first] = this.#chunks;
    const bytes = this.#chunks.length === 1 ? first : Buffer.concat(this.#chunks, this.#queuedBytes);
    this.#chunks = [];
    this.#queuedBytes = 0;
    if (this.#controller?.paused && !this.#isOver) this.#controller.resume();
    return bytes;
  }

  cancel(): void {
    this.#chunks = [];
    if (!this.#isOver) this.#fail(new Error("The rest of the answer is not wanted"));
    this.#failure = undefined;
  }

  readonly #onAbort = (): void => this.#fail(this.#call.signal.reason);

  /** The connection goes with it: what is left of the answer must not be taken for the next one's. */
  #fail(failure: Error, thrown: unknown = failure): void {
    this.#failure = failure;
    this.#end();
    this.#reject(thrown);
    this.#connection.close(failure);
  }

  #end(): void {
    this.#isOver = true;
    clearTimeout(this.#connectTimer);
    this.#call.signal.removeEventListener("abort", this.#onAbort);
    this.#wake();
  }
}

/**
 * Calls over undici, with connections kept for the next call. A call is sent once: what undici would send again by
 * itself are calls behind others on one connection, and there are none.
 *
 * @returns The transport
 */
export function createNodeTransport(): Transport {
  const pools = new Map<string, Pool>();
  const loading = loadEngine();
  return {
    async send(call) {
      const engine = await loading;
      call.signal.throwIfAborted();
      const { origin } = call.url;
      let pool = pools.get(origin);
      if (pool === undefined) pools.set(origin, pool = new Pool(engine, origin));
      return new Call(call, pool).answered;
    },
  };
}

/**
 * Whether a host accepts a connection, for runtimes whose fetch does not say.
 *
 * @param url Its host and port
 * @param ms How long to wait, milliseconds
 * @returns `false` only when time ran out: a refusal is for the call itself to find
 */
export function canConnect(url: URL, ms: number): Promise<boolean> {
  return new Promise((resolve) => {
    const port = Number(url.port || (url.protocol === "https:" ? 443 : 80));
    const socket = connect({ host: url.hostname.replace(/^\[|\]$/g, ""), port });
    const settle = (isOpen: boolean) => {
      clearTimeout(timer);
      socket.destroy();
      resolve(isOpen);
    };
    const timer = setTimeout(() => settle(false), ms);
    socket.once("connect", () => settle(true));
    socket.once("error", () => settle(true));
  });
}
