/** Serves a folder of static files at the loopback address: a site, for reading and for tests. */
import { once } from "node:events";
import { readFile } from "node:fs/promises";
import { createServer, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { extname, join, posix } from "node:path";

const TYPES: Readonly<Record<string, string>> = {
  ".css": "text/css",
  ".html": "text/html; charset=utf-8",
  ".js": "text/javascript",
  ".json": "application/json",
  ".png": "image/png",
  ".svg": "image/svg+xml",
};

/** A server of static files. */
export interface SiteServer {
  /** Its address, without a slash at the end. */
  readonly url: string;
  close(): void;
}

async function answer(response: ServerResponse, folder: string, url: string): Promise<void> {
  // An absolute path has no `..` after this, so the file is in the folder.
  const path = posix.normalize(decodeURIComponent(new URL(url, "http://localhost").pathname));
  const file = path.endsWith("/") ? `${path}index.html` : path;
  const body = await readFile(join(folder, file)).catch(() => undefined);
  const type = TYPES[extname(file)] ?? "application/octet-stream";
  if (body !== undefined) {
    response.writeHead(200, { "content-type": type }).end(body);
    return;
  }
  response.writeHead(404, { "content-type": "text/html; charset=utf-8" });
  response.end(await readFile(join(folder, "404.html")));
}

/** Starts a server for the files of a folder, on a free port. */
export async function serveSite(folder: string): Promise<SiteServer> {
  const server = createServer((request, response) => {
    answer(response, folder, request.url ?? "/").catch(() => response.destroy());
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    close() {
      server.close();
      server.closeAllConnections();
    },
  };
}
