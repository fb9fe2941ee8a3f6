/**
 * The console's page as it is served: four files that refer to no other origin and contain no
 * secrets. They are stored compressed and sent compressed to all browsers, which accept that.
 *
 * @module
 */
import type { GatewayResponse } from "../http/message.ts";
import { PAGE_ASSETS } from "./page_assets.ts";

type Asset = keyof typeof PAGE_ASSETS;

/** Path, media type and asset of each file. */
const FILES: readonly [path: string, type: string, asset: Asset][] = [
  ["/", "text/html; charset=utf-8", "html"],
  ["/page.js", "text/javascript; charset=utf-8", "script"],
  ["/page.css", "text/css; charset=utf-8", "style"],
  ["/page.svg", "image/svg+xml", "icon"],
];

/**
 * Content Security Policy: nothing from other origins, nothing inline, no frames
 * (https://www.w3.org/TR/CSP3/).
 */
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

/** Computes a value for each asset on first use. */
function onDemand<T>(make: (asset: Asset) => T): (asset: Asset) => T {
  const made = new Map<Asset, T>();
  return (asset) => {
    const value = made.get(asset) ?? make(asset);
    made.set(asset, value);
    return value;
  };
}

/** Returns the bytes of a file, compressed with gzip. */
const toPacked = onDemand((asset): Uint8Array<ArrayBuffer> =>
  Uint8Array.from(atob(PAGE_ASSETS[asset]), (character) => character.charCodeAt(0))
);

/** Returns the text of a file. */
const toText = onDemand((asset): Promise<string> =>
  new Response(new Blob([toPacked(asset)]).stream().pipeThrough(new DecompressionStream("gzip")))
    .text()
);

/** Reads `Accept-Encoding` (RFC 9110 §12.5.3): a weight of 0 means that it is not accepted. */
function acceptsGzip(header: string | null): boolean {
  const codings = (header ?? "").toLowerCase().split(",").map((each) =>
    each.replaceAll(/\s/g, "").split(";q=")
  );
  return codings.some(([coding, weight = "1"]) => coding === "gzip" && Number(weight) > 0);
}

/** Answers with a file of {@link PAGE_PATHS}. Returns `undefined` for any other path. */
export async function toPageResponse(
  wanted: string,
  acceptEncoding: string | null,
): Promise<GatewayResponse | undefined> {
  const found = FILES.find(([path]) => path === wanted);
  if (found === undefined) return undefined;
  const [, type, asset] = found;
  const isPacked = acceptsGzip(acceptEncoding);
  return {
    status: 200,
    headers: {
      "content-type": type,
      ...(isPacked && { "content-encoding": "gzip" }),
      "vary": "accept-encoding",
      "cache-control": "no-store",
      "content-security-policy": POLICY,
      "cross-origin-opener-policy": "same-origin",
      "cross-origin-resource-policy": "same-origin",
      "permissions-policy": "camera=(), geolocation=(), microphone=()",
      "referrer-policy": "no-referrer",
      "x-content-type-options": "nosniff",
      "x-frame-options": "DENY",
    },
    body: isPacked ? toPacked(asset) : await toText(asset),
  };
}
