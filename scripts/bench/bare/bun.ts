/**
 * Bun, ten bare lines: read the body, fetch, return the body. UPSTREAM and PORT are read from the
 * environment.
 */
declare const Bun: { serve(options: object): unknown };
import process from "node:process";

const target = `${process.env.UPSTREAM}/v1/chat/completions`;
Bun.serve({
  hostname: "127.0.0.1",
  port: Number(process.env.PORT),
  idleTimeout: 0,
  maxRequestBodySize: 64 * 1024 * 1024,
  async fetch(request: Request): Promise<Response> {
    const headers = {
      "authorization": request.headers.get("authorization") ?? "",
      "content-type": "application/json",
    };
    const { status, headers: answered, body } = await fetch(target, {
      method: "POST",
      headers,
      body: await request.arrayBuffer(),
    });
    return new Response(body, {
      status,
      headers: { "content-type": answered.get("content-type") ?? "" },
    });
  },
});
