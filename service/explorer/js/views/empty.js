/** The empty stage, with the next steps. */

import { html } from '../lib/html.js';
import { EXAMPLES, openExample } from '../actions/examples.js';
import { useStore } from '../store.js';

/** The empty stage. */
export function Empty() {
  const { dataset, info, work } = useStore('dataset', 'info', 'work');
  if (work) return html`<div class="empty" data-testid="empty"><p class="quiet">One moment…</p></div>`;
  if (dataset) {
    return html`<div class="empty" data-testid="empty">
      <h2>Ready to fit</h2>
      <p>The data are here. Press <strong>Fit and draw</strong>, and see how sure their embedding is. Or audit a map of them from a file.</p>
    </div>`;
  }
  return html`<div class="empty" data-testid="empty">
    <h2>How sure is an embedding?</h2>
    <p>An embedding puts similar rows of a table close together on a flat map. There is seldom one right map:
      here you see many that the data allow, and which points stay where they are.</p>
    ${info && html`<p class="quiet">Try it: one click fits an example and plays its draws.</p>
      <div class="examples">${EXAMPLES.map((example, i) => html`<button type="button" key=${example.name} class=${i ? 'example' : 'example primary'}
        data-testid=${`example-${example.name}`} onClick=${() => openExample(example)}><strong>${example.title}</strong><span>${example.text}</span></button>`)}</div>
      <p class="quiet">Or drop a table of CSV, Excel, npy or Parquet anywhere on this page.</p>`}
  </div>`;
}
