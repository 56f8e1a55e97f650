// Live updates and keys. Every page works without.
'use strict';

const main = document.getElementById('main');
const signedIn = document.querySelector('nav') !== null;

// --- theme ---
const dark = () => (document.documentElement.dataset.theme
  ?? (matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light')) === 'dark';

function switchTheme() {
  const theme = dark() ? 'light' : 'dark';
  document.documentElement.dataset.theme = theme;
  try { localStorage.setItem('llmguard-theme', theme); } catch { /* for this page only */ }
}

// --- on narrow screens rows are cards, which need the headings of their cells ---
function label(page) {
  for (const table of page.querySelectorAll('table')) {
    const headings = [...table.querySelectorAll('thead th')].map((th) => th.textContent);
    for (const row of table.querySelectorAll('tbody tr, tfoot tr')) {
      let column = 0;
      for (const cell of row.cells) {
        if (cell.tagName === 'TD' && cell.colSpan === 1) cell.dataset.label = headings[column] ?? '';
        column += cell.colSpan;
      }
    }
  }
}

// --- live updates: parts of the page with an id and data-live are replaced ---
const every = 5000;
const status = document.getElementById('live');
let paused = false;

async function refresh() {
  if (paused || document.hidden || document.querySelector('dialog[open]')) return;
  let text;
  try {
    const answer = await fetch(location.href, { headers: { 'X-Llmguard-Live': '1' }, redirect: 'manual' });
    if (answer.type === 'opaqueredirect') { location.reload(); return; } // signed out
    if (!answer.ok) throw new Error(answer.status);
    text = await answer.text();
  } catch {
    status.textContent = '· no answer, values are old';
    return;
  }
  const fresh = new DOMParser().parseFromString(text, 'text/html');
  label(fresh);
  for (const old of document.querySelectorAll('[data-live][id]')) {
    const now = fresh.getElementById(old.id);
    if (now && now.innerHTML !== old.innerHTML && !old.contains(document.activeElement)) old.replaceWith(now);
  }
  status.textContent = `· live, ${new Date().toISOString().slice(11, 19)} UTC`;
}

function pause() {
  paused = !paused;
  status.textContent = paused ? '· paused' : '· live';
}

// --- keys ---
let pending = false;
addEventListener('keydown', (e) => {
  if (e.ctrlKey || e.metaKey || e.altKey || e.target.closest('input, select, textarea, dialog[open]')) return;
  if (pending) {
    pending = false;
    document.querySelector(`nav a[data-key="${CSS.escape(e.key)}"]`)?.click();
    return;
  }
  const keys = {
    g: () => { pending = true; setTimeout(() => { pending = false; }, 1500); },
    '/': () => document.querySelector('[data-search]')?.focus(),
    n: () => document.querySelector('a[rel=next]')?.click(),
    p: () => document.querySelector('a[rel=prev]')?.click() ?? (new URLSearchParams(location.search).has('after') && history.back()),
    r: () => location.reload(),
    '.': pause,
    t: switchTheme,
    '?': () => document.getElementById('help').showModal(),
  };
  const act = keys[e.key];
  if (act) { e.preventDefault(); act(); }
});

for (const button of document.querySelectorAll('[data-copy]')) {
  button.hidden = !navigator.clipboard;
  button.addEventListener('click', async () => {
    await navigator.clipboard.writeText(document.getElementById(button.dataset.copy).textContent);
    button.textContent = 'Copied';
  });
}
const themeButton = document.getElementById('theme');
themeButton.hidden = false;
themeButton.addEventListener('click', switchTheme);
const keysButton = document.getElementById('keys');
if (keysButton) {
  keysButton.hidden = false;
  keysButton.addEventListener('click', () => document.getElementById('help').showModal());
}
label(document);
if (signedIn && main.querySelector('[data-live]')) setInterval(refresh, every);
