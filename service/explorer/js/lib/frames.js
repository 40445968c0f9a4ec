/** Embeddings in one box for all frames, so that the points move and the view does not. */

import { state } from '../store.js';

export const MARGIN = 0.94;
const OUTSIDE = 0.004; // share of points at each end that may lie outside the first view
export const FAR = 0.1; // share of regions at each end that may
const LOOKED_AT = 50000;

// Radius, in standard deviations, that holds half of a normal distribution in a plane.
export const HALF = Math.sqrt(-2 * Math.log(1 - 0.5));

/** @type {{data: Float32Array, mean: Float32Array, ends: Float32Array[]}} */
let averaged = { data: null, mean: null, ends: [] };

/**
 * The average of the draws, point by point, as they are shown: each rotated to the reference.
 * @returns {{mean: Float32Array, ends: Float32Array[]}} the lower and the upper ends of the points' regions
 */
function averageOf({ data, count }) {
  if (averaged.data === data) return averaged;
  const size = data.length / count;
  const [mean, low, high] = [1, 2, 3].map(() => new Float32Array(size));
  for (let from = 0; from < data.length; from += size)
    for (let at = 0; at < size; at++) mean[at] += data[from + at] / count;
  for (let from = 0; from < data.length; from += size)
    for (let at = 0; at < size; at++) high[at] += (data[from + at] - mean[at]) ** 2 / Math.max(1, count - 1);
  for (let at = 0; at < size; at++) {
    const reach = HALF * Math.sqrt(high[at]);
    low[at] = mean[at] - reach;
    high[at] = mean[at] + reach;
  }
  averaged = { data, mean, ends: [low, high] };
  return averaged;
}

/**
 * What the view of the shown frame holds: the first as a whole, but not the outermost places of the others. The average
 * has the regions of the outlined rows as a whole, and those of most other points.
 * @param {ArrayLike<number>} rows
 */
export function outlineHere(rows) {
  const { reference, draws, single, frame } = state;
  if (single) return [single.data];
  if (!draws) return reference ? [reference] : [];
  if (frame !== -1) return [reference, draws.data];
  const [low, high] = averageOf(draws).ends;
  const p = dimension();
  const ends = [low, high]
    .flatMap((side) => Array.from(rows, (row) => Array.from(side.subarray(row * p, (row + 1) * p))))
    .flat();
  const places = embeddingOf(frame);
  const first = new Float32Array(places.length + ends.length);
  first.set(places);
  first.set(ends, places.length);
  return [first, low, high];
}

/** The embedding behind a frame: 0 the reference, i the draw i - 1, -1 the average of the draws. */
export function embeddingOf(frame) {
  const { reference, draws, single } = state;
  if (single) return single.data;
  if (frame === -1 && draws) return averageOf(draws).mean;
  if (frame === 0 || !draws) return reference;
  const size = draws.n * draws.p;
  if (part.data !== draws.data || part.frame !== frame)
    part = { data: draws.data, frame, embedding: draws.data.subarray((frame - 1) * size, frame * size) };
  return part.embedding;
}

let part = { data: null, frame: -1, embedding: null }; // the last draw, so that one draw is one array

/** Title of a frame. */
export function titleOf(frame) {
  if (frame === -1 && state.draws) return 'Average';
  return frame <= 0 ? 'Reference' : `Draw ${frame - 1}`;
}

/**
 * Dimension of the shown embedding.
 * @returns {number}
 */
export const dimension = () => state.single?.p ?? state.posterior?.spec.n_components ?? 2;

/** Number of shown points. */
export const points = () => state.dataset?.n ?? 0;

/**
 * Box around embeddings of n points: center and half of its longer side. It holds the whole first embedding, but not
 * the outermost points of the others, because a few far draws would make all else small.
 * @param {Float32Array[]} embeddings
 * @param {number} n
 * @param {number} p
 * @param {number[]} axes
 * @param {{room: number[], middle: number[], cut?: number}} place - width and height of the free part of the picture,
 *   and its middle across and upwards, in halves of the picture's shorter side
 */
export function boxOf([first, ...others], n, p, axes, { room, middle, cut = OUTSIDE } = SQUARE) {
  const sides = [0, 1].map((side) => {
    if (axes[side] >= p) return [0, n - 1];
    let [low, high] = range(first, axes[side], p);
    for (const other of others) {
      const [from, to] = inner(other, axes[side], p, cut);
      low = Math.min(low, from);
      high = Math.max(high, to);
    }
    return [low, high];
  });
  const center = sides.map(([low, high]) => (low + high) / 2);
  let half = sides.map(([low, high], side) => ((high - low) / 2 || 1) / room[side]);
  if (p > 1) half = half.fill(Math.max(...half));
  return { center: center.map((value, side) => value - (middle[side] * half[side]) / MARGIN), half };
}

const SQUARE = { room: [1, 1], middle: [0, 0] };

/** The smallest and the largest value of a coordinate. */
function range(embedding, axis, p) {
  let [low, high] = [Infinity, -Infinity];
  for (let at = axis; at < embedding.length; at += p) {
    if (embedding[at] < low) low = embedding[at];
    if (embedding[at] > high) high = embedding[at];
  }
  return [low, high];
}

/**
 * Box around three dimensions that holds the first embedding from every side: its middle, and its radius.
 * @param {Float32Array[]} embeddings
 * @param {number} n
 * @returns {{middle: number[], half: number[], center: number[]}} center is filled by `boxAlong`
 */
export function ballOf([first, ...others], n) {
  const sides = [0, 1, 2].map((axis) => boxOf([first, ...others], n, 3, [axis, axis]));
  const middle = sides.map(({ center }) => center[0]);
  let most = 0;
  for (let at = 0; at < first.length; at += 3) {
    most = Math.max(most, Math.hypot(first[at] - middle[0], first[at + 1] - middle[1], first[at + 2] - middle[2]));
  }
  const radius = Math.max(most, ...sides.map(({ half }) => half[0])) || 1;
  return { middle, half: [radius, radius], center: [0, 0] };
}

/** The ball's box, seen along two directions. */
export function boxAlong(ball, directions, { room, middle } = SQUARE) {
  const half = ball.half.map((radius) => radius / Math.min(...room));
  const shift = (side) => (middle[side] * half[side]) / MARGIN;
  const center = directions.map((direction, side) => dot(direction, ball.middle) - shift(side));
  return { ...ball, half, center };
}

const dot = (a, b) => a.reduce((sum, value, i) => sum + value * b[i], 0);

/** The two unit vectors that are shown to the right and upwards; one dimension has no upward one. */
export function directionsOf(p, axes, turn) {
  if (turn && p === 3) return turn;
  return axes.map((axis) => Array.from({ length: p }, (_, j) => Number(j === axis)));
}

/** The place of a row of an embedding in its box. */
export function placeOf(embedding, row, p, [u, v], box) {
  let [x, y] = [0, 0];
  for (let j = 0; j < p; j++) {
    x += u[j] * embedding[row * p + j];
    y += v[j] * embedding[row * p + j];
  }
  return [(x - box.center[0]) * (MARGIN / box.half[0]), ((p === 1 ? row : y) - box.center[1]) * (MARGIN / box.half[1])];
}

/** The range of a coordinate without its outermost values, from an even sample. */
function inner(embedding, axis, p, share) {
  const count = embedding.length / p;
  const step = Math.max(1, Math.ceil(count / LOOKED_AT));
  const values = Float32Array.from(
    { length: Math.floor((count - 1) / step) + 1 },
    (_, i) => embedding[i * step * p + axis],
  );
  values.sort();
  const cut = Math.floor(values.length * share);
  return [values[cut], values[values.length - 1 - cut]];
}

const AWAY = [1e4, 1e4]; // the place of hidden points, outside of every view

/** Put an embedding into its box: x and y of each point in [-1, 1], into an existing array. */
export function placeInBox(embedding, n, p, axes, box, into = new Float32Array(2 * n), turn = null) {
  const directions = directionsOf(p, axes, turn);
  const hidden = state.hidden?.mask;
  for (let row = 0; row < n; row++) {
    const place = hidden?.[row] ? AWAY : placeOf(embedding, row, p, directions, box);
    into[2 * row] = place[0];
    into[2 * row + 1] = place[1];
  }
  return into;
}
