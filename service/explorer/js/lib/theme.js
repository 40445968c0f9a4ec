/** Light or dark: as the system says, until the switch says otherwise. */

const KEPT = 'glle-theme';
const system = matchMedia('(prefers-color-scheme: dark)');
const listeners = new Set();

/** The theme that is shown. */
export const theme = () => document.documentElement.dataset.theme ?? (system.matches ? 'dark' : 'light');

/** The colours that drawings need, of the theme that is shown. */
export function colors() {
  const style = getComputedStyle(document.documentElement);
  const read = (name) => style.getPropertyValue(name).trim();
  return { ink: read('--ink'), muted: read('--muted'), surface: read('--stage'), accent: read('--select'), line: read('--line') };
}

/** Change to the other theme, and keep it. */
export function switchTheme() {
  const other = theme() === 'dark' ? 'light' : 'dark';
  document.documentElement.dataset.theme = other;
  localStorage.setItem(KEPT, other);
  for (const listener of listeners) listener();
}

/** Hear of a change of the theme. */
export function onTheme(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

const kept = localStorage.getItem(KEPT);
if (kept === 'light' || kept === 'dark') document.documentElement.dataset.theme = kept;
system.addEventListener('change', () => {
  for (const listener of listeners) listener();
});
