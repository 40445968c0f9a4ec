/**
 * Link that reproduces the view, in the fragment of the address: one table of its members for reading and for writing.
 */

import { set, state, subscribe } from '../store.js';
import { changedFrom } from '../methods.js';

const MAX_ROWS = 1000; // of a selection in a link
const PAUSE = 300; // milliseconds between two changes of the look in the address, whose number browsers limit

const text = (value) => value;
const oneOf = (...names) => (value) => (names.includes(value) ? value : names[0]);
const whole = (otherwise) => (value) => (/^\d+$/.test(value ?? '') ? Number(value) : otherwise);
const numbers = (otherwise) => (value) => value?.split('.').map(Number) ?? otherwise;
const json = (otherwise) => (value) => {
  try {
    return JSON.parse(value) ?? otherwise;
  } catch {
    return otherwise;
  }
};

/**
 * The parameters of the address: a function that reads the text of each, and one that takes its value from the state. A
 * false value other than 0 is left out.
 * @type {Record<string, [(value: string | null) => any, (now: import('../store.js').State) => any]>}
 */
const MEMBERS = {
  dataset: [text, ({ dataset }) => dataset?.id],
  posterior: [text, ({ posterior }) => posterior?.id],
  job: [text, ({ posterior, job }) => !posterior && job],
  example: [text, ({ single }) => single?.isExample && single.body.method],
  coordinates: [text, ({ single }) => single?.body.coordinates],
  made: [text, ({ single }) => single?.body.coordinates && single.body.method],
  fit: [json({}), ({ posterior, job, single }) => (posterior || job) && !single?.isGiven && JSON.stringify(fitHere())],
  seed: [whole(undefined), (now) => drawsOf(now)?.seed],
  n_draws: [(value) => whole(undefined)(value) || undefined, (now) => drawsOf(now)?.n_draws],
  scale: [(value) => (value === 'auto' ? value : value && (Number(value) || 0)), (now) => drawsOf(now)?.scale],
  comparison: [text, ({ comparisonJob }) => comparisonJob],
  method: [text, ({ comparisonJob, single }) => comparisonJob && single?.label],
  frame: [
    whole(-1),
    ({ posterior, draws, playing, frame }) => posterior && draws && (playing === 'once' ? -1 : frame),
  ],
  audit: [text, ({ isAudited }) => isAudited && '1'],
  blocks: [text, ({ blocks }) => blocks],
  axes: [numbers([0, 1]), ({ axes }) => axes.join('.') !== '0.1' && axes.join('.')],
  turn: [json(null), ({ turn }) => turn && JSON.stringify(turn.map((side) => side.map((x) => Number(x.toFixed(4)))))],
  rows: [numbers([]), ({ selection }) => selection?.list.length <= MAX_ROWS && selection.list.join('.')],
  view: [oneOf('draws', 'grid', 'compare'), (now) => isShown(now) && (hasMap(now) ? now.view : 'compare')],
  color: [(value) => value ?? 'auto', (now) => isShown(now) && now.color],
  content: [(value) => value ?? 'auto', (now) => now.content !== 'auto' && now.content],
  filters: [json(null), ({ filters }) => filters && JSON.stringify(filters)],
  hidden: [json([]), ({ hidden }) => hidden && JSON.stringify([...hidden.names])],
  shape: [oneOf('none', 'ellipse', 'density'), (now) => isShown(now) && now.shape],
};
// A change of these is an entry of the browser's history.
const PLACE = ['dataset', 'example', 'job', 'posterior', 'comparison', 'method', 'view'];

const hasMap = ({ posterior, job, single }) => posterior || job || single;
const isShown = (now) => hasMap(now) || now.comparisonJob;

/** The settings of the shown draws, or of those that will be drawn. */
function drawsOf({ posterior, job, draws, forms }) {
  if (!posterior && !job) return null;
  return draws ? { seed: draws.seed, n_draws: draws.count, scale: draws.isAuto ? 'auto' : draws.scale } : forms.draws;
}

/** The method and the settings of what is shown, or is being fitted, to fit it again if it is deleted. */
function fitHere() {
  const { posterior, single, method, forms } = state;
  if (posterior) return { method: posterior.spec.method, ...changedFrom(posterior.spec.method, posterior.spec) };
  return single
    ? { method: single.body.method, ...changedFrom(single.body.method, single.body.parameters) }
    : { method, ...forms[method] };
}

/** Read the link of the address, or null. */
export function readLink() {
  const query = new URLSearchParams(location.hash.slice(1));
  if (!['dataset', 'example', 'job', 'posterior', 'comparison'].some((name) => query.get(name))) return null;
  return Object.fromEntries(Object.entries(MEMBERS).map(([name, [read]]) => [name, read(query.get(name))]));
}

/** Address of the current view. */
export function linkHere() {
  const query = new URLSearchParams();
  for (const [name, [, write]] of Object.entries(MEMBERS)) {
    const value = write(state);
    if (value || value === 0) query.set(name, value);
  }
  const fragment = String(query);
  return `${location.origin}${location.pathname}${location.search}${fragment && `#${fragment}`}`;
}

let isHeld = false; // an address was opened during work, and waits until the work ends
export const holdAddress = (held) => {
  isHeld = held;
};

let isOpening = false; // a link is being opened: the address has its entry in the history

/**
 * Write the view to the address. A change of `PLACE` is a new entry of the history, unless `isSame`: the same place
 * with more of it. The entry of a running fit is replaced by the entry of its result.
 */
export function writeLink({ isRunning = false, isSame = false } = {}) {
  if (isOpening || isHeld) return; // the link stays until all that it names is there, also over another reload
  const here = linkHere();
  const isNew = !isSame && !history.state?.isRunning && placeOf(here) !== placeOf(location.href);
  if (here === location.href && Boolean(history.state?.isRunning) === isRunning) return;
  history[isNew ? 'pushState' : 'replaceState']({ isRunning }, '', here);
}

/** Write the look (color, frame, selection) a moment after it changes; `writeLink` writes changes of the place. */
export function followLook() {
  let later = 0;
  const write = () => {
    later = 0;
    const here = linkHere();
    if (isOpening || isHeld || state.playing) return;
    if (here === location.href || placeOf(here) !== placeOf(location.href)) return;
    history.replaceState(history.state, '', here);
  };
  subscribe(() => (later ||= setTimeout(write, PAUSE)));
}

/** Run some work that opens the link of the address, which stays one entry of the history. */
export async function openWithin(work) {
  isOpening = true;
  picked = null;
  try {
    await work();
    if (isOpening) endOpening();
  } finally {
    isOpening = false;
  }
}

/** Whether the page still loads what the link names. */
export const isStillOpening = () => isOpening;

/** All that the link names is there, or asked for: from now on the address follows the state. */
export function endOpening() {
  isOpening = false;
  writeLink({ isSame: true });
}

let picked = null; // the view that someone has opened since the link of the address

/** The view that someone has opened since the link of the address, or null. */
export const pickedView = () => picked;

/** Show another view, which Back leaves again. */
export function openView(view) {
  picked = view;
  set({ view });
  writeLink();
}

function placeOf(address) {
  const query = new URLSearchParams(new URL(address).hash.slice(1));
  return PLACE.map((name) => query.get(name)).join();
}
