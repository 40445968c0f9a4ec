/** From a data set to its draws: fit, reference embedding, draws and their summary. */

import { askJson, NPZ } from '../api.js';
import { asFloats } from '../lib/npy.js';
import { readNpz } from '../lib/npz.js';
import { askArray, askMade, follow } from '../jobs.js';
import { set, state } from '../store.js';
import { auditFirst } from './audit.js';
import { chosenMethod } from '../methods.js';
import { embed } from './compare.js';
import { writeLink } from './link.js';
import { clearResults, fold, requireData, runWork } from './state.js';

const MAX_FLOATS = 24e6; // of draws, so that a tab stays under 100 MB

/** Default number of draws, within the memory of a tab. */
export function defaultCount() {
  const floats = (state.dataset?.n ?? 1) * 2;
  return Math.max(2, Math.min(24, Math.floor(MAX_FLOATS / floats)));
}

/**
 * Values of the form of draws, with its defaults.
 * @returns {{n_draws: number, seed: number, scale: number | 'auto'}}
 */
export function drawSettings() {
  return { n_draws: defaultCount(), seed: 0, scale: 1, ...state.forms.draws };
}

/** Fit the chosen method to the data set, and draw; then play the draws if `plays`. */
export async function fit({ plays = false } = {}) {
  if (chosenMethod().makes === 'embedding') return embed(chosenMethod());
  return runWork(async () => {
    const method = chosenMethod();
    const body = { ...state.forms[method.name], dataset: state.dataset.id, method: method.name };
    const answer = await askJson(method.links.create, { method: 'POST', body }); // what is shown stays if it is refused
    clearResults();
    set({ view: 'draws' });
    await show(answer.kind ? await followFit(answer) : answer);
    await draw({ plays });
  });
}

/** Follow a fit to its posterior; meanwhile the address has the job. */
export async function followFit(job) {
  set({ job: job.id });
  writeLink({ isRunning: true });
  await follow(job, 'Fitting');
  return askJson(`/v1/posteriors/${job.posterior}`);
}

/** Draw again from the current posterior. */
export const drawAgain = () => runWork(draw);

/** Show a posterior: its reference embedding and its neighbors. */
export async function show(posterior) {
  const here = `/v1/posteriors/${posterior.id}/arrays`;
  const embedding = await askArray(`${here}?name=embedding&dtype=float32`, 'Reading the map');
  requireData(posterior.dataset);
  set({ posterior, job: null, reference: embedding.data, announcement: 'The fit is done.' });
  fold();
  writeLink();
  const neighbors = await askArray(`${here}?name=neighbors`, 'Reading the map', { floats: false });
  if (state.posterior === posterior) set({ neighbors: { k: neighbors.shape[1], data: neighbors.data } });
}

/**
 * Draw, request the summary of the draws, and audit their map; `onDrawn` is called once the draws are there.
 * @param {{plays?: boolean, onDrawn?: () => void}} options
 */
export async function draw({ plays = false, onDrawn } = {}) {
  const { id } = state.posterior;
  const { n_draws: count, seed, scale } = drawSettings();
  set({ draws: null, summary: null, playing: false, frame: -1 });
  const made = await makeDraws(id, { n_draws: count, seed, scale }, `Drawing ${count} embeddings`);
  if (state.posterior?.id !== id) return;
  set({
    draws: { ...made, count, seed, scale: made.scales[0], isAuto: scale === 'auto' },
    announcement: `${count} draws are ready.`,
  });
  onDrawn?.();
  if (plays && !matchMedia('(prefers-reduced-motion: reduce)').matches) set({ playing: 'once' });
  writeLink();
  if (count > 1) await summarize(id, made.scales[0]);
  await auditFirst();
}

/** Create the draws as one job, and fetch them in one response. */
async function makeDraws(id, body, label) {
  const job = await follow(await askJson(`/v1/posteriors/${id}/draws`, { method: 'POST', body }), label);
  const { shape, data, headers } = await askArray(`/v1/jobs/${job.id}/result?dtype=float32`, label);
  const scales = (headers.get('Glle-Scale') ?? '1').split(',').map(Number);
  const [n, p] = shape.slice(-2);
  const notes = (headers.get('Glle-Notes') ?? '').split(', ').filter(Boolean);
  return { n, p, data, scales, notes };
}

/** Fetch spread, stability and consensus of the shown draws. */
async function summarize(id, scale) {
  const { n_draws: count, seed } = drawSettings();
  const query = `n_draws=${count}&seed=${seed}&scale=${scale}&dtype=float32&wait=0`;
  const path = `/v1/posteriors/${id}/summary?${query}`;
  const answer = await askMade(path, NPZ, 'Measuring the spread');
  const found = readNpz(await answer.arrayBuffer());
  if (state.posterior?.id !== id) return;
  const summary = Object.fromEntries(Object.entries(found).map(([name, { data }]) => [name, asFloats(data)]));
  set({ summary: { ...summary, count }, announcement: 'The spread of every point is known.' });
}
