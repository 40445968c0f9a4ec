/**
 * Further columns of a data set, from a table of text: they color the points, are searched, and are exported; nothing
 * is fitted.
 */

import { compute } from '../lib/background.js';
import { set, state } from '../store.js';

const KEPT = 'glle-columns-';
const MAX_COLUMNS = 100;
export const MAX_KEPT = 20e6; // bytes of a file whose left-out columns are kept

/** Return whether a file is text that the page can parse. */
export const isText = ({ name }) => /\.(csv|tsv|txt)$/i.test(name);

/** Add the columns of a file to the data set; its rows are the rows of the data set, in their order. */
export async function addColumns(file) {
  const { dataset } = state;
  const { n, width, ragged, columns } = await compute('readTable', { file, most: MAX_COLUMNS });
  if (state.dataset !== dataset) return;
  if (!width || n !== dataset.n || ragged) {
    const detail = ragged
      ? `Row ${ragged.row} of ${file.name} has ${ragged.cells} cells; its header has ${width}.`
      : `${file.name} has ${n} rows below its header; the data set has ${dataset.n}.`;
    set({ problem: { title: 'These columns do not fit', detail,
      remedy: 'Choose a CSV with a header or an npy array, with one row for each point in the order of ' +
      'the data set.', details: {} } });
    return;
  }
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
  const dialect = dataset.source.dialect ?? {};
  const { n, columns } = await compute('readTable', { file, wanted: left, most: MAX_COLUMNS, dialect });
  if (n === dataset.n && Object.keys(columns).length) keep(dataset.id, columns);
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
