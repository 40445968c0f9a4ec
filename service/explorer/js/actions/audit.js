/** Audits of the shown map, or of coordinates from anywhere. */

import { ask, askJson, Refused } from '../api.js';
import { compute } from '../lib/background.js';
import { byName } from '../lib/rows.js';
import { textOf } from '../lib/verdict.js';
import { askArray, follow } from '../jobs.js';
import { methodNamed } from '../methods.js';
import { set, state } from '../store.js';
import { writeLink } from './link.js';
import { clearResults, fold, runWork } from './state.js';

const LABEL = 'Auditing the map';
const EARLY = 1500; // milliseconds between two looks at the partial result of a running job
export const STRETCHES = 20; // of consecutive rows, which are kept together
const MIN_BLOCKS = 4; // as an audit needs
const MAX_BLOCK_FEATURES = 200; // columns that are offered as the subject of a row
// Points of a map that is audited, and of a spread that is measured, without being asked.
export const MAX_AUDITED = 5000;

/** Audit what is shown, a given map too. */
export const auditShown = () => runWork(auditAgain);

/** The same within other work. */
export const auditAgain = () =>
  state.single?.isGiven
    ? auditCoordinates(state.single.body.coordinates, state.single.body.method, scaleOfAudit())
    : audit();

/** The scale of the columns in the shown audit, if it was chosen. */
const scaleOfAudit = () => (state.audit?.standardize ? { standardize: state.audit.standardize } : {});

/** Audit what is shown, within other work; the same audit is one job, which a link follows or reads. */
export async function audit() {
  const { single, posterior, dataset, blocks } = state;
  const ofSingle = () =>
    single.path
      ? { embedding: single.path.split('/')[3] }
      : { dataset: dataset.id, method: single.body.method, parameters: single.body.parameters,
        ...(single.body.standardize && { standardize: single.body.standardize }) };
  const body = single ? ofSingle() : { posterior: posterior.id };
  const job = await askJson('/v1/audits', { method: 'POST', body: { ...body, ...(blocks && { blocks }) } });
  set({ isAudited: true });
  writeLink();
  await read(job);
}

/**
 * Audit what is shown without being asked, once, unless its method needs labels or the map is given, whose audit shows
 * it; a refusal is shown, and the map stays.
 */
export async function auditFirst() {
  const { dataset, isAudited, single } = state;
  if (
    dataset.n > MAX_AUDITED ||
    isAudited ||
    single?.isGiven ||
    (single && methodNamed(single.body.method)?.needs_labels)
  )
    return;
  try {
    await audit();
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    set({ problem: error.problem });
  }
}

/**
 * Audit the coordinates of a data set beside the chosen one, and show them; first alone, which is quick. Runs within
 * other work.
 */
export async function auditCoordinates(coordinates, method, more = {}) {
  const isNew = state.single?.body.coordinates !== coordinates;
  const { dataset, blocks } = state;
  for (const made of isNew ? [null, ...(method ? [method] : [])] : [method]) {
    const body = {
      dataset: dataset.id,
      coordinates,
      ...(made && { method: made }),
      ...(blocks && { blocks }),
      ...more,
    };
    await showAudited(await askJson('/v1/audits', { method: 'POST', body }));
  }
}

/** Audit the shown coordinates again, as a map by this method: only so can their stability be known. */
export const auditAsMapOf = (method) =>
  runWork(() => auditCoordinates(state.single.body.coordinates, method, scaleOfAudit()));

/** Audit the shown coordinates again, with columns of one scale. */
export const auditStandardized = () =>
  runWork(() => auditCoordinates(state.single.body.coordinates, state.single.body.method, { standardize: 'zscore' }));

/**
 * The columns that may name the subject of each row: of those with the data, others of this tab, and features; each
 * has as many values as can be halved, and most of them more than once.
 */
export function blockColumns() {
  const { dataset, metadata, columns } = state;
  const { labels = [], colors = [], id = [] } = dataset.columns ?? {};
  const features = columns?.values ? (columns.names ?? []).slice(0, MAX_BLOCK_FEATURES) : [];
  return [...new Set([...labels, ...colors, ...id, ...Object.keys(metadata ?? {}), ...features])].filter((name) => {
    const count = new Set(byName(name) ?? []).size;
    return count >= MIN_BLOCKS && count < (3 * dataset.n) / 4;
  });
}

/**
 * Name the column by which rows belong together, for further audits. A column that only this page has is stored beside
 * the data.
 */
export async function chooseBlocks(name) {
  const { labels = [], colors = [], id = [] } = state.dataset.columns ?? {};
  set({ blocks: [...labels, ...colors, ...id].includes(name) ? name : await storeBlocks(byName(name)) });
}

/** Keep stretches of consecutive rows together in further audits, as of one series. */
export async function chooseStretches() {
  const { n } = state.dataset;
  set({ blocks: await storeBlocks(Array.from({ length: n }, (_, row) => Math.floor((row * STRETCHES) / n))) });
}

/** Store values, one for each row, as a data set of whole numbers; return its id. */
async function storeBlocks(values) {
  const place = new Map([...new Set(values)].map((value, i) => [value, i]));
  const form = new FormData();
  form.append('features', 'block');
  form.append('file', new File([`block\n${values.map((value) => place.get(value)).join('\n')}\n`], 'blocks.csv'));
  return (await askJson('/v1/datasets', { method: 'POST', body: form })).id;
}

/** Show the coordinates of an audit, and its statements; meanwhile the address has its job. */
export async function showAudited(job) {
  const { dataset, coordinates, method, blocks } = job.request;
  const path = `/v1/datasets/${coordinates}/data`;
  const { data, shape } = await askArray(`${path}?dtype=float32`, 'Reading the map');
  // Until more is known of the same map.
  const audit = state.single?.body.coordinates === coordinates ? state.audit : null;
  clearResults();
  const body = { dataset, coordinates, ...(method && { method }) };
  set({
    audit,
    blocks: blocks ?? null,
    single: { title: 'Your map', isGiven: true, path, body, data, p: shape[1], result: {} },
    job: job.id,
    view: 'draws',
  });
  fold();
  writeLink();
  await read(job);
}

/** Follow an audit of what is shown; show its statements as they come. */
async function read(job) {
  const shown = [state.single, state.posterior];
  const isShown = () => shown[0] === state.single && shown[1] === state.posterior;
  const take = (found) =>
    isShown() &&
    !(found.is_preliminary && state.audit?.is_preliminary === false && state.audit.method === found.method) &&
    set({ audit: found });
  await followEarly(job, LABEL, (query) => auditOf(job, query).then(take));
  if (isShown()) set({ announcement: textOf(state.audit) });
}

/** The result of an audit's job, its arrays as floats. */
export const auditOf = ({ id }, query = '') => askAudit(`/v1/jobs/${id}/result?dtype=float32${query}`);

/** Fetch an audit. */
export async function askAudit(path) {
  const buffer = await (await ask(path)).arrayBuffer();
  return compute('readAudit', buffer, [buffer]);
}

/** Follow a job, and read its result, partial ones as they come: `take` gets the query of each. */
export async function followEarly(job, label, take) {
  const partial = '&partial=true';
  const early = setInterval(async () => {
    const answer = await ask(`/v1/jobs/${job.id}/result?points=0:1${partial}`).catch(() => null);
    if (answer?.status === 200) take(partial).catch(() => {});
  }, EARLY);
  try {
    await follow(job, label);
  } finally {
    clearInterval(early);
  }
  return take('');
}
