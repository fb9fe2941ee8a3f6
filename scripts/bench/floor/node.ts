/**
 * Node, the floor: `node:net` to the provider, `node:http` to callers. Each read is inspected and
 * forwarded. Only the body is parsed; nothing else is checked.
 */
import { Buffer } from "node:buffer";
import { createServer } from "node:http";
import process from "node:process";
import { call } from "./client.ts";

createServer((inbound, response) => {
  const parts: Buffer[] = [];
  inbound.on("data", (part: Buffer) => parts.push(part)).on("end", () => {
    const body = Buffer.concat(parts);
    JSON.parse(body.toString());
    const leave = call(inbound.headers.authorization ?? "", body, {
      whole: (status, type, body) =>
        response.writeHead(status, { "content-type": type, "content-length": body.length }).end(
          body,
        ),
      head: (status, type) => response.writeHead(status, { "content-type": type }),
      body: (bytes) => response.write(bytes),
      end: () => response.end(),
    });
    response.on("close", leave);
  });
}).listen(Number(process.env.PORT), "127.0.0.1");
