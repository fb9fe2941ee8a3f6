/**
 * The contents of a build and their sources: a CycloneDX SBOM of the bundled packages, and an
 * in-toto provenance statement with SLSA's predicate. Both are the same for the same sources: they
 * contain no time and no random number.
 */
import { Buffer } from "node:buffer";
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { version as esbuildVersion } from "esbuild";

/** Specification of the SBOM (https://cyclonedx.org/docs/1.6/json/). */
const SBOM_FORM = {
  $schema: "http://cyclonedx.org/schema/bom-1.6.schema.json",
  bomFormat: "CycloneDX",
  specVersion: "1.6",
};
/** Types of the statement (https://slsa.dev/spec/v1.0/provenance). */
const STATEMENT_TYPE = "https://in-toto.io/Statement/v1";
const PREDICATE_TYPE = "https://slsa.dev/provenance/v1";

/** Source files of a built file, from esbuild's metafile. */
export interface BuiltFile {
  /** Name of the file, such as `sallyport.js`. */
  readonly name: string;
  /** Paths of the sources and modules that are bundled in it. */
  readonly inputs: readonly string[];
}

interface Manifest {
  readonly name: string;
  readonly version: string;
  readonly description?: string;
  readonly license?: string;
  readonly repository?: string | { readonly url?: string };
}

const readJson = (file: string) => JSON.parse(readFileSync(file, "utf8"));
const sha256 = (content: string | Uint8Array): string =>
  createHash("sha256").update(content).digest("hex");

/** The folder of the package that a module belongs to; `undefined` for our own sources. */
function packageOf(input: string): string | undefined {
  const at = input.lastIndexOf("node_modules/");
  const [, name] = /^node_modules\/((?:@[^/]+\/)?[^/]+)/.exec(input.slice(Math.max(at, 0))) ?? [];
  return name === undefined ? undefined : input.slice(0, at) + `node_modules/${name}`;
}

function toPurl({ name, version }: Manifest): string {
  return `pkg:npm/${name.replace("@", "%40")}@${version}`;
}

/** The text of a package's licence, which must be distributed with its bundled code. */
function readLicence(folder: string): string | undefined {
  const file = readdirSync(folder).toSorted().find((name) => /^licen[cs]e(?:[.-].*)?$/i.test(name));
  return file === undefined ? undefined : readFileSync(join(folder, file), "utf8");
}

/** Describes one package by its manifest, its licence and its digest in the registry. */
function toComponent(folder: string, files: readonly string[], integrity: string | undefined) {
  const manifest: Manifest = readJson(join(folder, "package.json"));
  const { name, version, description, license } = manifest;
  if (license === undefined) throw new Error(`${folder} states no licence: it must not be bundled`);
  const text = readLicence(folder);
  const [, algorithm, digest] = /^(sha512)-(.+)$/.exec(integrity ?? "") ?? [];
  const [, scope, bare] = /^(?:(@[^/]+)\/)?(.+)$/.exec(name) ?? [];
  return {
    "type": "library",
    "bom-ref": toPurl(manifest),
    ...(scope !== undefined && { group: scope }),
    "name": bare,
    version,
    ...(description !== undefined && { description }),
    "scope": "required",
    "licenses": [
      /^[\w.-]+$/.test(license)
        ? {
          license: {
            id: license,
            ...(text !== undefined && { text: { contentType: "text/plain", content: text } }),
          },
        }
        : { expression: license },
    ],
    "purl": toPurl(manifest),
    ...(algorithm !== undefined && digest !== undefined && {
      externalReferences: [{
        type: "distribution",
        url: `https://registry.npmjs.org/${name}/-/${bare}-${version}.tgz`,
        hashes: [{ alg: "SHA-512", content: Buffer.from(digest, "base64").toString("hex") }],
      }],
    }),
    "properties": files.map((file) => ({ name: "sallyport:bundledIn", value: file })),
  };
}

/**
 * Makes the SBOM: every package that is bundled in one of the files.
 *
 * @param files The built files, each with its inputs
 * @returns JSON of CycloneDX
 */
export function makeSbom(files: readonly BuiltFile[]): string {
  const own: Manifest = readJson("package.json");
  const { packages } = readJson("package-lock.json");
  const byFolder = new Map<string, Set<string>>();
  for (const { name, inputs } of files) {
    for (const input of inputs) {
      const folder = packageOf(input);
      if (folder === undefined) continue;
      const names = byFolder.get(folder) ?? new Set();
      byFolder.set(folder, names.add(name));
    }
  }
  const components = Array.from(byFolder).toSorted(([one], [other]) => one < other ? -1 : 1)
    .map(([folder, names]) =>
      toComponent(folder, [...names].toSorted(), packages[folder]?.integrity)
    );
  const root = toPurl(own);
  const sbom = {
    ...SBOM_FORM,
    version: 1,
    metadata: {
      tools: { components: [{ type: "application", name: "esbuild", version: esbuildVersion }] },
      component: {
        "type": "application",
        "bom-ref": root,
        "name": own.name,
        "version": own.version,
        "description": own.description,
        "licenses": [{ license: { id: own.license } }],
        "purl": root,
      },
    },
    components,
    dependencies: [
      { ref: root, dependsOn: components.map((component) => component["bom-ref"]) },
      ...components.map((component) => ({ ref: component["bom-ref"] })),
    ],
  };
  return `${JSON.stringify(sbom, null, 2)}\n`;
}

/** Runs git. Returns `undefined` outside a checkout, or without git. */
function askGit(...args: string[]): string | undefined {
  try {
    return execFileSync("git", args, { encoding: "utf8", stdio: ["ignore", "pipe", "ignore"] })
      .trim();
  } catch {
    return undefined;
  }
}

/**
 * The sources: their commit, unless files have changed since, and always the digest of all files
 * that were read.
 */
function describeSources(files: readonly BuiltFile[]) {
  const inputs = new Set(
    files.flatMap(({ inputs }) => inputs).filter((input) => packageOf(input) === undefined),
  );
  const read = [...inputs].filter((path) => existsSync(path)).toSorted();
  const list = read.map((path) => `${sha256(readFileSync(path))}  ${path}\n`).join("");
  const commit = askGit("rev-parse", "HEAD");
  const paths = ["mod.ts", "src", "scripts", "package.json", "package-lock.json"];
  const isChanged = askGit("status", "--porcelain", "--", ...paths) !== "";
  const { GITHUB_SERVER_URL: server, GITHUB_REPOSITORY: repository } = process.env;
  const uri = server === undefined || repository === undefined
    ? {}
    : { uri: `git+${server}/${repository}` };
  return [
    ...(commit === undefined || isChanged
      ? []
      : [{ name: "commit", ...uri, digest: { gitCommit: commit } }]),
    { name: "sources", digest: { sha256: sha256(list) }, annotations: { files: read.length } },
    { name: "package-lock.json", digest: { sha256: sha256(readFileSync("package-lock.json")) } },
  ];
}

/** The party that ran the build: the workflow in CI, otherwise the user that typed the command. */
function toBuilderId(): string {
  const { GITHUB_SERVER_URL: server, GITHUB_WORKFLOW_REF: workflow } = process.env;
  return server === undefined || workflow === undefined
    ? "urn:sallyport:builder:local"
    : `${server}/${workflow}`;
}

/**
 * Makes the provenance statement: the digest of each file, its sources, and the builder. It is not
 * signed; npm signs a separate statement when the package is published.
 *
 * @param directory The folder with the files
 * @param names Names of the files in the folder that the statement describes
 * @param files The bundled files, each with its inputs
 * @returns JSON of in-toto, with SLSA's predicate
 */
export function makeProvenance(
  directory: string,
  names: readonly string[],
  files: readonly BuiltFile[],
): string {
  const statement = {
    _type: STATEMENT_TYPE,
    subject: names.toSorted().map((name) => ({
      name: `dist/${name}`,
      digest: { sha256: sha256(readFileSync(join(directory, name))) },
    })),
    predicateType: PREDICATE_TYPE,
    predicate: {
      buildDefinition: {
        buildType: "urn:sallyport:build:1",
        externalParameters: { command: "npm ci && npm run build" },
        internalParameters: { esbuild: esbuildVersion },
        resolvedDependencies: describeSources(files),
      },
      runDetails: { builder: { id: toBuilderId() } },
    },
  };
  return `${JSON.stringify(statement, null, 2)}\n`;
}
