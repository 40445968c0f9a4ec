/** Draws side by side. */

import { boxOf, dimension, embeddingOf, placeInBox, titleOf } from '../lib/frames.js';
import { html, useMemo } from '../lib/html.js';
import { brightRows } from '../actions/selection.js';
import { set, useStore } from '../store.js';
import { Empty } from './empty.js';
import { Thumb } from './thumb.js';
import { goTo } from './transport.js';

/** All draws as small pictures in one box. */
export function Grid() {
  const state = useStore('draws', 'reference', 'selection', 'passing', 'axes', 'frame', 'hidden', 'look');
  const { draws, reference, axes, frame, look } = state;
  const cells = useMemo(() => {
    if (!draws) return [];
    const p = dimension();
    const box = boxOf([reference, draws.data], draws.n, p, axes);
    return Array.from({ length: draws.count + 1 }, (_, i) => placeInBox(embeddingOf(i), draws.n, p, axes, box));
  }, [draws, reference, axes, state.hidden]);
  if (!draws || !look) return html`<${Empty} />`;
  const open = (i) => {
    set({ view: 'draws' });
    goTo(i);
  };
  return html`
    <div class="grid" data-testid="grid">
      ${cells.map((xy, i) => html`<${Thumb} key=${i} xy=${xy} look=${look} mask=${brightRows()} title=${titleOf(i)}
        current=${i === frame} onOpen=${() => open(i)} />`)}
    </div>
  `;
}
