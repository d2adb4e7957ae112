# SPDX-License-Identifier: Apache-2.0
# The Spack package of Lockstep, for Spack 1.0 or newer. It builds this tree. docs/install.md explains how to use it.
# Not tested with Spack (as of 2026-11-26); Python 3.11 compiles the file. A test compares names and versions with
# cmake/dependencies.txt.

from spack_repo.builtin.build_systems.cmake import CMakePackage

from spack.package import *


class Lockstep(CMakePackage):
    """Data-parallel training with the same bits at any number of ranks."""

    generator("ninja")
    license("Apache-2.0")

    # The version has no address, because `spack dev-build` builds the tree that contains this file.
    version("0.8.0")

    variant("mpi", default=True, description="More than one rank")
    variant("pmix", default=True, when="+mpi", description="lockrun starts ranks itself, with libpmix")
    variant("curl", default=True, description="Downloads and S3, with libcurl")
    variant("openssl", default=True, description="lockrun, downloads and S3, with OpenSSL")
    variant("pugixml", default=True, description="S3, with pugixml")
    variant("bench", default=False, description="Benchmarks")

    depends_on("cxx", type="build")
    depends_on("cmake@3.22:", type="build")
    depends_on("ninja", type="build")
    depends_on("spdlog@1.8:")
    depends_on("nlohmann-json@3.9:")
    depends_on("cli11@2.0:")
    depends_on("xxhash@0.8:")
    depends_on("curl@7.62:", when="+curl")
    depends_on("openssl@1.1.1:", when="+openssl")
    depends_on("pugixml@1.11:", when="+pugixml")
    depends_on("mpi@3.0:", when="+mpi")
    depends_on("eigen@3.3:", type="build", when="+bench")
    depends_on("pmix@4.0:", when="+pmix")
    depends_on("googletest@1.10:", type="test")

    def cmake_args(self):
        return [
            self.define_from_variant("LOCKSTEP_MPI", "mpi"),
            self.define_from_variant("LOCKSTEP_PMIX", "pmix"),
            self.define_from_variant("LOCKSTEP_CURL", "curl"),
            self.define_from_variant("LOCKSTEP_OPENSSL", "openssl"),
            self.define_from_variant("LOCKSTEP_PUGIXML", "pugixml"),
            self.define_from_variant("LOCKSTEP_BENCH", "bench"),
            self.define("LOCKSTEP_TESTS", self.run_tests),
            self.define("LOCKSTEP_CUDA", "OFF"),
            # Spack itself passes the -march option of its target.
            self.define("LOCKSTEP_ARCH", ""),
        ]
