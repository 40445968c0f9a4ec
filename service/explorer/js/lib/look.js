/**
 * Color of each point, as a step of a palette, and its legend. `sourceOf` takes what they are made of from the state,
 * `lookOf` makes them in the page's worker; `state.look` has the last ones.
 */

import { classes, CLASSES, gradient, OTHER, PLAIN, shapeOf, STEPS } from './palettes.js';
import { date, number } from './html.js';
import { SIZES } from './paint.js';
import { hasDates, secondsOf } from './columns.js';

/** @type {(keyof import('../store.js').State)[]} Members of the state that decide the colors. */
export const LOOK = ['color', 'columns', 'metadata', 'summary', 'audit', 'theme'];

const NO_ISLAND = 'in no island';
const AUDITED = { audited: 'stability', p_value: 'p_value' }; // arrays of an audit

/** Available choices of the color, with their labels, and the title of the legend if it differs. */
export function choices({ dataset, columns, metadata, summary, audit }) {
  const found = [];
  const [[label], [color]] = ['labels', 'colors'].map((role) => dataset?.columns?.[role] ?? []);
  if (columns?.labels) found.push(label ? ['labels', `Label: ${label}`, label] : ['labels', 'Labels']);
  if (columns?.colors) found.push(color ? ['colors', `Color: ${color}`, color] : ['colors', 'Color column']);
  for (const name of Object.keys(metadata ?? {})) found.push([`further:${name}`, name]);
  if (columns?.coordinates) {
    found.push(['coordinate:0', 'True position, first'], ['coordinate:1', 'True position, second']);
  }
  if (summary) {
    found.push(['spread', 'Spread: how far it moves'], ['stability', 'Stability: how many neighbors stay']);
    found.push(['local_trust', 'Faithfulness to the data']);
  }
  if (audit?.islands.names.length > 1) found.push(['island', 'Island of the map', 'Island']);
  if (audit?.arrays.stability) found.push(['audited', 'Stability: neighbors in another sample']);
  if (audit?.arrays.p_value) found.push(['p_value', 'Chance: p-value of its neighbors']);
  if (columns?.values) {
    for (let j = 0; j < Math.min(dataset.n_features, 200); j++)
      found.push([`column:${j}`, columns.names?.[j] || `Column ${j + 1}`]);
  }
  found.push(['row', 'Row number'], ['plain', 'One color']);
  return found;
}

/** The choice that `auto` stands for: a column of the data set, if it has one. */
export function resolveColor(state) {
  const there = choices(state).map(([name]) => name);
  if (state.color !== 'auto' && there.includes(state.color)) return state.color;
  return there.find((name) => ['labels', 'colors', 'coordinate:0', 'column:0'].includes(name)) ?? 'row';
}

let chance = { of: null, shares: null };

/** One minus each p-value, as one array for one audit. */
function chanceOf(p) {
  if (chance.of !== p) chance = { of: p, shares: p.map((value) => 1 - value) };
  return chance.shares;
}

/**
 * How far to believe the place of each point: the share of its neighbors that stay, by the best that is known of the
 * shown picture, or null. Without another sample it is 1 - p.
 */
export function certaintyOf({ audit, single, summary }) {
  const { stability, p_value: p } = audit?.arrays ?? {};
  if (stability) return { shares: stability, where: 'in another sample' };
  if (p) return { shares: chanceOf(p) };
  return !single && summary ? { shares: summary.stability, where: 'from draw to draw' } : null;
}

let ranked = { by: null, most: 0, rows: [] };

/** The rows with the least certain places, the least certain first, of equal ones the widest spread. */
export function leastCertain(state, most) {
  const by = state.audit ?? (state.single ? null : state.summary);
  if (ranked.by !== by || ranked.most !== most) {
    const { shares } = certaintyOf(state) ?? { shares: [] };
    const spread = state.single ? null : state.summary?.spread;
    const isBefore = (a, b) => shares[a] < shares[b] || (shares[a] === shares[b] && spread?.[a] > spread?.[b]);
    const rows = [];
    for (let row = 0; row < shares.length; row++) {
      if (rows.length === most && !isBefore(row, rows[most - 1])) continue;
      let at = rows.length;
      while (at > 0 && isBefore(row, rows[at - 1])) at--;
      rows.splice(at, 0, row);
      if (rows.length > most) rows.pop();
    }
    ranked = { by, most, rows };
  }
  return ranked.rows;
}

/**
 * What the look of the state is made of: the chosen color with its values, as they are or every `step`th from `from`
 * on, and the certainty of the places.
 */
export function sourceOf(state, n) {
  const name = resolveColor(state);
  const [, word, title = word] = choices(state).find(([choice]) => choice === name) ?? [name, ''];
  const certainty = certaintyOf(state);
  const isSized = certainty?.shares.length === n && !['audited', 'p_value', 'stability'].includes(name);
  const { islands, arrays } = name === 'island' ? state.audit : { islands: null, arrays: null };
  return {
    n,
    name,
    title,
    theme: state.theme,
    order: islands?.names ?? null,
    isDate: name === 'colors' && hasDates(state.dataset),
    shares: isSized ? certainty.shares : null,
    where: certainty?.where,
    ...(arrays ? { values: arrays.island } : valuesOf(state, name, n)),
  };
}

/**
 * Where the values of a choice are.
 * @returns {{values: any, from?: number, step?: number}}
 */
function valuesOf(state, name, n) {
  const { columns, dataset, metadata, summary, audit } = state;
  const [kind, place] = name.split(':');
  if (name.startsWith('further:')) return { values: metadata[name.slice('further:'.length)] };
  if (kind === 'labels' || kind === 'colors') return { values: columns[kind] };
  if (kind === 'coordinate')
    return { values: columns.coordinates, from: Number(place), step: columns.coordinates.length / n };
  if (kind === 'column') return { values: columns.values, from: Number(place), step: dataset.n_features };
  if (name in AUDITED) return { values: audit.arrays[AUDITED[name]] };
  return { values: summary?.[name] ?? null }; // of the row number and of one color there are none
}

/**
 * Color the points; those whose neighbors change are small, so that each keeps the color of its class.
 * @param {ReturnType<typeof sourceOf>} source
 * @returns {import('../store.js').Look}
 */
export function lookOf(source) {
  const { shares, where } = source;
  const look = colorsOf(source);
  if (!shares) return look;
  const most = SIZES.length - 1;
  const level = Uint8Array.from(shares, (share) =>
    Math.max(0, Math.min(most, Math.floor(Math.sqrt(share) * SIZES.length))),
  );
  const small = where ? `Small: few neighbors stay ${where}` : 'Small: neighbors as by chance';
  return { ...look, level, legend: { ...look.legend, small } };
}

/**
 * The colors alone.
 * @param {ReturnType<typeof sourceOf>} source
 */
function colorsOf({ name, title, values, from = 0, step = 1, order, isDate, theme, n }) {
  if (name === 'plain') return { name, index: new Uint16Array(n), palette: [PLAIN], legend: { kind: 'plain', title } };
  if (name === 'labels') return byClass(values, title);
  if (name === 'island') return byClass(Array.from(values, (at) => order[at] ?? NO_ISLAND), title, name, order);
  if (name.startsWith('further:')) {
    const found = numeric(values);
    return found.numbers
      ? byValue(found.numbers, name, title, gradient('value', theme), found.isDate)
      : byClass(values, title, name);
  }
  const kind = ['spread', 'stability', 'local_trust', ...Object.keys(AUDITED)].includes(name) ? 'spread' : 'value';
  const numbers =
    step === 1 && values ? values : Float32Array.from({ length: n }, (_, i) => (values ? values[from + i * step] : i));
  return byValue(numbers, name, title, gradient(kind, theme), isDate);
}

/**
 * A column of texts as numbers, if all are numbers or all are dates, and they are more than a palette of classes has.
 */
function numeric(values) {
  if (new Set(values).size <= CLASSES) return {};
  const numbers = Float64Array.from(values, (text) => (text.trim() === '' ? NaN : Number(text)));
  if (!numbers.some(Number.isNaN)) return { numbers };
  const dates = Float64Array.from(values, secondsOf);
  return dates.some(Number.isNaN) ? {} : { numbers: dates, isDate: true };
}

/** Color by a number, from the smallest to the largest. */
function byValue(values, name, title, palette, isDate = false) {
  let [low, high] = [Infinity, -Infinity];
  for (const value of values) {
    if (value < low) low = value;
    if (value > high) high = value;
  }
  const factor = high > low ? (STEPS - 1) / (high - low) : 0;
  const index = Uint16Array.from(values, (value) => Math.round((value - low) * factor));
  const ends = [low, high].map((end) => (isDate ? date(end) : number(end)));
  return { name, index, palette, legend: { kind: 'value', title, ends, palette } };
}

/** Color and shape by a class; if there are too many, the most frequent classes have them. */
function byClass(labels, title, called = 'labels', order = null) {
  const counts = new Map();
  for (const label of labels) counts.set(label, (counts.get(label) ?? 0) + 1);
  const natural = (a, b) =>
    order ? order.indexOf(a) - order.indexOf(b) : a.localeCompare(b, undefined, { numeric: true });
  const outside = counts.get(NO_ISLAND) ?? 0;
  if (order) counts.delete(NO_ISLAND);
  const frequent = [...counts.keys()].sort((a, b) => counts.get(b) - counts.get(a));
  const palette = classes(counts.size);
  const most = counts.size > palette.length ? palette.length - 1 : palette.length;
  const names = frequent.slice(0, most).sort(natural);
  const place = new Map(names.map((name, i) => [name, i]));
  const index = Uint16Array.from(labels, (label) => place.get(label) ?? most);
  /** @type {import('../store.js').Legend['entries']} */
  const entries = names.map((name, i) => ({ name, count: counts.get(name), color: palette[i], index: i }));
  const rest = frequent.slice(most);
  const count = rest.reduce((sum, name) => sum + counts.get(name), 0);
  if (rest.length)
    entries.push({ name: `${rest.length} others`, count, color: palette[most], index: most, isRest: true });
  if (!order || !outside)
    return {
      name: called,
      index,
      palette,
      shapes: palette.map((_, i) => shapeOf(i)),
      legend: { kind: 'classes', title, entries },
    };
  labels.forEach((label, row) => label === NO_ISLAND && (index[row] = palette.length)); // gray, and last
  entries.push({ name: NO_ISLAND, count: outside, color: OTHER, index: palette.length, isRest: true });
  return {
    name: called,
    index,
    palette: [...palette, OTHER],
    shapes: [...palette.map((_, i) => shapeOf(i)), shapeOf(0)],
    legend: { kind: 'classes', title, entries },
  };
}
