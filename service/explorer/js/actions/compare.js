/** Methods that make one embedding: one alone, or several side by side, with the answer which to show. */

import { askJson, Cancelled, NPZ, Refused } from '../api.js';
import { asFloats } from '../lib/npy.js';
import { readNpz } from '../lib/npz.js';
import { askArray, askMade, follow } from '../jobs.js';
import { inWords } from '../lib/remedies.js';
import { titleOfMethod } from '../lib/titles.js';
import { settingsOf } from '../methods.js';
import { set, state } from '../store.js';
import { auditFirst, auditOf, followEarly } from './audit.js';
import { openView, writeLink } from './link.js';
import { clearResults, fold, requireData, runWork } from './state.js';

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
  requireData(job.dataset);
  const single = { title, path, body, data: embedding.data, p: embedding.shape[1], result };
  set({ single, audit: null, isAudited: false, announcement: `${title} is done.` });
  fold();
  writeLink({ isSame: true });
}

/** Show the maps side by side, and make them unless they are there. */
export function findTrusted() {
  openView('compare');
  if (!state.comparison) compare();
}

/**
 * Make several maps, the usual ones unless some are chosen, audit all on the same halves, and say which to show.
 * @param {{standardize?: string}} space - in which the maps are made and judged
 */
export const compare = (space = {}) => runWork(() => compareNow(space));

/** The same within other work. */
export async function compareNow(space = {}) {
  const methods = state.compared?.map((name) => ({ method: name, parameters: parametersOf(name) }));
  const dimensionOf = ({ method, parameters }) =>
    parameters.n_components ?? settingsOf(method).n_components?.default;
  const dimensions = new Set(methods?.map(dimensionOf) ?? [2]);
  const { blocks } = state;
  const body = {
    dataset: state.dataset.id,
    ...(methods && { methods }),
    ...beside(),
    ...(blocks && { blocks }),
    ...(dimensions.size === 1 && { align: 'first' }),
    ...space,
  };
  await showComparison(await askJson('/v1/comparisons', { method: 'POST', body }));
}

/**
 * Follow the job of a comparison, and show its maps as they finish, then their outlines; meanwhile the address has the
 * job. `onShown` is called once all maps are there, before their outlines.
 */
export async function showComparison(started, onShown = () => {}) {
  const { request } = started;
  const audited = request.methods.find((row) => row.audit);
  set({ comparison: null, comparisonJob: started.id, blocks: audited?.audit.blocks ?? null });
  writeLink({ isRunning: true });
  if (!state.scoreList) set({ scoreList: (await askJson('/v1/scores')).items });
  await followEarly(started, `Comparing ${request.methods.length} maps`, async (query) => {
    const path = `/v1/jobs/${started.id}/result`;
    const found = await (await askMade(`${path}?points=0:1${query}`, 'application/json', 'Comparing')).json();
    const places = await placesOf(found, path, query);
    if (state.comparisonJob !== started.id || found.rows.length < (state.comparison?.rows.length ?? 0)) return;
    const { rows, best, asks } = found;
    const sentences = (found.sentence_parts ?? []).map(inWords);
    set({ comparison: { rows, places, request, best, asks, isDone: !query, sentences,
      audits: state.comparison?.audits ?? {} } });
  });
  requireData(started.dataset);
  set({ announcement: state.comparison?.sentences.join(' ') || 'The comparison is ready.' });
  writeLink();
  fold();
  onShown();
  await readAudits(started.id);
}

/** Read the audits of the maps, which the comparison has made, but for those that it did not finish. */
async function readAudits(comparisonJob) {
  const { blocks, dataset, comparison } = state;
  await Promise.all(
    comparison.rows
      .filter((row) => row.level && !row.is_preliminary)
      .map(async ({ label, method, parameters, embedding }) => {
        const { audit: made } = comparison.request.methods.find((row) => row.label === label);
        const body = {
          ...(embedding
            ? { embedding }
            : { dataset: dataset.id, method, parameters, ...(made.standardize && { standardize: made.standardize }) }),
          ...(made.blocks && { blocks: made.blocks }),
        };
        try {
          const job = await askJson('/v1/audits', { method: 'POST', body });
          await follow(job, `Reading the audit of ${label}`);
          const audit = await auditOf(job);
          if (state.comparisonJob === comparisonJob)
            set({
              comparison: { ...state.comparison, audits: { ...state.comparison.audits, [label]: audit } },
              // The map may have been opened before its audit was read.
              ...(state.single?.label === label && !state.audit && { audit }),
            });
        } catch (error) {
          if (!(error instanceof Refused) || error instanceof Cancelled) throw error; // another map may have outlines
        }
      }),
  );
}

/** Show the embedding of one row of the comparison on the large stage. */
export function openRow(row) {
  const { places, audits, request } = state.comparison;
  const { data, p } = places[row.label];
  const { standardize } = request; // of the methods that have no such parameter, whose map has no record
  const body = { dataset: state.dataset.id, method: row.method, parameters: row.parameters,
    ...(standardize && !row.embedding && { standardize }) };
  const result = { ...row, seconds: row.seconds ?? {} };
  const single = { title: row.title ?? titleOfMethod(row.method), label: row.label,
    path: row.links.coordinates ?? null, data, p, result, body };
  set({ single, job: null, audit: audits[row.label] ?? null, isAudited: false, view: 'draws', playing: false,
    axes: [0, 1], shape: 'none' });
  writeLink();
}

/** Embeddings of the rows by label: aligned ones in one response, others one by one. */
async function placesOf(comparison, path, query) {
  if (comparison.aligned_to) {
    const arrays = readNpz(await (await askMade(`${path}?dtype=float32${query}`, NPZ, 'Comparing')).arrayBuffer());
    return Object.fromEntries(
      Object.entries(arrays).map(([label, { data, shape }]) => [label, { data: asFloats(data), p: shape[1] }]),
    );
  }
  /** @type {Record<string, import('../store.js').Places>} */
  const places = {};
  for (const { label, links } of comparison.rows) {
    if (!links.coordinates) continue;
    const { data, shape } = await askArray(`${links.coordinates}?dtype=float32`, label);
    places[label] = { data, p: shape[1] };
  }
  return places;
}
