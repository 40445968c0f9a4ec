/** Embeddings in one box for all frames, so that the points move and the view does not. */

import { state } from '../store.js';

export const MARGIN = 0.94;
const OUTSIDE = 0.004; // share of points at each end that may lie outside the first view
const LOOKED_AT = 50000;

/** The embedding behind a frame: 0 the reference, i the draw i - 1, -1 the consensus. */
export function embeddingOf(frame) {
  const { reference, draws, summary, single } = state;
  if (single) return single.data;
  if (frame === -1) return summary?.consensus ?? reference;
  if (frame === 0 || !draws) return reference;
  const size = draws.n * draws.p;
  return draws.data.subarray((frame - 1) * size, frame * size);
}

/** Title of a frame. */
export function titleOf(frame) {
  if (frame === -1) return 'Consensus';
  return frame === 0 ? 'Reference' : `Draw ${state.draws.first + frame - 1}`;
}

/** Dimension of the shown embedding. */
export const dimension = () => state.single?.p ?? state.posterior?.spec.n_components ?? 2;

/** Number of shown points. */
export const points = () => state.dataset?.n ?? 0;

/**
 * Box around embeddings of n points: center and half of its longer side. It holds the whole first embedding, but not the
 * outermost points of the others, because a few far draws would make all else small.
 * @param {Float32Array[]} embeddings
 */
export function boxOf([first, ...others], n, p, axes) {
  const sides = [0, 1].map((side) => {
    if (axes[side] >= p) return [0, n - 1];
    let [low, high] = range(first, axes[side], p);
    for (const other of others) {
      const [from, to] = inner(other, axes[side], p);
      low = Math.min(low, from);
      high = Math.max(high, to);
    }
    return [low, high];
  });
  const center = sides.map(([low, high]) => (low + high) / 2);
  const half = sides.map(([low, high]) => (high - low) / 2 || 1);
  const longer = Math.max(...half);
  return { center, half: p === 1 ? half : [longer, longer] };
}

/** The smallest and the largest value of a coordinate. */
function range(embedding, axis, p) {
  let [low, high] = [Infinity, -Infinity];
  for (let at = axis; at < embedding.length; at += p) {
    if (embedding[at] < low) low = embedding[at];
    if (embedding[at] > high) high = embedding[at];
  }
  return [low, high];
}

/** The range of a coordinate without its outermost values, from an even sample. */
function inner(embedding, axis, p) {
  const count = embedding.length / p;
  const step = Math.max(1, Math.ceil(count / LOOKED_AT));
  const values = Float32Array.from({ length: Math.floor((count - 1) / step) + 1 }, (_, i) => embedding[i * step * p + axis]);
  values.sort();
  const cut = Math.floor(values.length * OUTSIDE);
  return [values[cut], values[values.length - 1 - cut]];
}

/** Put an embedding into its box: x and y of each point in [-1, 1], into an existing array. */
export function placed(embedding, n, p, axes, box, into = new Float32Array(2 * n)) {
  const [x, y] = axes;
  const [cx, cy] = box.center;
  const fx = MARGIN / box.half[0];
  const fy = MARGIN / box.half[1];
  for (let i = 0; i < n; i++) {
    into[2 * i] = (embedding[i * p + x] - cx) * fx;
    into[2 * i + 1] = ((p === 1 ? i : embedding[i * p + y]) - cy) * fy;
  }
  return into;
}

/** Units of the box per unit of the embedding. */
export const zoomOf = (box) => MARGIN / box.half[0];
