/** Points on a two-dimensional canvas: circles for few, pixels for many. */

import { rgb } from './palettes.js';

const CIRCLES = 4000; // more points are painted as pixels

/**
 * Paint points.
 * @param {CanvasRenderingContext2D} context
 * @param {Float32Array} xy - in [-1, 1], two a point
 * @param {{x: number, y: number, sx: number, sy: number}} screen - pixel of 0, and pixels a unit
 * @param {{index: Uint16Array, palette: string[]}} look
 * @param {{radius: number, mask?: Uint8Array | null, opacity?: number}} options
 */
export function paint(context, xy, screen, look, { radius, mask = null, opacity = 0.85 }) {
  const n = xy.length / 2;
  if (n > CIRCLES) pixels(context, xy, screen, look, radius, mask);
  else circles(context, xy, screen, look, radius, mask, opacity);
}

/** Paint circles, grouped by color. */
function circles(context, xy, { x, y, sx, sy }, { index, palette }, radius, mask, opacity) {
  const n = xy.length / 2;
  for (const chosen of mask ? [0, 1] : [1]) {
    context.globalAlpha = chosen ? opacity : 0.25;
    const paths = palette.map(() => null);
    for (let i = 0; i < n; i++) {
      if (mask && mask[i] !== chosen) continue;
      const path = (paths[index[i]] ??= new Path2D());
      const [px, py] = [x + sx * xy[2 * i], y + sy * xy[2 * i + 1]];
      path.moveTo(px + radius, py);
      path.arc(px, py, radius, 0, 7);
    }
    paths.forEach((path, color) => {
      if (!path) return;
      context.fillStyle = palette[color];
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
function pixels(context, xy, { x, y, sx, sy }, { index, palette }, radius, mask) {
  const { width, height } = context.canvas;
  const { image, words } = emptyImage(width, height);
  const colors = Uint32Array.from(palette, (color) => pack(rgb(color), 255));
  const faint = Uint32Array.from(palette, (color) => pack(rgb(color), 70));
  const n = xy.length / 2;
  const side = Math.max(1, Math.round(radius * 1.6));
  for (const chosen of mask ? [0, 1] : [1]) {
    const tones = chosen ? colors : faint;
    for (let i = 0; i < n; i++) {
      if (mask && mask[i] !== chosen) continue;
      const left = (x + sx * xy[2 * i] - side / 2 + 0.5) | 0;
      const top = (y + sy * xy[2 * i + 1] - side / 2 + 0.5) | 0;
      if (left < 0 || top < 0 || left + side > width || top + side > height) continue;
      const color = tones[index[i]];
      for (let row = top; row < top + side; row++) {
        const from = row * width + left;
        for (let at = from; at < from + side; at++) words[at] = color;
      }
    }
  }
  context.putImageData(image, 0, 0);
}

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
