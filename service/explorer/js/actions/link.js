/** The link that reproduces the view: the part of the address behind the #. */

import { state } from '../store.js';

const VIEWS = new Set(['draws', 'grid', 'scales']);
const SHAPES = new Set(['none', 'halo', 'ellipse']);

/** Read the address; null when it names nothing. */
export function readLink() {
  const told = new URLSearchParams(location.hash.slice(1));
  const posterior = told.get('posterior');
  if (!posterior) return null;
  const scale = told.get('scale') ?? '1';
  return {
    posterior,
    seed: whole(told.get('seed'), 0),
    count: Math.max(1, whole(told.get('count'), 24)),
    scale: scale === 'auto' ? scale : Number(scale) || 0,
    frame: whole(told.get('frame'), 0),
    view: VIEWS.has(told.get('view')) ? told.get('view') : 'draws',
    color: told.get('color') ?? 'auto',
    shape: SHAPES.has(told.get('shape')) ? told.get('shape') : 'none',
  };
}

/** The address of what is shown. */
export function linkHere() {
  const { posterior, draws } = state;
  if (!posterior || !draws) return `${location.origin}${location.pathname}`;
  const told = new URLSearchParams({
    posterior: posterior.id,
    seed: draws.seed,
    count: draws.count,
    scale: draws.scale,
    frame: Math.max(0, state.frame),
    view: VIEWS.has(state.view) ? state.view : 'draws',
    color: state.color,
    shape: state.shape,
  });
  return `${location.origin}${location.pathname}#${told}`;
}

/** Put the view into the address, without a step in the browser's history. */
export function writeLink() {
  if (state.posterior && state.draws) history.replaceState(null, '', linkHere());
}

function whole(text, otherwise) {
  const number = Number.parseInt(text ?? '', 10);
  return Number.isFinite(number) && number >= 0 ? number : otherwise;
}
