/**
 * The blocks of all subjects with large limits, see {@link SubjectBlocks}.
 *
 * @module
 */
import { RecentMap } from "../../exchange/recent_map.ts";
import { type BlockParts, type BlockSizes, SubjectBlocks } from "./subject_blocks.ts";
import type { LimitSubject } from "../limiter.ts";
import type { SubjectLayout } from "./subject_layout.ts";

/**
 * Limits for about a thousand calls or more have blocks, whether they count requests, tokens, or
 * 10^-9 of a currency.
 */
export const BLOCK_SIZES: BlockSizes = {
  minLimits: { requests: 1000, tokens: 1e6, budget: 1e6, spend: 1e11 },
  perLimit: 100,
};

function isSameLimits({ counted, isObserved }: SubjectLayout, other: SubjectLayout): boolean {
  return counted.length === other.counted.length && isObserved === other.isObserved &&
    counted.every(({ name, limit, window }, index) => {
      const one = other.counted[index];
      return one?.name === name && one.limit === limit && one.window === window;
    });
}

/** Number of subjects whose blocks are certainly kept, see {@link RecentMap}. */
const MAX_SUBJECTS = 5000;

/** Blocks of all subjects. Blocks that are unused for long are returned and dropped. */
export class BlockPool {
  readonly #parts: BlockParts;
  readonly #subjects = new RecentMap<SubjectBlocks>(MAX_SUBJECTS, (blocks) => blocks.end());

  constructor(parts: BlockParts) {
    this.#parts = parts;
  }

  /**
   * Returns whether the limits of a subject have blocks: all of them are large, and none limits
   * concurrency.
   */
  usesBlocks({ concurrency, counted }: SubjectLayout): boolean {
    return concurrency === undefined && counted.length > 0 &&
      counted.every(({ name, limit }) => limit >= this.#parts.sizes.minLimits[name]);
  }

  /** Finds the blocks of a subject, or adds them. */
  getOrAdd(layout: SubjectLayout): SubjectBlocks {
    const known = this.#subjects.get(layout.subject.name);
    if (known !== undefined && isSameLimits(known.layout, layout)) {
      known.layout = layout;
      return known;
    }
    known?.end();
    const blocks = new SubjectBlocks(layout, this.#parts);
    this.#subjects.set(layout.subject.name, blocks);
    return blocks;
  }

  /** Finds the blocks of a subject whose limits have not changed. */
  find({ name, limits }: LimitSubject): SubjectBlocks | undefined {
    const blocks = this.#subjects.get(name);
    return blocks?.layout.subject.limits === limits ? blocks : undefined;
  }

  /** Returns blocks that were not used for some time. */
  returnIdle(): void {
    for (const blocks of this.#subjects.values()) blocks.returnIdle();
  }

  /** Returns all blocks. */
  end(): void {
    for (const blocks of this.#subjects.values()) blocks.end();
  }
}
