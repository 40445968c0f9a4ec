/** The nearest rows of a row, in the data and on each shown map. */

import { settingsHere } from '../methods.js';
import { state } from '../store.js';
import { newest } from './background.js';
import { dimension, embeddingOf, points } from './frames.js';
import { titleOfMethod } from './titles.js';

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
 * The shown maps: the one of the large view, or those side by side.
 * @returns {{title: string, data: Float32Array, p: number, spec: Record<string, any>}[]}
 */
function mapsHere() {
  const { view, comparison } = state;
  if (view === 'compare')
    return (comparison?.rows ?? []).filter(({ label }) => comparison.places[label]).map(
      ({ label, title, method, parameters }) => (
        { title: title ?? titleOfMethod(method), ...comparison.places[label],
          spec: { ...parameters, standardize: parameters.standardize ?? comparison.request.standardize } }),
    );
  const data = embeddingOf(state.frame);
  return data ? [{ title: 'the map', data, p: dimension(), spec: settingsHere() }] : [];
}

/** Why the page does not know the distances in the data of the shown maps, or an empty string. */
export function whyNoNearest() {
  const { columns } = state;
  const specs = mapsHere().map(({ spec }) => spec);
  if (!columns?.values) return 'The page does not have the columns of these data.';
  if (columns.values.length > MAX_VALUES)
    return `These data have more than ${MAX_VALUES / 1e6} million values. Ask for neighbors in Python.`;
  const other = specs.find(({ metric }) => (metric ?? 'euclidean') !== 'euclidean');
  if (other) return `This map has distances by ${other.metric}, which the page does not compute.`;
  const scales = new Set(specs.map(({ standardize }) => standardize ?? 'none'));
  if (scales.size > 1) return 'These maps have columns of different scales. Open one of them.';
  return [...scales].every((scale) => ['none', 'zscore'].includes(scale))
    ? '' : `This map has columns of the scale ${[...scales][0]}, which the page does not compute.`;
}

/**
 * The k nearest rows of a row among the values of the data, d for each row, and among the places of each map.
 * @returns {{inData: number[], maps: {title: string, rows: number[]}[]}}
 */
export const nearestIn = ({ values, d, isScaled, maps, row, k }) => ({
  inData: nearestRows(values, d, row, k, isScaled ? scalesOf(values, d) : null),
  maps: maps.map(({ title, data, p }) => ({ title, rows: nearestRows(data, p, row, k) })),
});

const ask = newest('nearestIn');

/**
 * The k nearest rows of a row in the data, at the scale of the shown maps, and on each of them.
 * @returns {Promise<{inData: number[], maps: {title: string, rows: number[]}[]}> | null} null without a map, or if the
 * page does not know the distances in the data
 */
export function nearestOf(row, k) {
  const { columns, dataset } = state;
  const maps = mapsHere();
  if (!maps.length || whyNoNearest() || row >= points()) return null;
  const isScaled = maps[0].spec.standardize === 'zscore';
  return ask({ values: columns.values, d: dataset.n_features, isScaled, row, k,
    maps: maps.map(({ title, data, p }) => ({ title, data, p })) });
}
