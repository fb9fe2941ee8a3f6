/** The tables of operations, from the table that the gateway reads. */
import { GROUPS } from "../../src/config/operation_groups.ts";
import { SHAPES, writePath } from "../../src/operations/shapes.ts";
import { type Operation, OPERATIONS } from "../../src/operations/table.ts";
import { toTable } from "./parts.ts";

/** Descriptions of the places where models are named. */
const MODELS: Readonly<Record<Operation["model"], string>> = {
  body: "needed",
  optional: "if named",
  path: "in the path",
  answer: "lists them",
  none: "",
};

const toPath = (path: string): string =>
  `/v1${path.replace(":rest+", "*").replace(/:(\w+)\+?/g, "{$1}")}`;

/** The operations of groups that are on or off by default. */
function toOperationsTable(isOn: boolean): string {
  const own = OPERATIONS.filter(({ group, isOfGateway = false }) =>
    (isOfGateway || group !== undefined && GROUPS[group]) === isOn
  );
  const rows = own.filter(({ name }, index) =>
    own.findIndex((each) => each.name === name) === index
  )
    .map(({ name, group, model, cost, isOfGateway = false }) => [
      `\`${name}\``,
      own.filter((each) => each.name === name).map(({ method, path }) =>
        `\`${method === "*" ? "" : `${method} `}${toPath(path)}\``
      ).join(" "),
      isOfGateway ? "" : `\`${group ?? "all"}\``,
      MODELS[model],
      cost === "tokens" ? "yes" : "",
    ]);
  return toTable(["operation", "request", "group", "model", "tokens"], rows);
}

/** @returns The operations that a provider has by default, and the others */
export function makeOperations(): string {
  return toOperationsTable(true);
}

/** @returns The operations that must be named in the configuration */
export function makeOtherOperations(): string {
  return toOperationsTable(false);
}

/** @returns The operations of all shapes except `v1`, without other paths */
export function makeShapes(): string {
  const rows = Object.entries(SHAPES).filter(([shape]) => shape !== "v1").flatMap(
    ([shape, { operations }]) => {
      const named = operations.filter(({ group }) => group !== undefined);
      return Array.from(new Set(named.map(({ name }) => name)), (name) => {
        const own = named.filter((each) => each.name === name);
        const paths = own.map(({ method, path }) =>
          `\`${method} ${writePath(path, (parameter) => `{${parameter}}`)}\``
        );
        return [`\`${shape}\``, `\`${name}\``, paths.join(" "), `\`${own[0]?.group}\``];
      });
    },
  );
  return toTable(["shape", "operation", "request", "group"], rows);
}
