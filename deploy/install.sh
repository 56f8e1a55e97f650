#!/bin/sh
# Installs llmguard from its release archive, after checking the archive's SHA-256:
#
#   curl -fsSL https://raw.githubusercontent.com/llmguard/llmguard/main/deploy/install.sh | sh
#
# LLMGUARD_VERSION   the version, such as 1.2.3 (default: the newest)
# LLMGUARD_BIN       the directory (default: /usr/local/bin if it is writable, otherwise ~/.local/bin)
# LLMGUARD_RELEASES  where the releases are (default: GitHub)
set -eu

fail() {
  echo "install.sh: $*" >&2
  exit 1
}

# install runs only when the whole script has arrived.
install() {
  releases=${LLMGUARD_RELEASES:-https://github.com/llmguard/llmguard/releases}
  from=$releases/latest/download
  [ -z "${LLMGUARD_VERSION-}" ] || from=$releases/download/v${LLMGUARD_VERSION#v}

  os=$(uname -s | tr '[:upper:]' '[:lower:]')
  case $(uname -m) in
    x86_64 | amd64) arch=amd64 ;;
    aarch64 | arm64) arch=arm64 ;;
    *) fail "there is no release for $(uname -m). Build it with Go: go install github.com/llmguard/llmguard/cmd/llmguard@latest" ;;
  esac

  tmp=$(mktemp -d)
  trap 'rm -rf "$tmp"' EXIT
  cd "$tmp"
  curl -fsSL -o checksums.txt "$from/checksums.txt" || fail "$from/checksums.txt could not be downloaded. Check the network and LLMGUARD_VERSION"
  grep "_${os}_$arch\.tar\.gz\$" checksums.txt > wanted || fail "the release has no archive for $os on $arch. Its files are at $releases"
  archive=$(sed 's/.* //' wanted)
  curl -fsSL -o "$archive" "$from/$archive" || fail "$from/$archive could not be downloaded. Run install.sh again"
  if command -v sha256sum > /dev/null; then
    sum=$(sha256sum "$archive")
  else
    sum=$(shasum -a 256 "$archive")
  fi
  [ "${sum%% *}" = "$(sed 's/ .*//' wanted)" ] || fail "the SHA-256 of $archive is not the one in checksums.txt, so nothing was installed. Run install.sh again"
  tar -xzf "$archive" llmguard

  bin=${LLMGUARD_BIN-}
  if [ -z "$bin" ]; then
    bin=/usr/local/bin
    [ -w "$bin" ] || bin=$HOME/.local/bin
  fi
  mkdir -p "$bin"
  mv llmguard "$bin/llmguard"
  echo "installed $("$bin/llmguard" --version) in $bin"
  case :$PATH: in
    *:"$bin":*) echo 'try it: llmguard dev' ;;
    *) echo "try it: $bin/llmguard dev    ($bin is not in PATH)" ;;
  esac
}

install
