#!/usr/bin/env bash
# Copies what the site needs from the npm packages docsify and prismjs into this folder.
# To update: change the versions, run it, look at the site (`llmguard docs`), commit.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
npm pack --silent docsify@5.0.0 prismjs@1.30.0 > /dev/null
mkdir docsify prismjs
tar -xzf docsify-*.tgz -C docsify --strip-components=1
tar -xzf prismjs-*.tgz -C prismjs --strip-components=1
cp docsify/dist/docsify.min.js docsify/dist/plugins/search.min.js "$here"
cp docsify/dist/themes/core.min.css docsify/dist/themes/addons/core-dark.min.css "$here"
{
  echo '/* PrismJS 1.30.0, MIT license, https://prismjs.com: see prism.LICENSE */'
  for language in bash go json python yaml; do cat "prismjs/components/prism-$language.min.js" && echo; done
} > "$here/prism.min.js"
cp docsify/LICENSE "$here/docsify.LICENSE"
cp prismjs/LICENSE "$here/prism.LICENSE"
# Source maps are not copied.
sed -i '/^\/[\/*]# sourceMappingURL=/d' "$here"/*.min.js "$here"/*.min.css
