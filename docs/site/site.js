// Settings of docsify, links that leave the site, and the choice between dark and light.
'use strict';
(() => {
  const repository = 'https://github.com/llmguard/llmguard/blob/main';
  const { build, pages, version } = window.llmguardSite;

  if (!location.hash || location.hash === '#/') location.replace('#/docs/');

  // Pages for users come first among the results of a search.
  const late = (page) => /^\/(CHANGELOG|docs\/decisions|docs\/internals)/.test(page);

  // follow corrects one link: a directory gets its slash, and what is no page of this site opens
  // in the repository.
  function follow(link) {
    const [path, query] = link.getAttribute('href').slice(1).split('?');
    const page = path.replace(/(.)\/README$/, '$1/');
    const known = [page, page + '/'].find((one) => pages.includes(one));
    if (known) {
      link.setAttribute('href', '#' + known + (query ? '?' + query : ''));
      return;
    }
    link.href = repository + path;
    link.target = '_blank';
    link.rel = 'noopener';
  }

  window.$docsify = {
    name: `llmguard <small>${build}</small>`,
    nameLink: '#/docs/',
    relativePath: true,
    loadSidebar: true,
    alias: { '/.*/_sidebar.md': '/_sidebar.md' },
    auto2top: true,
    subMaxLevel: 2,
    search: {
      paths: [...pages.filter((page) => !late(page)), ...pages.filter(late)],
      depth: 3,
      placeholder: 'Search',
      noData: 'Nothing found',
      namespace: 'llmguard-' + version,
    },
    plugins: [(hook) => hook.doneEach(() => {
      document.querySelectorAll('.markdown-section a[href^="#/"]').forEach(follow);
    })],
  };

  const dark = document.getElementById('dark');
  const system = matchMedia(dark.media);
  const stored = () => { try { return localStorage.getItem('llmguard-theme'); } catch { return null; } };
  const show = (theme) => {
    if (theme === 'dark') dark.media = 'all';
    if (theme === 'light') dark.media = 'not all';
  };
  show(stored());
  document.getElementById('theme').addEventListener('click', () => {
    const theme = (stored() ?? (system.matches ? 'dark' : 'light')) === 'dark' ? 'light' : 'dark';
    try { localStorage.setItem('llmguard-theme', theme); } catch { /* this page only */ }
    show(theme);
  });
})();
