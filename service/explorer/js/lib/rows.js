/** Rows of the data set with all that the page knows of them, and what distinguishes some of them. */

import { state } from '../store.js';
import { hasDates, secondsOf } from './columns.js';
import { dimension, embeddingOf } from './frames.js';
import { date } from './html.js';
import { isTrusted } from './islands.js';

// As `frame()` of an audit.
const AUDITED = ['neighborhood', 'stretch', 'squeeze', 'is_torn', 'is_glued', 'seam', 'p_value', 'stability'];

const isNumber = (text) => text.trim() !== '' && Number.isFinite(Number(text));

/** A value as it is written; a number of 32 bits has eight digits. */
const digitsOf = (value) => (typeof value === 'number' ? Number(value.toPrecision(8)) : value);

/**
 * The columns of the table.
 * @typedef {{name: string, kind: string, at: (row: number) => any, seconds?: (row: number) => number}} Column - kind:
 *   number, date or word of the data, or beside (known of the row or of its place); dates also in seconds since 1970
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
    values && found.push({ kind, name, at: (row) => digitsOf(values[row * step + from]) });
  add('beside', 'id', columns?.ids);
  add('word', label, columns?.labels);
  const dates = columns?.colors && hasDates(dataset) && columns.colors;
  if (dates) found.push({ kind: 'date', name: color, at: (row) => date(dates[row]), seconds: (row) => dates[row] });
  else add('number', color, columns?.colors);
  for (const [name, values] of Object.entries(metadata ?? {})) {
    if (!values.some((text) => Number.isNaN(secondsOf(text))))
      found.push({ kind: 'date', name, at: (row) => values[row], seconds: (row) => secondsOf(values[row]) });
    else add(values.every(isNumber) ? 'number' : 'word', name, values);
  }
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

/**
 * The columns in which the selected rows differ most from the others, by the difference of the means in standard
 * deviations of all rows; of words it is that of the share of the word that differs most. The means of dates are in
 * seconds since 1970.
 * @returns {{name: string, isDate?: boolean, word?: string, inside: number, outside: number, difference: number}[]}
 */
export function distinguishing({ list, mask }, most) {
  const { columns, total } = tableHere();
  if (list.length === total) return [];
  const compare = (value) => {
    const [sums, squares] = [[0, 0], [0, 0]];
    for (let row = 0; row < total; row++) {
      const one = value(row);
      sums[mask[row]] += one;
      squares[mask[row]] += one * one;
    }
    const mean = (sums[0] + sums[1]) / total;
    const deviation = Math.sqrt(Math.max(0, (squares[0] + squares[1]) / total - mean * mean));
    const [outside, inside] = [sums[0] / (total - list.length), sums[1] / list.length];
    return { inside, outside, difference: deviation > 1e-12 * Math.abs(mean) ? (inside - outside) / deviation : 0 };
  };
  const largest = (some) => some.sort((a, b) => Math.abs(b.difference) - Math.abs(a.difference));
  return largest(columns.filter(({ kind }) => kind !== 'beside').flatMap(({ name, at, kind, seconds }) => {
    if (kind === 'date') return [{ name, isDate: true, ...compare(seconds) }];
    if (kind === 'number') return [{ name, ...compare((row) => Number(at(row))) }];
    const words = [...new Set(Array.from(list, at))].slice(0, 100); // more words name rows
    return largest(words.map((word) => ({ name, word, ...compare((row) => Number(at(row) === word)) }))).slice(0, 1);
  })).filter(({ difference }) => difference).slice(0, most);
}
