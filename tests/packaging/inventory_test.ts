/**
 * The SBOM and the provenance statement of a build: true, valid according to their specifications,
 * and reproducible.
 */
// runtimes: once
import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { afterAll, beforeAll, describe, it } from "@std/testing/bdd";
import { Ajv } from "ajv";
import formats from "ajv-formats";
import { makeProvenance, makeSbom } from "../../scripts/inventory.ts";
import { makeFolder } from "../support/program.ts";

const SCHEMAS = "node_modules/@cyclonedx/cyclonedx-library/res/schema";
/**
 * Licences that allow bundled code to be distributed as part of the one file, together with their
 * texts.
 */
const LICENCES = ["MIT", "Apache-2.0", "ISC", "BSD-2-Clause", "BSD-3-Clause", "0BSD"];

const readJson = (...path: string[]) => JSON.parse(readFileSync(join(...path), "utf8"));

interface Component {
  readonly name: string;
  readonly group?: string;
  readonly version: string;
  readonly purl: string;
  readonly licenses: readonly {
    readonly license: { readonly id: string; readonly text?: { readonly content: string } };
  }[];
  readonly properties: readonly { readonly value: string }[];
  readonly externalReferences: readonly {
    readonly hashes: readonly { readonly content: string }[];
  }[];
}

describe("a build", () => {
  const folder = makeFolder();
  const first = folder.path;
  /** The build that `npm test` has made. */
  const second = "dist";
  let components: Component[];
  beforeAll(() => {
    execFileSync(process.execPath, ["scripts/build.ts", "--quiet", "--no-types", "--out", first]);
    ({ components } = readJson(first, "sbom.cdx.json"));
  });
  afterAll(() => folder.remove());

  it("is reproducible, including its SBOM and its statement", () => {
    const names = readdirSync(first).toSorted();
    assert.deepEqual(names, [
      "gateway.schema.json",
      "mod.cjs",
      "mod.js",
      "provenance.intoto.json",
      "sallyport.js",
      "sbom.cdx.json",
      "workers.js",
    ]);
    for (const name of names) {
      assert.ok(readFileSync(join(first, name)).equals(readFileSync(join(second, name))), name);
    }
  });

  it("has an SBOM that is valid according to CycloneDX's own schema", () => {
    const ajv = new Ajv({
      strict: false,
      validateFormats: true,
      formats: { "iri-reference": true, "idn-email": true },
    });
    formats.default(ajv);
    for (const name of ["jsf-0.82", "spdx", "cryptography-defs"]) {
      const file = `${name}.SNAPSHOT.schema.json`;
      ajv.addSchema(readJson(SCHEMAS, file), `http://cyclonedx.org/schema/${file}`);
    }
    const isValid = ajv.compile(readJson(SCHEMAS, "bom-1.6.SNAPSHOT.schema.json"));
    assert.ok(
      isValid(readJson(first, "sbom.cdx.json")),
      JSON.stringify(isValid.errors?.slice(0, 3)),
    );
    assert.ok(!isValid({ bomFormat: "CycloneDX", specVersion: "1.6", components: [{ name: 1 }] }));
  });

  it("names each package that is bundled, with its version, its licence and its digest at the registry", () => {
    const names = components.map(({ group, name }) =>
      group === undefined ? name : `${group}/${name}`
    );
    const { devDependencies } = readJson("package.json");
    const { packages } = readJson("package-lock.json");
    for (
      const name of [
        "valibot",
        "itty-router",
        "@noble/hashes",
        "ioredis",
        "@opentelemetry/api",
        "preact",
        "uplot",
      ]
    ) {
      assert.ok(names.includes(name), name);
    }
    for (const name of ["typescript", "esbuild", "playwright-core", "hono"]) {
      assert.ok(name in devDependencies && !names.includes(name), name);
    }
    for (
      const [index, { version, purl, licenses, properties, externalReferences }] of components
        .entries()
    ) {
      const name = names[index] ?? "";
      assert.equal(purl, `pkg:npm/${name.replace("@", "%40")}@${version}`);
      assert.equal(readJson("node_modules", name, "package.json").version, version);
      const [{ license } = assert.fail(name)] = licenses;
      assert.ok(
        LICENCES.includes(license.id),
        `${name} is under ${license.id}: may it be bundled?`,
      );
      assert.ok(
        (license.text?.content.length ?? 0) > 500,
        `${name}: its licence has to come along`,
      );
      assert.ok(properties.length > 0);
      const hash = externalReferences[0]?.hashes[0]?.content ?? "";
      const { integrity } = packages[`node_modules/${name}`];
      assert.equal(`sha512-${Buffer.from(hash, "hex").toString("base64")}`, integrity);
    }
    const inWorker = components.filter(({ properties }) =>
      properties.some(({ value }) => value === "workers.js")
    );
    assert.ok(
      !inWorker.some(({ name }) => name === "ioredis"),
      "the Worker has no client of Redis inside",
    );
  });

  it("refuses to bundle a package without a licence, and distinguishes a package from one nested in it", () => {
    const made = JSON.parse(
      makeSbom([{
        name: "x.js",
        inputs: ["src/gateway.ts", "node_modules/valibot/dist/index.mjs"],
      }]),
    );
    assert.deepEqual(made.components.map(({ name }: Component) => name), ["valibot"]);
    assert.throws(() => makeSbom([{ name: "x.js", inputs: ["node_modules/absent/index.js"] }]));
  });

  it("has a statement with the digest of each file, and of the sources", () => {
    const { _type, predicateType, subject, predicate } = readJson(first, "provenance.intoto.json");
    assert.deepEqual([_type, predicateType], [
      "https://in-toto.io/Statement/v1",
      "https://slsa.dev/provenance/v1",
    ]);
    for (const { name, digest } of subject) {
      const content = readFileSync(join(first, name.replace(/^dist\//, "")));
      assert.equal(digest.sha256, createHash("sha256").update(content).digest("hex"), name);
    }
    assert.equal(subject.length, readdirSync(first).length - 1, "all but the statement itself");
    const { buildDefinition: { resolvedDependencies }, runDetails } = predicate;
    const sources = resolvedDependencies.find(({ name }: { name: string }) => name === "sources");
    assert.ok(sources.annotations.files > 200);
    assert.ok(runDetails.builder.id.length > 0);
    assert.doesNotMatch(
      JSON.stringify(predicate),
      /"(?:startedOn|finishedOn|invocationId)"/,
      "no time, no random number",
    );
    const other = JSON.parse(
      makeProvenance(first, ["mod.js"], [{ name: "mod.js", inputs: ["mod.ts"] }]),
    );
    const [changed] = other.predicate.buildDefinition.resolvedDependencies.filter(
      ({ name }: { name: string }) => name === "sources",
    );
    const digest = createHash("sha256").update(readFileSync("mod.ts")).digest("hex");
    assert.equal(
      changed.digest.sha256,
      createHash("sha256").update(`${digest}  mod.ts\n`).digest("hex"),
    );
  });

  it("names a commit only if no file has changed since", () => {
    const { predicate } = readJson(first, "provenance.intoto.json");
    const commit = predicate.buildDefinition.resolvedDependencies.find((
      { name }: { name: string },
    ) => name === "commit");
    const git = (...args: string[]) => execFileSync("git", args, { encoding: "utf8" }).trim();
    let isClean: boolean;
    try {
      isClean = git(
        "status",
        "--porcelain",
        "--",
        "mod.ts",
        "src",
        "scripts",
        "package.json",
        "package-lock.json",
      ) === "";
    } catch {
      return assert.equal(commit, undefined); // not a checkout
    }
    assert.equal(commit?.digest.gitCommit, isClean ? git("rev-parse", "HEAD") : undefined);
  });
});
