/** Histograms of the columns, whose bars filter the map and each other. */

import { filterBy, filterOf } from '../actions/filters.js';
import { choosePoints } from '../actions/selection.js';
import { newest, useComputed } from '../lib/background.js';
import { points } from '../lib/frames.js';
import { date, html, number, useRef, useState } from '../lib/html.js';
import { columnsOfData } from '../lib/rows.js';
import { set, state, useStore } from '../store.js';

const MAX_SHOWN = 12; // histograms at once; the others are searched
const HEIGHT = 36; // pixels of the highest bar
const ask = newest('histogramsOf');

/** The panel: closed until someone opens it or a filter is there. */
export function Filters() {
  const { filters, columns, metadata, dataset, passing } = useStore('filters', 'columns', 'metadata', 'dataset',
    'passing');
  const [chosenOpen, open] = useState(null);
  const isOpen = chosenOpen ?? Boolean(filters);
  const [wanted, search] = useState('');
  const last = useRef(null);
  const known = columns && (isOpen || filters) ? columnsOfData() : [];
  const text = wanted.trim().toLowerCase();
  const found = known.filter(({ name }) => filterOf(name) || name.toLowerCase().includes(text));
  const chosen = found.filter(({ name }, i) => i < MAX_SHOWN || filterOf(name));
  const made = useComputed(
    () => (isOpen && chosen.length
      ? ask({ columns: chosen, filters: chosen.map(({ name }) => filterOf(name)), n: points() }) : null),
    [filters, columns, metadata, dataset, text, isOpen]);
  if (made) last.current = { dataset, histograms: made.histograms };
  if (!columns) return null;
  const histograms = last.current?.dataset === dataset ? last.current.histograms : [];
  const missing = Object.keys(filters ?? {}).filter((name) => !known.some((column) => column.name === name));
  return html`<section class="panel" data-testid="filters"><details class="more" open=${isOpen}
    onToggle=${(event) => open(event.currentTarget.open)}><summary>Filter by columns</summary>
    ${known.length > MAX_SHOWN && html`<label class="find wide">Find columns <input type="search"
      data-testid="find-filter" value=${wanted} onInput=${(event) => search(event.target.value)} /></label>`}
    ${isOpen && histograms.map((one) =>
      html`<${Histogram} key=${one.name} one=${one} filter=${filterOf(one.name)} />`)}
    ${isOpen && found.length > chosen.length &&
      html`<p class="quiet">The first ${MAX_SHOWN} of ${number(found.length)} columns.</p>`}
    </details>
    ${filters && html`<p role="status" data-testid="passing">
      ${passing && html`<strong>${number(passing.count)}</strong> of ${number(points())} rows pass.`}${' '}
      ${missing.length > 0 && `Not applied, because this browser does not have the column: ${missing.join(', ')}. `}
      <button type="button" class="link" data-testid="clear-filters" onClick=${() => set({ filters: null })}>Clear
      </button>${passing?.count > 0 &&
        html`<button type="button" class="link" data-testid="select-passing"
          onClick=${() => choosePoints(rowsOf(passing.mask))}>Select them</button>`}</p>`}
  </section>`;
}

/** The rows of a mask that are not hidden. */
const rowsOf = (mask) => Array.from(mask.keys()).filter((row) => mask[row] && !state.hidden?.mask[row]);

/** The histogram of one column, pale of all rows, dark of those that pass the other filters. */
function Histogram({ one, filter }) {
  const { name } = one;
  const box = useRef(null);
  const clear = () => {
    box.current.querySelector('input, .bar').focus(); // the button goes
    filterBy(name, null);
  };
  return html`<div class="histogram" role="group" aria-label=${name} data-testid=${`histogram-${name}`} ref=${box}>
    <div class="panel-head"><strong class="head-name" title=${name}>${name}</strong>
      <span class="quiet" data-testid=${`range-${name}`}>${sayRange(one, filter)}</span>
      ${filter && html`<button type="button" class="link" aria-label=${`Do not filter by ${name}`}
        data-testid=${`unfilter-${name}`} onClick=${clear}>×</button>`}</div>
    ${one.names ? html`<${Words} one=${one} filter=${filter} />` : html`<${Numbers} one=${one} filter=${filter} />`}
  </div>`;
}

/** A bound of a bin as it is written. */
const boundOf = ({ kind, low, width, isWhole }, bin, isEnd) =>
  (kind === 'date' ? date(Math.round(low + bin * width)) : number(low + bin * width - Number(isEnd && isWhole)));

/** The numbers that pass, or all that there are. */
function sayRange(one, filter) {
  if (one.names) return one.others ? `${number(one.others)} rarer values` : '';
  const [first, end] = filter ?? [0, one.count];
  return `${boundOf(one, first, false)} to ${boundOf(one, end, true)}`;
}

/** Bars of numbers: a drag over them, or the two handles, choose a range. */
function Numbers({ one, filter }) {
  const { name, all, passing, count } = one;
  const start = useRef(null);
  const highest = Math.max(1, ...all);
  const [first, end] = filter ?? [0, count];
  const choose = (from, to) =>
    (from !== first || to !== end) && filterBy(name, from === 0 && to === count ? null : [from, to]);
  const binAt = (event) => {
    const { left, width } = event.currentTarget.getBoundingClientRect();
    return Math.max(0, Math.min(count - 1, Math.floor(((event.clientX - left) / width) * count)));
  };
  const drag = (event) => {
    const at = binAt(event);
    choose(Math.min(start.current, at), Math.max(start.current, at) + 1);
  };
  const bar = (value, bin, kind) => {
    const height = (value / highest) * HEIGHT;
    return html`<rect class=${kind} x=${bin + 0.06} width="0.88" y=${HEIGHT - height} height=${height} />`;
  };
  const handle = (value, side, move) => html`<input type="range" min="0" max=${count} step="1" value=${value}
    aria-label=${`${name}, ${side}`} aria-valuetext=${boundOf(one, value, side === 'to')}
    data-testid=${`${side}-${name}`} onInput=${(event) => {
      const [from, to] = move(Number(event.target.value));
      event.target.value = String(side === 'from' ? from : to); // a bin remains between the handles
      choose(from, to);
    }} />`;
  return html`<svg viewBox=${`0 0 ${count} ${HEIGHT}`} preserveAspectRatio="none" aria-hidden="true"
    onPointerDown=${(event) => {
      event.currentTarget.setPointerCapture(event.pointerId);
      start.current = binAt(event);
      drag(event);
    }} onPointerMove=${(event) => start.current !== null && drag(event)}
    onPointerUp=${() => (start.current = null)} onPointerCancel=${() => (start.current = null)}>
    ${Array.from({ length: count }, (_, bin) => html`${bar(all[bin], bin, 'all')}
      ${bar(passing[bin], bin, bin >= first && bin < end ? 'passing' : 'refused')}`)}</svg>
    <div class="handles">${handle(first, 'from', (value) => [Math.min(value, end - 1), end])}
      ${handle(end, 'to', (value) => [first, Math.max(value, first + 1)])}</div>`;
}

/** Bars of words: a click on one shows its rows, further clicks those of more. */
function Words({ one, filter }) {
  const { name, names, all, passing } = one;
  const highest = Math.max(1, ...all.slice(0, names.length));
  const toggle = (word) => {
    const words = filter?.includes(word) ? filter.filter((other) => other !== word) : [...(filter ?? []), word];
    filterBy(name, words.length ? words : null);
  };
  const isOn = (word) => Boolean(filter?.includes(word));
  return html`${names.map((word, i) => html`<button type="button" class="bar" aria-pressed=${isOn(word)}
    data-testid=${`bar-${name}`} onClick=${() => toggle(word)} title=${word}
    style=${{ '--all': all[i] / highest, '--passing': passing[i] / highest }}>
    <span>${word === '' ? '(empty)' : word}</span><span>${number(passing[i])}</span></button>`)}`;
}
