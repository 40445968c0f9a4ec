/** The plot for this browser. */

import { CIRCLES } from '../lib/paint.js';
import { state } from '../store.js';
import { createFlatPlot } from './flat.js';

const SOFTWARE = /swiftshader|llvmpipe|softpipe|software|basic render/i;

/** Return a plot on the graphics card for many points, or a flat one with shapes; the library is loaded on demand. */
export async function createPlot(host, heard) {
  const wanted = new URLSearchParams(location.search).get('plot');
  if (wanted === 'webgl' || (wanted !== 'flat' && state.dataset?.n > CIRCLES && hasFastWebGl())) {
    try {
      const { createGlPlot } = await import('./gl.js');
      return withCanvas(host, (canvas) => createGlPlot(canvas, heard));
    } catch (error) {
      console.warn('The plot is drawn without WebGL.', error);
    }
  }
  return withCanvas(host, (canvas) => createFlatPlot(canvas, heard));
}

/**
 * Return whether a graphics card draws WebGL, with the floating-point textures that the library needs. With
 * WebGL in software the flat plot is several times faster.
 */
function hasFastWebGl() {
  const context = document.createElement('canvas').getContext('webgl');
  if (!context?.getExtension('OES_texture_float')) return false;
  const info = context.getExtension('WEBGL_debug_renderer_info');
  const card = context.getParameter(info ? info.UNMASKED_RENDERER_WEBGL : context.RENDERER);
  context.getExtension('WEBGL_lose_context')?.loseContext();
  return !SOFTWARE.test(card);
}

/** Create a plot on a separate canvas. */
function withCanvas(host, make) {
  const canvas = document.createElement('canvas');
  canvas.className = 'plot-canvas';
  canvas.dataset.testid = 'plot';
  host.replaceChildren(canvas);
  const plot = make(canvas);
  canvas.dataset.kind = plot.kind;
  return Object.assign(plot, { canvas });
}
