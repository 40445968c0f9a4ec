/** From a data set to its draws: fit, reference embedding, draws and their summary. */

import { askJson, NPZ } from '../api.js';
import { asFloats } from '../lib/npy.js';
import { readNpz } from '../lib/npz.js';
import { askArray, askMade, follow } from '../jobs.js';
import { set, state } from '../store.js';
import { embed } from './compare.js';
import { choose } from './data.js';
import { writeLink } from './link.js';
import { clearResults, runWork } from './state.js';

/** The scales of the paper's figure 4, and the number of draws at each. */
export const SCALES = [0.01, 0.1, 1, 5, 10];
export const DRAWS_A_SCALE = 4;
const MOST_FLOATS = 24e6; // of draws, so that a tab stays under 100 MB

/** The entry of the chosen method. */
export const chosenMethod = () => chosen(state.method);

const chosen = (name) => state.methods.find((method) => method.name === name);

/** Default number of draws, within the memory of a tab. */
export function defaultCount() {
  const floats = (state.dataset?.n ?? 1) * 2;
  return Math.max(2, Math.min(24, Math.floor(MOST_FLOATS / floats)));
}

/** Values of the form of draws, with its defaults. */
export function drawsAsked() {
  return { count: defaultCount(), seed: 0, scale: 1, ...state.forms.draws };
}

/** Fit the chosen method to the data set, and draw. */
export async function fit() {
  if (chosenMethod().makes === 'embedding') return embed(chosenMethod());
  return runWork(async () => {
    const method = chosenMethod();
    const body = { ...state.forms[method.name], dataset: state.dataset.id, method: method.name };
    clearResults();
    set({ view: 'draws' });
    let answer = await askJson(method.links.create, { method: 'POST', body });
    if (answer.kind) {
      await follow(answer, 'Fitting');
      answer = await askJson(`/v1/posteriors/${answer.posterior}`);
    }
    await open(answer);
    await draw();
  });
}

/** Draw again from the current posterior. */
export async function drawAgain() {
  await runWork(draw);
}

/** Open the posterior and the view of a link. */
export async function openLinked(link) {
  await runWork(async () => {
    const posterior = await askJson(`/v1/posteriors/${link.posterior}`);
    const dataset = await askJson(`/v1/datasets/${posterior.dataset}`);
    await choose(dataset);
    const { method } = posterior.spec;
    const { count, seed, scale } = link;
    set({ method, forms: { ...state.forms, [method]: changedFrom(method, posterior.spec), draws: { count, seed, scale } } });
    await open(posterior);
    await draw();
    set({ frame: Math.min(link.frame, state.draws.count), view: link.view, color: link.color, shape: link.shape });
    if (link.view === 'scales') await drawScales();
  });
}

/** The settings that differ from the defaults of the method's schema. */
function changedFrom(method, spec) {
  const { properties } = chosen(method).parameters;
  const isOwn = ([name, value]) => name !== 'method' && name in properties && properties[name].default !== value;
  return Object.fromEntries(Object.entries(spec).filter(isOwn));
}

/** Draw at each scale of the grid. */
export async function drawScales() {
  if (state.scales || !state.posterior) return;
  await runWork(async () => {
    const { id } = state.posterior;
    const { seed } = drawsAsked();
    const body = { count: DRAWS_A_SCALE, seed, scales: SCALES };
    const made = await drawn(id, body, 'Drawing at five scales');
    if (state.posterior?.id === id) set({ scales: { ...made, scales: SCALES, seed } });
  });
}

/** Show a posterior: its reference embedding and its neighbors. */
async function open(posterior) {
  const here = `/v1/posteriors/${posterior.id}/arrays`;
  const embedding = await askArray(`${here}?name=embedding&dtype=float32`, 'Fitting again');
  set({ posterior, reference: embedding.data, announcement: 'The fit is done.' });
  const neighbors = await askArray(`${here}?name=neighbors`, 'Fitting again', { floats: false });
  if (state.posterior === posterior) set({ neighbors: { k: neighbors.shape[1], data: neighbors.data } });
}

/** Draw, then request the summary of the draws. */
async function draw() {
  const { id } = state.posterior;
  const { count, seed, scale } = drawsAsked();
  set({ draws: null, summary: null, playing: false, frame: 0 });
  const made = await drawn(id, { count, seed, scale }, `Drawing ${count} embeddings`);
  if (state.posterior?.id !== id) return;
  set({ draws: { ...made, count, seed, first: 0, scale: made.scales[0] }, announcement: `${count} draws are ready.` });
  writeLink();
  if (count > 1) await summarise(id, made.scales[0]);
}

/** Create the draws as one job, and fetch them in one response. */
async function drawn(id, body, label) {
  const job = await follow(await askJson(`/v1/posteriors/${id}/draws`, { method: 'POST', body }), label);
  const { shape, data, headers } = await askArray(`/v1/jobs/${job.id}/result?dtype=float32`, label);
  const scales = (headers.get('Glle-Scale') ?? '1').split(',').map(Number);
  const [n, p] = shape.slice(-2);
  return { n, p, data, scales };
}

/** Fetch spread, stability, consensus and spectrum of the shown draws. */
async function summarise(id, scale) {
  const { count, seed } = drawsAsked();
  const query = new URLSearchParams({ count, seed, scale, dtype: 'float32' });
  const path = `/v1/posteriors/${id}/summary?${query}`;
  const answer = await askMade(path, NPZ, 'Measuring the spread');
  const found = readNpz(await answer.arrayBuffer());
  if (state.posterior?.id !== id) return;
  const summary = Object.fromEntries(Object.entries(found).map(([name, { data }]) => [name, asFloats(data)]));
  set({ summary: { ...summary, count }, announcement: 'The spread of every point is known.' });
}
