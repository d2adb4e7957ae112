# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# For scripts of this folder, which source it. Ranks start anywhere: as root in a container, on a single core, and where
# one process may not read another's memory.
#   start_ranks <ranks> <program> [arguments]

# shellcheck disable=SC1091
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"
# The last one is for Open MPI 5, the others are for Open MPI 4.
export OMPI_MCA_orte_execute_quiet=1 OMPI_MCA_btl_base_warn_component_unused=0
export OMPI_MCA_btl_vader_single_copy_mechanism=none OMPI_MCA_smsc=^cma

start_ranks() { mpirun -np "$1" --oversubscribe --bind-to none "${@:2}"; }
