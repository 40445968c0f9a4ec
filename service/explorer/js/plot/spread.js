/** Spread of points over the draws, in the frame in which the draws are shown. */

import { HALF, placeOf } from '../lib/frames.js';

/**
 * Mean and covariance of the places of a row over the draws, in the box.
 * @returns {{x: number, y: number, a: number, b: number, c: number}} the covariance is [[a, b], [b, c]]
 */
export function momentsOf(row, { data, count, n, p }, directions, box) {
  const places = Array.from({ length: count }, (_, draw) =>
    placeOf(data.subarray(draw * n * p, (draw + 1) * n * p), row, p, directions, box));
  const [x, y] = [0, 1].map((side) => places.reduce((sum, place) => sum + place[side], 0) / count);
  let [a, b, c] = [0, 0, 0];
  for (const [px, py] of places) {
    a += (px - x) ** 2;
    b += (px - x) * (py - y);
    c += (py - y) ** 2;
  }
  const free = Math.max(1, count - 1);
  return { x, y, a: a / free, b: b / free, c: c / free };
}

/**
 * An ellipse of these moments: half axes in the box, and the angle of the longer one; it holds half of a normal
 * distribution.
 */
export function contourOf({ x, y, a, b, c }) {
  const middle = (a + c) / 2;
  const apart = Math.hypot((a - c) / 2, b);
  const [long, short] = [middle + apart, middle - apart].map((value) => Math.sqrt(Math.max(0, value)) * HALF);
  return { x, y, long, short, angle: 0.5 * Math.atan2(2 * b, a - c) };
}
