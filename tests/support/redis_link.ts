/** A link to a Redis that can delay answers or change them. */
import { Buffer } from "node:buffer";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";

/** An open link. */
export interface RedisLink {
  readonly url: string;
  /** Its round trip time in milliseconds; a function returns the time of each answer. */
  rtt: number | (() => number);
  /** Number of connections so far. */
  readonly connections: number;
  /** Number of packets received from callers so far. */
  readonly packets: number;
  close(): Promise<void>;
}

/**
 * Opens a link. Answers stay in order.
 *
 * @param target Port of the Redis on the loopback
 * @param change Changes the text of answers; it must keep its length
 */
export async function startLink(
  target: number,
  change?: (text: string) => string,
): Promise<RedisLink> {
  const sockets = new Set<Socket>();
  let connections = 0;
  let packets = 0;
  const server = createServer((near) => {
    connections++;
    const far = connect({ port: target, host: "127.0.0.1" });
    for (const socket of [near, far]) {
      sockets.add(socket.setNoDelay(true));
      socket.on("error", () => {});
      socket.on("close", () => sockets.delete(socket));
    }
    near.on("data", (data) => {
      packets++;
      far.write(data);
    });
    let written = Promise.resolve();
    far.on("data", (data) => {
      const due = performance.now() + (typeof link.rtt === "number" ? link.rtt : link.rtt());
      const bytes = change === undefined
        ? data
        : Buffer.from(change(data.toString("latin1")), "latin1");
      written = written.then(async () => {
        const left = due - performance.now();
        if (left > 0) await new Promise((resolve) => setTimeout(resolve, left));
        if (near.writable) near.write(bytes);
      });
    });
    near.on("close", () => far.destroy());
    far.on("close", () => near.destroy());
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  const link = {
    url: `redis://127.0.0.1:${port}`,
    rtt: 0 as RedisLink["rtt"],
    get connections() {
      return connections;
    },
    get packets() {
      return packets;
    },
    close: () =>
      new Promise<void>((resolve) => {
        for (const socket of sockets) socket.destroy();
        server.close(() => resolve());
      }),
  };
  return link;
}
