/** Points on a two-dimensional canvas: circles for few, pixels for many. */

import { rgb } from './palettes.js';

/** Sizes of points by their stability, as shares of the largest. */
export const SIZES = [0.4, 0.5, 0.62, 0.74, 0.87, 1];
export const CIRCLES = 4000; // more points are painted as pixels, without shapes

/** Corners of the shapes after the circle, in radii. */
const CORNERS = [
  [[-0.9, -0.9], [0.9, -0.9], [0.9, 0.9], [-0.9, 0.9]],
  [[0, -1.2], [1.1, 0.8], [-1.1, 0.8]],
  [[0, -1.3], [1.3, 0], [0, 1.3], [-1.3, 0]],
  [[0, 1.2], [-1.1, -0.8], [1.1, -0.8]],
  [[-0.4, -1.2], [0.4, -1.2], [0.4, -0.4], [1.2, -0.4], [1.2, 0.4], [0.4, 0.4], [0.4, 1.2], [-0.4, 1.2],
    [-0.4, 0.4], [-1.2, 0.4], [-1.2, -0.4], [-0.4, -0.4]],
];

/** Add the shape of a class to a path, or to a context. */
export function trace(path, shape, x, y, radius) {
  const corners = CORNERS[shape - 1];
  path.moveTo(x + radius * (corners?.[0][0] ?? 1), y + radius * (corners?.[0][1] ?? 0));
  if (!corners) path.arc(x, y, radius, 0, 2 * Math.PI);
  else for (const [dx, dy] of [...corners, corners[0]]) path.lineTo(x + radius * dx, y + radius * dy);
}

/**
 * Paint points.
 * @param {CanvasRenderingContext2D} context
 * @param {Float32Array} xy - in [-1, 1], two a point
 * @param {{x: number, y: number, sx: number, sy: number}} screen - pixel of 0, and pixels a unit
 * @param {import('../store.js').Look} look
 * @param {{radius: number, mask?: Uint8Array | null, opacity?: number, rows?: Int32Array | null}} options - rows: those
 *   that are painted if there are too many for shapes; by default all
 */
export function paint(context, xy, screen, look, { radius, mask = null, opacity = 0.85, rows = null }) {
  const n = xy.length / 2;
  if (n > CIRCLES) pixels(context, xy, screen, look, { radius, mask, rows });
  else paintShapes(context, xy, screen, look, { radius, mask, opacity });
}

/**
 * Paint shapes, grouped by size and color, each group as one `Path`.
 * @param {{radius: number, mask?: Uint8Array | null, opacity: number, Path?: new () => any}} options
 */
export function paintShapes(context, xy, screen, look, options) {
  const { x, y, sx, sy } = screen;
  const { index, palette, level, shapes: kinds } = look;
  const { radius, mask = null, opacity, Path = Path2D } = options;
  const n = xy.length / 2;
  for (const chosen of mask ? [0, 1] : [1]) {
    context.globalAlpha = chosen ? opacity : 0.25;
    const paths = Array(SIZES.length * palette.length).fill(null);
    for (let i = 0; i < n; i++) {
      if (mask && mask[i] !== chosen) continue;
      const size = level?.[i] ?? SIZES.length - 1;
      const path = (paths[size * palette.length + index[i]] ??= new Path());
      trace(path, kinds?.[index[i]] ?? 0, x + sx * xy[2 * i], y + sy * xy[2 * i + 1], radius * SIZES[size]);
    }
    paths.forEach((path, at) => {
      if (!path) return;
      context.fillStyle = palette[at % palette.length];
      context.fill(path);
    });
  }
  context.globalAlpha = 1;
}

let kept = null; // the last image, reused because a new one costs a megabyte for each frame

/** An empty image of this size. */
function emptyImage(width, height) {
  if (kept?.image.width === width && kept.image.height === height) kept.words.fill(0);
  else {
    const image = new ImageData(width, height);
    kept = { image, words: new Uint32Array(image.data.buffer) };
  }
  return kept;
}

/** Paint squares into the pixels of an empty canvas. */
function pixels(context, xy, { x, y, sx, sy }, look, { radius, mask, rows }) {
  const { index, palette, level } = look;
  const { width, height } = context.canvas;
  const { image, words } = emptyImage(width, height);
  const colors = Uint32Array.from(palette, (color) => pack(rgb(color), 255));
  const faint = Uint32Array.from(palette, (color) => pack(rgb(color), 70));
  const count = rows?.length ?? xy.length / 2;
  const sides = SIZES.map((size) => Math.max(1, Math.round(radius * 1.6 * size)));
  for (const chosen of mask ? [0, 1] : [1]) {
    const tones = chosen ? colors : faint;
    for (let at = 0; at < count; at++) {
      const i = rows ? rows[at] : at;
      if (mask && mask[i] !== chosen) continue;
      const side = sides[level?.[i] ?? SIZES.length - 1];
      const left = (x + sx * xy[2 * i] - side / 2 + 0.5) | 0;
      const top = (y + sy * xy[2 * i + 1] - side / 2 + 0.5) | 0;
      if (left < 0 || top < 0 || left + side > width || top + side > height) continue;
      const color = tones[index[i]];
      for (let row = top; row < top + side; row++) {
        const from = row * width + left;
        for (let word = from; word < from + side; word++) words[word] = color;
      }
    }
  }
  context.putImageData(image, 0, 0);
}

/** @type {(color: number[], alpha: number) => number} */
const pack = ([red, green, blue], alpha) => ((alpha << 24) | (blue << 16) | (green << 8) | red) >>> 0;

/** Fit a canvas to its size on the page; return its cleared context. */
export function resizeCanvas(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  const [w, h] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== w || canvas.height !== h) Object.assign(canvas, { width: w, height: h });
  const context = canvas.getContext('2d');
  context.clearRect(0, 0, w, h);
  return context;
}

/** The screen of a canvas of this size, with the box in its middle. */
export function centeredScreen(width, height) {
  const unit = Math.min(width, height) / 2;
  return { x: width / 2, y: height / 2, sx: unit, sy: -unit };
}
