/**
 * Density of positions in the box, and its contours: closed rings around the smallest region that holds a share of
 * them.
 */

import { blur2, contours } from '../../vendor/d3-contour-4.0.3.min.js';
import { placeOf } from '../lib/frames.js';

const SHARE = 0.5; // of the positions of a label within its contour
const MAX_CELLS = 160; // along the longer side of a grid
const CELLS_PER_BANDWIDTH = 2.5;
const MAIN_SHARE = 0.2; // of the area of the largest piece
const MAX_POSITIONS = 400000; // of one label; more change nothing that is seen
const BANDWIDTHS = [0.02, 0.1]; // smallest and largest bandwidth in the box

/**
 * The density of each class by the index of the rows, or of all points if there is one class.
 * @param {{draws: {data: Float32Array, count: number, n: number, p: number}, classes: number, index: Uint16Array,
 *   mask: Uint8Array | null, hidden: Uint8Array | undefined, directions: number[][], box: object}} inputs
 * @returns {{index: number, rings: number[][][]}[]} rings of points [x, y] in the box
 */
export function densitiesOf({ draws, classes, index: classOf, mask, hidden, directions, box }) {
  const rows = Array.from({ length: classes }, () => []);
  for (let row = 0; row < draws.n; row++)
    if ((!mask || mask[row]) && !hidden?.[row]) rows[classes > 1 ? classOf[row] : 0].push(row);
  return rows
    .map(
      (list, index) =>
        list.length > 2 && {
          index: classes > 1 ? index : -1,
          rings: contourOf(positionsOf(list, draws, directions, box), { share: SHARE }).flat(),
        },
    )
    .filter(Boolean);
}

/** The positions of some rows in all embeddings, in the box: [x, y] pairs. */
function positionsOf(rows, { data, count, n, p }, directions, box) {
  const step = Math.max(1, Math.ceil((rows.length * count) / MAX_POSITIONS));
  const positions = [];
  for (let draw = 0; draw < count; draw++) {
    const embedding = data.subarray(draw * n * p, (draw + 1) * n * p);
    for (let i = draw % step; i < rows.length; i += step)
      positions.push(placeOf(embedding, rows[i], p, directions, box));
  }
  return positions;
}

/**
 * The contour of the smallest region that holds a share of the positions, on a grid over these positions alone.
 * @param {number[][]} positions - in the box
 * @param {{share: number, bandwidth?: number}} options - the default bandwidth in the box is Scott's
 * @returns {number[][][][]} polygons, each with an outer ring and the rings of its holes, of points [x, y] in the box
 */
export function contourOf(positions, { share, bandwidth = scott(positions) }) {
  const [x, y] = [0, 1].map((side) => extentOf(positions, side));
  const longest = Math.max(x[1] - x[0], y[1] - y[0]) + 6 * bandwidth;
  const cell = Math.max(bandwidth / CELLS_PER_BANDWIDTH, longest / MAX_CELLS);
  const [left, low] = [x, y].map(([from]) => from - 3 * Math.max(bandwidth, cell));
  const [columns, lines] = [x, y].map(
    ([from, to]) => Math.ceil((to - from + 6 * Math.max(bandwidth, cell)) / cell) + 1,
  );
  const counts = new Float32Array(columns * lines);
  for (const [u, v] of positions) counts[Math.floor((v - low) / cell) * columns + Math.floor((u - left) / cell)]++;
  const deviation = bandwidth / cell;
  const radius = (Math.sqrt(4 * deviation * deviation + 1) - 1) / 2; // of the box filters whose sum has this deviation
  const { data } = blur2({ data: counts.slice(), width: columns, height: lines }, radius);
  const { coordinates } = contours().size([columns, lines]).contour(data, levelOf(data, counts, share));
  return coordinates.map((polygon) => polygon.map((ring) => ring.map(([u, v]) => [left + u * cell, low + v * cell])));
}

/** The main pieces of a contour, largest first: the largest polygon, and those with a fifth of its area. */
export function mainPieces(polygons) {
  const sized = polygons.map((polygon) => ({ polygon, area: areaOf(polygon[0]) })).sort((a, b) => b.area - a.area);
  return sized.filter(({ area }) => area >= MAIN_SHARE * sized[0].area).map(({ polygon }) => polygon);
}

/** The area within a ring. */
function areaOf(ring) {
  return (
    Math.abs(
      ring.reduce((sum, [x, y], i) => sum + x * ring[(i + 1) % ring.length][1] - y * ring[(i + 1) % ring.length][0], 0),
    ) / 2
  );
}

function extentOf(positions, side) {
  return positions.reduce(
    ([from, to], position) => [Math.min(from, position[side]), Math.max(to, position[side])],
    [Infinity, -Infinity],
  );
}

/** Scott's bandwidth for two dimensions, within bounds. */
function scott(positions) {
  const variances = [0, 1].map((side) => {
    const mean = positions.reduce((sum, position) => sum + position[side], 0) / positions.length;
    return positions.reduce((sum, position) => sum + (position[side] - mean) ** 2, 0) / positions.length;
  });
  const [least, most] = BANDWIDTHS;
  return Math.min(most, Math.max(least, Math.sqrt((variances[0] + variances[1]) / 2) * positions.length ** (-1 / 6)));
}

/** The largest value above which the cells hold a share of the counted positions (Hyndman 1996). */
function levelOf(values, counts, share) {
  const cells = Array.from(counts.keys()).filter((cell) => counts[cell] > 0).sort((a, b) => values[b] - values[a]);
  const total = cells.reduce((sum, cell) => sum + counts[cell], 0);
  let sum = 0;
  for (const cell of cells) if ((sum += counts[cell]) >= share * total) return values[cell];
  return 0;
}
