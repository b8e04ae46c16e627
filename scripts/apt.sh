#!/bin/sh
# Debian's chromium for the tests of pages; where it may not be installed, those tests are skipped, which is said.
command -v chromium >/dev/null && command -v chromedriver >/dev/null && exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  { apt-get update && apt-get install --yes --no-install-recommends chromium chromium-driver; } >/dev/null 2>&1 && exit 0
fi
echo "no chromium and no right to install it: the tests of pages in a browser are skipped"
