/** The plot that this browser can draw. */

import { createFlatPlot } from './flat.js';

/** Return a plot on the graphics card, or where that fails, a flat one; the library is fetched when it is needed. */
export async function createPlot(host, heard) {
  const wantsFlat = new URLSearchParams(location.search).get('plot') === 'flat';
  if (!wantsFlat && hasWebGl()) {
    try {
      const { createGlPlot } = await import('./gl.js');
      return withCanvas(host, (canvas) => createGlPlot(canvas, heard));
    } catch (error) {
      console.warn('The plot is drawn without WebGL.', error);
    }
  }
  return withCanvas(host, (canvas) => createFlatPlot(canvas, heard));
}

/** Say whether there is WebGL with the floating-point textures that the library needs. */
function hasWebGl() {
  const context = document.createElement('canvas').getContext('webgl');
  const there = context?.getExtension('OES_texture_float');
  context?.getExtension('WEBGL_lose_context')?.loseContext();
  return Boolean(there);
}

/** Make a plot on a canvas of its own. */
function withCanvas(host, make) {
  const canvas = document.createElement('canvas');
  canvas.className = 'plot-canvas';
  canvas.dataset.testid = 'plot';
  host.replaceChildren(canvas);
  const plot = make(canvas);
  canvas.dataset.kind = plot.kind;
  return Object.assign(plot, { canvas });
}
