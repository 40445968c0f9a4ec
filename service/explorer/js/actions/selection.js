/** The points that are chosen, in every view at once. */

import { points } from '../lib/frames.js';
import { set, state } from '../store.js';

/** Choose points by their rows; none clears the choice. */
export function choosePoints(rows) {
  if (!rows.length) {
    if (state.selection) set({ selection: null });
    return;
  }
  const mask = new Uint8Array(points());
  for (const row of rows) mask[row] = 1;
  set({ selection: { list: Int32Array.from(rows), mask }, told: `${rows.length} points are selected.` });
}

/** The rows of the neighbours of a point. */
export function neighborsOf(row) {
  const { neighbors } = state;
  if (!neighbors || row < 0) return [];
  return Array.from(neighbors.data.subarray(row * neighbors.k, (row + 1) * neighbors.k), Number);
}
