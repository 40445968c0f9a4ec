/** Spectrum and its gap, which show how many dimensions the data support. */

import { html, number, percent } from '../lib/html.js';
import { useStore } from '../store.js';

const WIDTH = 260;
const HEIGHT = 84;
const CLEAR = 0.5;
const SMALL = 0.1;

/** The panel. */
export function Spectrum() {
  const { posterior, summary, single } = useStore('posterior', 'summary', 'single');
  if (!posterior || single) return null;
  const p = posterior.spec.n_components;
  const gap = posterior.diagnostics.figures.relative_gap;
  const verdict = gap >= CLEAR ? 'clear' : gap >= SMALL ? 'moderate' : 'small';
  const meaning = {
    clear: 'The directions shown stand out from the rest.',
    moderate: 'The directions shown stand out somewhat from the rest.',
    small: 'The last direction can change places with one that is not shown.',
  }[verdict];
  const gaps = summary?.relative_gaps?.filter((value) => !Number.isNaN(value)) ?? [];
  return html`<section class="panel" data-testid="spectrum">
    <h2>Spectrum</h2>
    <${Bars} values=${posterior.eigenvalues} p=${p} />
    <p><strong>Gap ${percent(gap)}</strong>, ${verdict}. ${meaning}</p>
    ${gaps.length > 0 && html`<${Strip} gaps=${gaps} reference=${gap} />`}
  </section>`;
}

/** One bar for each eigenvalue of the embedding, and for the next one. */
function Bars({ values, p }) {
  const shown = values.slice(0, 12);
  const most = Math.max(...shown, Number.MIN_VALUE);
  const step = WIDTH / shown.length;
  const width = Math.min(36, step * 0.6);
  const high = HEIGHT - 18;
  return html`<svg class="chart" viewBox=${`0 0 ${WIDTH} ${HEIGHT}`} role="img"
    aria-label=${`Eigenvalues: ${shown.map((value) => number(value)).join(', ')}; the first ${p} are shown`}>
    ${shown.map((value, i) => {
      const size = Math.max(1.5, (value / most) * (high - 4));
      return html`<g><rect x=${i * step + (step - width) / 2} y=${high - size} width=${width} height=${size} rx="2"
        class=${i < p ? 'bar' : 'bar out'}><title>${number(value)}</title></rect>
        <text x=${i * step + step / 2} y=${HEIGHT - 4} text-anchor="middle">${i < p ? `axis ${i + 1}` : 'left out'}</text></g>`;
    })}
    <line x1="0" x2=${WIDTH} y1=${high} y2=${high} class="axis" />
  </svg>`;
}

/** One tick for the gap of each draw. */
function Strip({ gaps, reference }) {
  const place = (value) => 4 + Math.min(1, Math.max(0, value)) * (WIDTH - 8);
  return html`<svg class="chart strip" viewBox=${`0 0 ${WIDTH} 34`} role="img"
    aria-label=${`Gap of ${gaps.length} draws, from ${percent(Math.min(...gaps))} to ${percent(Math.max(...gaps))}`}>
    <line x1="4" x2=${WIDTH - 4} y1="14" y2="14" class="axis" />
    ${Array.from(gaps, (gap) => html`<line x1=${place(gap)} x2=${place(gap)} y1="8" y2="20" class="tick" />`)}
    <circle cx=${place(reference)} cy="14" r="4" class="dot" />
    <text x="4" y="31">0%</text><text x=${WIDTH / 2} y="31" text-anchor="middle">gap of each draw</text>
    <text x=${WIDTH - 4} y="31" text-anchor="end">100%</text>
  </svg>`;
}
