/** Movement of the shown embedding over half-samples, beside the baseline that needs no refit. */

import { html, number, percent } from '../lib/html.js';
import { plainNote } from '../lib/remedies.js';
import { useStore } from '../store.js';

/** The panel; empty before the measurement. */
export function Movement() {
  const { movement, single } = useStore('movement', 'single');
  if (!movement || !single) return null;
  const { figures, notes } = movement;
  const classes = figures.classes === 'labels' ? 'label' : 'cluster';
  return html`<section class="panel" data-testid="movement-panel"><h2>Movement on half of the data</h2>
    <p class="help">How far points move when the method sees a random half of the data, ${number(figures.n_resamples)} times. It ranks points. It is
      no interval: no share of new samples is promised to stay within it.</p>
    <dl class="facts">
      <dt>Median movement</dt><dd data-testid="median-movement">${percent(figures.relative_movement)} of the picture's radius</dd>
      <dt>Neighbors kept</dt><dd data-testid="pairs-kept">${percent(figures.pairs_kept)} <span class="quiet">(${percent(figures.pairs_by_chance)} by chance)</span></dd>
      ${figures.separated !== null && html`<dt>Apart</dt><dd>${percent(figures.separated)} of the points from the next ${classes}</dd>`}
      ${figures.n_refits > 0 && html`<dt>By the seed</dt><dd>${percent(figures.seed_share)} of the variance</dd>`}
      <dt>Baseline</dt><dd data-testid="baseline">The mean distance to the 10 nearest points in the data ${ranksAs(figures.baseline_correlation)}
        <span class="quiet"> (rank correlation ${number(figures.baseline_correlation, 2)})</span></dd>
    </dl>
    ${notes.map((note) => {
      const { title, text } = plainNote(note, single.result.parameters);
      return html`<div class="note" data-testid=${`note-${note.code}`}><strong>${title}</strong><p>${text}</p></div>`;
    })}
  </section>`;
}

/** What a rank correlation of the baseline with the movement means. */
function ranksAs(correlation) {
  if (correlation === null) return 'cannot be compared';
  if (correlation >= 0.7) return 'ranks the points nearly as the movement does, without a refit';
  return correlation >= 0.3 ? 'ranks the points in part as the movement does' : 'ranks other points first';
}
