/**
 * The columns of a chosen file: what they are, shown and changed in their heads, before anything is stored or fitted.
 */

import { giveRole, isMadeAtOnce, mapOf, readAgain, roleOf, uploadPending } from '../actions/data.js';
import { headsOf, isWide, MAP, matching, refusedColumns, ROLES, SINGLE } from '../lib/columns.js';
import { html, number, useEffect, useLayoutEffect, useRef, useState } from '../lib/html.js';
import { inWords, valuesOf } from '../lib/remedies.js';
import { titleOfMethod } from '../lib/titles.js';
import { set, useStore } from '../store.js';

const SEPARATORS = ['', 'comma', 'semicolon', 'tab', 'pipe']; // as the service calls them
const EDGE = 8; // pixels between the menu and the window

/** The chosen file: its first rows below the heads of its columns, and the buttons that use or discard it. */
export function Columns() {
  const { pending, problem, work, method } = useStore('pending', 'problem', 'work', 'method');
  const { file, head, shown, cells, delimiter, sheet } = pending;
  const [text, setText] = useState('');
  const [opened, setOpened] = useState(new Set());
  const [menu, setMenu] = useState(null); // {names, role, key, anchor}
  const title = useRef(null);
  useEffect(() => {
    setText('');
    setOpened(new Set());
    title.current.focus();
  }, [file]);
  const refused = refusedColumns(problem ?? shown?.problem);
  const columns = pending.columns.map((column) => ({ ...column, ...stateOf(column, pending, refused) }));
  const missing = columns.filter(({ isRefused }) => isRefused).length;
  const found = matching(columns, text);
  const openMenu = (run, event) => {
    const key = run[0].name;
    setMenu(
      menu?.key === key
        ? null
        : { key, names: run.map(({ name }) => name), role: run[0].role, anchor: event.currentTarget },
    );
  };
  const close = (isDone) => {
    if (isDone) menu.anchor.focus();
    setMenu(null);
  };
  const heads = headsOf(columns, text, opened).map((run) => ({
    key: run[0].name,
    className: run[0].isRefused ? 'refused' : run[0].role === 'ignore' ? 'ignored' : '',
    cells: cellsOfRun(run, cells),
    content: html`<${Head} run=${run} isOpen=${menu?.key === run[0].name}
      onClick=${(event) => openMenu(run, event)} />`,
  }));
  return html`<section class="columns" data-testid="pending" aria-labelledby="columns-title">
    <h2 id="columns-title" tabindex="-1" ref=${title}>Check the columns</h2>
    <p class="file-name"><strong>${file.name}</strong>
      ${shown?.n ? html` <span class="quiet">
        ${head ? 'the first ' : ''}${number(shown.n)} rows, ${number(shown.n_features)} ${shown.n_features === 1
          ? 'feature' : 'features'}</span>` : ''}</p>
    ${columns.length > 0 && html`<p class=${missing ? 'hint warn' : 'hint'} data-testid="columns-hint">${missing
      ? `Click ${missing === 1 ? 'the marked head' : `the ${missing} marked heads`} and choose what ${missing === 1
        ? 'the column is' : 'these columns are'}.`
      : 'Click the head of a column to change what it is. Nothing is stored or fitted yet.'}</p>`}
    ${isWide(columns) && html`<div class="columns-tools">
      <label class="find">Find columns <input type="search" data-testid="find-columns" value=${text}
        onInput=${(event) => setText(event.target.value)} /></label>
      ${text.trim() &&
        html`<span class="quiet" role="status">${number(found.length)} of ${number(columns.length)}</span>`}
      ${text.trim() && found.length > 1 &&
        html`<button type="button" data-testid="change-found" aria-haspopup="menu" aria-expanded=${menu?.key === ''}
        onClick=${(event) => setMenu({ key: '', names: found.map(({ name }) => name), role: null,
          anchor: event.currentTarget })}>Change all ${number(found.length)}</button>`}
      ${opened.size > 0 &&
        html`<button type="button" data-testid="group-columns"
          onClick=${() => setOpened(new Set())}>Group columns</button>`}
    </div>`}
    ${heads.length > 0
      ? html`<${Table} columns=${heads} />`
      : shown?.rows.length > 0 && html`<${Table} columns=${plainColumns(shown)} />`}
    <${Notices} notices=${shown?.notices} />
    ${/\.(csv|tsv|txt)(\.gz)?$/i.test(file.name) && html`<label class="find">Separator
      <select data-testid="delimiter" onChange=${(event) => readAgain({ delimiter: event.target.value })}>
        ${SEPARATORS.map((name) =>
          html`<option value=${name} selected=${name === delimiter}>${name || 'automatic'}</option>`)}</select>
        </label>`}
    <${Sheets} file=${file} notices=${shown?.notices} problem=${problem ?? shown?.problem} chosen=${sheet} />
    <div class="buttons">
      ${!shown && problem &&
        !work ? html`<button type="button" class="primary" data-testid="read-again"
          onClick=${() => readAgain()}>Try again</button>`
        : html`<button type="button" class="primary" data-testid="use-file"
          disabled=${Boolean(work) || !shown || Boolean(shown.problem)} onClick=${uploadPending}>
        ${mapOf(pending) ? 'Audit this map'
          : isMadeAtOnce() ? `Make a map by ${titleOfMethod(method)}` : 'Use this table'}</button>`}
      <button type="button" data-testid="discard-file" disabled=${Boolean(work)}
        onClick=${() => set({ pending: null, problem: null })}>Discard</button>
    </div>
    ${menu && html`<${Menu} ...${menu} onClose=${close} onChoose=${(role) => giveRole(menu.names, role)}
      onOpen=${menu.key && menu.names.length > 1 ? () => setOpened(new Set([...opened, ...menu.names])) : null} />`}
  </section>`;
}

const known = { file: null, names: [] }; // sheets of the last workbook

/** The sheets of a workbook, as its notice or its problem names them; a workbook with a single one has no choice. */
function Sheets({ file, notices, problem, chosen }) {
  if (known.file !== file) Object.assign(known, { file, names: [] });
  const read = (notices ?? []).find(({ code }) => code === 'sheet-read');
  const names = valuesOf('sheet', read?.message_parts ?? problem?.remedy_parts);
  if (read) known.names = names;
  else if (names.length && !known.names.length) known.names = ['', ...names]; // the first one is empty
  if (!known.names.length) return null;
  return html`<label class="find">Sheet <select data-testid="sheet"
    onChange=${(event) => readAgain({ sheet: event.target.value })}>
    ${known.names.map((name) =>
      html`<option value=${name} selected=${name === (chosen || known.names[0])}>${name || 'the first'}</option>`)}
    </select></label>`;
}

/** What a head says of a column. */
function stateOf(column, pending, refused) {
  const role = roleOf(column, pending);
  const isGuessed =
    role !== 'feature' &&
    role !== '' &&
    (!pending.roles.has(column.name) || Boolean(pending.guessed?.names.includes(column.name) && MAP.includes(role)));
  return { role, isGuessed, isRefused: role === '' || (refused.has(column.name) && role !== 'ignore') };
}

/** The head of a column, or of a run of columns: a button that opens the menu of the roles. */
function Head({ run, isOpen, onClick }) {
  const [{ name, role, isGuessed, isRefused }] = run;
  const last = run.at(-1).name;
  return html`<button type="button" class="head" data-testid=${`head-${name}`} aria-haspopup="menu"
    aria-expanded=${isOpen} title=${run.length > 1 ? `${name} to ${last}` : name} onClick=${onClick}>
    <span class="head-name">${run.length > 1 ? `${name} … ${last}` : name}</span>
    <span class="head-role">${run.length > 1 ? `${number(run.length)} × ` : ''}${role ? ROLES[role][0]
      : 'choose a role'}${isGuessed ? ', guessed' : ''}${isRefused && role ? ', refused' : ''}</span>
  </button>`;
}

/** The first cells of a run of columns. */
function cellsOfRun(run, cells) {
  const [first, last] = [run[0], run.at(-1)].map(({ name }) => cells.get(name));
  return run.length > 1 && first && last ? first.map((cell, i) => `${cell} … ${last[i]}`) : first;
}

/** The menu of the roles, below the head that has opened it. */
function Menu({ names, role, anchor, onClose, onChoose, onOpen }) {
  const menu = useRef(null);
  useLayoutEffect(() => { // before the next key
    const element = menu.current;
    const place = (event = undefined) => {
      if (event?.target === element) return; // it scrolls itself
      const { left, top, bottom } = anchor.getBoundingClientRect();
      const { offsetWidth: width, offsetHeight: height } = element;
      const isAbove = bottom + height + EDGE > innerHeight && top > innerHeight - bottom;
      element.style.left = `${Math.max(EDGE, Math.min(left, innerWidth - width - EDGE))}px`;
      element.style.top =
        `${Math.max(EDGE, isAbove ? top - height - 2 : Math.min(bottom + 2, innerHeight - height - EDGE))}px`;
    };
    const leave = ({ target }) => element.contains(target) || anchor.contains(target) || onClose(false);
    place();
    (element.querySelector('[aria-checked=true]') ?? element.querySelector('button')).focus({ preventScroll: true });
    addEventListener('pointerdown', leave);
    addEventListener('scroll', place, true);
    addEventListener('resize', place);
    return () => {
      removeEventListener('pointerdown', leave);
      removeEventListener('scroll', place, true);
      removeEventListener('resize', place);
    };
  }, [anchor]);
  const move = (event) => {
    event.stopPropagation(); // the keys of the page
    const items = [...menu.current.querySelectorAll('button')];
    const at = items.indexOf(document.activeElement);
    const target = { ArrowDown: at + 1, ArrowUp: at - 1 + items.length, Home: 0, End: items.length - 1 }[event.key];
    if (target !== undefined) items[target % items.length].focus();
    else if (event.key === 'Escape' || event.key === 'Tab') onClose(true);
    else return;
    event.preventDefault();
  };
  const choose = (act) => () => {
    onClose(true);
    act();
  };
  const offered = Object.entries(ROLES).filter(([name]) => names.length === 1 || !SINGLE.includes(name));
  return html`<div class="menu" role="menu" ref=${menu} data-testid="roles" onKeyDown=${move}
    aria-label=${names.length > 1 ? `Role of ${names.length} columns` : `Role of ${names[0]}`}>
    ${onOpen && html`<button type="button" role="menuitem" tabindex="-1" data-testid="open-run"
      onClick=${choose(onOpen)}><strong>Show the ${number(names.length)} columns</strong></button>`}
    ${offered.map(([name, [word, meaning]]) =>
      html`<button type="button" role="menuitemradio" tabindex="-1" key=${name} aria-checked=${name === role}
      data-testid=${`role-${name}`} onClick=${choose(() => name !== role && onChoose(name))}>
        <strong>${word}</strong> <span>${meaning}</span></button>`)}
  </div>`;
}

/** What the service decided about the columns. */
export function Notices({ notices }) {
  if (!notices?.length) return null;
  return html`<div class="notices" data-testid="upload-notices">
    ${notices.map(({ message_parts: parts }) => html`<p class="hint">${inWords(parts)}</p>`)}</div>`;
}

const MAX_PLAIN = 30; // features of a data set, or of a file without roles, that are shown

/**
 * Columns of an array or of a stored data set, as `Table` shows them; `apart` has the names of those that are no
 * features.
 * @param {{names?: string[], rows: any[][], labels?: any[], colors?: any[], ids?: any[]}} values
 */
export function plainColumns({ names, rows, labels, colors, ids }, apart = {}) {
  const side = Object.entries({ id: ids, labels, colors })
    .filter(([, values]) => values)
    .map(([role, values]) => ({
      key: role,
      content: named(apart[role]?.join(', ') ?? ROLES[role][0], apart[role] && ROLES[role][0]),
      cells: values.map(String),
    }));
  const count = rows[0].length;
  const features = Array.from({ length: Math.min(MAX_PLAIN, count) }, (_, i) => ({
    key: i, content: named(names?.[i] ?? `x${i + 1}`), cells: rows.map((row) => number(row[i])),
  }));
  return [
    ...side,
    ...features,
    ...(count > MAX_PLAIN ? [{ key: 'more', content: named(`+${count - MAX_PLAIN}`), cells: [] }] : []),
  ];
}

const named = (name, role) =>
  html`<span class="head"><span class="head-name">${name}</span>
    ${role && html`<span class="head-role">${role}</span>`}</span>`;

/** The first rows: columns with a head and cells. The first refused column is scrolled into view. */
export function Table({ columns }) {
  const box = useRef(null);
  const refused = columns.find(({ className }) => className === 'refused')?.key;
  useEffect(() => {
    const head = box.current.querySelector('th.refused');
    const { scrollLeft, clientWidth } = box.current;
    if (head && (head.offsetLeft < scrollLeft || head.offsetLeft + head.offsetWidth > scrollLeft + clientWidth))
      box.current.scrollLeft = head.offsetLeft - clientWidth / 4;
  }, [refused]);
  const count = Math.max(0, ...columns.map(({ cells }) => cells?.length ?? 0));
  const side = columns.map(
    ({ cells, className = '' }) =>
      `${className} ${cells?.some((cell) => Number.isNaN(Number(cell.split(' … ')[0].replaceAll(',', ''))))
        ? 'words' : ''}`,
  );
  return html`<div class="table" tabindex="0" role="region" aria-label="First rows" data-testid="preview" ref=${box}>
    <table>
      <thead><tr>${columns.map(({ key, content }, i) =>
        html`<th scope="col" key=${key} class=${side[i]}>${content}</th>`)}</tr></thead>
      ${count > 0 && html`<tbody>${Array.from({ length: count }, (_, row) => html`<tr>
        ${columns.map(({ key, cells }, i) => html`<td key=${key} class=${side[i]}>${cells?.[row] ?? ''}</td>`)}
        </tr>`)}</tbody>`}
    </table>
  </div>`;
}
