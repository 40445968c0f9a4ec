/** The nearest rows of a row, in the data and on the map. */

import { state } from '../store.js';
import { newest } from './background.js';
import { dimension, embeddingOf, points } from './frames.js';

const MAX_VALUES = 8e6; // of the data; more would be searched too slowly at the pointer

/**
 * The k nearest rows of a row among points of d coordinates, each divided by its scale; the nearest first, equal ones
 * by row.
 */
function nearestRows(values, d, row, k, scales = null) {
  const n = values.length / d;
  const best = []; // [squared distance, row], the nearest first
  for (let other = 0; other < n; other++) {
    if (other === row) continue;
    const limit = best.length < k ? Infinity : best[k - 1][0];
    let sum = 0;
    for (let j = 0; j < d && sum < limit; j++)
      sum += ((values[other * d + j] - values[row * d + j]) * (scales ? scales[j] : 1)) ** 2;
    if (!(sum < limit)) continue;
    let at = best.length;
    while (at > 0 && best[at - 1][0] > sum) at--;
    best.splice(at, 0, [sum, other]);
    if (best.length > k) best.pop();
  }
  return best.map(([, other]) => other);
}

let scaled = { values: null, scales: null };

/** One over the deviation of each column; 0 for a constant one. */
function scalesOf(values, d) {
  if (scaled.values === values) return scaled.scales;
  const n = values.length / d;
  const scales = Float64Array.from({ length: d }, (_, j) => {
    let [mean, square] = [0, 0];
    for (let i = 0; i < n; i++) mean += values[i * d + j] / n;
    for (let i = 0; i < n; i++) square += (values[i * d + j] - mean) ** 2 / n;
    return square > 1e-24 * mean * mean ? 1 / Math.sqrt(square) : 0;
  });
  scaled = { values, scales };
  return scales;
}

/**
 * Whether the shown map is one of standardized columns; null for another scale, of which the page knows no distances.
 */
function isStandardized() {
  const { single, posterior } = state;
  const spec = single ? (single.result?.parameters ?? single.body.parameters ?? {}) : (posterior?.spec ?? {});
  if (spec.metric && spec.metric !== 'euclidean') return null;
  return { none: false, zscore: true }[spec.standardize ?? 'none'] ?? null;
}

/**
 * The k nearest rows of a row among the values of the data, d for each row, and among the places of the map, p for
 * each.
 * @returns {{inData: number[], onMap: number[]}}
 */
export const nearestIn = ({ values, d, isScaled, map, p, row, k }) => ({
  inData: nearestRows(values, d, row, k, isScaled ? scalesOf(values, d) : null),
  onMap: nearestRows(map, p, row, k),
});

const ask = newest('nearestIn');

/**
 * The k nearest rows of a row in the data, at the scale of the shown map, and on that map.
 * @returns {Promise<{inData: number[], onMap: number[]}> | null} null if the page has no data to compare, or does not
 * know their distances
 */
export function nearestOf(row, k) {
  const { columns, dataset } = state;
  const map = embeddingOf(state.frame);
  if (!map || !columns?.values || columns.values.length > MAX_VALUES || row >= points()) return null;
  const isScaled = isStandardized();
  if (isScaled === null) return null;
  return ask({ values: columns.values, d: dataset.n_features, isScaled, map, p: dimension(), row, k });
}
