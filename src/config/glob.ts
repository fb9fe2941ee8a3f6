/**
 * Patterns of names in the configuration: the models that a key can use, and the models of a price.
 *
 * @module
 */

/**
 * Matches a name with a pattern in which `*` matches any characters. It needs linear time for every
 * pattern.
 *
 * @param name Such as `gpt-4o-mini`
 * @param pattern Such as `gpt-*`
 */
export function matchesGlob(name: string, pattern: string): boolean {
  const [first = "", ...rest] = pattern.split("*");
  const last = rest.pop();
  if (last === undefined) return name === pattern;
  if (name.length < first.length + last.length) return false;
  if (!name.startsWith(first) || !name.endsWith(last)) return false;
  let from = first.length;
  for (const middle of rest) {
    const found = name.indexOf(middle, from);
    if (found === -1) return false;
    from = found + middle.length;
  }
  return from <= name.length - last.length;
}
