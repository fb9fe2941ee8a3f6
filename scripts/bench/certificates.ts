/** A test authority and one certificate, for the measurements over TLS. */
import { execFileSync } from "node:child_process";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { HOST } from "./gateway_config.ts";
import { CACHE } from "./machine.ts";

/** Absolute paths of PEM files. */
export interface TlsFiles {
  /** The certificate of the authority. */
  readonly ca: string;
  /** The certificate of every subject and of the provider, and its private key. */
  readonly cert: string;
  readonly key: string;
  /** The certificate and the private key in one file. */
  readonly both: string;
}

/** The name that peers verify. A few of them cannot verify an address. */
export const TLS_HOST = "localhost";
const DAYS = "30";
const NEW_KEY = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"] as const;

let known: TlsFiles | undefined;

/** Makes the authority and the certificate, once in a run. */
export function makeCertificates(): TlsFiles {
  if (known !== undefined) return known;
  const directory = resolve(CACHE, "tls");
  mkdirSync(directory, { recursive: true });
  const at = (name: string) => join(directory, name);
  const openssl = (...args: readonly string[]) =>
    execFileSync("openssl", args, { stdio: ["ignore", "ignore", "pipe"] });
  const [ca, caKey, cert, key] = [at("ca.pem"), at("ca.key"), at("server.pem"), at("server.key")];
  const [csr, extensions] = [at("server.csr"), at("server.ext")];
  const authority = ["-keyout", caKey, "-out", ca, "-subj", "/CN=Authority of the bench"];
  openssl("req", "-x509", ...NEW_KEY, ...authority, "-days", DAYS);
  openssl("req", ...NEW_KEY, "-keyout", key, "-out", csr, "-subj", `/CN=${TLS_HOST}`);
  writeFileSync(
    extensions,
    `basicConstraints=CA:FALSE\nsubjectAltName=DNS:${TLS_HOST},DNS:${HOST},IP:127.0.0.1\n`,
  );
  const signer = ["-CA", ca, "-CAkey", caKey, "-CAcreateserial"];
  openssl(
    "x509",
    "-req",
    "-in",
    csr,
    ...signer,
    "-days",
    DAYS,
    "-extfile",
    extensions,
    "-out",
    cert,
  );
  const both = at("both.pem");
  writeFileSync(both, readFileSync(cert, "utf8") + readFileSync(key, "utf8"), { mode: 0o600 });
  return known = { ca, cert, key, both };
}
