/** Overlay of the points: spread, density, trails, neighbors, and the point under the pointer. */

import { dimension, directionsOf, embeddingOf, placeOf, points } from '../lib/frames.js';
import { neighborsOf } from '../actions/selection.js';
import { resizeCanvas } from '../lib/paint.js';
import { state } from '../store.js';
import { densitiesOf } from './density.js';
import { contourOf, momentsOf, movedMomentsOf } from './spread.js';

export const MAX_SHAPES = 100; // more would cover each other
export const MAX_TRAILS = 150;
const TAU = 2 * Math.PI;

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
  const context = resizeCanvas(canvas, width, height);
  if (!xy) return;
  const ratio = canvas.width / width;
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  drawMarks(context, { width, height }, xy, screen, box, look, colors);
  context.setTransform(1, 0, 0, 1, 0, 0);
}

/** Draw the marks of the overlay by a context of a canvas or of SVG. */
export function drawMarks(context, { width, height }, xy, screen, box, look, colors) {
  const p = dimension();
  const view = { screen, box, look, colors, p, directions: directionsOf(p, state.axes, state.turn) };
  const at = (row) => [screen.x + screen.sx * xy[2 * row], screen.y + screen.sy * xy[2 * row + 1]];
  const only = state.selection?.list.length === 1 ? state.selection.list[0] : -1;
  const hover = state.hover < points() ? state.hover : -1;
  const hasSpread = state.draws?.count > 1 && !state.single;
  const hasRegions = state.single ? state.movement : hasSpread && state.reliability; // whose reliability the headline says
  if (hasSpread && hasRegions && state.shape === 'density') drawDensities(context, view);
  if (hasRegions && ['halo', 'ellipse'].includes(state.shape)) drawShapes(context, view);
  if (hasSpread && state.trails) drawTrails(context, view);
  if (only >= 0) drawNeighbors(context, at, only, view, 0.75);
  if (hover >= 0 && hover !== only) drawNeighbors(context, at, hover, view, 0.35);
  if (hasRegions) drawContours(context, at, hover, view);
  for (const row of new Set([only, hover])) if (row >= 0) drawRing(context, at(row), colors);
  if (state.turn) drawAxes(context, width, height, view);
}

/** The ellipse of a row's spread or movement on the screen, which shares the frame of the picture; traced as the current path. */
function traceContour(context, row, { screen, box, directions }) {
  const { x, y, long, short, angle } = state.single
    ? contourOf(movedMomentsOf(row, state.movement, directions, box), 1)
    : contourOf(momentsOf(row, state.draws, directions, box));
  const unit = Math.abs(screen.sx);
  context.beginPath();
  context.ellipse(screen.x + screen.sx * x, screen.y + screen.sy * y, long * unit, short * unit, -angle, 0, TAU);
  return [screen.x + screen.sx * x, screen.y + screen.sy * y];
}

/** Thin contours of the selected points and of the one under the pointer, with a line from the average to the dot. */
function drawContours(context, at, hover, view) {
  const rows = new Set(state.selection && state.shape !== 'ellipse' ? shapedPoints(points(), state.selection, MAX_SHAPES) : []);
  if (hover >= 0) rows.add(hover);
  for (const row of rows) {
    const isLoud = row === hover || rows.size <= 2;
    context.strokeStyle = isLoud ? view.colors.ink : view.look.palette[view.look.index[row]];
    context.lineWidth = 1;
    context.globalAlpha = isLoud ? 0.9 : rows.size > 30 ? 0.4 : 0.7;
    const middle = traceContour(context, row, view);
    context.stroke();
    if (!isLoud) continue;
    context.setLineDash([2, 3]);
    context.beginPath();
    context.moveTo(...middle);
    context.lineTo(...at(row));
    context.stroke();
    context.setLineDash([]);
  }
  context.globalAlpha = 1;
}

/** A halo as wide as the spread or the movement, or an ellipse, around the average place. */
function drawShapes(context, view) {
  const rows = shapedPoints(points(), state.selection, MAX_SHAPES);
  const isEllipse = state.shape === 'ellipse' && view.p > 1;
  const unit = Math.abs(view.screen.sx);
  context.lineWidth = 1;
  for (const row of rows) {
    const color = view.look.palette[view.look.index[row]];
    if (isEllipse) traceContour(context, row, view);
    else {
      const { x, y, a, c } = state.single
        ? movedMomentsOf(row, state.movement, view.directions, view.box)
        : momentsOf(row, state.draws, view.directions, view.box);
      context.beginPath();
      context.arc(view.screen.x + view.screen.sx * x, view.screen.y + view.screen.sy * y, Math.sqrt(a + c) * unit, 0, TAU);
    }
    context.globalAlpha = 0.14;
    context.fillStyle = color;
    context.fill();
    if (isEllipse) {
      context.globalAlpha = 0.7;
      context.strokeStyle = color;
      context.stroke();
    }
  }
  context.globalAlpha = 1;
}

let measured = { key: [], densities: [] }; // the last densities, which change only with their inputs

/** The densities of the shown draws, by label. */
export function densitiesHere({ look, directions, box }) {
  const key = [state.draws, look, state.selection, box.half[0], ...box.center, ...directions.flat()];
  if (key.length !== measured.key.length || key.some((value, i) => value !== measured.key[i])) {
    measured = { key, densities: densitiesOf({ draws: state.draws, look, mask: state.selection?.mask ?? null, directions, box }) };
  }
  return measured.densities;
}

/** For each label the contour of the smallest region with half of its places over all draws. */
function drawDensities(context, view) {
  const { screen, look, colors } = view;
  context.lineWidth = 2;
  context.lineCap = 'round';
  for (const { index, lines } of densitiesHere(view)) {
    context.strokeStyle = index < 0 ? colors.ink : look.palette[index];
    context.beginPath();
    for (const [x, y, u, v] of lines) {
      context.moveTo(screen.x + screen.sx * x, screen.y + screen.sy * y);
      context.lineTo(screen.x + screen.sx * u, screen.y + screen.sy * v);
    }
    context.stroke();
  }
}

/** The path of a point through all draws. */
function drawTrails(context, { screen, box, look, p, directions }) {
  const rows = shapedPoints(points(), state.selection, MAX_TRAILS);
  const wanted = !state.selection && state.hover >= 0 ? [state.hover] : rows;
  const frames = Array.from({ length: state.draws.count }, (_, draw) => embeddingOf(draw + 1));
  context.lineWidth = 1;
  context.lineJoin = 'round';
  context.globalAlpha = wanted.length > 20 ? 0.35 : 0.7;
  for (const row of wanted) {
    context.strokeStyle = look.palette[look.index[row]];
    context.beginPath();
    for (const embedding of frames) {
      const [x, y] = placeOf(embedding, row, p, directions, box);
      context.lineTo(screen.x + screen.sx * x, screen.y + screen.sy * y);
    }
    context.stroke();
  }
  context.globalAlpha = 1;
}

/** Lines from a point to its neighbors in the data, and their dots. */
function drawNeighbors(context, at, row, { look, colors }, opacity) {
  const rows = neighborsOf(row);
  context.strokeStyle = colors.ink;
  context.lineWidth = 1.2;
  context.globalAlpha = opacity;
  context.beginPath();
  for (const other of rows) {
    context.moveTo(...at(row));
    context.lineTo(...at(other));
  }
  context.stroke();
  context.globalAlpha = 1;
  for (const other of rows) {
    context.fillStyle = look.palette[look.index[other]];
    context.beginPath();
    context.arc(...at(other), 4, 0, TAU);
    context.fill();
  }
}

/** A ring around a point. */
function drawRing(context, [x, y], { ink }) {
  context.strokeStyle = ink;
  context.lineWidth = 1.5;
  context.beginPath();
  context.arc(x, y, 7, 0, TAU);
  context.stroke();
}

/** The three axes of a turned view, at the lower right. */
function drawAxes(context, width, height, { directions: [u, v], colors }) {
  const [x, y, long] = [width - 46, height - 46, 26];
  context.strokeStyle = colors.muted;
  context.fillStyle = colors.muted;
  context.font = '11px system-ui, sans-serif';
  context.textAlign = 'center';
  context.textBaseline = 'middle';
  context.lineWidth = 1.2;
  for (let axis = 0; axis < 3; axis++) {
    const [dx, dy] = [u[axis], -v[axis]];
    context.beginPath();
    context.moveTo(x, y);
    context.lineTo(x + long * dx, y + long * dy);
    context.stroke();
    context.fillText(String(axis + 1), x + (long + 9) * dx, y + (long + 9) * dy);
  }
}
