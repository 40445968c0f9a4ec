/** Light or dark theme: the system's until someone uses the switch. */

const KEPT = 'glle-theme';
const system = matchMedia('(prefers-color-scheme: dark)');
const listeners = new Set();

/** The current theme. */
export const theme = () =>
  (document.documentElement.dataset.theme ?? (system.matches ? 'dark' : 'light')) === 'dark' ? 'dark' : 'light';

/** Colors of the current theme for drawings. */
export function colors() {
  const style = getComputedStyle(document.documentElement);
  const read = (name) =>
    `#${style
      .getPropertyValue(name)
      .match(/\d+/g)
      .slice(0, 3)
      .map((part) => Number(part).toString(16).padStart(2, '0'))
      .join('')}`;
  return {
    ink: read('--ink'),
    muted: read('--muted'),
    surface: read('--stage'),
    accent: read('--select'),
    line: read('--line'),
  };
}

/** Switch to the other theme, and store it. */
export function switchTheme() {
  const other = theme() === 'dark' ? 'light' : 'dark';
  document.documentElement.dataset.theme = other;
  localStorage.setItem(KEPT, other);
  for (const listener of listeners) listener();
}

/** Subscribe to changes of the theme. */
export function onTheme(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

const kept = localStorage.getItem(KEPT);
if (kept === 'light' || kept === 'dark') document.documentElement.dataset.theme = kept;
system.addEventListener('change', () => {
  for (const listener of listeners) listener();
});
