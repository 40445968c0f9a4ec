/** Density of the places of each label over all draws: the smallest region that holds half of them. */

import { placeOf } from '../lib/frames.js';

const CELLS = 128; // a side of the grid
const REACH = 1.25; // the grid covers the box and a margin
const SHARE = 0.5; // of the places within the contour
const MAX_PLACES = 400000; // of one label; more change nothing that is seen

/** A cell's middle in the box. */
export const middleOf = (cell) => ((cell + 0.5) / CELLS) * 2 * REACH - REACH;

/**
 * The density of each class, or of all points if the colors are no classes.
 * @param {{draws: object, look: object, mask: Uint8Array | null, hidden: Uint8Array | undefined, directions: number[][], box: object}} given
 * @returns {{index: number, values: Float32Array, level: number, lines: number[][]}[]} line segments [x, y, x, y] in the box
 */
export function densitiesOf({ draws, look, mask, hidden, directions, box }) {
  const classes = look.legend.kind === 'classes' ? look.legend.entries.length : 1;
  const rows = Array.from({ length: classes }, () => []);
  for (let row = 0; row < draws.n; row++) if ((!mask || mask[row]) && !hidden?.[row]) rows[classes > 1 ? look.index[row] : 0].push(row);
  return rows.map((list, index) => list.length > 2 && { index: classes > 1 ? index : -1, ...densityOf(list, draws, directions, box) }).filter(Boolean);
}

/** The density of the places of some rows, and the contour that holds this share of them. */
export function densityOf(rows, { data, count, n, p }, directions, box, { share = SHARE, width = null } = {}) {
  const grid = new Float32Array(CELLS * CELLS);
  const step = Math.max(1, Math.ceil((rows.length * count) / MAX_PLACES));
  let [total, sx, sy, sxx, syy] = [0, 0, 0, 0, 0];
  for (let draw = 0; draw < count; draw++) {
    const embedding = data.subarray(draw * n * p, (draw + 1) * n * p);
    for (let i = draw % step; i < rows.length; i += step) {
      const [x, y] = placeOf(embedding, rows[i], p, directions, box);
      const [column, line] = [x, y].map((value) => Math.floor(((value + REACH) / (2 * REACH)) * CELLS));
      if (column < 0 || line < 0 || column >= CELLS || line >= CELLS) continue;
      grid[line * CELLS + column]++;
      total++;
      sx += column;
      sy += line;
      sxx += column * column;
      syy += line * line;
    }
  }
  const deviation = Math.sqrt(Math.max(0, (sxx - (sx * sx) / total + syy - (sy * sy) / total) / (2 * total)));
  const scott = Math.min(6, Math.max(1.2, deviation * rows.length ** (-1 / 6))); // Scott's rule for two dimensions
  const values = smooth(grid, width ?? scott);
  const level = levelOf(values, grid, share);
  return { values, level, lines: contour(values, level) };
}

/** Convolve with a normal distribution of this width, first along the lines, then across them. */
function smooth(grid, width) {
  const reach = Math.ceil(3 * width);
  const kernel = Array.from({ length: 2 * reach + 1 }, (_, i) => Math.exp(-((i - reach) ** 2) / (2 * width * width)));
  const sum = kernel.reduce((a, b) => a + b);
  let from = grid;
  for (const [step, across] of [[1, CELLS], [CELLS, 1]]) {
    const into = new Float32Array(from.length);
    for (let line = 0; line < CELLS; line++) {
      for (let at = 0; at < CELLS; at++) {
        const value = from[line * across + at * step];
        if (!value) continue;
        for (let i = Math.max(0, at - reach); i <= Math.min(CELLS - 1, at + reach); i++) {
          into[line * across + i * step] += (value * kernel[i - at + reach]) / sum;
        }
      }
    }
    from = into;
  }
  return from;
}

/** The largest value above which the cells hold a share of the counted places (Hyndman 1996). */
function levelOf(values, counts, share) {
  const cells = Array.from(counts.keys()).filter((cell) => counts[cell] > 0).sort((a, b) => values[b] - values[a]);
  const total = cells.reduce((sum, cell) => sum + counts[cell], 0);
  let sum = 0;
  for (const cell of cells) if ((sum += counts[cell]) >= share * total) return values[cell];
  return 0;
}

/** The segments of the contour at a level, by marching squares. */
function contour(values, level) {
  const lines = [];
  const share = (a, b) => (level - a) / (b - a);
  for (let line = 0; line < CELLS - 1; line++) {
    for (let column = 0; column < CELLS - 1; column++) {
      const at = line * CELLS + column;
      const corners = [values[at], values[at + 1], values[at + CELLS + 1], values[at + CELLS]];
      const crossed = [];
      for (let side = 0; side < 4; side++) {
        const [a, b] = [corners[side], corners[(side + 1) % 4]];
        if (a >= level === b >= level) continue;
        const t = share(a, b);
        crossed.push([[column + t, line], [column + 1, line + t], [column + 1 - t, line + 1], [column, line + 1 - t]][side]);
      }
      for (let i = 0; i + 1 < crossed.length; i += 2) lines.push([...crossed[i], ...crossed[i + 1]].map(middleOf));
    }
  }
  return lines;
}
