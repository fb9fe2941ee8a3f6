/**
 * Deno, ten bare lines: read the body, fetch, return the body. UPSTREAM and PORT are read from the
 * environment.
 */
declare const Deno: {
  serve(options: object, handler: (request: Request) => Promise<Response>): unknown;
};
import process from "node:process";

const target = `${process.env.UPSTREAM}/v1/chat/completions`;
Deno.serve({ hostname: "127.0.0.1", port: Number(process.env.PORT) }, async (request) => {
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
