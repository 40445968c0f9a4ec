/** Data sets: list, upload, synthetic data, and their columns. */

import { ask, askArrays, askJson, Refused } from '../api.js';
import { asFloats } from '../lib/npy.js';
import { set, state } from '../store.js';
import { estimateSoon } from './compare.js';
import { clearResults } from './state.js';

const TYPES = {
  csv: 'text/csv',
  txt: 'text/csv',
  npy: 'application/x-npy',
  npz: 'application/zip',
  parquet: 'application/vnd.apache.parquet',
  arrows: 'application/vnd.apache.arrow.stream',
  json: 'application/json',
};
const MOST_VALUES = 16e6; // 64 MB as 32-bit floats: the rest of a tab's memory is for the draws
const PREVIEW_ROWS = 4;

/** Media type of a file by its name, or undefined. */
export const typeOf = (name) => TYPES[name.toLowerCase().split('.').pop()];

/** Load the list of data sets. */
export async function listDatasets() {
  const { items } = await askJson('/v1/datasets?limit=20');
  set({ recent: items });
}

/** Upload a file with its label and color columns. */
export async function upload(file, { label, color }) {
  const query = new URLSearchParams();
  if (label) query.set('label', label);
  if (color) query.set('color', color);
  await created(async () => {
    const path = `/v1/datasets${query.size ? `?${query}` : ''}`;
    const dataset = await (await ask(path, { method: 'POST', body: file, type: typeOf(file.name) })).json();
    if (dataset.name) return dataset;
    return askNamed(dataset, file.name);
  }, `Sending ${file.name}`);
}

/** Create a synthetic data set. */
export async function synthesise(values) {
  await created(
    () => askJson('/v1/datasets/synthetic', { method: 'POST', body: values }),
    `Sampling ${values.name.replaceAll('_', ' ')}`,
  );
}

/** Choose an existing data set. */
export async function choose(dataset) {
  clearResults();
  set({ dataset, pending: null, columns: null, preview: null, problem: null });
  set({ color: 'auto', selection: null, comparison: null, estimate: null, view: state.view === 'compare' ? 'compare' : 'draws' });
  estimateSoon();
  try {
    await Promise.all([loadPreview(dataset), loadColumns(dataset)]);
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    set({ problem: error.problem });
  }
}

/** Name a data set after its file; the name is not part of its content. */
async function askNamed(dataset, name) {
  const body = new Blob([JSON.stringify({ name })]);
  const type = 'application/merge-patch+json';
  return (await ask(`/v1/datasets/${dataset.id}`, { method: 'PATCH', body, type })).json();
}

/** Create a data set, then choose it. */
async function created(make, label) {
  set({ work: { label, stage: '', done: 0, total: 0 }, problem: null });
  try {
    const dataset = await make();
    set({ work: null, announcement: `Data set with ${dataset.n} rows is ready.` });
    await choose(dataset);
    await listDatasets();
  } catch (error) {
    set({ work: null });
    if (!(error instanceof Refused)) throw error;
    set({ problem: error.problem });
  }
}

/** Load the first rows. */
async function loadPreview(dataset) {
  const rows = Math.min(PREVIEW_ROWS, dataset.n);
  const preview = await askJson(`/v1/datasets/${dataset.id}/data?points=0:${rows}`);
  if (state.dataset === dataset) set({ preview });
}

/** Load all columns, for colors and rows; the values only if a tab can hold them. */
async function loadColumns(dataset) {
  const hasMore = dataset.has_labels || dataset.has_color || dataset.has_coordinates;
  if (dataset.n * dataset.d > MOST_VALUES && !hasMore) {
    set({ columns: { names: dataset.names, values: null } });
    return;
  }
  const float32 = dataset.n * dataset.d > MOST_VALUES ? '' : '?dtype=float32';
  const found = await askArrays(`/v1/datasets/${dataset.id}/data${float32}`);
  if (state.dataset !== dataset) return;
  set({
    columns: {
      names: dataset.names,
      values: asFloats(found.data.data),
      labels: found.labels ? Array.from(found.labels.data, String) : null,
      color: found.color ? asFloats(found.color.data) : null,
      coordinates: found.coordinates ? asFloats(found.coordinates.data) : null,
    },
  });
}
