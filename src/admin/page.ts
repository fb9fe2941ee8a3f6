/**
 * The console's page as it is served: three files that name no other origin and hold no secret.
 *
 * @module
 */
import type { GatewayResponse } from "../http/message.ts";
import { PAGE_ASSETS } from "./page_assets.ts";

/** Path, media type and asset of each file. */
const FILES: readonly [path: string, type: string, asset: keyof typeof PAGE_ASSETS][] = [
  ["/", "text/html; charset=utf-8", "html"],
  ["/page.js", "text/javascript; charset=utf-8", "script"],
  ["/page.css", "text/css; charset=utf-8", "style"],
  ["/page.svg", "image/svg+xml", "icon"],
];

/** Content Security Policy: nothing from other origins, nothing inline, no frames (https://www.w3.org/TR/CSP3/). */
const POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "img-src 'self'",
  "connect-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
].join("; ");

/** Paths of the page's files. */
export const PAGE_PATHS: readonly string[] = FILES.map(([path]) => path);

/**
 * @param wanted One of {@link PAGE_PATHS}
 * @returns The file; `undefined` for any other path
 */
export function toPageAnswer(wanted: string): GatewayResponse | undefined {
  const found = FILES.find(([path]) => path === wanted);
  if (found === undefined) return undefined;
  const [, type, asset] = found;
  return {
    status: 200,
    headers: {
      "content-type": type,
      "cache-control": "no-store",
      "content-security-policy": POLICY,
      "cross-origin-opener-policy": "same-origin",
      "cross-origin-resource-policy": "same-origin",
      "permissions-policy": "camera=(), geolocation=(), microphone=()",
      "referrer-policy": "no-referrer",
      "x-content-type-options": "nosniff",
      "x-frame-options": "DENY",
    },
    body: PAGE_ASSETS[asset],
  };
}
