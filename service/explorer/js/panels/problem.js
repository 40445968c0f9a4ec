/** Problems in plain words, with the remedy as a button. */

import { boot } from '../actions/boot.js';
import { compare } from '../actions/compare.js';
import { fit } from '../actions/fit.js';
import { useKey } from '../api.js';
import { html } from '../lib/html.js';
import { chooseMissing, giveRole } from '../actions/data.js';
import { plainProblem, stepsOf, waysOf } from '../lib/remedies.js';
import { methodNamed, settingsOf } from '../methods.js';
import { set, state, useStore } from '../store.js';
import { chooseFile } from '../views/empty.js';

/**
 * Apply settings of a method, by default of the chosen one, and fit again.
 * @param {Record<string, any>} values
 * @param {{method?: string, parameters?: Record<string, any>}} fitted
 */
export function tryWith(values, fitted = { method: state.method, parameters: state.forms[state.method] }) {
  const { method, parameters } = fitted;
  set({ method, forms: { ...state.forms, [method]: { ...parameters, ...values } }, problem: null });
  if (state.dataset) fit();
}

const CLICK = { x: 0, y: 0, at: 0 }; // the last one
const SOON = 5000; // milliseconds within which a click has asked the service
addEventListener(
  'click',
  ({ clientX, clientY }) => Object.assign(CLICK, { x: clientX, y: clientY, at: Date.now() }),
  true,
);

/** Banner: the service is down, said at the click that needs it, too; or it needs a key. */
export function Banner() {
  const { service } = useStore('service', 'missed');
  if (service === 'down') {
    const left = Math.min(CLICK.x, innerWidth - 260);
    return html`<div class="banner warn" role="alert" data-testid="service-down">
      <strong>The service does not answer.</strong>
      <span>What you see stays. Start it again with <code>glle up</code>; the page keeps trying, and goes on by
        itself.</span></div>
      ${Date.now() - CLICK.at < SOON &&
        html`<p class="missed" data-testid="missed"
          style=${{ left: `${left}px`, top: `${CLICK.y + 14}px` }}>The service does not answer.
        Nothing was lost: press again once it is back.</p>`}`;
  }
  if (service === 'locked') return html`<${KeyForm} />`;
  return null;
}

/** Form for the API key. */
function KeyForm() {
  const { problem } = useStore('problem');
  const enter = (event) => {
    event.preventDefault();
    useKey(String(new FormData(event.target).get('key')).trim());
    set({ service: 'connecting', problem: null });
    boot();
  };
  return html`<form class="banner key" role="alert" data-testid="key-form" onSubmit=${enter}>
    <div><strong>This service asks for a key.</strong>${' '}
      <span>${problem?.type?.endsWith('invalid-key') ? 'The last one was not accepted. ' : ''}
        Ask the administrator for one, made by <code>glle keys create</code>. This tab keeps it until you close
          it.</span></div>
    <input name="key" type="password" autocomplete="off" placeholder="Key" aria-label="Key" data-testid="key"
      required />
    <button type="submit" class="primary" data-testid="use-key">Use it</button>
  </form>`;
}

/** The problem of a refused request. */
export function Problem() {
  const { problem, service, method, forms, pending, dataset, view } = useStore('problem', 'service', 'method',
    'forms', 'pending', 'dataset', 'view');
  if (!problem || service === 'down' || service === 'locked') return null;
  const steps = stepsOf(problem, forms[method] ?? {}, methodNamed(method) && settingsOf(method));
  const ways = waysOf(problem);
  const { errors } = problem.details ?? {};
  const { title, text, remedy, own } = plainProblem(problem);
  return html`<div class="problem" role="alert" data-testid="problem">
    <div class="panel-head"><strong data-testid="problem-title">${title}</strong>
      <button type="button" class="link" aria-label="Dismiss" data-testid="dismiss"
        onClick=${() => set({ problem: null })}>×</button></div>
    <p>${text}</p>
    ${errors?.length > 1 && html`<ul>${errors.map(({ at, message }) => html`<li>${at}: ${message}</li>`)}</ul>`}
    ${remedy && html`<p class="quiet" data-testid="remedy">${remedy}</p>`}
    ${pending && ways.length > 0 && html`<div class="buttons">${ways.map(([name, label]) => html`
      <button type="button" data-testid=${`choose-${name}`} onClick=${() => chooseMissing(name)}>${label}
      </button>`)}</div>`}
    ${pending && problem.details?.members && html`<div class="buttons">${problem.details.members.map((name) => html`
      <button type="button" data-testid=${`label-${name}`}
        onClick=${() => giveRole([name], 'labels')}>Use ${name} as the label</button>`)}</div>`}
    ${/empty/.test(problem.type) &&
      html`<div class="buttons"><button type="button" data-testid="choose-another"
        onClick=${() => chooseFile()}>Choose another file</button></div>`}
    ${own && html`<details class="more"><summary>Technical details</summary><p class="quiet">${own}</p></details>`}
    ${problem.status === 404 && dataset &&
      html`<div class="buttons"><button type="button" data-testid="fit-again"
        onClick=${() => (view === 'compare' ? compare() : fit())}>Fit again</button></div>`}
    ${steps.length > 0 && html`<div class="buttons">${steps.map(({ label, values }) => html`
      <button type="button" data-testid=${`remedy-${Object.keys(values)[0]}`} onClick=${() => tryWith(values)}>
        ${label}</button>`)}
    </div>`}
  </div>`;
}
