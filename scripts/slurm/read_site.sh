# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Reads the site's settings: the file LOCKSTEP_SITE, or else site.sh in this folder if there is one. site.example.sh
# explains them. submit sources this before sbatch, and step.sh in the job.

site_file=${LOCKSTEP_SITE:-$(dirname "${BASH_SOURCE[0]}")/site.sh}
if [[ -n ${LOCKSTEP_SITE:-} && ! -f $site_file ]]; then
  echo "LOCKSTEP_SITE=$site_file does not exist: correct or unset it" >&2
  exit 2
fi
if [[ -f $site_file ]]; then
  shell_options=$-
  # Environment modules may read variables that are not set.
  set +u
  # shellcheck disable=SC1090
  source "$site_file"
  if [[ $shell_options == *u* ]]; then set -u; fi
fi
