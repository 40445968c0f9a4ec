/** Turning of three dimensions by dragging, in front of the gestures of the plot. */

import { directionsOf } from '../lib/frames.js';
import { set, state } from '../store.js';

const CLICK = 4; // pixels; a shorter movement is a click
const A_PIXEL = 0.008; // radians

/** Turn the view: `right` and `up` in radians; the scene follows the pointer. */
export function turnBy(right, up) {
  const axes = state.axes[0] === state.axes[1] ? [0, 1] : state.axes;
  let [u, v] = directionsOf(3, axes, state.turn);
  const w = cross(u, v);
  u = u.map((value, i) => value * Math.cos(right) + w[i] * Math.sin(right));
  const toward = cross(u, v);
  v = v.map((value, i) => value * Math.cos(up) + toward[i] * Math.sin(up));
  u = unit(u);
  const along = u.reduce((sum, value, i) => sum + value * v[i], 0);
  v = unit(v.map((value, i) => value - along * u[i])); // rounding adds up over many movements
  set({ turn: [u, v] });
}

const cross = ([a, b, c], [d, e, f]) => [b * f - c * e, c * d - a * f, a * e - b * d];
const unit = (a) => a.map((value) => value / Math.hypot(...a));

/**
 * Follow drags on the plot.
 * @param {HTMLElement} host - parent of the plot's canvas
 * @param {{isOn: () => boolean, click: (x: number, y: number) => void}} on
 */
export function followTurns(host, { isOn, click }) {
  let from = null;
  let moved = 0;
  const stop = (event) => {
    event.stopPropagation();
    event.preventDefault();
  };
  host.addEventListener('pointerdown', (event) => {
    if (event.button !== 0 || event.shiftKey || !isOn()) return;
    from = [event.clientX, event.clientY];
    moved = 0;
    host.setPointerCapture(event.pointerId);
    stop(event);
  }, true);
  host.addEventListener('mousedown', (event) => from && stop(event), true);
  host.addEventListener('pointermove', (event) => {
    if (!from) return;
    const [dx, dy] = [event.clientX - from[0], event.clientY - from[1]];
    from = [event.clientX, event.clientY];
    moved += Math.hypot(dx, dy);
    if (moved >= CLICK) turnBy(-dx * A_PIXEL, dy * A_PIXEL);
    stop(event);
  }, true);
  const end = (event) => {
    if (!from) return;
    from = null;
    const { left, top } = host.getBoundingClientRect();
    if (moved < CLICK && event.type === 'pointerup') click(event.clientX - left, event.clientY - top);
    stop(event);
  };
  host.addEventListener('pointerup', end, true);
  host.addEventListener('pointercancel', end, true);
  host.addEventListener('click', (event) => moved && isOn() && stop(event), true);
}
