/** Embeddings as places on the page: one box for all frames, so that points move and the view does not. */

import { state } from '../store.js';

const MARGIN = 0.94;

/** The embedding behind a frame: 0 the reference, i the draw i - 1, -1 the consensus. */
export function embeddingOf(frame) {
  const { reference, draws, summary, single } = state;
  if (single) return single.data;
  if (frame === -1) return summary?.consensus ?? reference;
  if (frame === 0 || !draws) return reference;
  const size = draws.n * draws.p;
  return draws.data.subarray((frame - 1) * size, frame * size);
}

/** What a frame is called. */
export function titleOf(frame) {
  if (frame === -1) return 'Consensus';
  return frame === 0 ? 'Reference' : `Draw ${state.draws.first + frame - 1}`;
}

/** Dimension of the embedding that is shown. */
export const dimension = () => state.single?.p ?? state.posterior?.spec.n_components ?? 2;

/** Number of points that are shown. */
export const points = () => state.dataset?.n ?? 0;

/**
 * The box around embeddings of n points: centre and half of its longer side.
 * @param {Float32Array[]} embeddings
 */
export function boxOf(embeddings, n, p, axes) {
  const low = [Infinity, Infinity];
  const high = [-Infinity, -Infinity];
  for (const embedding of embeddings) {
    for (let side = 0; side < 2; side++) {
      if (axes[side] >= p) continue;
      for (let at = axes[side]; at < embedding.length; at += p) {
        const value = embedding[at];
        if (value < low[side]) low[side] = value;
        if (value > high[side]) high[side] = value;
      }
    }
  }
  if (p === 1) [low[1], high[1]] = [0, n - 1];
  const center = [(low[0] + high[0]) / 2, (low[1] + high[1]) / 2];
  const half = [(high[0] - low[0]) / 2, (high[1] - low[1]) / 2];
  const longer = p === 1 ? half : [Math.max(...half), Math.max(...half)];
  return { center, half: longer.map((side) => side || 1), extent: half };
}

/** Put an embedding into its box: x and y of each point in [-1, 1], into an array that is there. */
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
