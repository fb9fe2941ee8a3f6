/** Raw TCP on both ends, where a client library or an HTTP server would hide what is tested. */
import { connect, createServer, type AddressInfo, type Socket } from "node:net";

/** A peer that listens. */
export interface TcpPeer {
  readonly port: number;
  /** Base URL, with `/v1`. */
  readonly url: string;
  readonly sockets: Socket[];
  close(): Promise<void>;
}

/**
 * An upstream that writes bytes of the test's choosing.
 *
 * @param onRequest Called with the socket once a whole request (header and body by content-length) has arrived
 */
export async function startTcpPeer(onRequest: (socket: Socket, request: Buffer) => unknown): Promise<TcpPeer> {
  const sockets: Socket[] = [];
  const server = createServer((socket) => {
    sockets.push(socket);
    let received = Buffer.alloc(0);
    socket.on("error", () => {});
    socket.on("data", (data: Buffer) => {
      received = Buffer.concat([received, data]);
      const end = received.indexOf("\r\n\r\n");
      if (end === -1) return;
      const length = Number(/^content-length: (\d+)/mi.exec(received.subarray(0, end).toString())?.[1] ?? 0);
      if (received.length < end + 4 + length) return;
      const request = received.subarray(0, end + 4 + length);
      received = received.subarray(end + 4 + length);
      onRequest(socket, request);
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  return {
    port,
    url: `http://127.0.0.1:${port}/v1`,
    sockets,
    close: () =>
      new Promise((resolve) => {
        for (const socket of sockets) socket.destroy();
        server.close(() => resolve());
      }),
  };
}

/** A raw connection to a server. */
export interface RawConnection {
  readonly socket: Socket;
  /** Everything received so far, as latin-1: one character a byte. */
  received(): string;
  /** Whether the server closed. */
  isClosed(): boolean;
  /** Resolves with everything received once the server closed. */
  readonly closed: Promise<string>;
}

/**
 * @param url Of the server
 * @param text What to send, as latin-1
 */
export function openRaw(url: string, text: string): RawConnection {
  const { hostname, port } = new URL(url);
  const chunks: Buffer[] = [];
  let isClosed = false;
  const socket = connect({ host: hostname, port: Number(port) }, () => socket.write(text, "latin1"));
  const received = () => Buffer.concat(chunks).toString("latin1");
  socket.on("data", (data: Buffer) => chunks.push(data));
  socket.on("error", () => {});
  const closed = new Promise<string>((resolve) =>
    socket.on("close", () => {
      isClosed = true;
      resolve(received());
    })
  );
  return { socket, received, isClosed: () => isClosed, closed };
}
