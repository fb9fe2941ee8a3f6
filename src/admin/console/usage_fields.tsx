/**
 * Controls of the usage view: the range, the dimensions, the amount, and the filters.
 *
 * @module
 */
import type { JSX } from "preact";
import type { Dimension as AttributionDimension } from "../../config/dimensions.ts";
import type { TimeDimension } from "../../usage/query.ts";
import {
  type Dimension,
  DIMENSION_NAMES,
  DIMENSIONS,
  type Measure,
  MEASURES,
  offeredDimensions,
  type Range,
  RANGES,
  type Shown,
  widen,
} from "./usage_query.ts";

/** Properties of a control: the state of the view, and a callback for the next state. */
interface FieldProps {
  readonly shown: Shown;
  readonly onShown: (shown: Shown) => void;
}

/** Steps of the chart; `undefined` for the step that fits. */
const STEPS: readonly [step: TimeDimension | undefined, title: string, ranges: readonly Range[]][] =
  [
    [undefined, "Automatic step", ["24h", "7d", "30d", "90d", "12m", "custom"]],
    ["hour", "By hour", ["24h", "7d", "custom"]],
    ["day", "By day", ["7d", "30d", "90d", "12m", "custom"]],
    ["month", "By month", ["90d", "12m", "custom"]],
  ];

/** Fields of a range: a recent time or two days, and the step. */
export function RangeFields({ shown, onShown }: FieldProps): JSX.Element {
  const { range, first, last, step } = shown;
  return (
    <div class="toolbar usage-range">
      <div class="segments" role="group" aria-label="Time">
        {(Object.entries(RANGES) as [Range, string][]).map(([name, title]) => (
          <button
            type="button"
            key={name}
            aria-pressed={range === name}
            onClick={() => onShown({ ...shown, range: name, step: undefined })}
          >
            {title}
          </button>
        ))}
      </div>
      {range === "custom" && (
        <div class="days">
          <input
            type="date"
            aria-label="First day"
            value={first}
            max={last}
            onChange={(event) => onShown({ ...shown, first: event.currentTarget.value })}
          />
          <input
            type="date"
            aria-label="Last day"
            value={last}
            min={first}
            onChange={(event) => onShown({ ...shown, last: event.currentTarget.value })}
          />
        </div>
      )}
      <select
        class="narrow"
        aria-label="Step"
        value={step ?? ""}
        onChange={(event) => {
          const { value } = event.currentTarget;
          onShown({ ...shown, step: STEPS.find(([each]) => each === value)?.[0] });
        }}
      >
        {STEPS.filter(([, , ranges]) => ranges.includes(range)).map(([name, title]) => (
          <option key={title} value={name ?? ""}>{title}</option>
        ))}
      </select>
    </div>
  );
}

/** Fields of the dimensions and the amount. */
export function DimensionFields(
  { shown, onShown, isLoading, counted }: FieldProps & {
    isLoading: boolean;
    /** The counted dimensions of attribution. */
    counted: readonly AttributionDimension[];
  },
): JSX.Element {
  const { by, then, measure } = shown;
  const names = offeredDimensions(counted, [by, then]);
  return (
    <div class="toolbar">
      <select
        class="narrow"
        aria-label="By"
        value={by}
        onChange={(event) => {
          const next = event.currentTarget.value as Dimension;
          onShown({ ...shown, by: next, then: then === next ? undefined : then });
        }}
      >
        {names.map((name) => (
          <option key={name} value={name}>By {DIMENSIONS[name].toLowerCase()}</option>
        ))}
      </select>
      <select
        class="narrow"
        aria-label="Then by"
        value={then ?? ""}
        onChange={(event) => {
          const next = event.currentTarget.value as Dimension | "time" | "";
          onShown({ ...shown, then: next === "" ? undefined : next });
        }}
      >
        <option value="">then by …</option>
        {names.filter((name) => name !== by).map((name) => (
          <option key={name} value={name}>then by {DIMENSIONS[name].toLowerCase()}</option>
        ))}
        <option value="time">then by time</option>
      </select>
      <div class="segments" role="group" aria-label="Amount">
        {(Object.entries(MEASURES) as [Measure, string][]).map(([name, title]) => (
          <button
            type="button"
            key={name}
            aria-pressed={measure === name}
            onClick={() => onShown({ ...shown, measure: name, sort: name })}
          >
            {title}
          </button>
        ))}
      </div>
      <span class="hint" role="status">{isLoading ? "Adding up …" : ""}</span>
    </div>
  );
}

/** The active filters, each with a button that removes it. */
export function NarrowedList({ shown, onShown }: FieldProps): JSX.Element | null {
  const all = DIMENSION_NAMES.filter((name) => shown.narrowed[name] !== undefined);
  if (all.length === 0) return null;
  return (
    <ul class="narrowed" aria-label="Only">
      {all.map((name) => {
        const label = shown.narrowed[name]?.label;
        return (
          <li key={name}>
            <button
              type="button"
              aria-label={`All again, not only ${DIMENSIONS[name].toLowerCase()} ${label}`}
              onClick={() => onShown(widen(shown, name))}
            >
              <span class="hint">{DIMENSIONS[name]}</span> <b class="label">{label}</b>{" "}
              <span aria-hidden="true">✕</span>
            </button>
          </li>
        );
      })}
    </ul>
  );
}
