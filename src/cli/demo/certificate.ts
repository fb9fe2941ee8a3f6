/**
 * A self-signed certificate, P-256 (RFC 5280), for the demo's https host and for trials. The
 * libraries that do this are larger than the whole gateway.
 *
 * @module
 */
import { Buffer } from "node:buffer";
import { createHash, generateKeyPairSync, randomBytes, sign } from "node:crypto";
import { isIPv4, isIPv6 } from "node:net";

const WEEK_MS = 7 * 24 * 3_600_000;

/** Encodes a length of up to 65,535 bytes (X.690 §8.1.3). */
function toLength(length: number): number[] {
  if (length < 128) return [length];
  return length < 256 ? [0x81, length] : [0x82, length >> 8, length & 0xff];
}

/** Encodes one DER value (X.690 §8.1): tag, length, content. */
function der(tag: number, ...content: Uint8Array[]): Buffer {
  const body = Buffer.concat(content);
  return Buffer.concat([Buffer.from([tag, ...toLength(body.length)]), body]);
}

const sequence = (...content: Uint8Array[]) => der(0x30, ...content);
const oid = (hex: string) => der(0x06, Buffer.from(hex, "hex"));
const ECDSA_WITH_SHA256 = sequence(oid("2a8648ce3d040302")); // RFC 5758 §3.2
const COMMON_NAME = oid("550403");
const SUBJECT_ALT_NAME = oid("551d11");
const SUBJECT_KEY_ID = oid("551d0e");

/**
 * Encodes a time as UTCTime, for years until 2049. Later years need GeneralizedTime (RFC 5280
 * §4.1.2.5).
 */
function utcTime(ms: number): Buffer {
  return der(0x17, Buffer.from(new Date(ms).toISOString().replace(/[-:T]|\.\d+/g, "").slice(2)));
}

/** Returns the 16 bytes of an IPv6 address. */
function toBytes(address: string): Buffer {
  // `URL` normalizes the address to hexadecimal groups (RFC 5952).
  const [head = "", tail] = new URL(`http://[${address}]`).hostname.slice(1, -1).split("::");
  const groupsOf = (text = "") =>
    text === "" ? [] : text.split(":").map((group) => parseInt(group, 16));
  const before = groupsOf(head);
  const after = groupsOf(tail);
  const groups = [...before, ...Array<number>(8 - before.length - after.length).fill(0), ...after];
  return Buffer.from(groups.flatMap((group) => [group >> 8, group & 0xff]));
}

function altName(host: string): Buffer {
  if (isIPv4(host)) return der(0x87, Buffer.from(host.split(".").map(Number)));
  return isIPv6(host) ? der(0x87, toBytes(host)) : der(0x82, Buffer.from(host));
}

/**
 * Creates a key and a self-signed certificate, both as PEM.
 *
 * @param hosts Names and addresses that it is valid for. The first is also its common name
 * @param lifeMs Milliseconds; negative for an expired certificate. It must end by 2049, the last
 * year of its date format
 */
export function createSelfSignedCertificate(
  hosts: readonly [string, ...string[]],
  lifeMs: number = WEEK_MS,
): { cert: string; key: string } {
  const now = Date.now();
  const { publicKey, privateKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });
  const spki = publicKey.export({ type: "spki", format: "der" });
  const name = sequence(der(0x31, sequence(COMMON_NAME, der(0x0c, Buffer.from(hosts[0])))));
  const keyId = createHash("sha1").update(spki.subarray(-65)).digest(); // RFC 5280 §4.2.1.2 (1)
  const extensions = [
    sequence(SUBJECT_ALT_NAME, der(0x04, sequence(...hosts.map(altName)))),
    sequence(SUBJECT_KEY_ID, der(0x04, der(0x04, keyId))),
  ];
  const serial = randomBytes(16);
  serial[0] = 0x40 | serial.readUInt8(0) >> 2; // positive, without a leading zero
  const content = sequence(
    der(0xa0, der(0x02, Buffer.from([2]))), // version 3
    der(0x02, serial),
    ECDSA_WITH_SHA256,
    name,
    sequence(utcTime(now - 60_000), utcTime(now + lifeMs)),
    name,
    spki,
    der(0xa3, sequence(...extensions)),
  );
  const signature = sign("sha256", content, privateKey);
  const certificate = sequence(content, ECDSA_WITH_SHA256, der(0x03, Buffer.from([0]), signature));
  const lines = certificate.toString("base64").match(/.{1,64}/g) as string[]; // not empty
  return {
    cert: `-----BEGIN CERTIFICATE-----\n${lines.join("\n")}\n-----END CERTIFICATE-----\n`,
    key: String(privateKey.export({ type: "pkcs8", format: "pem" })),
  };
}
