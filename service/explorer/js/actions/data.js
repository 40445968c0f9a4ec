/** Data sets: the ones there are, new ones from a file or by name, and their columns. */

import { ask, askArrays, askJson, Refused } from '../api.js';
import { asFloats } from '../npy.js';
import { set, state } from '../store.js';
import { estimateSoon } from './compare.js';
import { forget } from './fit.js';

const TYPES = {
  csv: 'text/csv',
  txt: 'text/csv',
  npy: 'application/x-npy',
  npz: 'application/zip',
  parquet: 'application/vnd.apache.parquet',
  arrows: 'application/vnd.apache.arrow.stream',
  json: 'application/json',
};
const MOST_VALUES = 16e6; // 64 MB as 32-bit floats: what a tab can hold beside the draws
const PREVIEW_ROWS = 4;

/** The media type of a file by its name; undefined for what the service does not read. */
export const typeOf = (name) => TYPES[name.toLowerCase().split('.').pop()];

/** Ask for the data sets there are. */
export async function listDatasets() {
  const { items } = await askJson('/v1/datasets?limit=20');
  set({ recent: items });
}

/** Send a file, with the columns that are labels or colours. */
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

/** Have the service sample a sheet. */
export async function synthesise(values) {
  await created(
    () => askJson('/v1/datasets/synthetic', { method: 'POST', body: values }),
    `Sampling ${values.name.replaceAll('_', ' ')}`,
  );
}

/** Take a data set that is there. */
export async function choose(dataset) {
  forget();
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

/** Call a data set as its file is called, which is no part of its content. */
async function askNamed(dataset, name) {
  const body = new Blob([JSON.stringify({ name })]);
  const type = 'application/merge-patch+json';
  return (await ask(`/v1/datasets/${dataset.id}`, { method: 'PATCH', body, type })).json();
}

/** Make a data set, then take it. */
async function created(make, label) {
  set({ work: { label, stage: '', done: 0, total: 0 }, problem: null });
  try {
    const dataset = await make();
    set({ work: null, told: `Data set with ${dataset.n} rows is ready.` });
    await choose(dataset);
    await listDatasets();
  } catch (error) {
    set({ work: null });
    if (!(error instanceof Refused)) throw error;
    set({ problem: error.problem });
  }
}

/** Ask for the first rows. */
async function loadPreview(dataset) {
  const rows = Math.min(PREVIEW_ROWS, dataset.n);
  const preview = await askJson(`/v1/datasets/${dataset.id}/data?points=0:${rows}`);
  if (state.dataset === dataset) set({ preview });
}

/** Ask for all columns, to colour by them and to show a row; the values only where a tab can hold them. */
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
