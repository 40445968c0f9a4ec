/** Histograms of the columns, each of the rows that pass the filters of all other columns; for the page's worker. */

import { numbersOf } from './rows.js';

const BINS = 20; // of numbers
const MAX_BARS = 10; // values of a column of words that have a bar; the others share one
const REST = MAX_BARS; // the code of the values that share a bar

/** The bins of each column by its values and where they begin: a column is read once. */
const binned = new WeakMap();

/**
 * Bins of numbers of equal width, of whole numbers of whole width, or of the most frequent words; and the bin of each
 * row.
 */
function binsOf(column, n) {
  const { kind, values, from } = column;
  if (!binned.has(values)) binned.set(values, new Map());
  const known = binned.get(values);
  if (!known.has(from)) known.set(from, kind === 'word' ? binWords(column, n) : binNumbers(column, n));
  return known.get(from);
}

function binNumbers(column, n) {
  const numbers = numbersOf(column, n);
  let [low, high, isWhole] = [Infinity, -Infinity, column.kind === 'number'];
  for (const value of numbers) {
    if (value < low) low = value;
    if (value > high) high = value;
    isWhole &&= Number.isInteger(value);
  }
  const width = isWhole ? Math.ceil((high - low + 1) / BINS) : (high - low) / BINS || 1;
  const count = isWhole ? Math.ceil((high - low + 1) / width) : BINS;
  const codes = Uint8Array.from(numbers, (value) => Math.min(count - 1, Math.floor((value - low) / width)));
  return { codes, count, low, width, isWhole, names: null };
}

function binWords({ values, step, from }, n) {
  const words = Array.from({ length: n }, (_, row) => values[row * step + from]);
  const counts = new Map();
  for (const word of words) counts.set(word, (counts.get(word) ?? 0) + 1);
  const names = [...counts.keys()].sort((a, b) => counts.get(b) - counts.get(a)).slice(0, MAX_BARS)
    .sort((a, b) => a.localeCompare(b, undefined, { numeric: true }));
  const place = new Map(names.map((name, i) => [name, i]));
  const codes = Uint8Array.from(words, (word) => place.get(word) ?? REST);
  return { codes, count: names.length, names, others: counts.size - names.length, words };
}

/** Which rows a filter refuses: it names words, or the first bin and the one after the last. */
function refusedBy(filter, { codes, words }) {
  if (words) {
    const wanted = new Set(filter);
    return Uint8Array.from(words, (word) => Number(!wanted.has(word)));
  }
  const [first, end] = filter;
  return Uint8Array.from(codes, (code) => Number(code < first || code >= end));
}

/**
 * The histograms of some columns, and the rows that pass all filters.
 * @param {{columns: import('./rows.js').Column[], filters: ((number | string)[] | null)[], n: number}} inputs -
 *   columns: also every column with a filter; filters: of each of the columns
 */
export function histogramsOf({ columns, filters, n }) {
  const bins = columns.map((column) => binsOf(column, n));
  const refused = filters.map((filter, i) => filter && refusedBy(filter, bins[i]));
  const misses = new Uint8Array(n); // filters that refuse a row
  for (const some of refused) some?.forEach((miss, row) => (misses[row] += miss));
  const mask = misses.map((miss) => Number(miss === 0));
  const histograms = columns.map(({ name, kind }, i) => {
    const { codes, words, ...about } = bins[i];
    const [all, passing] = [1, 2].map(() => new Uint32Array(about.count + 1)); // with the words that share a bar
    for (let row = 0; row < n; row++) {
      all[codes[row]]++;
      if (misses[row] === (refused[i]?.[row] ?? 0)) passing[codes[row]]++;
    }
    return { name, kind, ...about, all, passing };
  });
  return { histograms, mask, count: mask.reduce((sum, one) => sum + one, 0) };
}
