/**
 * The fields of the exchanges view's filter.
 *
 * @module
 */
import type { JSX } from "preact";
import { useId, useState } from "preact/hooks";
import type { LiveExchange } from "../../observe/live/live_report.ts";
import { readDuration } from "../../observe/live/exchange_filter.ts";
import type { FilterTexts } from "./exchange_filter.ts";
import { Field } from "./parts.tsx";

/** Ends to select, by their value in the address. */
const ENDS: readonly [value: string, label: string][] = [
  ["", "All"],
  ["ok", "OK"],
  ["errors", "Errors"],
  ["refused", "Refused"],
  ["cancelled", "Cancelled"],
];

/** Text fields. `known` names the property that suggestions are from. */
const FIELDS: readonly {
  readonly name: "key" | "run" | "team" | "model" | "operation" | "code" | "status";
  readonly label: string;
  readonly hint: string;
  readonly known?: (exchange: LiveExchange) => string | undefined;
}[] = [
  {
    name: "key",
    label: "Key",
    hint: "name or id",
    known: ({ keyName, keyId }) => keyName ?? keyId,
  },
  { name: "run", label: "Run", hint: "its whole id", known: ({ run }) => run },
  { name: "team", label: "Team", hint: "its whole name", known: ({ team }) => team },
  { name: "model", label: "Model", hint: "part of its name", known: ({ model }) => model },
  {
    name: "operation",
    label: "Operation",
    hint: "embeddings",
    known: ({ operation }) => operation,
  },
  {
    name: "code",
    label: "Code or cause",
    hint: "such as timeout",
    known: ({ code, cause }) => code ?? cause,
  },
  { name: "status", label: "Status", hint: "such as 429 or 5xx" },
];

const DURATIONS = [
  { name: "minDuration", label: "Took at least" },
  { name: "minFirstToken", label: "First token after" },
] as const;

/** Maximum number of suggestions of a field. */
const MAX_SUGGESTED = 50;

/** Returns the typed text of a part. */
const textOf = (texts: FilterTexts, name: keyof FilterTexts): string => texts[name] ?? "";

interface FieldsProps {
  readonly texts: FilterTexts;
  readonly onChange: (texts: FilterTexts) => void;
  /** Names of the providers. */
  readonly providers: readonly string[];
  /** Exchanges whose names are suggested. */
  readonly known: readonly LiveExchange[];
}

function Suggestions(
  { id, words }: { id: string; words: readonly (string | undefined)[] },
): JSX.Element {
  const distinct = Array.from(new Set(words)).filter((word) => word !== undefined).slice(
    0,
    MAX_SUGGESTED,
  );
  return <datalist id={id}>{distinct.map((word) => <option key={word} value={word} />)}</datalist>;
}

function NameFields({ texts, onChange, providers, known }: FieldsProps): JSX.Element {
  const id = useId();
  return (
    <>
      <Field label="Provider">
        {(attributes) => (
          <select
            {...attributes}
            value={textOf(texts, "provider")}
            onChange={(event) => onChange({ ...texts, provider: event.currentTarget.value })}
          >
            <option value="">all</option>
            {Array.from(new Set([...providers, ...texts.provider ? [texts.provider] : []])).map((
              name,
            ) => <option key={name} value={name}>{name}</option>)}
          </select>
        )}
      </Field>
      {FIELDS.map(({ name, label, hint, known: find }) => (
        <Field key={name} label={label}>
          {(attributes) => (
            <>
              <input
                {...attributes}
                list={find && `${id}-${name}`}
                placeholder={hint}
                autocomplete="off"
                value={textOf(texts, name)}
                onInput={(event) => onChange({ ...texts, [name]: event.currentTarget.value })}
              />
              {find && <Suggestions id={`${id}-${name}`} words={known.map(find)} />}
            </>
          )}
        </Field>
      ))}
    </>
  );
}

function DurationFields({ texts, onChange }: Pick<FieldsProps, "texts" | "onChange">): JSX.Element {
  return (
    <>
      {DURATIONS.map(({ name, label }) => (
        <Field key={name} label={label}>
          {(attributes) => (
            <input
              {...attributes}
              placeholder="500ms, 2s"
              autocomplete="off"
              aria-invalid={textOf(texts, name) !== "" &&
                readDuration(texts[name]) === undefined}
              value={textOf(texts, name)}
              onInput={(event) => onChange({ ...texts, [name]: event.currentTarget.value.trim() })}
            />
          )}
        </Field>
      ))}
      <Field label="Streams">
        {(attributes) => (
          <select
            {...attributes}
            value={textOf(texts, "stream")}
            onChange={(event) => onChange({ ...texts, stream: event.currentTarget.value })}
          >
            <option value="">all</option>
            <option value="true">streams only</option>
            <option value="false">no streams</option>
          </select>
        )}
      </Field>
    </>
  );
}

/** The fields: the search text and the end are always shown, the others after unfolding. */
export function FilterFields(props: FieldsProps): JSX.Element {
  const { texts, onChange } = props;
  const { search: _, outcome: __, ...rest } = texts;
  const set = Object.values(rest).filter((text) => text !== "").length;
  const [isOpen, setOpen] = useState(set > 0);
  return (
    <>
      <input
        type="search"
        class="grow"
        aria-label="Filter"
        placeholder="Find by id, key, team, provider, model, code or status"
        value={textOf(texts, "search")}
        onInput={(event) => onChange({ ...texts, search: event.currentTarget.value })}
      />
      <div class="segments" role="group" aria-label="End">
        {ENDS.map(([value, label]) => (
          <button
            type="button"
            key={value}
            aria-pressed={textOf(texts, "outcome") === value}
            onClick={() => onChange({ ...texts, outcome: value })}
          >
            {label}
          </button>
        ))}
      </div>
      <button
        type="button"
        aria-expanded={isOpen}
        aria-controls="exchange-filters"
        onClick={() => setOpen(!isOpen)}
      >
        More filters{set > 0 ? ` (${set})` : ""}
      </button>
      {Object.values(texts).some((text) => text !== "") && (
        <button
          type="button"
          class="quiet"
          onClick={() => onChange({})}
        >
          Clear
        </button>
      )}
      <div id="exchange-filters" class="card exchange-filters" hidden={!isOpen}>
        <NameFields {...props} />
        <DurationFields {...props} />
      </div>
    </>
  );
}
