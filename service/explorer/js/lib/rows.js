/** Rows of the data set with all that the page knows of them, and what distinguishes some of them. */

import { state } from '../store.js';
import { hasDates, secondsOf } from './columns.js';
import { dimension, embeddingOf } from './frames.js';
import { date } from './html.js';
import { isTrusted } from './islands.js';

const MAX_WORDS = 100; // of a column; more words name rows
// As `frame()` of an audit.
const AUDITED = ['neighborhood', 'stretch', 'squeeze', 'is_torn', 'is_glued', 'seam', 'p_value', 'stability'];

const isNumber = (text) => text.trim() !== '' && Number.isFinite(Number(text));

const kinds = new WeakMap(); // of columns of texts

/** What all texts of a column are: dates, numbers or else words. */
function kindOf(texts) {
  if (!kinds.has(texts)) {
    const isDate = !texts.some((text) => Number.isNaN(secondsOf(text)));
    kinds.set(texts, isDate ? 'date' : texts.every(isNumber) ? 'number' : 'word');
  }
  return kinds.get(texts);
}

/** A value as it is written; a number of 32 bits has eight digits. */
const digitsOf = (value) => (typeof value === 'number' ? Number(value.toPrecision(8)) : value);

/**
 * The columns of the table.
 * @typedef {{name: string, kind: string, at: (row: number) => any, values?: ArrayLike<any>, step?: number,
 *   from?: number}} Column - kind: number, date or word of the data, or beside (known of the row or of its place);
 *   values: every `step`th from `from` on, of a date its text or seconds since 1970
 * @returns {{total: number, columns: Column[]}}
 */
export function tableHere() {
  const { dataset, columns, metadata, summary, single, audit } = state;
  const [label = 'label', color = 'color'] = ['labels', 'colors'].map((role) => dataset.columns?.[role]?.[0]);
  const p = dimension();
  const places = embeddingOf(state.frame);
  /** @type {Column[]} */
  const found = [{ name: 'row', at: (row) => row, kind: 'beside' }];
  const add = (kind, name, values, step = 1, from = 0) =>
    values && found.push({ kind, name, values, step, from, at: (row) => digitsOf(values[row * step + from]) });
  add('beside', 'id', columns?.ids);
  add('word', label, columns?.labels);
  const dates = columns?.colors && hasDates(dataset) && columns.colors;
  if (dates) found.push({ kind: 'date', name: color, values: dates, at: (row) => date(dates[row]) });
  else add('number', color, columns?.colors);
  for (const [name, values] of Object.entries(metadata ?? {})) add(kindOf(values), name, values);
  for (let j = 0; j < dataset.n_features; j++)
    add('number', columns?.names?.[j] ?? `x${j + 1}`, columns?.values, dataset.n_features, j);
  for (let j = 0; places && j < p; j++) add('beside', `y${j + 1}`, places, p, j);
  if (!single) for (const name of ['spread', 'stability']) add('beside', `draws_${name}`, summary?.[name]);
  if (audit) {
    const {
      islands: { names },
      arrays: { island },
    } = audit;
    found.push(
      { kind: 'beside', name: 'island', at: (row) => (names.length > 1 && names[island[row]]) || '' },
      { kind: 'beside', name: 'is_trusted', at: (row) => isTrusted(audit, island[row]) },
    );
    for (const name of AUDITED) add('beside', name, audit.arrays[name]);
  }
  return { total: dataset.n, columns: found };
}

/** The values of a column of the data by its name, or null. */
export function byName(name) {
  const { dataset, columns } = state;
  if (dataset.columns?.id?.includes(name)) return columns.ids;
  const found = tableHere().columns.find((column) => column.name === name);
  return found ? Array.from({ length: state.dataset.n }, (_, row) => found.at(row)) : null;
}

/** The columns of the data, as the page's worker reads them. */
export const columnsOfData = () =>
  tableHere().columns.filter(({ kind }) => kind !== 'beside')
    .map(({ name, kind, values, step = 1, from = 0 }) => ({ name, kind, values, step, from }));

/**
 * The numbers of a column, of dates in seconds since 1970.
 * @param {Column} column
 * @param {number} n
 */
export function numbersOf({ kind, values, step, from }, n) {
  const read = kind === 'date' ? (value) => (typeof value === 'string' ? secondsOf(value) : value) : Number;
  return Float64Array.from({ length: n }, (_, row) => read(values[row * step + from]));
}

/**
 * The columns in which the selected rows differ most from the others, by the difference of the means in standard
 * deviations of all rows; of words it is that of the share of the word that differs most. The means of dates are in
 * seconds since 1970.
 * @param {{columns: Column[], list: Int32Array, mask: Uint8Array, most: number}} inputs
 * @returns {{name: string, isDate?: boolean, word?: string, inside: number, outside: number, difference: number}[]}
 */
export function distinguishing({ columns, list, mask, most }) {
  const total = mask.length;
  if (list.length === total) return [];
  const compare = (sums, squares) => {
    const [outside, inside] = sums;
    const mean = (outside + inside) / total;
    const deviation = Math.sqrt(Math.max(0, squares / total - mean * mean));
    const means = { inside: inside / list.length, outside: outside / (total - list.length) };
    return { ...means,
      difference: deviation > 1e-12 * Math.abs(mean) ? (means.inside - means.outside) / deviation : 0 };
  };
  const largest = (some) => some.sort((a, b) => Math.abs(b.difference) - Math.abs(a.difference));
  return largest(columns.flatMap((column) => {
    const { name, kind, values, step, from } = column;
    if (kind !== 'word') {
      const numbers = numbersOf(column, total);
      const sums = [0, 0];
      numbers.forEach((value, row) => (sums[mask[row]] += value));
      const found = compare(sums, numbers.reduce((sum, value) => sum + value * value, 0));
      return [{ name, ...(kind === 'date' && { isDate: true }), ...found }];
    }
    const counts = new Map();
    for (const row of list) if (counts.size < MAX_WORDS) counts.set(values[row * step + from], [0, 0]);
    for (let row = 0; row < total; row++) {
      const count = counts.get(values[row * step + from]);
      if (count) count[mask[row]]++;
    }
    const words = Array.from(counts, ([word, count]) => ({ name, word, ...compare(count, count[0] + count[1]) }));
    return largest(words).slice(0, 1);
  })).filter(({ difference }) => difference).slice(0, most);
}
