/**
 * Deno, ten bare lines: read the body, fetch, return the body. UPSTREAM and PORT are read from the
 * environment. With CERT and KEY it serves https, and UPSTREAM can be https.
 */
declare const Deno: {
  serve(options: object, handler: (request: Request) => Promise<Response>): unknown;
};
import { readFileSync } from "node:fs";
import process from "node:process";

const { CERT, KEY, PORT, UPSTREAM } = process.env;
const target = `${UPSTREAM}/v1/chat/completions`;
const tls = CERT && KEY && { cert: readFileSync(CERT, "utf8"), key: readFileSync(KEY, "utf8") };
Deno.serve({ hostname: "127.0.0.1", port: Number(PORT), ...tls }, async (request) => {
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
});
