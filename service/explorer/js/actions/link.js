/** Link that reproduces the view, in the fragment of the address: data, running job, posterior, draws, comparison. */

import { set, state } from '../store.js';
import { changedFrom } from '../methods.js';

const VIEWS = new Set(['draws', 'grid', 'compare']);
// A change of these is an entry of the browser's history.
const PLACE = ['dataset', 'example', 'job', 'posterior', 'comparison', 'method', 'view'];
const MAX_ROWS = 1000; // of a selection in a link
const SHAPES = new Set(['none', 'ellipse', 'density']);

/** Read the link of the address, or null. */
export function readLink() {
  const query = new URLSearchParams(location.hash.slice(1));
  const found = Object.fromEntries(
    ['dataset', 'example', 'coordinates', 'made', 'job', 'posterior', 'comparison', 'method', 'audit'].map((name) => [
      name,
      query.get(name),
    ]),
  );
  if (!Object.values(found).some(Boolean)) return null;
  const scale = query.get('scale') ?? '1';
  return {
    ...found,
    fit: fitOf(query.get('fit')),
    seed: whole(query.get('seed'), 0),
    n_draws: Math.max(1, whole(query.get('n_draws'), 24)),
    scale: scale === 'auto' ? scale : Number(scale) || 0,
    frame: whole(query.get('frame'), -1),
    view: VIEWS.has(query.get('view')) ? query.get('view') : 'draws',
    color: query.get('color') ?? 'auto',
    axes: query.get('axes')?.split('.').map(Number) ?? [0, 1],
    rows: query.get('rows')?.split('.').map(Number) ?? [],
    shape: SHAPES.has(query.get('shape')) ? query.get('shape') : 'none',
  };
}

/** Address of the current view. */
export function linkHere() {
  const { dataset, job, posterior, draws, forms, comparisonJob, single, playing, selection } = state;
  const query = new URLSearchParams();
  const put = (values) =>
    Object.entries(values).forEach(([name, value]) => value !== undefined && query.set(name, value));
  if (dataset) put({ dataset: dataset.id });
  if (posterior) put({ posterior: posterior.id });
  else if (job) put({ job });
  if (single?.isExample) put({ example: single.body.method });
  else if (single?.isGiven) put({ coordinates: single.body.coordinates, made: single.body.method });
  else if (posterior || job) put({ fit: JSON.stringify(fitHere()) });
  if (posterior || job) {
    const { seed, scale, isAuto } = draws ?? forms.draws ?? {};
    put({ seed, n_draws: draws ? draws.count : forms.draws?.n_draws, scale: isAuto ? 'auto' : scale });
  }
  if (comparisonJob) put({ comparison: comparisonJob, method: single?.label });
  if (posterior && draws) put({ frame: playing === 'once' ? -1 : state.frame }); // it ends at the average
  if (state.isAudited) put({ audit: 1 });
  if (state.axes.join('.') !== '0.1') put({ axes: state.axes.join('.') });
  if (selection && selection.list.length <= MAX_ROWS) put({ rows: selection.list.join('.') });
  if (posterior || comparisonJob || job || single)
    put({ view: posterior || job || single ? state.view : 'compare', color: state.color, shape: state.shape });
  const text = String(query);
  return `${location.origin}${location.pathname}${location.search}${text && `#${text}`}`;
}

/** The method and the settings of what is shown, or is being fitted, to fit it again if it is deleted. */
function fitHere() {
  const { posterior, single, method, forms } = state;
  if (posterior) return { method: posterior.spec.method, ...changedFrom(posterior.spec.method, posterior.spec) };
  return single
    ? { method: single.body.method, ...changedFrom(single.body.method, single.body.parameters) }
    : { method, ...forms[method] };
}

function fitOf(text) {
  try {
    return JSON.parse(text) ?? {};
  } catch {
    return {};
  }
}

let isOpening = false; // a link is being opened: the address has its entry in the history

/**
 * Write the view to the address; another place is an entry in the browser's history, unless it is the same with more.
 * That of a running fit is replaced by what it makes.
 */
export function writeLink({ isRunning = false, isSame = false } = {}) {
  const here = linkHere();
  const isNew = !isOpening && !isSame && !history.state?.isRunning && placeOf(here) !== placeOf(location.href);
  if (here === location.href && Boolean(history.state?.isRunning) === isRunning) return;
  history[isNew ? 'pushState' : 'replaceState']({ isRunning }, '', here);
}

/** Run some work that opens the link of the address, which stays one entry of the history. */
export async function openWithin(work) {
  isOpening = true;
  try {
    await work();
    writeLink();
  } finally {
    isOpening = false;
  }
}

/** Show another view, which Back leaves again. */
export function openView(view) {
  set({ view });
  writeLink();
}

function placeOf(address) {
  const query = new URLSearchParams(new URL(address).hash.slice(1));
  return PLACE.map((name) => query.get(name)).join();
}

function whole(text, otherwise) {
  const number = Number.parseInt(text ?? '', 10);
  return Number.isFinite(number) && number >= 0 ? number : otherwise;
}
