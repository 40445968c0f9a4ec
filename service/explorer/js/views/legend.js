/** Legend of the colors, on the stage or in the inspector. */

import { choosePoints } from '../actions/selection.js';
import { points } from '../lib/frames.js';
import { html, number, useMemo } from '../lib/html.js';
import { colorsOf, LOOK, lookOf } from '../lib/look.js';
import { useStore } from '../store.js';

/** The legend; a click on an entry selects its class. */
export function Legend() {
  const state = useStore('dataset', 'view', ...LOOK);
  const look = useMemo(() => (state.view === 'compare' ? colorsOf : lookOf)(state, points()), [state.dataset, state.view, ...LOOK.map((name) => state[name])]);
  const { legend, index } = look;
  const faint = legend.faint && html`<p class="faint quiet" data-testid="faint">${legend.faint}</p>`;
  if (legend.kind === 'value') {
    const stops = legend.palette.filter((_, i) => i % 7 === 0).join(', ');
    return html`<div class="legend" data-testid="legend"><span class="legend-title">${legend.title}</span>
      <div class="ramp" style=${{ background: `linear-gradient(to right, ${stops})` }}></div>
      <div class="ramp-ends"><span>${number(legend.low)}</span><span>${number(legend.high)}</span></div>${faint}</div>`;
  }
  if (legend.kind !== 'classes') return html`<div class="legend" data-testid="legend">${faint}</div>`;
  const pick = (entry) => {
    const rows = [];
    index.forEach((value, row) => value % legend.entries.length === entry.index && rows.push(row));
    choosePoints(rows);
  };
  return html`<div class="legend" data-testid="legend"><span class="legend-title">${legend.title}</span><ul class="classes" aria-label=${legend.title}>${legend.entries.map((entry) => html`<li>
    <button type="button" class="class" onClick=${() => pick(entry)} title="Select these points">
      <span class="swatch" style=${{ background: entry.color }}></span><span class="class-name">${entry.name}</span>
      <span class="quiet">${number(entry.count)}</span></button></li>`)}</ul>${faint}</div>`;
}
