# What every test's environment holds, read by ctest itself.

# Open MPI as root, with more ranks than cores, over shared memory or TCP only, and without its banners. Version 5 takes
# PRTE_MCA_* and OMPI_MCA_smsc.
set(ENV{OMPI_ALLOW_RUN_AS_ROOT} 1)
set(ENV{OMPI_ALLOW_RUN_AS_ROOT_CONFIRM} 1)
set(ENV{OMPI_MCA_rmaps_base_oversubscribe} 1)
set(ENV{OMPI_MCA_hwloc_base_binding_policy} none)
set(ENV{OMPI_MCA_btl} self,vader,tcp)
set(ENV{OMPI_MCA_btl_vader_single_copy_mechanism} none)
set(ENV{OMPI_MCA_btl_base_warn_component_unused} 0)
set(ENV{PRTE_MCA_rmaps_default_mapping_policy} :oversubscribe)
set(ENV{PRTE_MCA_hwloc_default_binding_policy} none)
set(ENV{OMPI_MCA_smsc} ^cma)
set(ENV{OMPI_MCA_reachable} weighted)

# Only a build with the sanitizer reads these. GCC 12's interceptor of __tls_get_addr takes the sanitizer's own header
# for glibc's where a plugin's thread-local block happens to begin a page, and LeakSanitizer then reads a wild address
# ("Tracer caught signal 11"). Without the interceptor such blocks are still searched, as allocations of the loader.
set(ENV{LSAN_OPTIONS}
  suppressions=${CMAKE_CURRENT_LIST_DIR}/support/lsan.suppressions:print_suppressions=0:intercept_tls_get_addr=0)
set(ENV{TSAN_OPTIONS} suppressions=${CMAKE_CURRENT_LIST_DIR}/support/tsan.suppressions)
set(ENV{UBSAN_OPTIONS} print_stacktrace=1)
