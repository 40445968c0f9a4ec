/** Notes of the fit, and of a calibrated scale of the draws, in plain words, with the step that helps. */

import { settingsOf } from '../methods.js';
import { html, seconds } from '../lib/html.js';
import { plainNote } from '../lib/remedies.js';
import { state, useStore } from '../store.js';
import { tryWith } from './problem.js';

/**
 * The method and the settings of the shown map, as a form has them; null for a map from a file.
 * @returns {{method?: string, parameters?: Record<string, any>} | null}
 */
export function fittedHere() {
  const { single, posterior, forms } = state;
  if (single) return single.isGiven ? null : single.body;
  return posterior && { method: posterior.spec.method, parameters: forms[posterior.spec.method] };
}

/** The panel. */
export function Notes() {
  const { posterior, single, draws } = useStore('posterior', 'single', 'draws');
  if (single ? single.isGiven : !posterior) return null;
  const ofScale = (draws?.notes ?? []).map((code) => ({ code, message_parts: [] }));
  const notes = single ? single.result.notes : [...ofScale, ...posterior.diagnostics.notes];
  const spec = single ? single.result.parameters : posterior.spec;
  const fitted = fittedHere();
  const took = single ? Object.values(single.result.seconds).reduce((sum, one) => sum + one, 0) : posterior.seconds;
  return html`<section class="panel" data-testid="notes">
    <h2>Notes on the fit</h2>
    ${notes.length === 0 && html`<p class="quiet">No problems were found. The fit took ${seconds(took)}.</p>`}
    ${notes.map((note) => {
      const { title, text, step, message } = plainNote(note, spec, settingsOf(fitted.method));
      return html`<div class="note" data-testid=${`note-${note.code}`}>
        <strong>${title}</strong><p>${text}</p>
        ${message && text !== message &&
          html`<details class="more"><summary>Technical details</summary><p class="quiet">${message}</p></details>`}
        ${step && html`<button type="button" onClick=${() => tryWith(step.values, fitted)}>${step.label}</button>`}
      </div>`;
    })}
  </section>`;
}
