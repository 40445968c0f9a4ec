/** Link that reproduces the view, in the fragment of the address: data, running job, posterior, draws, comparison. */

import { state } from '../store.js';

const VIEWS = new Set(['draws', 'grid', 'scales', 'compare']);
const SHAPES = new Set(['none', 'halo', 'ellipse', 'density']);

/** Read the link of the address, or null. */
export function readLink() {
  const query = new URLSearchParams(location.hash.slice(1));
  const found = Object.fromEntries(['dataset', 'job', 'posterior', 'comparison'].map((name) => [name, query.get(name)]));
  if (!Object.values(found).some(Boolean)) return null;
  const scale = query.get('scale') ?? '1';
  return {
    ...found,
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
  const { dataset, job, posterior, draws, forms, comparisonJob } = state;
  const query = new URLSearchParams();
  const put = (values) => Object.entries(values).forEach(([name, value]) => value !== undefined && query.set(name, value));
  if (posterior) put({ posterior: posterior.id });
  else if (dataset) put({ dataset: dataset.id, ...(job && { job }) });
  if (posterior || job) {
    const { seed, count, scale, isAuto } = draws ?? forms.draws ?? {};
    put({ seed, count, scale: isAuto ? 'auto' : scale });
  }
  if (comparisonJob) put({ comparison: comparisonJob });
  if (posterior && draws) put({ frame: Math.max(0, state.frame) });
  if (posterior || job || comparisonJob) put({ view: !posterior && !job ? 'compare' : state.view, color: state.color, shape: state.shape });
  const text = String(query);
  return `${location.origin}${location.pathname}${location.search}${text && `#${text}`}`;
}

/** Write the view to the address, without an entry in the browser's history. */
export function writeLink() {
  const here = linkHere();
  if (here !== location.href) history.replaceState(null, '', here);
}

function whole(text, otherwise) {
  const number = Number.parseInt(text ?? '', 10);
  return Number.isFinite(number) && number >= 0 ? number : otherwise;
}
