/**
 * The layout of a page: faults that are forbidden in the console at any width. It inspects
 * painted boxes, not styles.
 */
import type { Page } from "playwright-core";

/**
 * Finds faults of the layout in a page, as text: elements that overflow, are clipped, squeezed, or
 * overlap others.
 */
export function findFaults(page: Page): Promise<string[]> {
  return page.evaluate(() => {
    const faults: string[] = [];
    const { clientWidth, scrollWidth, clientHeight } = document.documentElement;
    if (scrollWidth > clientWidth) {
      faults.push(`the page is ${scrollWidth - clientWidth} px wider than its window`);
    }
    const dialog = document.querySelector("dialog[open]");
    const root = dialog ?? document.body;
    const describe = (element: Element) =>
      `<${element.tagName.toLowerCase()} class="${element.className}">${
        element.textContent?.trim().slice(0, 40)
      }`;
    const isSeen = (element: Element) =>
      element.checkVisibility({ visibilityProperty: true, opacityProperty: true }) &&
      element.closest(".sr, .skip, [aria-hidden=true]") === null;

    /** The painted part of a box, without the parts that its containers clip. */
    const toPainted = (box: DOMRect, from: Element): DOMRect => {
      let { left, top, right, bottom } = box;
      for (
        let each: Element | null = from;
        each !== null && each !== document.body;
        each = each.parentElement
      ) {
        if (getComputedStyle(each).overflow === "visible") continue;
        const frame = each.getBoundingClientRect();
        left = Math.max(left, frame.left);
        top = Math.max(top, frame.top);
        right = Math.min(right, frame.right);
        bottom = Math.min(bottom, frame.bottom);
      }
      return new DOMRect(left, top, Math.max(0, right - left), Math.max(0, bottom - top));
    };

    // Controls are completely visible. In a part that scrolls sideways they can be scrolled into
    // view.
    for (
      const control of root.querySelectorAll("button, a, input, select, textarea, .pill, summary")
    ) {
      if (!isSeen(control) || control.closest(".scroll") !== null) continue;
      const { left, right, top, bottom, width } = control.getBoundingClientRect();
      if (left < -0.5 || right > clientWidth + 0.5) faults.push(`sticks out: ${describe(control)}`);
      if (control.matches("button, .pill") && control.scrollWidth > Math.ceil(width) + 1) {
        faults.push(`its text is cut off: ${describe(control)}`);
      }
      if (control.closest("dialog .actions") !== null && (top < 0 || bottom > clientHeight)) {
        faults.push(`below the fold: ${describe(control)}`);
      }
    }
    if (dialog !== null) {
      const { left, top, right, bottom } = dialog.getBoundingClientRect();
      if (left < 0 || top < 0 || right > clientWidth || bottom > clientHeight) {
        faults.push("the dialog sticks out");
      }
    }

    // Lines of text: no two overlap, and none is squeezed to a column of letters.
    const lines: { box: DOMRect; element: Element }[] = [];
    const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
    for (let node = walker.nextNode(); node !== null; node = walker.nextNode()) {
      const element = node.parentElement;
      if (
        element === null || node.textContent?.trim() === "" ||
        element.closest("option, script, style") !== null
      ) {
        continue;
      }
      if (!isSeen(element)) continue;
      const range = document.createRange();
      range.selectNodeContents(node);
      const boxes = Array.from(range.getClientRects());
      const widest = Math.max(...boxes.map(({ width }) => width));
      const isLong = (node.textContent?.trim().length ?? 0) > 12;
      if (isLong && boxes.length > 3 && widest < 60) {
        faults.push(`is squeezed: ${describe(element)}`);
      }
      for (const each of boxes) {
        const box = toPainted(each, element);
        if (box.width > 1 && box.height > 1) lines.push({ box, element });
      }
    }
    // A line's box is higher than its letters, so neighbours can overlap by this much.
    const SHARED_PX = 4;
    for (const [index, { box, element }] of lines.entries()) {
      for (const other of lines.slice(index + 1)) {
        if (other.element === element) continue;
        const width = Math.min(box.right, other.box.right) - Math.max(box.left, other.box.left);
        const height = Math.min(box.bottom, other.box.bottom) - Math.max(box.top, other.box.top);
        if (width > 1 && height > SHARED_PX) {
          faults.push(`lies on ${describe(other.element)}: ${describe(element)}`);
        }
      }
    }
    return faults;
  });
}
