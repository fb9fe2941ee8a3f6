/**
 * Node, bare `node:http` on both sides, piped. UPSTREAM and PORT are read from the environment. With
 * CERT and KEY it serves https, and UPSTREAM can be https.
 */
import { readFileSync } from "node:fs";
import * as http from "node:http";
import * as https from "node:https";
import process from "node:process";

const { CERT, KEY, PORT, UPSTREAM = "" } = process.env;
const { protocol, hostname, port } = new URL(UPSTREAM);
const { Agent, request } = protocol === "https:" ? https : http;
const agent = new Agent({ keepAlive: true, maxFreeSockets: 1024 });
const handle = (inbound: http.IncomingMessage, response: http.ServerResponse) => {
  const { method, url: path, headers } = inbound;
  const outbound = request({ hostname, port, agent, method, path, headers }, (answer) => {
    response.writeHead(answer.statusCode ?? 502, answer.headers);
    answer.pipe(response);
  });
  outbound.on("error", () => response.destroy());
  // Otherwise a stream would continue after its caller left.
  response.on("close", () => response.writableFinished || outbound.destroy());
  inbound.pipe(outbound);
};
const server = CERT === undefined || KEY === undefined
  ? http.createServer(handle)
  : https.createServer({ cert: readFileSync(CERT), key: readFileSync(KEY) }, handle);
server.listen(Number(PORT), "127.0.0.1");
