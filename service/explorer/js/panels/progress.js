/** Progress of the work, and the button that cancels it. */

import { cancel } from '../jobs.js';
import { html, seconds } from '../lib/html.js';
import { useStore } from '../store.js';

const STAGES = {
  neighbors: 'finding neighbors',
  weights: 'weighing neighbors',
  embedding: 'laying out the map',
  posterior: 'measuring what is uncertain',
  diagnostics: 'checking the fit',
  'calibrating: half-samples': 'finding their scale on halves of the data',
  'calibrating: calibration': 'finding their scale',
  resamples: 'refitting to parts of the data',
  'half-samples': 'refitting to halves of the data',
};
const UNSAID = ['queued', 'started', 'draws', 'drawing']; // the label says it
const STEPS = [/^Fitting$/, /^Drawing \d/, /^Measuring the spread/, /^Measuring how sure/]; // of a fit

/**
 * The bar; it keeps its height without work, so that the layout does not move. Its key depends on whether the total is
 * known, because Preact does not remove the value of a `progress`.
 */
export function Progress() {
  const { work } = useStore('work');
  if (!work) return html`<div class="progress idle" data-testid="progress" aria-hidden="true"></div>`;
  const { label, stage, done, total, eta, cancelling, job, status } = work;
  const known = total > 1 && status !== 'queued' && !/^calibrating/.test(stage);
  const isLastStage = ['drawing', 'draws', ''].includes(stage); // the time left is for one stage
  const step = STEPS.findIndex((pattern) => pattern.test(label)) + 1;
  const what = cancelling ? 'Stopping' : status === 'queued' ? `${label}: waiting for a worker` : label;
  const where = STAGES[stage] ?? (UNSAID.includes(stage) ? '' : stage);
  return html`<div class="progress" data-testid="progress" role="group" aria-label="Progress">
    <div class="progress-text"><strong data-testid="progress-label">${what}</strong>
      <span class="quiet">${step ? `step ${step} of ${STEPS.length} ` : ''}<span data-testid="progress-stage">${where}</span>${known ? ` · ${done} of ${total}` : ''}${eta && isLastStage ? ` · ${seconds(eta)} left` : ''}</span></div>
    <progress key=${known} aria-label=${what} max=${known ? total : undefined} value=${known ? done : undefined}></progress>
    ${job && html`<button type="button" data-testid="cancel" disabled=${cancelling} onClick=${cancel}>Cancel</button>`}
  </div>`;
}
