/** The large plot on a two-dimensional canvas, without WebGL, with the same interface and gestures. */

import { pointsInside, followLasso, nearest } from '../lib/lasso.js';
import { resizeCanvas, paint } from '../lib/paint.js';
import { sizeOf } from './size.js';

const REACH = 12; // pixels within which a point is under the pointer
const CLICK = 4; // pixels; a shorter movement is a click
const MAX_MOVING = 20000; // points that are drawn while the view moves; at rest all are
const REST = 150; // milliseconds without a movement until the view rests

/**
 * A sample of n rows, always the same ones, of about `most`; null for all. Each row is in it by a hash of its number,
 * so that an order of the rows is none of the sample.
 */
export function sampleOf(n, most) {
  if (n <= most) return null;
  const limit = (most / n) * 2 ** 32;
  return Int32Array.from(Array(n).keys()).filter((row) => Math.imul(row + 1, 0x9e3779b1) >>> 0 < limit);
}

/** Make the plot; see `createGlPlot`. */
export function createFlatPlot(canvas, on) {
  canvas.getContext('2d', { willReadFrequently: true }); // the processor writes its pixels
  let [width, height] = [1, 1];
  let camera = { x: 0, y: 0, zoom: 1 };
  let from = null; // positions at the start of a movement, and at its end: buffers that are reused
  let to = null;
  let arrived = null; // ends the wait for a movement, also for a replaced one
  let now = null; // positions on the screen
  let look = null;
  let mask = null;
  let line = [];
  let lassoing = false;
  let grabbed = null;
  let move = 0;
  let frame = 0;
  let isBrief = false; // other positions follow at once
  let sample = null; // rows that are drawn while the view moves; null for all
  let resting = 0; // the timer until the view rests, or 0
  let ink = '#000';

  const least = () => Math.min(width, height) / 2;
  const screen = () => {
    const unit = least() * camera.zoom;
    return { x: width / 2 + camera.x * unit, y: height / 2 - camera.y * unit, sx: unit, sy: -unit };
  };

  function draw() {
    frame = 0;
    const context = resizeCanvas(canvas, width, height);
    if (!now) return;
    const ratio = canvas.width / width;
    const { x, y, sx, sy } = screen();
    const scaled = { x: x * ratio, y: y * ratio, sx: sx * ratio, sy: sy * ratio };
    const { size, opacity } = sizeOf(now.length / 2);
    paint(context, now, scaled, look, { radius: (size / 2) * ratio, mask, opacity, rows: isMoving() ? sample : null });
    if (line.length > 1) {
      context.strokeStyle = ink;
      context.lineWidth = 1.5 * ratio;
      context.beginPath();
      for (const [px, py] of line) context.lineTo(px * ratio, py * ratio);
      context.stroke();
    }
  }
  const soon = () => (frame ||= requestAnimationFrame(draw));
  const redrawView = () => {
    clearTimeout(resting);
    resting = setTimeout(() => {
      resting = 0;
      soon();
    }, REST);
    soon();
    on.view();
  };
  const isMoving = () => resting > 0 || move > 0 || isBrief;

  canvas.addEventListener('wheel', (event) => {
    event.preventDefault();
    camera.zoom = Math.min(200, Math.max(0.2, camera.zoom * Math.exp(-event.deltaY / 500)));
    redrawView();
  }, { passive: false });
  canvas.addEventListener('pointermove', (event) => {
    if (grabbed) {
      const unit = least() * camera.zoom;
      camera.x = grabbed.x + (event.clientX - grabbed.px) / unit;
      camera.y = grabbed.y - (event.clientY - grabbed.py) / unit;
      redrawView();
    } else if (now && !line.length) on.hover(nearest(event.offsetX, event.offsetY, now, screen(), REACH));
  });
  canvas.addEventListener('pointerleave', () => on.hover(-1));
  canvas.addEventListener('dblclick', () => on.select([]));
  followLasso(canvas, {
    start: (event) => {
      if (!lassoing && !event.shiftKey) grabbed = { x: camera.x, y: camera.y, px: event.clientX, py: event.clientY };
      return true;
    },
    draw: (points) => {
      line = grabbed ? [] : points;
      soon();
    },
    end: (points, event) => {
      const [first, last] = [points[0], points[points.length - 1]];
      const isClick = Math.hypot(first[0] - last[0], first[1] - last[1]) < CLICK && points.length < 20;
      if (isClick && now) {
        const row = nearest(event.offsetX, event.offsetY, now, screen(), REACH);
        if (row >= 0) on.select([row]);
      } else if (!grabbed && now) on.select(pointsInside(points, now, screen()));
      grabbed = null;
      line = [];
      soon();
    },
  });

  return {
    kind: 'canvas',
    show(xy, newLook, { ms = 0, quick = false, brief = false } = {}) {
      cancelAnimationFrame(move);
      move = 0;
      arrived?.();
      arrived = null;
      look = newLook;
      isBrief = brief;
      if (!now || now.length !== xy.length || !ms) {
        if (now?.length !== xy.length) {
          [now, from, to] = [1, 2, 3].map(() => new Float32Array(xy.length));
          sample = sampleOf(xy.length / 2, MAX_MOVING);
        }
        now.set(xy);
        draw();
        on.view();
        return Promise.resolve();
      }
      from.set(now);
      to.set(xy);
      return new Promise((resolve) => {
        arrived = resolve;
        const started = performance.now();
        const step = (at) => {
          const share = Math.min(1, Math.max(0, (at - started) / ms));
          const eased = quick ? share : share * share * (3 - 2 * share);
          for (let i = 0; i < to.length; i++) now[i] = from[i] + (to[i] - from[i]) * eased;
          move = share < 1 ? requestAnimationFrame(step) : 0;
          draw();
          if (share === 1) {
            on.view();
            resolve();
          }
        };
        move = requestAnimationFrame(step);
      });
    },
    select(rows) {
      mask = rows;
      soon();
    },
    colors(colors) {
      ink = colors.ink;
      soon();
    },
    resize(w, h) {
      [width, height] = [w, h];
      draw();
    },
    screen,
    lasso(on) {
      lassoing = on;
    },
    zoom(factor) {
      camera.zoom *= factor;
      redrawView();
    },
    reset() {
      camera = { x: 0, y: 0, zoom: 1 };
      redrawView();
    },
    redraw: soon,
    destroy() {
      cancelAnimationFrame(move);
      cancelAnimationFrame(frame);
      clearTimeout(resting);
    },
  };
}
