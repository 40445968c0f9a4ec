/** Progress of the work, and the button that cancels it. */

import { cancel } from '../jobs.js';
import { html } from '../lib/html.js';
import { useStore } from '../store.js';

const STAGES = {
  landmarks: 'choosing landmarks',
  neighbors: 'finding neighbors',
  weights: 'weighing neighbors',
  embedding: 'laying out the map',
  posterior: 'measuring what is uncertain',
  diagnostics: 'checking the fit',
  placing: 'placing the other rows',
  resamples: 'refitting to parts of the data',
  'half-samples': 'refitting to halves of the data',
};
const UNSAID = ['queued', 'started', 'draws', 'drawing']; // the label says it

/**
 * The bar; it keeps its height without work, so that the layout does not move. Its key depends on whether the total is
 * known, because Preact does not remove the value of a `progress`.
 */
export function Progress() {
  const { work } = useStore('work');
  if (!work) return html`<div class="progress idle" data-testid="progress" aria-hidden="true"></div>`;
  const { label, stage, done, total, cancelling, job, status, unit } = work;
  const known = total > 1 && status !== 'queued' && !/^calibrating/.test(stage);
  const what = cancelling ? 'Stopping' : status === 'queued' ? `${label}: waiting for a worker` : label;
  const where = /^calibrating/.test(stage)
    ? 'calibrating the scale'
    : (STAGES[stage] ?? (UNSAID.includes(stage) ? '' : stage));
  return html`<div class="progress" data-testid="progress" role="group" aria-label="Progress">
    <div class="progress-text"><strong data-testid="progress-label">${what}</strong>
      <span class="quiet"><span data-testid="progress-stage">${where}</span>
        ${known ? (unit ? ` ${done} ${unit}` : ` · ${done} of ${total}`) : ''}</span></div>
    <progress key=${known} aria-label=${what} max=${known ? total : undefined} value=${known ? done : undefined}>
    </progress>
    ${job && html`<button type="button" data-testid="cancel" disabled=${cancelling} onClick=${cancel}>Cancel</button>`}
  </div>`;
}
