/** Link that reproduces the view, in the fragment of the address. */

import { state } from '../store.js';

const VIEWS = new Set(['draws', 'grid', 'scales']);
const SHAPES = new Set(['none', 'halo', 'ellipse']);

/** Read the link of the address, or null. */
export function readLink() {
  const query = new URLSearchParams(location.hash.slice(1));
  const posterior = query.get('posterior');
  if (!posterior) return null;
  const scale = query.get('scale') ?? '1';
  return {
    posterior,
    seed: whole(query.get('seed'), 0),
    count: Math.max(1, whole(query.get('count'), 24)),
    scale: scale === 'auto' ? scale : Number(scale) || 0,
    frame: whole(query.get('frame'), 0),
    view: VIEWS.has(query.get('view')) ? query.get('view') : 'draws',
    color: query.get('color') ?? 'auto',
    shape: SHAPES.has(query.get('shape')) ? query.get('shape') : 'none',
  };
}

/** Address of the current view. */
export function linkHere() {
  const { posterior, draws } = state;
  if (!posterior || !draws) return `${location.origin}${location.pathname}`;
  const query = new URLSearchParams({
    posterior: posterior.id,
    seed: draws.seed,
    count: draws.count,
    scale: draws.scale,
    frame: Math.max(0, state.frame),
    view: VIEWS.has(state.view) ? state.view : 'draws',
    color: state.color,
    shape: state.shape,
  });
  return `${location.origin}${location.pathname}#${query}`;
}

/** Write the view to the address, without an entry in the browser's history. */
export function writeLink() {
  if (state.posterior && state.draws) history.replaceState(null, '', linkHere());
}

function whole(text, otherwise) {
  const number = Number.parseInt(text ?? '', 10);
  return Number.isFinite(number) && number >= 0 ? number : otherwise;
}
