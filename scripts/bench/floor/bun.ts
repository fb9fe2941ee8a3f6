/**
 * Bun, the floor: `Bun.connect` to the provider, a direct stream to callers. Each read is inspected
 * and forwarded. Only the body is parsed; nothing else is checked.
 */
import process from "node:process";
import { readAnswers, type Sink, toRequest } from "./answer_reader.ts";

interface Socket {
  data: { sink: Sink | undefined; read(bytes: Uint8Array): void; rest: Uint8Array };
  write(bytes: Uint8Array): number;
  terminate(): void;
}
interface Controller {
  write(bytes: Uint8Array): void;
  flush(): void;
  end(): void;
}
declare const Bun: { serve(options: object): unknown; connect(options: object): Promise<Socket> };

const { hostname, port } = new URL(process.env.UPSTREAM ?? "");
const idle: Socket[] = [];

function send(socket: Socket, bytes: Uint8Array): void {
  socket.data.rest = bytes.subarray(Math.max(0, socket.write(bytes)));
}

function dial(): Promise<Socket> {
  const data: Socket["data"] = {
    sink: undefined,
    read: readAnswers(() => data.sink),
    rest: new Uint8Array(),
  };
  return Bun.connect({
    hostname,
    port: Number(port),
    data,
    socket: {
      data: (socket: Socket, bytes: Uint8Array) => socket.data.read(bytes),
      drain: (socket: Socket) => send(socket, socket.data.rest),
    },
  });
}

const decoder = new TextDecoder("utf-8", { fatal: true });
Bun.serve({
  hostname: "127.0.0.1",
  port: Number(process.env.PORT),
  idleTimeout: 0,
  maxRequestBodySize: 64 * 1024 * 1024,
  async fetch(request: Request): Promise<Response> {
    const body = new Uint8Array(await request.arrayBuffer());
    JSON.parse(decoder.decode(body));
    const socket = idle.pop() ?? await dial();
    return await new Promise<Response>((resolve) => {
      let [early, isOver] = [[] as Uint8Array[], false];
      let [controller, finish] = [undefined as Controller | undefined, () => {}];
      const pull = (own: Controller) =>
        new Promise<void>((resolvePull) => {
          [controller, finish] = [own, resolvePull];
          early.forEach((bytes) => own.write(bytes));
          if (isOver) end();
          else own.flush();
        });
      const end = () => {
        controller?.end();
        finish();
      };
      socket.data.sink = {
        whole(status, type, body) {
          isOver = true;
          idle.push(socket);
          resolve(new Response(body, { status, headers: { "content-type": type } }));
        },
        head(status, type) {
          const source = { type: "direct", pull, cancel: () => isOver || socket.terminate() };
          resolve(
            new Response(new ReadableStream(source as unknown as UnderlyingDefaultSource), {
              status,
              headers: { "content-type": type },
            }),
          );
        },
        body(bytes) {
          if (controller === undefined) return void early.push(bytes.slice());
          controller.write(bytes);
          controller.flush();
        },
        end() {
          isOver = true;
          idle.push(socket);
          if (controller !== undefined) end();
        },
      };
      send(socket, toRequest(request.headers.get("authorization") ?? "", body));
    });
  },
});
