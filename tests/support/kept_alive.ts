/** Calls without a pause on one connection that is kept. */
import { connect } from "node:net";
import { parseAnswer } from "./tcp_peer.ts";

/** A caller that goes on until it is told to stop, or its connection is closed. */
export interface KeptAlive {
  /** How many answers were 200 so far. */
  right(): number;
  /** Stops, and tells whether the connection was open to the end, and every other answer. */
  stop(): { isOpen: boolean; wrong: string[] };
}

/**
 * @param url Of the server
 * @param request What is sent again and again; answers need a content-length
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
