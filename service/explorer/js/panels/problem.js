/** Problems in plain words, with the remedy as a button. */

import { boot } from '../actions/boot.js';
import { fit } from '../actions/fit.js';
import { useKey } from '../api.js';
import { html } from '../lib/html.js';
import { previewPending } from '../actions/data.js';
import { choicesOf, inWords, plainProblem, stepsOf } from '../lib/remedies.js';
import { set, state, useStore } from '../store.js';

/** Apply settings of the method, and fit again. */
export function tryWith(values) {
  const form = { ...state.forms[state.method], ...values };
  set({ forms: { ...state.forms, [state.method]: form }, problem: null });
  if (state.dataset) fit();
}

/** Banner: the service is down, or needs a key. */
export function Banner() {
  const { service } = useStore('service');
  if (service === 'down') {
    return html`<div class="banner warn" role="alert" data-testid="service-down">
      <strong>The service does not answer.</strong>
      <span>What you see stays. The page keeps trying, and goes on by itself once the service is back.</span></div>`;
  }
  if (service === 'locked') return html`<${KeyForm} />`;
  return null;
}

/** Form for the API key. */
function KeyForm() {
  const { problem } = useStore('problem');
  const enter = (event) => {
    event.preventDefault();
    useKey(new FormData(event.target).get('key').trim());
    set({ service: 'connecting', problem: null });
    boot();
  };
  return html`<form class="banner key" role="alert" data-testid="key-form" onSubmit=${enter}>
    <div><strong>This service asks for a key.</strong>${' '}
      <span>${problem?.type?.endsWith('invalid-key') ? 'The last one was not accepted. ' : ''}
        Who runs it makes one with <code>glle keys create</code>. It is kept until you close this tab.</span></div>
    <input name="key" type="password" autocomplete="off" placeholder="Key" aria-label="Key" data-testid="key" required />
    <button type="submit" class="primary" data-testid="use-key">Use it</button>
  </form>`;
}

/** The problem of a refused request. */
export function Problem() {
  const { problem, service, method, forms, pending } = useStore('problem', 'service', 'method', 'forms', 'pending');
  if (!problem || service === 'down' || service === 'locked') return null;
  const steps = stepsOf(problem, forms[method] ?? {});
  const choices = choicesOf(problem);
  const { errors } = problem.details ?? {};
  const { title, text, remedy, own } = plainProblem(problem);
  return html`<div class="problem" role="alert" data-testid="problem">
    <div class="panel-head"><strong data-testid="problem-title">${title}</strong>
      <button type="button" class="link" aria-label="Dismiss" data-testid="dismiss"
        onClick=${() => set({ problem: null })}>×</button></div>
    <p>${text}</p>
    ${errors?.length > 1 && html`<ul>${errors.map(({ at, message }) => html`<li>${at}: ${message}</li>`)}</ul>`}
    ${remedy && html`<p class="quiet" data-testid="remedy">${inWords(remedy)}</p>`}
    ${pending && choices.length > 0 && html`<div class="buttons">${choices.map(({ role, label, roles }) => html`
      <button type="button" data-testid=${`choose-${role}`}
        onClick=${() => previewPending({ roles: { ...pending.roles, ...roles } })}>${label}</button>`)}</div>`}
    ${own && html`<details class="more"><summary>In the service's words</summary><p class="quiet">${own}</p></details>`}
    ${steps.length > 0 && html`<div class="buttons">${steps.map(({ label, values }) => html`
      <button type="button" data-testid=${`remedy-${Object.keys(values)[0]}`} onClick=${() => tryWith(values)}>${label}</button>`)}
    </div>`}
  </div>`;
}
