# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Scripts of this folder source this file. start_ranks works as root in a container, on a single core, and on systems where
# a process may not read another process's memory.
#   start_ranks <ranks> <program> [arguments]

# shellcheck disable=SC1091
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"
# OMPI_MCA_smsc is for Open MPI 5, the others are for Open MPI 4.
export OMPI_MCA_orte_execute_quiet=1 OMPI_MCA_btl_base_warn_component_unused=0
export OMPI_MCA_btl_vader_single_copy_mechanism=none OMPI_MCA_smsc=^cma

start_ranks() { mpirun -np "$1" --oversubscribe --bind-to none "${@:2}"; }
