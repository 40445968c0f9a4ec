/** Overlay of the points: spread, trails, and the point under the pointer. */

import { dimension, embeddingOf, MARGIN, points, zoomOf } from '../lib/frames.js';
import { neighborsOf } from '../actions/selection.js';
import { fitted } from '../lib/paint.js';
import { state } from '../store.js';

export const MOST_SHAPES = 100; // more would cover each other
export const MOST_TRAILS = 150;
const TAU = 2 * Math.PI;
const DEVIATIONS = Math.sqrt(-2 * Math.log(1 - 0.5)); // the ellipse that holds half of a normal law's draws

/** The rows with an overlay: of the selected points or of all, an even sample of at most `most`. */
function shapedPoints(n, selection, most) {
  const count = selection ? selection.list.length : n;
  const step = Math.max(1, count / most);
  return Array.from({ length: Math.min(count, most) }, (_, i) => {
    const place = Math.floor(i * step);
    return selection ? selection.list[place] : place;
  });
}

/** Draw the overlay: `xy` are positions in the box, `screen` maps the box to the page. */
export function drawOverlay(canvas, { width, height }, xy, screen, box, look, colors) {
  const context = fitted(canvas, width, height);
  if (!xy) return;
  const ratio = canvas.width / width;
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  const at = (row) => [screen.x + screen.sx * xy[2 * row], screen.y + screen.sy * xy[2 * row + 1]];
  const middle = (row) => onScreen(state.summary.consensus, row, screen, box);
  if (state.shape !== 'none' && state.summary) drawShapes(context, middle, screen, box, look);
  if (state.trails && state.draws) drawTrails(context, screen, box, look);
  if (state.hover >= 0 && state.hover < points()) drawHover(context, at, colors);
  context.setTransform(1, 0, 0, 1, 0, 0);
}

/** Position of a point on the screen. */
function onScreen(embedding, row, screen, box) {
  const p = dimension();
  const [i, j] = state.axes;
  const x = (embedding[row * p + i] - box.center[0]) * zoomOf(box);
  const y = p === 1 ? (row - box.center[1]) * (MARGIN / box.half[1]) : (embedding[row * p + j] - box.center[1]) * zoomOf(box);
  return [screen.x + screen.sx * x, screen.y + screen.sy * y];
}

/** A halo as wide as the spread, or the ellipse of the covariance, around the consensus. */
function drawShapes(context, middle, screen, box, look) {
  const rows = shapedPoints(points(), state.selection, MOST_SHAPES);
  const unit = Math.abs(screen.sx) * zoomOf(box);
  const p = dimension();
  const isEllipse = state.shape === 'ellipse' && p > 1;
  context.lineWidth = 1;
  for (const row of rows) {
    const [x, y] = middle(row);
    const color = look.palette[look.index[row]];
    context.beginPath();
    if (isEllipse) ellipse(context, x, y, row, p, unit);
    else context.arc(x, y, state.summary.spread[row] * unit, 0, TAU);
    context.globalAlpha = rows.length <= 150 ? 0.14 : isEllipse ? 0.06 : 0.025;
    context.fillStyle = color;
    context.fill();
    if (isEllipse) {
      context.globalAlpha = rows.length > 150 ? 0.4 : 0.7;
      context.strokeStyle = color;
      context.stroke();
    }
  }
  context.globalAlpha = 1;
}

/** Trace the ellipse in which half of the draws lie, of a normal law with the point's covariance. */
function ellipse(context, x, y, row, p, unit) {
  const { covariance } = state.summary;
  const [i, j] = state.axes;
  const start = row * p * p;
  const a = covariance[start + i * p + i];
  const b = covariance[start + i * p + j];
  const c = covariance[start + j * p + j];
  const middle = (a + c) / 2;
  const apart = Math.hypot((a - c) / 2, b);
  const long = Math.sqrt(Math.max(0, middle + apart)) * DEVIATIONS * unit;
  const short = Math.sqrt(Math.max(0, middle - apart)) * DEVIATIONS * unit;
  context.ellipse(x, y, long, short, -0.5 * Math.atan2(2 * b, a - c), 0, TAU);
}

/** The path of a point through all draws. */
function drawTrails(context, screen, box, look) {
  const rows = shapedPoints(points(), state.selection, MOST_TRAILS);
  const wanted = !state.selection && state.hover >= 0 ? [state.hover] : rows;
  const frames = Array.from({ length: state.draws.count }, (_, draw) => embeddingOf(draw + 1));
  context.lineWidth = 1;
  context.lineJoin = 'round';
  context.globalAlpha = wanted.length > 20 ? 0.35 : 0.7;
  for (const row of wanted) {
    context.strokeStyle = look.palette[look.index[row]];
    context.beginPath();
    for (const embedding of frames) context.lineTo(...onScreen(embedding, row, screen, box));
    context.stroke();
  }
  context.globalAlpha = 1;
}

/** A ring around the point under the pointer, and lines to its neighbors. */
function drawHover(context, at, { ink }) {
  const [x, y] = at(state.hover);
  context.strokeStyle = ink;
  context.lineWidth = 1;
  context.globalAlpha = 0.35;
  context.beginPath();
  for (const row of neighborsOf(state.hover)) {
    const [nx, ny] = at(row);
    context.moveTo(x, y);
    context.lineTo(nx, ny);
  }
  context.stroke();
  context.globalAlpha = 1;
  context.lineWidth = 1.5;
  context.beginPath();
  context.arc(x, y, 7, 0, TAU);
  context.stroke();
}
