/**
 * Further columns of a data set, from a table of text: they color the points, are searched, and are exported; nothing
 * is fitted.
 */

import { readNpy } from '../lib/npy.js';
import { set, state } from '../store.js';

const KEPT = 'glle-columns-';
const MAX_COLUMNS = 100;
export const MAX_KEPT = 20e6; // bytes of a file whose left-out columns are kept

/** Return whether a file is text that the page can parse. */
export const isText = ({ name }) => /\.(csv|tsv|txt)$/i.test(name);

/** Parse delimited text: the rows as arrays of texts. Quotes are doubled within quotes, as in RFC 4180. */
function parseCsv(text) {
  const body = text.replace(/^\uFEFF/, '');
  const [first] = body.split(/\r?\n/, 1);
  const count = (sign) => first.split(sign).length;
  const delimiter = [',', ';', '\t', '|'].reduce((best, sign) => (count(sign) > count(best) ? sign : best));
  const rows = [];
  let row = [];
  let at = 0;
  while (at < body.length) {
    let cell = '';
    if (body[at] === '"') {
      for (at++; at < body.length; at++) {
        if (body[at] !== '"') cell += body[at];
        else if (body[at + 1] === '"') cell += body[at++];
        else break;
      }
      at++;
    } else {
      const from = at;
      while (at < body.length && body[at] !== delimiter && body[at] !== '\n') at++;
      cell = body.slice(from, at).replace(/\r$/, '');
    }
    row.push(cell);
    if (body[at] === delimiter) {
      at++;
      if (at < body.length) continue;
      row.push('');
    }
    while (at < body.length && body[at] !== '\n') at++;
    at++;
    rows.push(row);
    row = [];
  }
  return rows.filter((cells) => cells.length > 1 || cells[0] !== '');
}

/** Add the columns of a file to the data set; its rows are the rows of the data set, in their order. */
export async function addColumns(file) {
  const { dataset } = state;
  const [names = [], ...rows] = file.name.endsWith('.npy')
    ? columnsOf(readNpy(await file.arrayBuffer()), file.name.slice(0, -4))
    : parseCsv(await file.text());
  const ragged = rows.findIndex((row) => row.length !== names.length);
  if (!names.length || rows.length !== dataset.n || ragged >= 0) {
    const detail = ragged >= 0
      ? `Row ${ragged} of ${file.name} has ${rows[ragged].length} cells; its header has ${names.length}.`
      : `${file.name} has ${rows.length} rows below its header; the data set has ${dataset.n}.`;
    set({ problem: { title: 'These columns do not fit', detail,
      remedy: 'Choose a CSV with a header or an npy array, with one row for each point in the order of ' +
      'the data set.', details: {} } });
    return;
  }
  const columns = Object.fromEntries(
    names.slice(0, MAX_COLUMNS).map((name, i) => [name || `column ${i}`, rows.map((row) => row[i])]),
  );
  const metadata = { ...state.metadata, ...columns };
  set({
    metadata,
    hidden: null,
    problem: null,
    color: `further:${Object.keys(columns)[0]}`,
    announcement: `${Object.keys(columns).length} columns are added.`,
  });
  keep(dataset.id, metadata);
}

/**
 * An array as rows of texts below a header: labels, or several columns.
 * @param {import('../store.js').NpyArray} array
 * @param {string} name
 */
function columnsOf({ shape: [n, count = 1], data }, name) {
  const texts = Array.from(data, String);
  const header = Array.from({ length: count }, (_, i) => (count > 1 ? `${name} ${i + 1}` : name));
  return [header, ...Array.from({ length: n }, (_, row) => texts.slice(row * count, (row + 1) * count))];
}

/** Store the columns for a refresh of this tab; more than the browser keeps is for this page view only. */
function keep(id, metadata) {
  try {
    sessionStorage.setItem(KEPT + id, JSON.stringify(metadata));
  } catch {
    sessionStorage.removeItem(KEPT + id);
  }
}

const tabs = new BroadcastChannel(KEPT); // a new tab asks the others for the columns that they keep
tabs.onmessage = ({ data: { id, metadata } }) => {
  const kept = sessionStorage.getItem(KEPT + id);
  if (!metadata && kept) tabs.postMessage({ id, metadata: JSON.parse(kept) });
  else if (metadata && id === state.dataset?.id && !state.metadata) {
    set({ metadata });
    keep(id, metadata);
  }
};

/** The stored columns of a data set, or null; those of another tab come later. */
export function keptColumns({ id, n }) {
  const metadata = JSON.parse(sessionStorage.getItem(KEPT + id) ?? 'null');
  if (metadata && Object.values(metadata).every((values) => values.length === n)) return metadata;
  tabs.postMessage({ id });
  return null;
}

/**
 * Store columns of an uploaded file that were left out; the service stores labels, colors and ids. Of a file that is no
 * text they are in `whole`.
 */
export async function keepLeftOut(file, dataset, whole) {
  const left = (dataset.columns.ignore ?? []).slice(0, MAX_COLUMNS);
  if (!left.length || file.size > MAX_KEPT) return;
  if (!isText(file))
    return keep(
      dataset.id,
      Object.fromEntries(left.filter((name) => whole.has(name)).map((name) => [name, whole.get(name)])),
    );
  const [names = [], ...rows] = parseCsv(await file.text());
  const found = left.filter((name) => names.includes(name)).slice(0, MAX_COLUMNS);
  if (!found.length || rows.length !== dataset.n) return;
  keep(dataset.id, Object.fromEntries(found.map((name) => [name, rows.map((row) => row[names.indexOf(name)] ?? '')])));
}

/** The rows whose id, label or further column has a text: equal ones, else those that contain it. */
export function rowsWith(text) {
  const wanted = text.trim().toLowerCase();
  const columns = [state.columns?.ids, state.columns?.labels, ...Object.values(state.metadata ?? {})].filter(Boolean);
  if (!wanted) return [];
  const search = (matches) => Array.from({ length: state.dataset.n }, (_, row) => row)
    .filter((row) => columns.some((values) => matches(values[row].toLowerCase())));
  const equal = search((value) => value === wanted);
  return equal.length ? equal : search((value) => value.includes(wanted));
}
