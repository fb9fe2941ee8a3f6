/**
 * Bun, ten bare lines: read the body, fetch, return the body. UPSTREAM and PORT are read from the
 * environment. With CERT and KEY it serves https, and UPSTREAM can be https.
 */
declare const Bun: { serve(options: object): unknown };
import { readFileSync } from "node:fs";
import process from "node:process";

const { CERT, KEY, PORT, UPSTREAM } = process.env;
const target = `${UPSTREAM}/v1/chat/completions`;
Bun.serve({
  hostname: "127.0.0.1",
  port: Number(PORT),
  ...(CERT && KEY && { tls: { cert: readFileSync(CERT), key: readFileSync(KEY) } }),
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
