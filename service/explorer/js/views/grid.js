/** Draws side by side, and the grid of scales. */

import { DRAWS_A_SCALE, drawScales } from '../actions/fit.js';
import { boxOf, dimension, embeddingOf, placeInBox, titleOf } from '../lib/frames.js';
import { html, number, useEffect, useMemo } from '../lib/html.js';
import { LOOK, lookOf } from '../lib/look.js';
import { set, useStore } from '../store.js';
import { Empty } from './empty.js';
import { Thumb } from './thumb.js';
import { goTo } from './transport.js';

/** All draws as small pictures in one box. */
export function Grid() {
  const state = useStore('draws', 'reference', 'selection', 'axes', 'frame', ...LOOK);
  const { draws, reference, selection, axes, frame } = state;
  const look = useMemo(() => draws && lookOf(state, draws.n), [draws, ...LOOK.map((name) => state[name])]);
  const cells = useMemo(() => {
    if (!draws) return [];
    const p = dimension();
    const box = boxOf([reference, draws.data], draws.n, p, axes);
    return Array.from({ length: draws.count + 1 }, (_, i) => placeInBox(embeddingOf(i), draws.n, p, axes, box));
  }, [draws, reference, axes]);
  if (!draws) return html`<${Empty} />`;
  const open = (i) => {
    set({ view: 'draws' });
    goTo(i);
  };
  return html`
    <div class="grid" data-testid="grid">
      ${cells.map((xy, i) => html`<${Thumb} key=${i} xy=${xy} look=${look} selection=${selection} title=${titleOf(i)}
        current=${i === frame} onOpen=${() => open(i)} />`)}
    </div>
  `;
}

/** One row for each scale, from nearly no spread to ten times its variance. */
export function Scales() {
  const state = useStore('scales', 'posterior', 'selection', 'axes', 'work', ...LOOK);
  const { scales, posterior, selection, axes } = state;
  useEffect(() => {
    if (posterior && !scales && !state.work) drawScales();
  }, [posterior]);
  const look = useMemo(() => scales && lookOf(state, scales.n), [scales, ...LOOK.map((name) => state[name])]);
  const rows = useMemo(() => {
    if (!scales) return [];
    const { n, p, data } = scales;
    const size = n * p;
    return scales.scales.map((_, row) => {
      const of = (i) => data.subarray((row * DRAWS_A_SCALE + i) * size, (row * DRAWS_A_SCALE + i + 1) * size);
      const embeddings = Array.from({ length: DRAWS_A_SCALE }, (_unused, i) => of(i));
      const box = boxOf([embeddings[0], data.subarray(row * DRAWS_A_SCALE * size, (row + 1) * DRAWS_A_SCALE * size)], n, p, axes);
      return embeddings.map((embedding) => placeInBox(embedding, n, p, axes, box));
    });
  }, [scales, axes]);
  if (!posterior) return html`<${Empty} />`;
  if (!scales) return html`<div class="waiting" data-testid="scales-waiting">The grid of scales is being drawn.</div>`;
  return html`
    <div class="scale-grid" data-testid="scale-grid">
      <p class="quiet lead">How the picture loosens as the uncertainty is turned up. 1 is what the model itself says;
        towards 0 every draw becomes the same embedding.</p>
      ${rows.map((cells, row) => html`
        <div class="scale-row" key=${row} role="group" aria-label=${`Scale ${scales.scales[row]}`}>
          <div class="scale-name"><strong>${number(scales.scales[row])}</strong><span>scale</span></div>
          ${cells.map((xy, i) => html`<${Thumb} key=${i} xy=${xy} look=${look} selection=${selection}
            title=${`Draw ${i}`} />`)}
        </div>`)}
    </div>
  `;
}
