/** What a row looks like, in the label at the pointer and in the panel of the point. */

import { html, useEffect, useMemo, useRef } from '../lib/html.js';
import { kindOf, pixelsOf, resolveContent, textOf } from '../lib/pictures.js';
import { useStore } from '../store.js';

/** The picture or the text of a row; in the label an address is its text, because a label cannot be clicked. */
export function Content({ row, isLabel = false }) {
  const state = useStore('content', 'columns', 'metadata', 'dataset');
  const { columns, metadata, dataset } = state;
  const content = useMemo(() => resolveContent(state), [state.content, columns, metadata, dataset]);
  if (content === 'none' || row < 0 || row >= state.dataset.n) return null;
  if (content === 'pixels') return html`<${Pixels} state=${state} row=${row} />`;
  const text = textOf(content, row);
  const kind = kindOf(text);
  if (!text) return null;
  if (kind === 'image')
    return html`<img class="row-picture" src=${text} alt=${`Row ${row}`} data-testid="row-image" />`;
  if (kind === 'text' || isLabel) return html`<span class="row-text" data-testid="row-text">${text}</span>`;
  return html`<a href=${text} target="_blank" rel="noopener noreferrer" data-testid="row-link">${text}</a>
    <span class="quiet">The page loads no pictures from other hosts, so that they do not learn what you look at. The
      link opens this one.</span>`;
}

/** The columns of a row as pixels. */
function Pixels({ state, row }) {
  const canvas = useRef(null);
  const { columns, dataset } = state;
  useEffect(() => {
    const image = pixelsOf(state, row);
    Object.assign(canvas.current, { width: image.width, height: image.height });
    canvas.current.getContext('2d').putImageData(image, 0, 0);
  }, [row, columns, dataset]);
  return html`<canvas class="row-picture" ref=${canvas} role="img" aria-label=${`Row ${row} as a picture`}
    data-testid="row-pixels"></canvas>`;
}
