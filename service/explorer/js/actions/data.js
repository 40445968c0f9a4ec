/** Data sets: list, upload, synthetic data, and their columns. */

import { ask, askArrays, askJson, Refused } from '../api.js';
import { asFloats } from '../lib/npy.js';
import { set, state } from '../store.js';
import { auditCoordinates } from './audit.js';
import { writeLink } from './link.js';
import { keepLeftOut, keptColumns } from './metadata.js';
import { clearResults, runWork } from './state.js';

const ENDINGS = /\.(csv|tsv|txt|xlsx|npy|npz|parquet|feather|arrow|arrows|json)(\.(gz|zst))?$/i;
const MAX_VALUES = 16e6; // 64 MB as 32-bit floats: the rest of a tab's memory is for the draws
const PREVIEW_ROWS = 4;
const HEAD = 2 ** 20; // bytes of a large text that are sent for its preview
const LARGE = 4 * HEAD;
const MAX_COLUMNS = 100; // that a preview lists

/** Roles of the two columns of a map: they are left out of the data, and become a second data set. */
export const MAP = ['map-x', 'map-y'];

/** Return whether the service reads a file of this name. */
export const isTable = (name) => ENDINGS.test(name);

/** Load the list of data sets. */
export async function listDatasets() {
  const { items } = await askJson('/v1/datasets?limit=20');
  set({ recent: items });
}

/** The whole lines at the head of a large text in one byte a sign or UTF-8; null for another file, which is sent as a whole. */
export async function headOf(file) {
  if (file.size <= LARGE || !/\.(csv|tsv|txt)$/i.test(file.name)) return null;
  const bytes = new Uint8Array(await file.slice(0, HEAD).arrayBuffer());
  const end = bytes.lastIndexOf(10);
  return end < 0 || bytes.includes(0) ? null : new File([bytes.subarray(0, end + 1)], file.name);
}

/**
 * The form of a file with the chosen roles of its columns; a chosen feature keeps all columns without a role. The roles
 * that the preview of a head has shown hold for the whole file.
 */
function formOf({ file, head, roles, only, delimiter, missing }, columns = []) {
  const form = new FormData();
  if (delimiter) form.append('delimiter', delimiter);
  if (missing) form.append('missing', missing);
  const known = columns.filter(({ role, name }) => role && role !== 'feature' && !(name in roles));
  const wanted = Object.values(roles).includes('feature') || (head && columns.length > 0 && columns.length < MAX_COLUMNS);
  const chosen = [...Object.entries(roles), ...(wanted ? known.map(({ name, role }) => [name, role]) : [])];
  for (const [name, role] of chosen) if (role && role !== 'feature') form.append(MAP.includes(role) ? 'ignore' : role, name);
  if (only) form.append('features', only);
  else if (wanted) form.append('features', '*');
  form.append('file', file, file.name);
  return form;
}

/** Ask the service what it would fit of the pending file; the first time, the only column of words becomes the labels. */
export async function previewPending(changes = {}) {
  const pending = { ...state.pending, ...changes };
  set({ pending, problem: null, work: { label: `Reading ${pending.file.name}`, stage: '', done: 0, total: 0 } });
  try {
    const form = formOf({ ...pending, head: null, file: pending.head ?? pending.file }, pending.shown?.columns);
    const shown = await askJson('/v1/datasets/preview', { method: 'POST', body: form });
    if (state.pending?.file !== pending.file) return;
    if (shown.problem && pending.head && !shown.problem.details?.options) {
      return previewPending({ head: null }); // the head may end within a quoted line break
    }
    const columns = shown.columns.length ? shown.columns : (pending.shown?.columns ?? []);
    set({ work: null, pending: { ...pending, shown: { ...shown, columns } }, problem: shown.problem });
    const words = shown.columns.filter(({ role }) => role === '');
    if (!pending.shown && words.length === 1 && shown.problem?.details.options?.label) {
      await previewPending({ roles: { [words[0].name]: 'label' } });
    }
  } catch (error) {
    set({ work: null });
    if (!(error instanceof Refused)) throw error;
    set({ problem: error.problem });
  }
}

/** Upload the pending file, as its preview shows it. */
export async function uploadPending() {
  const { pending } = state;
  const map = mapOf(pending);
  const isMade = await createDataset(async () => {
    const body = formOf(pending, pending.shown?.columns);
    const dataset = await askJson('/v1/datasets', { method: 'POST', body });
    await keepLeftOut(pending.file, dataset);
    return nameDataset(dataset, pending.file.name);
  }, `Sending ${pending.file.name}`);
  if (isMade && map) await auditMap(pending.file, map);
}

/** The two columns of the map in a pending file, or null. */
export function mapOf({ roles }) {
  const names = MAP.map((role) => Object.keys(roles).find((name) => roles[name] === role));
  return names.every(Boolean) ? names : null;
}

/** Audit the coordinates in a file, or in two of its columns, beside the chosen data set. */
export async function auditMap(file, columns = []) {
  await runWork(async () => {
    const form = new FormData();
    for (const name of columns) form.append('features', name);
    form.append('file', file, file.name);
    await auditCoordinates((await askJson('/v1/datasets', { method: 'POST', body: form })).id);
  });
}

/** Create a synthetic data set. */
export async function synthesise(values) {
  await createDataset(
    () => askJson('/v1/datasets/synthetic', { method: 'POST', body: values }),
    `Sampling ${values.name.replaceAll('_', ' ')}`,
  );
}

/** Choose an existing data set. */
export async function choose(dataset) {
  clearResults();
  set({ dataset, pending: null, columns: null, preview: null, problem: null, metadata: keptColumns(dataset) });
  set({ color: 'auto', selection: null, comparison: null, comparisonJob: null, isSetUp: true, view: state.view === 'compare' ? 'compare' : 'draws' });
  try {
    await Promise.all([loadPreview(dataset), loadColumns(dataset)]);
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    set({ problem: error.problem });
  }
}

/** Name a data set, for example after its file, unless it has a name; the name is not part of its content. */
export async function nameDataset(dataset, name) {
  if (dataset.name) return dataset;
  const body = new Blob([JSON.stringify({ name })]);
  const type = 'application/merge-patch+json';
  const answer = await ask(`/v1/datasets/${dataset.id}`, { method: 'PATCH', body, type });
  return { ...(await answer.json()), notices: dataset.notices };
}

/** Create a data set, then choose it; return whether it exists now. */
export async function createDataset(make, label) {
  set({ work: { label, stage: '', done: 0, total: 0 }, problem: null });
  try {
    const dataset = await make();
    set({ work: null, announcement: `Data set with ${dataset.n} rows is ready.` });
    await choose(dataset);
    writeLink();
    await listDatasets();
    return true;
  } catch (error) {
    set({ work: null });
    if (!(error instanceof Refused)) throw error;
    set({ problem: error.problem });
    return false;
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
  const hasMore = dataset.has_labels || dataset.has_color || dataset.has_coordinates || dataset.has_ids;
  if (dataset.n * dataset.n_features > MAX_VALUES && !hasMore) {
    set({ columns: { names: dataset.names, values: null } });
    return;
  }
  const float32 = dataset.n * dataset.n_features > MAX_VALUES ? '' : '?dtype=float32';
  const found = await askArrays(`/v1/datasets/${dataset.id}/data${float32}`);
  if (state.dataset !== dataset) return;
  set({
    columns: {
      names: dataset.names,
      values: asFloats(found.data.data),
      labels: found.labels ? Array.from(found.labels.data, String) : null,
      color: found.color ? asFloats(found.color.data) : null,
      coordinates: found.coordinates ? asFloats(found.coordinates.data) : null,
      ids: found.ids ? idsOf(found.ids) : null,
    },
  });
}

/** The ids of the rows as texts; those of several columns are joined by commas. */
function idsOf({ shape: [n, columns = 1], data }) {
  const texts = Array.from(data, String);
  return Array.from({ length: n }, (_, row) => texts.slice(row * columns, (row + 1) * columns).join(', '));
}
