/**
 * A company's own certificate authority and its certificates, made with `openssl`: the gateway can
 * only make self-signed ones.
 */
import { execFileSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";

/** PEM files in a folder. */
export interface Authority {
  /** The authority's certificate. */
  readonly ca: string;
  /**
   * Makes a certificate, `NAME.pem`, and its key, `NAME.key`. Valid for `localhost` and
   * `127.0.0.1`.
   */
  sign(name: string): { readonly cert: string; readonly key: string };
}

/** Reads both files of a certificate. */
export function readIdentity(
  { cert, key }: { cert: string; key: string },
): { cert: string; key: string } {
  return { cert: readFileSync(cert, "utf8"), key: readFileSync(key, "utf8") };
}

/**
 * Makes an authority. @param folder The folder of its files @param name The name of the authority
 */
export function createAuthority(folder: string, name = "authority"): Authority {
  const path = (file: string) => join(folder, file);
  const openssl = (...args: string[]) => void execFileSync("openssl", args, { stdio: "ignore" });
  const newKey = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];
  const [ca, caKey] = [path(`${name}.pem`), path(`${name}.key`)];
  openssl(
    "req",
    "-x509",
    ...newKey,
    "-days",
    "30",
    "-subj",
    `/CN=${name}`,
    "-keyout",
    caKey,
    "-out",
    ca,
  );
  return {
    ca,
    sign(each) {
      const [cert, key] = [path(`${each}.pem`), path(`${each}.key`)];
      const [request, extensions] = [path(`${each}.csr`), path(`${each}.ext`)];
      openssl("req", ...newKey, "-subj", `/CN=${each}`, "-keyout", key, "-out", request);
      writeFileSync(extensions, "subjectAltName=DNS:localhost,IP:127.0.0.1\n");
      const by = [
        "-CA",
        ca,
        "-CAkey",
        caKey,
        "-CAcreateserial",
        "-days",
        "30",
        "-extfile",
        extensions,
      ];
      openssl("x509", "-req", "-in", request, ...by, "-out", cert);
      return { cert, key };
    },
  };
}
