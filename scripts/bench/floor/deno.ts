/**
 * Deno, the floor: `node:net` to the provider, `Deno.serve` to callers. Each read is inspected and
 * enqueued. Only the body is parsed; nothing else is checked.
 */
declare const Deno: {
  serve(options: object, handler: (request: Request) => Promise<Response>): unknown;
};
import process from "node:process";
import { call } from "./client.ts";

const decoder = new TextDecoder("utf-8", { fatal: true });
Deno.serve({ hostname: "127.0.0.1", port: Number(process.env.PORT) }, async (request) => {
  const body = new Uint8Array(await request.arrayBuffer());
  JSON.parse(decoder.decode(body));
  return await new Promise<Response>((resolve) => {
    let controller: ReadableStreamDefaultController<Uint8Array>;
    let isOpen = true;
    const leave = call(request.headers.get("authorization") ?? "", body, {
      whole: (status, type, body) =>
        resolve(new Response(body.slice(), { status, headers: { "content-type": type } })),
      head(status, type) {
        const stream = new ReadableStream<Uint8Array>({
          start: (own) => void (controller = own),
          cancel() {
            isOpen = false;
            leave();
          },
        });
        resolve(new Response(stream, { status, headers: { "content-type": type } }));
      },
      // `node:net` reuses its read buffer
      body: (bytes) => isOpen && controller.enqueue(bytes.slice()),
      end: () => isOpen && controller.close(),
    });
  });
});
