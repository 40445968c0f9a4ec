/** The choice of what says which rows belong together: a column, or stretches of one series. */

import { blockColumns, chooseBlocks, chooseStretches, STRETCHES } from '../actions/audit.js';
import { runWork } from '../actions/state.js';
import { html, useMemo } from '../lib/html.js';
import { labelOf } from '../lib/titles.js';
import { set, state, useStore } from '../store.js';

/**
 * The control; `repeat` makes again what was made without the choice, within other work. Without success the former
 * choice comes back.
 * @param {{repeat: () => Promise<void>}} props
 */
export function Blocks({ repeat }) {
  const { blocks, dataset, metadata, columns } = useStore('blocks', 'dataset', 'metadata', 'columns');
  const names = useMemo(blockColumns, [dataset, metadata, columns]);
  const choose = (choice) => runWork(async () => {
    const before = state.blocks;
    try {
      await choice();
      await repeat();
    } catch (error) {
      set({ blocks: before });
      throw error;
    }
  });
  const title = labelOf('blocks');
  return html`<div class="buttons" role="group" aria-label=${title}>
    <strong>${title}:</strong>
    ${names.length > 0 && html`<label class="sure needs-method">the column of the subject, series or replicate
      <select data-testid="blocks" onChange=${({ target }) => target.value && choose(() => chooseBlocks(target.value))}>
        <option value="">Choose the column</option>
        ${names.map((name) => html`<option value=${name} selected=${name === blocks}>${name}</option>`)}</select>
      </label>`}
    ${dataset.n >= 2 * STRETCHES &&
      html`<button type="button" data-testid="stretches" onClick=${() => choose(chooseStretches)}>One series: cut it
        into ${STRETCHES} stretches</button>`}
    ${names.length === 0 &&
      html`<span class="quiet">If a column names the subject of each row, choose the file again, and make that column
        the id in its head.</span>`}</div>`;
}
