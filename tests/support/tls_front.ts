/**
 * nginx with TLS in front of a provider: on any runtime it requests certificates, and reports the
 * ones that it received.
 */
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Authority } from "./authority.ts";
import { freePort } from "./free_port.ts";
import { startProxy } from "./front_proxy.ts";
import type { Provider } from "./provider.ts";

/** A running nginx. */
export interface TlsFront {
  /** Base URL, with `/v1`. */
  readonly url: string;
  close(): Promise<void>;
}

/**
 * Starts one. Headers to the provider state if a session was resumed (`x-resumed`), and the subject
 * of the client's certificate (`x-subject`).
 *
 * @param folder The folder of its files
 * @param provider The provider
 * @param authority Signs its certificate
 * @param verify True if it requires a certificate of the authority
 */
export async function startTlsFront(
  folder: string,
  provider: Provider,
  authority: Authority,
  verify: "on" | "off",
): Promise<TlsFront> {
  const port = await freePort();
  const { cert, key } = authority.sign("upstream");
  const file = join(folder, "nginx.conf");
  for (const name of ["body", "proxy"]) mkdirSync(join(folder, name), { recursive: true });
  writeFileSync(
    file,
    `daemon off;
pid ${folder}/nginx.pid;
error_log /dev/null;
events {}
http {
  access_log off;
  ${
      ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"].map((name) =>
        `${name}_temp_path ${folder}/${name};`
      )
        .join(" ")
    }
  server {
    listen 127.0.0.1:${port} ssl;
    ssl_certificate ${cert};
    ssl_certificate_key ${key};
    ssl_session_cache shared:a:1m;
    ssl_client_certificate ${authority.ca};
    ssl_verify_client ${verify};
    location / {
      proxy_pass ${new URL(provider.url).origin};
      proxy_buffering off;
      proxy_set_header x-resumed $ssl_session_reused;
      proxy_set_header x-subject $ssl_client_s_dn;
    }
  }
}
`,
  );
  const stop = await startProxy("nginx", ["-p", folder, "-c", file], port);
  return { url: `https://localhost:${port}/v1`, close: stop };
}
