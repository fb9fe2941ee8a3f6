/** A proxy that opens tunnels, or answers `CONNECT` as a test chooses. It records the requests. */
import type { Buffer } from "node:buffer";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";
import { createServer as createTlsServer } from "node:tls";

/** A proxy that listens. */
export interface ConnectProxy {
  /** Such as `http://127.0.0.1:3128`. */
  readonly url: string;
  /** Everything received before a tunnel, one text for each connection. */
  readonly heads: string[];
  /** Connections to it that are open. */
  readonly open: Set<Socket>;
  /** Closes every connection, and stops listening. */
  close(): Promise<void>;
}

/** Differences from a proxy that opens all tunnels. */
export interface ConnectProxyOptions {
  /** Answers a target such as `127.0.0.1:443`; `undefined` opens the tunnel. */
  readonly answer?: (target: string, socket: Socket) => string | undefined;
  /** Certificate and key of a proxy over https. */
  readonly identity?: { readonly cert: string; readonly key: string };
}

const TARGET = /^CONNECT \[?([^\]\s]+?)\]?:(\d+) HTTP\/1\.1\r\n/;

/** Starts one on a free loopback port. */
export async function startConnectProxy(
  { answer, identity }: ConnectProxyOptions = {},
): Promise<ConnectProxy> {
  const heads: string[] = [];
  const open = new Set<Socket>();
  const onConnection = (socket: Socket) => {
    open.add(socket);
    socket.on("error", () => {}).on("close", () => open.delete(socket));
    let head = "";
    const onData = (bytes: Buffer) => {
      head += bytes.toString("latin1");
      if (!head.includes("\r\n\r\n")) return;
      socket.off("data", onData);
      heads.push(head);
      const [, host = "", port] = TARGET.exec(head) ?? [];
      const text = answer?.(`${host}:${port}`, socket);
      if (text !== undefined) return socket.write(text, "latin1");
      const upstream = connect(
        { host: /^localhost$|\.test$/.test(host) ? "127.0.0.1" : host, port: Number(port) },
        () => {
          socket.write("HTTP/1.1 200 Connection established\r\nproxy-agent: test\r\n\r\n");
          socket.pipe(upstream);
          upstream.pipe(socket);
        },
      );
      let isTunnel = false;
      upstream.on("connect", () => isTunnel = true);
      // An error of the upstream connection is passed on to the caller; a reset as a reset.
      upstream.on("error", () => {
        if (!isTunnel) return socket.end("HTTP/1.1 502 Bad Gateway\r\n\r\n");
        // Node cannot reset a socket that is already ending, and would keep it open forever.
        if (socket.writableEnded) socket.destroy();
        else socket.resetAndDestroy();
      });
      socket.on("close", () => upstream.destroy());
    };
    socket.on("data", onData);
  };
  const server = identity === undefined
    ? createServer(onConnection)
    : createTlsServer(identity, onConnection);
  server.on("tlsClientError", () => {});
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  return {
    url: `${identity === undefined ? "http" : "https"}://127.0.0.1:${port}`,
    heads,
    open,
    close: () =>
      new Promise((resolve) => {
        for (const socket of open) socket.destroy();
        server.close(() => resolve());
      }),
  };
}
