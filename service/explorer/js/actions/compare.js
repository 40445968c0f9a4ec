/** Methods that make one embedding: one, or several side by side. */

import { ask, askJson, Cancelled, NPZ, Refused } from '../api.js';
import { asFloats } from '../lib/npy.js';
import { readNpz } from '../lib/npz.js';
import { askArray, askMade, follow } from '../jobs.js';
import { titleOfMethod } from '../lib/titles.js';
import { hindrance, settingsOf } from '../methods.js';
import { set, state } from '../store.js';
import { auditFirst, auditOf, followEarly, MAX_AUDITED } from './audit.js';
import { writeLink } from './link.js';
import { clearResults, fold, runWork } from './state.js';

const USUAL = ['pca', 'lle', 'isomap', 't-sne']; // compared by default
const LEVELS = ['trust', 'partly', 'unknown', 'no']; // of verdicts, the best first

/** The names of the methods to compare. */
export function comparedMethods() {
  return state.compared ?? USUAL.filter((name) => state.methods.some((method) => method.name === name && !hindrance(method)));
}

/** Labels and truth of the data set, for the methods and scores that need them. */
function beside() {
  const { id, has_labels: hasLabels, has_coordinates: hasTruth } = state.dataset;
  return { ...(hasLabels && { labels: id }), ...(hasTruth && { truth: id }) };
}

const parametersOf = (name) => state.forms[name] ?? {};

/** Embed by the chosen method, and show it. */
export async function embed(method) {
  await runWork(async () => {
    const body = { dataset: state.dataset.id, method: method.name, parameters: parametersOf(method.name), ...beside() };
    const job = await askJson('/v1/embeddings', { method: 'POST', body }); // what is shown stays if it is refused
    clearResults();
    set({ view: 'draws' });
    await showEmbedding(job);
    await auditFirst();
  });
}

/** Follow the job of an embedding, and show its result; meanwhile the address has the job. */
export async function showEmbedding(started) {
  const { method: name, parameters } = started.request;
  const title = titleOfMethod(name);
  set({ job: started.id });
  writeLink();
  const job = await follow(started, title);
  const body = { dataset: job.dataset, method: name, parameters, ...beside() };
  const path = `${job.links.embedding}/coordinates`;
  const [embedding, result] = await Promise.all([
    askArray(`${path}?dtype=float32`, title),
    askMade(`/v1/jobs/${job.id}/result?points=0:1`, 'application/json', title).then((answer) => answer.json()),
  ]);
  const single = { title, path, body, data: embedding.data, p: embedding.shape[1], result };
  set({ single, audit: null, isAudited: false, announcement: `${title} is done.` });
  fold();
  writeLink({ isSame: true });
}

/** Embed by each method of the comparison, and judge all by the same scores. */
export async function compare() {
  await runWork(async () => {
    const methods = comparedMethods().map((name) => ({ method: name, parameters: parametersOf(name) }));
    const dimensions = new Set(methods.map(({ method, parameters }) => parameters.n_components ?? settingsOf(method).n_components?.default));
    const body = { dataset: state.dataset.id, methods, audit: false, ...beside(), ...(dimensions.size === 1 && { align: 'first' }) };
    await showComparison(await askJson('/v1/comparisons', { method: 'POST', body }));
    if (state.dataset.n <= MAX_AUDITED) await auditRows();
  });
}

/** Audit the map of each method although that takes long. */
export const auditRowsNow = () => runWork(auditRows);

/** Audit the map of each method; each verdict is shown as soon as it is known. */
async function auditRows() {
  const { comparisonJob } = state;
  const jobs = [];
  await Promise.all(state.comparison.rows.map(async ({ label, method, embedding }) => {
    if (!embedding || state.methods.find(({ name }) => name === method)?.needs_labels) return;
    try {
      const job = await askJson('/v1/audits', { method: 'POST', body: { embedding } });
      jobs.push(job);
      await follow(job, `Auditing ${label}`);
      const found = await auditOf(job);
      if (state.comparisonJob === comparisonJob) set({ comparison: { ...state.comparison, audits: { ...state.comparison.audits, [label]: found } } });
    } catch (error) {
      if (error instanceof Cancelled) for (const { id } of jobs) ask(`/v1/jobs/${id}`, { method: 'DELETE' }).catch(() => {});
      if (!(error instanceof Refused)) throw error; // another map may have a verdict
    }
  }));
}

/** The label of the method whose map is best by its verdict, then by what remains of it, once two are known. */
export function bestOf({ audits }) {
  const ranked = Object.entries(audits).sort(([, a], [, b]) => LEVELS.indexOf(a.level) - LEVELS.indexOf(b.level) || b.remains - a.remains);
  return ranked.length > 1 && ranked[0][1].level !== 'no' ? ranked[0][0] : null;
}

/** Follow the job of a comparison, and show its methods as they finish; meanwhile the address has the job. */
export async function showComparison(started) {
  const { request } = started;
  set({ comparison: null, comparisonJob: started.id });
  writeLink({ isRunning: true });
  if (!state.scoreList) set({ scoreList: (await askJson('/v1/scores')).items });
  await followEarly(started, `Comparing ${request.methods.length} methods`, async (query) => {
    const path = `/v1/jobs/${started.id}/result`;
    const found = await (await askMade(`${path}?points=0:1${query}`, 'application/json', 'Comparing')).json();
    const places = await placesOf(found, path, query);
    if (state.comparisonJob !== started.id || found.rows.length < (state.comparison?.rows.length ?? 0)) return;
    set({ comparison: { rows: found.rows, places, request, audits: state.comparison?.audits ?? {} } });
  });
  set({ announcement: 'The comparison is ready.' });
  writeLink();
  fold();
}

/** Show the embedding of one row of the comparison on the large stage. */
export function openRow(row) {
  const { data, p } = state.comparison.places[row.label];
  const body = { dataset: state.dataset.id, method: row.method, parameters: row.parameters };
  const single = { title: titleOfMethod(row.method), label: row.label, path: row.links.coordinates, data, p, result: row, body };
  set({ single, job: null, audit: state.comparison.audits[row.label] ?? null, isAudited: false, view: 'draws', playing: false, axes: [0, 1], shape: 'none' });
  writeLink();
}

/** Embeddings of the rows by label: aligned ones in one response, others one by one. */
async function placesOf(comparison, path, query) {
  if (comparison.aligned_to) {
    const arrays = readNpz(await (await askMade(`${path}?dtype=float32${query}`, NPZ, 'Comparing')).arrayBuffer());
    return Object.fromEntries(Object.entries(arrays).map(([label, { data, shape }]) => [label, { data: asFloats(data), p: shape[1] }]));
  }
  const places = {};
  for (const { label, links } of comparison.rows) {
    if (!links.coordinates) continue;
    const { data, shape } = await askArray(`${links.coordinates}?dtype=float32`, label);
    places[label] = { data, p: shape[1] };
  }
  return places;
}
