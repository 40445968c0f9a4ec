/** The large plot on the graphics card, by regl-scatterplot. */

import createScatterplot from '../../vendor/regl-scatterplot-1.16.0.min.js';
import { SIZES } from '../lib/paint.js';
import { sizeOf } from './size.js';

const UNSEEN = 0.25; // opacity of unselected points

/**
 * Make the plot.
 * @param {HTMLCanvasElement} canvas
 * @param {{hover: (row: number) => void, select: (rows: number[]) => void, view: () => void}} on
 */
export function createGlPlot(canvas, on) {
  const plot = createScatterplot({
    canvas,
    width: canvas.clientWidth || 300,
    height: canvas.clientHeight || 300,
    backgroundColor: [0, 0, 0, 0],
    pointOutlineWidth: 1.5,
    pointSizeSelected: 1,
    opacityInactiveMax: UNSEEN,
    opacityInactiveScale: 1,
    lassoColor: '#d55e00',
    lassoMinDelay: 5,
    lassoMinDist: 2,
    spatialIndexUseWorker: false, // its worker is created from text, which the page's policy forbids
    deselectOnEscape: false, // the page handles the key
    actionKeyMap: { merge: 'cmd', remove: 'alt', lasso: 'shift' },
  });
  let rows = []; // reused between frames
  let shown = null; // the current or the next frame
  let drawing = false;
  let palette = null;
  let seen = 1; // opacity of points that are not dimmed
  let isAllDim = false; // no row is bright, which the plot does not know
  let isSelecting = false; // the page makes the selection, so that no event is sent back
  let [width, height] = [1, 1];

  plot.subscribe('pointover', (row) => on.hover(row));
  plot.subscribe('pointout', () => on.hover(-1));
  plot.subscribe('select', ({ points }) => isSelecting || on.select(points));
  plot.subscribe('deselect', () => isSelecting || on.select([]));
  plot.subscribe('view', () => on.view());

  const opacityNow = () => (isAllDim ? Math.min(UNSEEN, seen) : seen);

  /** Write positions and colors into the rows. */
  function write({ xy, look }) {
    const n = xy.length / 2;
    if (rows.length !== n) rows = Array.from({ length: n }, () => [0, 0, 0, 0]);
    for (let i = 0; i < n; i++) {
      const row = rows[i];
      row[0] = xy[2 * i];
      row[1] = xy[2 * i + 1];
      row[2] = look.index[i];
      row[3] = look.level?.[i] ?? SIZES.length - 1;
    }
  }

  /** Draw the requested frame; of further requests meanwhile only the latest follows. */
  async function drawNext() {
    if (drawing || !shown) return;
    drawing = true;
    const wanted = shown;
    shown = null;
    if (wanted.look.palette !== palette) {
      palette = wanted.look.palette;
      const { size, opacity } = sizeOf(wanted.xy.length / 2);
      seen = opacity;
      plot.set({
        pointColor: palette,
        colorBy: 'valueA',
        pointSize: SIZES.map((share) => share * size),
        sizeBy: 'valueB',
        opacity: opacityNow(),
      });
    }
    const sameCount = rows.length === wanted.xy.length / 2;
    const index = sameCount && wanted.quick ? plot.get('spatialIndex') : undefined;
    write(wanted);
    const moving = sameCount && wanted.ms > 0;
    try {
      await plot.draw(rows, {
        transition: moving,
        transitionDuration: wanted.ms,
        transitionEasing: wanted.quick ? 'linear' : 'cubicInOut',
        zDataType: 'categorical',
        wDataType: 'categorical',
        preventFilterReset: sameCount,
        spatialIndex: index,
      });
    } finally {
      drawing = false;
    }
    wanted.done?.();
    on.view();
    drawNext();
  }

  return {
    kind: 'webgl',
    /** Show positions and colors; `ms` is the time of a movement, `quick` means that more frames follow. */
    show(xy, look, { ms = 0, quick = false } = {}) {
      return new Promise((resolve) => {
        shown?.done?.();
        shown = { xy, look, ms, quick, done: resolve };
        drawNext();
      });
    },
    /** Dim all rows that are not in the mask. */
    select(mask) {
      isSelecting = true;
      const bright = mask && Array.from(mask.keys()).filter((row) => mask[row]);
      isAllDim = bright?.length === 0;
      if (bright?.length) plot.select(bright, { preventEvent: true });
      else plot.deselect({ preventEvent: true });
      plot.set({ opacity: opacityNow() });
      setTimeout(() => (isSelecting = false));
    },
    colors({ ink, accent }) {
      plot.set({ pointColorActive: accent, pointColorHover: ink });
    },
    resize(w, h) {
      [width, height] = [w, h];
      plot.set({ width: w, height: h });
      plot.set({ cameraDistance: Math.max(1, h / w) });
    },
    /** Pixel of 0, and pixels a unit. */
    screen() {
      const view = plot.get('cameraView');
      const unit = height / 2;
      return {
        x: width / 2 + view[12] * unit,
        y: height / 2 - view[13] * unit,
        sx: view[0] * unit,
        sy: -view[5] * unit,
      };
    },
    lasso(on) {
      plot.set({ mouseMode: on ? 'lasso' : 'panZoom' });
    },
    zoom(factor) {
      plot.set({ cameraDistance: plot.get('cameraDistance') / factor });
      on.view();
    },
    reset() {
      plot.set({ cameraTarget: [0, 0], cameraDistance: Math.max(1, height / width) });
      on.view();
    },
    redraw: () => plot.redraw(),
    destroy() {
      plot.destroy();
    },
  };
}
