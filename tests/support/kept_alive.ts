/** Calls without a pause on one keep-alive connection. */
import assert from "node:assert/strict";
import { connect } from "node:net";
import { connect as connectTls } from "node:tls";
import { parseAnswer } from "./tcp_peer.ts";

/** A caller that continues until it is stopped, or its connection is closed. */
export interface KeptAlive {
  /** Number of answers with 200 so far. */
  right(): number;
  /** Stops. Reports if the connection was open until the end, and the answers other than 200. */
  stop(): { isOpen: boolean; wrong: string[] };
}

/**
 * @param url The server's URL
 * @param request The repeated request; answers need a content-length
 */
export function openKeptAlive(url: string, request: string): KeptAlive {
  const { hostname, port } = new URL(url);
  const socket = connect({ host: hostname, port: Number(port) });
  let received = "";
  let right = 0;
  let isOpen = true;
  const wrong: string[] = [];
  socket.setEncoding("latin1");
  socket.on("connect", () => socket.write(request));
  socket.on("error", () => {});
  socket.on("close", () => isOpen = false);
  socket.on("data", (text: string) => {
    received += text;
    if (!received.includes("\r\n\r\n")) return;
    const { status, headers, body } = parseAnswer(received);
    if (body.length < Number(headers["content-length"])) return;
    if (status === 200) right++;
    else wrong.push(received);
    received = "";
    socket.write(request);
  });
  return {
    right: () => right,
    stop() {
      const told = { isOpen, wrong };
      socket.destroy();
      return told;
    },
  };
}

/**
 * Makes calls one after the other on one connection.
 *
 * @param url The server's URL, http or https
 * @param request The request of each call; answers need a content-length
 * @param count The number of calls; the first 20 do not count, because kernels acknowledge them at
 * once
 * @returns The time of the fastest tenth, milliseconds. A delayed acknowledgement slows every call,
 * a busy machine does not.
 */
export async function timeKept(url: string, request: string, count: number): Promise<number> {
  const { hostname, port, protocol } = new URL(url);
  const to = { host: hostname, port: Number(port) };
  const socket = protocol === "https:"
    ? connectTls({ ...to, rejectUnauthorized: false })
    : connect(to);
  socket.setNoDelay(true);
  socket.setEncoding("latin1");
  let received = "";
  let finish = (_error?: Error): void => {};
  socket.on("data", (text: string) => {
    received += text;
    if (!received.includes("\r\n\r\n")) return;
    const { status, headers, body } = parseAnswer(received);
    if (body.length < Number(headers["content-length"])) return;
    received = "";
    finish(status === 200 ? undefined : new Error(`the answer is ${status}`));
  });
  socket.on("error", (error) => finish(error));
  socket.on("close", () => finish(new Error("the connection was closed")));
  const times: number[] = [];
  for (let call = 0; call < count; call++) {
    const began = performance.now();
    const answered = new Promise<void>((resolve, reject) =>
      finish = (error) => error === undefined ? resolve() : reject(error)
    );
    socket.write(request, "latin1");
    await answered;
    times.push(performance.now() - began);
  }
  socket.destroy();
  const counted = times.slice(20).sort((one, other) => one - other);
  return counted[Math.floor(counted.length / 10)] ?? assert.fail("too few calls");
}
