/**
 * The smallest possible client over `node:net`: a connection is reused for the next call once its
 * answer is complete.
 */
import { connect, type Socket } from "node:net";
import process from "node:process";
import { readAnswers, type Sink, toRequest } from "./answer_reader.ts";

interface Connection {
  readonly socket: Socket;
  sink: Sink | undefined;
}

const { hostname, port } = new URL(process.env.UPSTREAM ?? "");
const idle: Connection[] = [];

function dial(): Connection {
  const connection: Connection = {
    socket: connect({ host: hostname, port: Number(port), noDelay: true }),
    sink: undefined,
  };
  connection.socket.on("data", readAnswers(() => connection.sink)).on(
    "error",
    () => connection.socket.destroy(),
  );
  return connection;
}

/** @returns A function that ends the call when its caller has left */
export function call(authorization: string, body: Uint8Array, sink: Sink): () => void {
  const connection = idle.pop() ?? dial();
  const free = () => {
    connection.sink = undefined;
    idle.push(connection);
  };
  connection.sink = {
    ...sink,
    whole(...answer) {
      free();
      sink.whole(...answer);
    },
    end() {
      free();
      sink.end();
    },
  };
  connection.socket.write(toRequest(authorization, body));
  return () => connection.sink && connection.socket.destroy();
}
