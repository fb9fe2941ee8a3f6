/**
 * The largest groups of a report, and all others in one: charts draw a few series, however many
 * keys there are.
 *
 * @module
 */
import { OTHER, type Rest } from "./counts.ts";
import { FirstItems } from "./first_items.ts";
import { isTimePart, type UsageOrder, type UsagePart } from "./query.ts";
import { compareGroups, withoutTime } from "./report_order.ts";
import { addGroup, type Group, newGroup } from "./sums.ts";
import { inParts } from "./usage_memory.ts";
import { WideMap } from "./wide_map.ts";

/** Adds a group to the one of the same id, or makes that. */
function addTo(groups: WideMap<Group>, names: readonly string[], more: Group): void {
  const id = names.join("\0");
  let group = groups.get(id);
  if (group === undefined) groups.add(id, group = newGroup(names));
  addGroup(group, more);
}

/**
 * Keeps the largest groups, over all times, and adds up the others as {@link OTHER}, time by time.
 *
 * @param groups The groups
 * @param query The dimensions, the sum that says which are the largest, and the number of groups to
 * keep
 * @param rest Lets other work of the process have its turn
 * @returns The groups that are kept, and those of the others
 */
export async function keepTop(
  groups: WideMap<Group>,
  { by, sort, top }: { by: readonly UsagePart[]; sort: UsageOrder; top: number },
  rest: Rest,
): Promise<WideMap<Group>> {
  const whole = new WideMap<Group>();
  for (const some of inParts(groups)) {
    for (const [, group] of some) addTo(whole, withoutTime(by, group), group);
    await rest();
  }
  const first = new FirstItems(top, compareGroups({ by: [], sort }));
  for (const some of inParts(whole)) {
    for (const [, group] of some) first.add(group);
    await rest();
  }
  const kept = new Set(Array.from(first.drain(), ({ names }) => names.join("\0")));
  const merged = new WideMap<Group>();
  for (const some of inParts(groups)) {
    for (const [, group] of some) {
      const isKept = kept.has(withoutTime(by, group).join("\0"));
      addTo(
        merged,
        isKept
          ? group.names
          : by.map((part, at) => isTimePart(part) ? group.names[at] ?? "" : OTHER),
        group,
      );
    }
    await rest();
  }
  return merged;
}
