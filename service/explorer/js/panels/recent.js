/** What was made before, in any tab: posteriors, embeddings, comparisons, and the jobs that run. */

import { isOpen, listedJobs, openJob, openRecent } from '../actions/open.js';
import { html, percent } from '../lib/html.js';
import { titleOfMethod } from '../lib/titles.js';
import { state, useStore } from '../store.js';
import { nameOf } from './data_panel.js';

const DOING = { fit: 'Fit', draws: 'Draws', summary: 'Spread', embedding: 'Embedding', comparison: 'Comparison', audit: 'Audit of a map' };

/** The panel. */
export function RecentWork() {
  const { posteriors, work, posterior } = useStore('posteriors', 'jobs', 'recent', 'work', 'posterior', 'methods');
  const jobs = listedJobs();
  if (!posteriors.length && !jobs.length) return null;
  const off = Boolean(work);
  return html`<section class="panel" data-testid="recent-work">
    <h2>Made before</h2>
    <ul class="list">
      ${jobs.map((job) => html`<li key=${job.id}><button type="button" class="row" data-testid="recent-job" disabled=${off}
        onClick=${() => openJob(job)}>${describe(job)}
        <span class="quiet">${isOpen(job) ? progress(job) : since(job.finished ?? job.created)}</span></button></li>`)}
      ${posteriors.map((one) => html`<li key=${one.id}><button type="button" class="row" data-testid="recent-posterior" disabled=${off}
        aria-current=${one.id === posterior?.id} onClick=${() => openRecent(one)}>
        ${entry(one.name ?? dataName(one.dataset), `${titleOfMethod(one.spec.method)}, ${one.spec.n_neighbors} neighbors`)}
        <span class="quiet">${since(one.created)}</span></button></li>`)}
    </ul>
  </section>`;
}

const entry = (title, text) => html`<span class="two"><span>${title}</span><span class="quiet">${text}</span></span>`;

/** A job in a few words. */
function describe({ kind, dataset, posterior, request }) {
  const data = dataset ?? state.posteriors.find(({ id }) => id === posterior)?.dataset;
  const what = kind === 'embedding' ? titleOfMethod(request.method)
    : kind === 'comparison' ? `${request.methods.length} methods` : (DOING[kind] ?? kind);
  return data ? entry(dataName(data), what) : entry(what, '');
}

function dataName(id) {
  const dataset = state.recent.find((one) => one.id === id);
  return dataset ? nameOf(dataset) : `Data set ${id.slice(3, 9)}`;
}

function progress({ status, progress: { done, total } }) {
  if (status !== 'running') return status === 'queued' ? 'waiting' : 'stopping';
  return total > 1 ? `running, ${percent(done / total)}` : 'running';
}

/** The time since a moment, roughly. */
function since(time) {
  const minutes = (Date.now() - Date.parse(time)) / 60000;
  if (minutes < 1) return 'just now';
  if (minutes < 60) return `${Math.floor(minutes)} min ago`;
  if (minutes < 48 * 60) return `${Math.floor(minutes / 60)} h ago`;
  return new Date(time).toLocaleDateString('en', { day: 'numeric', month: 'short' });
}
