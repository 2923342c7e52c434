#!/usr/bin/env bash
# Debian's (Ubuntu's) packages for the tests of several hosts (ssh, iproute2, pdsh, SLURM) and of pages. Needs root.
# Their services are not started: the tests start daemons of their own in network namespaces.
set -euo pipefail

packages=(openssh-server openssh-client iproute2 util-linux pdsh munge slurmctld slurmd slurm-client)
packages+=(chromium chromium-driver)  # the pages of report and play are opened in it
policy=/usr/sbin/policy-rc.d

if [[ $EUID -ne 0 ]]; then
  echo "test-packages: expected root; as root run: apt-get install ${packages[*]}" >&2
  exit 2
fi
if ! command -v apt-get >/dev/null; then
  echo "test-packages: no apt-get here; install by hand what Debian calls: ${packages[*]}" >&2
  exit 2
fi

if [[ ! -e $policy ]]; then
  trap 'rm -f "$policy"' EXIT
  printf '#!/bin/sh\nexit 101\n' >"$policy"
  chmod +x "$policy"
fi
export DEBIAN_FRONTEND=noninteractive
if [[ $(dpkg-query --show --showformat '${db:Status-Abbrev}\n' "${packages[@]}" 2>/dev/null | grep -c '^ii') -lt ${#packages[@]} ]]; then
  apt-get -qq update
  apt-get -qq install --yes --no-install-recommends "${packages[@]}" >/dev/null
fi
echo "test-packages: installed: ${packages[*]}"
