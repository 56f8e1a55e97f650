// Before anything is painted: the theme that was chosen here.
'use strict';
try {
  const theme = localStorage.getItem('llmguard-theme');
  if (theme === 'dark' || theme === 'light') document.documentElement.dataset.theme = theme;
} catch { /* no storage: the system's choice stands */ }
