/** Lasso around points. */

/** Return whether a position is inside a polygon of [x, y]. */
export function inside(polygon, x, y) {
  let found = false;
  for (let i = 0, j = polygon.length - 1; i < polygon.length; j = i++) {
    const [xi, yi] = polygon[i];
    const [xj, yj] = polygon[j];
    if (yi > y !== yj > y && x < ((xj - xi) * (y - yi)) / (yj - yi) + xi) found = !found;
  }
  return found;
}

/** The points inside a polygon in pixels. */
export function pointsInside(polygon, xy, { x, y, sx, sy }) {
  const found = [];
  for (let i = 0; i < xy.length / 2; i++) {
    if (inside(polygon, x + sx * xy[2 * i], y + sy * xy[2 * i + 1])) found.push(i);
  }
  return found;
}

/** The point nearest to a pixel, within `reach`; or -1. */
export function nearest(px, py, xy, { x, y, sx, sy }, reach) {
  let [best, found] = [reach * reach, -1];
  for (let i = 0; i < xy.length / 2; i++) {
    const dx = x + sx * xy[2 * i] - px;
    const dy = y + sy * xy[2 * i + 1] - py;
    const distance = dx * dx + dy * dy;
    if (distance < best) [best, found] = [distance, i];
  }
  return found;
}

/**
 * Follow a pointer over a canvas: a short one is a click, a longer one a lasso.
 * @param {HTMLElement} element
 * @param {{start?: (event: PointerEvent) => boolean, draw: (line: number[][]) => void,
 *   end: (line: number[][], event: PointerEvent) => void}} on - start says whether a lasso begins
 */
export function followLasso(element, { start = () => true, draw, end }) {
  let line = null;
  const place = (event) => {
    const box = element.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  element.addEventListener('pointerdown', (event) => {
    if (event.button !== 0 || !start(event)) return;
    line = [place(event)];
    element.setPointerCapture(event.pointerId);
  });
  element.addEventListener('pointermove', (event) => {
    if (!line) return;
    line.push(place(event));
    draw(line);
  });
  element.addEventListener('pointerup', (event) => {
    if (!line) return;
    const done = line;
    line = null;
    end(done, event);
  });
  element.addEventListener('pointercancel', () => {
    line = null;
    draw([]);
  });
}
