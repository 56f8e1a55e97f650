// Charts, live updates and keys. Every page works without.
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
  drawCharts();
}

// --- charts ---
const money = new Intl.NumberFormat('en-US', { style: 'currency', currency: 'USD', maximumSignificantDigits: 4 });
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const dayName = (seconds) => new Date(seconds * 1000).toISOString().slice(0, 10);
let plots = [];

function drawCharts() {
  for (const plot of plots) plot.destroy();
  plots = [];
  for (const figure of document.querySelectorAll('figure[data-chart]')) {
    const data = JSON.parse(figure.dataset.chart);
    plots.push(draw(figure, data));
    fillTable(figure.nextElementSibling.querySelector('[data-chart-table]'), data);
  }
}

function draw(figure, { x, series }) {
  const axis = { stroke: css('--soft'), grid: { stroke: css('--line'), width: 1 }, ticks: { show: false } };
  return new uPlot({
    width: Math.max(figure.clientWidth, 200), height: 220,
    tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), 'Etc/UTC'),
    cursor: { y: false },
    scales: { y: { range: (_, low, high) => [Math.min(0, low), high > 0 ? high * 1.08 : 1] } },
    series: [{ label: 'Day', value: (_, v) => (v == null ? '' : dayName(v)) }, ...series.map((s, i) => ({
      label: s.name, stroke: css(`--c${i % 7}`), fill: series.length === 1 ? css('--c0-fill') : undefined, width: 2,
      points: { show: false }, value: (_, v) => (v == null ? '' : money.format(v)),
    }))],
    axes: [{ ...axis }, { ...axis, size: 68, values: (_, ticks) => ticks.map((v) => money.format(v)) }],
  }, [x, ...series.map((s) => s.values)], figure);
}

function fillTable(table, { x, series }) {
  const row = (cells, tag) => {
    const tr = document.createElement('tr');
    cells.forEach((text, i) => {
      const cell = document.createElement(tag);
      cell.textContent = text;
      if (i > 0) cell.className = 'n';
      tr.append(cell);
    });
    return tr;
  };
  table.replaceChildren(row(['Day', ...series.map((s) => s.name)], 'th'),
    ...x.map((at, i) => row([dayName(at), ...series.map((s) => (s.values[i] == null ? '…' : money.format(s.values[i])))], 'td')).reverse());
}

let resized;
addEventListener('resize', () => { clearTimeout(resized); resized = setTimeout(drawCharts, 150); });
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', drawCharts);

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
  for (const old of document.querySelectorAll('[data-live][id]')) {
    const now = fresh.getElementById(old.id);
    if (now && now.innerHTML !== old.innerHTML && !old.contains(document.activeElement)) old.replaceWith(now);
  }
  const charts = [...document.querySelectorAll('figure[data-chart]')];
  const changed = [...fresh.querySelectorAll('figure[data-chart]')].filter((figure, i) => {
    if (!charts[i] || charts[i].dataset.chart === figure.dataset.chart) return false;
    charts[i].dataset.chart = figure.dataset.chart;
    return true;
  });
  if (changed.length > 0) drawCharts();
  status.textContent = `· live, ${new Date().toLocaleTimeString()}`;
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
drawCharts();
if (signedIn && main.querySelector('[data-live]')) setInterval(refresh, every);
