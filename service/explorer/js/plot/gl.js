/** The large plot on the graphics card, by regl-scatterplot. */

import createScatterplot from '../../vendor/regl-scatterplot-1.16.0.min.js';
import { sizeOf } from './size.js';

const UNSEEN = 0.12; // opacity of what is not selected

/**
 * Make the plot.
 * @param {HTMLCanvasElement} canvas
 * @param {{hover: (row: number) => void, select: (rows: number[]) => void, view: () => void}} heard
 */
export function createGlPlot(canvas, heard) {
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
    spatialIndexUseWorker: false, // its worker would be made of text, which the page's policy forbids
    deselectOnEscape: false, // the page's own keys do
    actionKeyMap: { merge: 'cmd', remove: 'alt', lasso: 'shift' },
  });
  let rows = []; // kept between frames: what changes is written into it
  let shown = null; // what is drawn, or is to be drawn next
  let drawing = false;
  let palette = null;
  let told = false; // the selection came from the page, and is not told back
  let [width, height] = [1, 1];

  plot.subscribe('pointover', (row) => heard.hover(row));
  plot.subscribe('pointout', () => heard.hover(-1));
  plot.subscribe('select', ({ points }) => told || heard.select(points));
  plot.subscribe('deselect', () => told || heard.select([]));
  plot.subscribe('view', () => heard.view());

  /** Write the places and colours into the rows. */
  function write({ xy, look }) {
    const n = xy.length / 2;
    if (rows.length !== n) rows = Array.from({ length: n }, () => [0, 0, 0, 0]);
    for (let i = 0; i < n; i++) {
      const row = rows[i];
      row[0] = xy[2 * i];
      row[1] = xy[2 * i + 1];
      row[2] = look.index[i];
    }
  }

  /** Draw what is wanted; what was wanted meanwhile follows, the latest alone. */
  async function drawNext() {
    if (drawing || !shown) return;
    drawing = true;
    const wanted = shown;
    shown = null;
    if (wanted.look.palette !== palette) {
      palette = wanted.look.palette;
      const { size, opacity } = sizeOf(wanted.xy.length / 2);
      plot.set({ pointColor: palette, colorBy: 'valueA', pointSize: size, opacity });
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
        preventFilterReset: sameCount,
        spatialIndex: index,
      });
    } finally {
      drawing = false;
    }
    wanted.done?.();
    heard.view();
    drawNext();
  }

  return {
    kind: 'webgl',
    /** Show places and colours; over `ms` when they are to move, `quick` when others follow at once. */
    show(xy, look, { ms = 0, quick = false } = {}) {
      return new Promise((resolve) => {
        shown?.done?.();
        shown = { xy, look, ms, quick, done: resolve };
        drawNext();
      });
    },
    select(list) {
      told = true;
      if (list) plot.select(Array.from(list), { preventEvent: true });
      else plot.deselect({ preventEvent: true });
      setTimeout(() => (told = false));
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
      heard.view();
    },
    reset() {
      plot.set({ cameraTarget: [0, 0], cameraDistance: Math.max(1, height / width) });
      heard.view();
    },
    redraw: () => plot.redraw(),
    destroy() {
      plot.destroy();
    },
  };
}
