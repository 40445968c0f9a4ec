/** Color of each point, as a step of a palette, and its legend. */

import { classes, CLASSES, gradient, mix, PLAIN, STEPS } from './palettes.js';
import { colors, theme } from './theme.js';

/** Members of the state that decide the colors. */
export const LOOK = ['color', 'columns', 'metadata', 'summary', 'movement', 'audit', 'theme'];

const OPACITIES = [0.3, 0.42, 0.55, 0.7, 0.85, 1]; // of points by their stability; the faint ones are painted first
const AUDITED = { audited: 'stability', p_value: 'p_value' }; // arrays of an audit
const MOVED = ['movement', 'neighbor_stability', 'baseline']; // arrays of a movement

/** Available choices of the color, with their labels, and the title of the legend if it differs. */
export function choices({ dataset, columns, metadata, summary, movement, audit }) {
  const found = [];
  const [[label], [color]] = ['label', 'color'].map((role) => dataset?.columns?.[role] ?? []);
  if (columns?.labels) found.push(label ? ['labels', `Label: ${label}`, label] : ['labels', 'Labels']);
  if (columns?.color) found.push(color ? ['color', `Color: ${color}`, color] : ['color', 'Color column']);
  for (const name of Object.keys(metadata ?? {})) found.push([`further:${name}`, name]);
  if (columns?.coordinates) {
    found.push(['coordinate:0', 'True position, first'], ['coordinate:1', 'True position, second']);
  }
  if (summary) {
    found.push(['spread', 'Spread: how far it moves'], ['stability', 'Stability: how many neighbors stay']);
    found.push(['local_trust', 'Faithfulness to the data']);
  }
  if (movement) {
    found.push(['movement', 'Movement on half of the data'], ['neighbor_stability', 'Neighbors kept on half of the data']);
    found.push(['baseline', 'Baseline: distance to its 10 nearest points']);
  }
  if (audit?.arrays.stability) found.push(['audited', 'Stability: neighbors in another sample']);
  if (audit?.arrays.p_value) found.push(['p_value', 'Chance: p-value of its neighbors']);
  if (columns?.values) {
    for (let j = 0; j < Math.min(dataset.n_features, 200); j++) found.push([`column:${j}`, columns.names?.[j] ?? `Column ${j + 1}`]);
  }
  found.push(['row', 'Row number'], ['plain', 'One color']);
  return found;
}

/** The choice that `auto` stands for: a column of the data set, if it has one. */
export function resolveColor(state) {
  const there = choices(state).map(([name]) => name);
  if (state.color !== 'auto' && there.includes(state.color)) return state.color;
  return there.find((name) => ['labels', 'color', 'coordinate:0', 'column:0'].includes(name)) ?? 'row';
}

/**
 * How far to believe the place of each point: the share of its neighbors that stay, by the best that is known of the
 * shown picture, or null. Without another sample it is 1 - p.
 */
export function certaintyOf({ audit, single, movement, summary }) {
  const { stability, p_value: p } = audit?.arrays ?? {};
  if (stability) return { shares: stability, where: 'in another sample' };
  if (p) return { shares: p.map((value) => 1 - value), isByChance: true };
  if (single) return movement && { shares: movement.arrays.neighbor_stability, where: 'on half of the data' };
  return summary && { shares: summary.stability, where: 'from draw to draw' };
}

let ranked = { by: null, rows: [] };

/** The rows with the least certain places, the least certain first. */
export function leastCertain(state, most) {
  const by = state.audit ?? (state.single ? state.movement : state.summary);
  if (ranked.by !== by) {
    const { shares } = certaintyOf(state) ?? { shares: [] };
    const spread = state.single ? state.movement?.arrays.movement : state.summary?.spread; // the wider of equal ones first
    ranked = { by, rows: Array.from(shares.keys()).sort((a, b) => shares[a] - shares[b] || (spread ? spread[b] - spread[a] : 0)) };
  }
  return ranked.rows.slice(0, most);
}

/**
 * Color the points; those whose neighbors change are faint.
 * @returns {{name: string, index: Uint16Array, palette: string[], solid: string[], legend: object}} index modulo the
 *   colors of the legend, which are `solid`
 */
export function lookOf(state, n) {
  const look = colorsOf(state, n);
  const certainty = certaintyOf(state);
  if (certainty?.shares.length !== n || ['audited', 'p_value', 'stability', 'neighbor_stability'].includes(look.name)) return look;
  const { shares, where } = certainty;
  const { surface } = colors();
  const palette = OPACITIES.flatMap((opacity) => look.palette.map((color) => mix(surface, color, opacity)));
  const most = OPACITIES.length - 1;
  const level = (share) => Math.max(0, Math.min(most, Math.floor(Math.sqrt(share) * OPACITIES.length)));
  const faint = where ? `Faint: few neighbors stay ${where}` : 'Faint: neighbors as by chance';
  const index = look.index.map((color, row) => level(shares[row]) * look.palette.length + color);
  return { ...look, palette, index, legend: { ...look.legend, faint } };
}

/** The colors alone. */
export function colorsOf(state, n) {
  const look = paletteOf(state, n);
  return { ...look, solid: look.palette };
}

function paletteOf(state, n) {
  const name = resolveColor(state);
  const [, word, title = word] = choices(state).find(([choice]) => choice === name) ?? [name, ''];
  if (name === 'plain') return { name, index: new Uint16Array(n), palette: [PLAIN], legend: { kind: 'plain', title } };
  if (name === 'labels') return byClass(state.columns.labels, title);
  if (name.startsWith('further:')) {
    const values = state.metadata[name.slice('further:'.length)];
    const numbers = numeric(values);
    return numbers ? byValue(numbers, name, title, gradient('value', theme())) : byClass(values, title, name);
  }
  const kind = ['spread', 'stability', 'local_trust', ...MOVED, ...Object.keys(AUDITED)].includes(name) ? 'spread' : 'value';
  return byValue(valuesOf(state, name, n), name, title, gradient(kind, theme()));
}

/** A column of texts as numbers, if all are numbers and they are more than a palette of classes has; or null. */
function numeric(values) {
  const numbers = Float32Array.from(values, (text) => (text.trim() === '' ? NaN : Number(text)));
  return numbers.some(Number.isNaN) || new Set(values).size <= CLASSES ? null : numbers;
}

/** The numbers of a choice. */
function valuesOf(state, name, n) {
  const { columns, dataset, summary, movement, audit } = state;
  const [kind, place] = name.split(':');
  if (kind === 'row') return Float32Array.from({ length: n }, (_, i) => i);
  if (kind === 'color') return columns.color;
  if (kind === 'coordinate') return pickStrided(columns.coordinates, Number(place), columns.coordinates.length / n, n);
  if (kind === 'column') return pickStrided(columns.values, Number(place), dataset.n_features, n);
  if (name in AUDITED) return audit.arrays[AUDITED[name]];
  return MOVED.includes(name) ? movement.arrays[name] : summary[name];
}

const pickStrided = (values, from, step, n) => Float32Array.from({ length: n }, (_, i) => values[from + i * step]);

/** Color by a number, from the smallest to the largest. */
function byValue(values, name, title, palette) {
  let [low, high] = [Infinity, -Infinity];
  for (const value of values) {
    if (value < low) low = value;
    if (value > high) high = value;
  }
  const factor = high > low ? (STEPS - 1) / (high - low) : 0;
  const index = Uint16Array.from(values, (value) => Math.round((value - low) * factor));
  return { name, index, palette, legend: { kind: 'value', title, low, high, palette } };
}

/** Color by a class; if there are too many, the most frequent classes have colors. */
function byClass(labels, title, called = 'labels') {
  const counts = new Map();
  for (const label of labels) counts.set(label, (counts.get(label) ?? 0) + 1);
  const palette = classes(counts.size);
  const natural = (a, b) => a.localeCompare(b, undefined, { numeric: true });
  let names = [...counts.keys()];
  if (names.length > palette.length) {
    names.sort((a, b) => counts.get(b) - counts.get(a));
    names = [...names.slice(0, palette.length - 1).sort(natural), ...names.slice(palette.length - 1)];
  } else names.sort(natural);
  const place = new Map(names.map((name, i) => [name, Math.min(i, palette.length - 1)]));
  const index = Uint16Array.from(labels, (label) => place.get(label));
  const entries = palette.map((color, i) => {
    const shared = i === palette.length - 1 && names.length > palette.length;
    const name = shared ? `${names.length - i} others` : names[i];
    const count = shared ? names.slice(i).reduce((sum, word) => sum + counts.get(word), 0) : counts.get(names[i]);
    return { color, name, count, index: i, isRest: shared };
  });
  return { name: called, index, palette, legend: { kind: 'classes', title, entries } };
}
