/**
 * The egress to upstreams, as the client needs it: proxies with their exceptions, authorities, a
 * client certificate.
 *
 * @module
 */
import { Buffer } from "node:buffer";
import { isExcepted } from "./no_proxy.ts";

/** A proxy. */
export interface Proxy {
  /** Its URL: scheme, host and port. */
  readonly url: string;
  /** `user:password`, if the proxy requires them. */
  readonly credentials?: string | undefined;
}

/** The egress. Two values with equal JSON are equal. */
export interface Egress {
  /** Proxies by the scheme of upstreams. */
  readonly proxies: { readonly [scheme in "http:" | "https:"]?: Proxy | undefined };
  /** Upstreams that are called without a proxy, in the form of `NO_PROXY`. */
  readonly noProxy?: string | undefined;
  /** Texts of PEM files with authorities. */
  readonly ca?: readonly string[] | undefined;
  /** True if no other authorities are trusted. */
  readonly isCaOnly?: boolean | undefined;
  /** Text of the PEM file with the client certificate. */
  readonly cert?: string | undefined;
  /** Text of the PEM file with its private key. */
  readonly key?: string | undefined;
}

/** Returns the proxy for an upstream. */
export function findProxy({ proxies, noProxy = "" }: Egress, url: URL): Proxy | undefined {
  const proxy = proxies[url.protocol === "https:" ? "https:" : "http:"];
  return proxy === undefined || isExcepted(url, noProxy) ? undefined : proxy;
}

const CERTIFICATE = /-----BEGIN CERTIFICATE-----[^-]*-----END CERTIFICATE-----/g;

/** Returns each certificate in the text of a PEM file. */
export function splitPem(text: string): string[] {
  return Array.from(text.matchAll(CERTIFICATE), ([pem]) => pem);
}

/** Returns the value of `Proxy-Authorization`, RFC 7617: UTF-8 in Base64. */
export function toBasic(credentials: string): string {
  return `Basic ${Buffer.from(credentials, "utf8").toString("base64")}`;
}
