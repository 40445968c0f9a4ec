/** Selection of points, shared by all views. */

import { points } from '../lib/frames.js';
import { set, state } from '../store.js';

/** Select points by their rows; an empty list clears the selection. */
export function choosePoints(rows) {
  if (!rows.length) {
    if (state.selection) set({ selection: null });
    return;
  }
  const mask = new Uint8Array(points());
  for (const row of rows) mask[row] = 1;
  set({ selection: { list: Int32Array.from(rows), mask }, announcement: `${rows.length} points are selected.` });
}

let bright = { selection: null, passing: null, mask: null };

/** Which rows are not dimmed: those that are selected, if any are, and pass the filters; null for all. */
export function brightRows() {
  const { selection, passing } = state;
  if (!selection || !passing) return (selection ?? passing)?.mask ?? null;
  if (bright.selection !== selection || bright.passing !== passing)
    bright = { selection, passing, mask: selection.mask.map((one, row) => one & passing.mask[row]) };
  return bright.mask;
}

/**
 * Hide the classes of these names; an empty set shows all.
 * @param {Set<string>} names
 * @param {import('../store.js').Look} look
 */
export function hideClasses(names, { index, legend: { entries } }) {
  const mask = Uint8Array.from(index, (place) => Number(names.has(entries[place].name)));
  set({ hidden: names.size ? { names, mask } : null });
}

/** Number, id and label of a row, as far as they are known. */
export const namesOf = (row) => [`Row ${row}`, state.columns?.ids?.[row], state.columns?.labels?.[row]].filter(Boolean);

/** Rows of the neighbors of a point. */
export function neighborsOf(row) {
  const { neighbors } = state;
  if (!neighbors || row < 0) return [];
  return Array.from(neighbors.data.subarray(row * neighbors.k, (row + 1) * neighbors.k), Number);
}
