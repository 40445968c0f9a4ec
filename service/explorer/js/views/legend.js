/** Legend of the colors, on the stage or in the inspector. */

import { choosePoints, hideClasses } from '../actions/selection.js';
import { html, number, useState } from '../lib/html.js';
import { useStore } from '../store.js';

const MANY = 12; // classes from which on they are searched

/** The legend; a click on a class selects it, its box hides it, and “only” hides the others. */
export function Legend() {
  const state = useStore('look', 'view', 'hidden');
  const [wanted, search] = useState('');
  const { look } = state;
  if (!look) return html`<div class="legend" data-testid="legend"></div>`;
  const { legend, index } = look;
  const small = legend.small && state.view !== 'compare' &&
    html`<p class="smaller quiet" data-testid="small">${legend.small}</p>`;
  if (legend.kind === 'value') {
    const stops = legend.palette.filter((_, i) => i % 7 === 0).join(', ');
    return html`<div class="legend" data-testid="legend"><span class="legend-title">${legend.title}</span>
      <div class="ramp" style=${{ background: `linear-gradient(to right, ${stops})` }}></div>
      <div class="ramp-ends"><span>${legend.ends[0]}</span><span>${legend.ends[1]}</span></div>${small}</div>`;
  }
  if (legend.kind !== 'classes') return html`<div class="legend" data-testid="legend">${small}</div>`;
  const { entries } = legend;
  const found = entries.filter(({ name }) => name.toLowerCase().includes(wanted.trim().toLowerCase()));
  const hidden = state.hidden?.names ?? new Set();
  const show = (chosen, isShown) =>
    hideClasses(
      new Set(entries.map(({ name }) => name).filter((name) => (chosen.has(name) ? !isShown : hidden.has(name)))),
      look,
    );
  const only = ({ name }) =>
    hideClasses(new Set(entries.map((entry) => entry.name).filter((other) => other !== name)), look);
  const names = new Set(found.map(({ name }) => name));
  const pick = (entry) => choosePoints(Array.from(index.keys()).filter((row) => index[row] === entry.index));
  return html`<div class="legend" data-testid="legend"><span class="legend-title">${legend.title}</span>
    ${(entries.length > MANY || hidden.size > 0) &&
      html`<div class="legend-tools">
        ${entries.length > MANY &&
          html`<input type="search" data-testid="find-class" aria-label="Search the classes"
            placeholder=${`${entries.length} classes`}
      value=${wanted} onInput=${(event) => search(event.target.value)} />`}
      <button type="button" class="link" data-testid="show-all" onClick=${() => show(names, true)}>All</button>
      <button type="button" class="link" data-testid="show-none" onClick=${() => show(names, false)}>None</button>
      </div>`}
    <ul class="classes" aria-label=${legend.title}>
      ${found.map((entry) => html`<li key=${entry.name} class=${hidden.has(entry.name) ? 'is-hidden' : ''}>
      <input type="checkbox" data-testid="show-class" aria-label=${`Show ${entry.name}`}
        checked=${!hidden.has(entry.name)} onChange=${(event) => show(new Set([entry.name]), event.target.checked)} />
      <button type="button" class="class" onClick=${() => pick(entry)} title=${`${entry.name}: select these points`}>
      <span class="swatch" data-shape=${look.shapes[entry.index]} style=${{ background: entry.color }}></span>
        <span class="class-name">${entry.name}</span>
      <span class="quiet">${number(entry.count)}</span></button>
      <button type="button" class="link only" data-testid="only-class" aria-label=${`Show only ${entry.name}`}
        onClick=${() => only(entry)}>only</button></li>`)}</ul>${small}</div>`;
}
