# Configures with folders that look like CUDA toolkits, with an nvidia-smi and with NCCL packages that are scripts and empty
# files. Each problem must be reported with what to do. Nothing is compiled.
#   cmake -D SOURCE=<the repository> -D FOLDER=<scratch> -D GENERATOR=<generator> -D MAKE=<its program> -P toolkits.cmake
cmake_minimum_required(VERSION 3.22)

# write_program(<path> <line>...): writes a shell script.
function(write_program path)
  file(WRITE ${path} "#!/bin/sh\n")
  math(EXPR last "${ARGC} - 1")
  foreach(index RANGE 1 ${last})
    file(APPEND ${path} "${ARGV${index}}\n")
  endforeach()
  file(CHMOD ${path} PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE)
endfunction()

# make_toolkit(<name> <version> <accepted>): makes a toolkit whose nvcc accepts compilers of that name, or * for all. Its own
# choice is GNU 14.2. It knows the compute capabilities 8.0 and 9.0.
function(make_toolkit name version accepted)
  set(root ${FOLDER}/${name})
  foreach(file include/cuda_runtime.h include/cublasLt.h lib64/libcudart.so lib64/libcublasLt.so)
    file(WRITE ${root}/${file} "")
  endforeach()
  write_program(${root}/bin/nvcc
    "case \" $* \" in"
    "  *' --version '*) echo 'Cuda compilation tools, release X, V${version}' && exit ;;"
    "  *' --list-gpu-arch '*) printf 'compute_80\\ncompute_90\\n' && exit ;;"
    "  *${accepted}*' -E '*) echo 'lockstep_host 13 3 __clang_major__ __clang_minor__' && exit ;;"
    "  *' -E '*) ;;"
    "  *) echo '#$ TOP=${root}' && exit ;;"
    "esac"
    "echo 'lockstep_host 14 2 __clang_major__ __clang_minor__'"
    "echo '#error -- unsupported GNU version! gcc versions later than 13 are not supported! The flag' >&2"
    "exit 1")
endfunction()

# run(<command>...): sets `result` and `output`, with every run of white space as one space.
function(run)
  execute_process(COMMAND ${CMAKE_COMMAND} -E env --unset=CUDACXX --unset=CUDAARCHS --unset=CUDAHOSTCXX --unset=CUDA_PATH
    --unset=CUDAToolkit_ROOT --unset=NCCL_ROOT --unset=CONDA_PREFIX --unset=VIRTUAL_ENV PATH=${FOLDER}/bin:$ENV{PATH} ${ARGN}
    RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  string(REGEX REPLACE "[ \n]+" " " output "${output}")
  set(result "${result}" PARENT_SCOPE)
  set(output "${output}" PARENT_SCOPE)
endfunction()

# configure(<option>...): configures the project of this test in an empty folder. The system's NCCL is hidden. `environment`
# has variables.
function(configure)
  file(REMOVE_RECURSE ${FOLDER}/build)
  run(${environment} ${CMAKE_COMMAND} -S ${SOURCE}/tests/install/toolkit -B ${FOLDER}/build -G ${GENERATOR}
    -D CMAKE_MAKE_PROGRAM=${MAKE} -D CMAKE_FIND_USE_CMAKE_SYSTEM_PATH=OFF -D CMAKE_FIND_USE_SYSTEM_ENVIRONMENT_PATH=OFF ${ARGN})
  set(output "${output}" PARENT_SCOPE)
endfunction()

# expect(<text>...): fails unless the output has each text.
function(expect)
  math(EXPR last "${ARGC} - 1")
  foreach(index RANGE ${last})
    string(FIND "${output}" "${ARGV${index}}" at)
    if(at EQUAL -1)
      message(FATAL_ERROR "\"${ARGV${index}}\" is missing in:\n${output}")
    endif()
  endforeach()
endfunction()

function(expect_none text)
  string(FIND "${output}" "${text}" at)
  if(NOT at EQUAL -1)
    message(FATAL_ERROR "\"${text}\" must not be in:\n${output}")
  endif()
endfunction()

file(REMOVE_RECURSE ${FOLDER})
make_toolkit(11.5 11.5.119 "*")
make_toolkit(12.0 12.0.140 "*")
make_toolkit(12.1 12.1.105 "*")
make_toolkit(13.0 13.0.88 "*")
make_toolkit(strict 12.4.131 "g++-13")
make_toolkit(stricter 12.4.131 "g++-none")

# Versions and parts of the toolkit.
foreach(old 11.5 12.0)
  configure(-D LOCKSTEP_CUDA=ON -D CUDAToolkit_ROOT=${FOLDER}/${old})
  expect("CMake Error" "CUDA ${old}" "of ${FOLDER}/${old}/bin/nvcc is too old" "12.1 or newer" "empty folder")
endforeach()
configure(-D LOCKSTEP_CUDA=AUTO -D CUDAToolkit_ROOT=${FOLDER}/11.5)
expect("CMake Warning" "for the CPU only" "too old" "CUDA OFF")
expect_none("CMake Error")
configure(-D LOCKSTEP_CUDA=EMULATED -D CUDAToolkit_ROOT=${FOLDER}/12.1)
expect("CUDA ON, driver 530")
configure(-D LOCKSTEP_CUDA=EMULATED -D CMAKE_CUDA_COMPILER=${FOLDER}/13.0/bin/nvcc)
expect("CUDA ON, driver 580")
configure(-D LOCKSTEP_CUDA=ON -D CUDAToolkit_ROOT=${FOLDER}/nowhere)
expect("CMake Error" "nvcc" "CUDAToolkit_ROOT")
configure(-D LOCKSTEP_CUDA=ON -D CMAKE_CUDA_COMPILER=${CMAKE_COMMAND})
expect("CMake Error" "prints no version of CUDA" "-DCMAKE_CUDA_COMPILER")
foreach(part include/cublasLt.h include/cuda_runtime.h bin/nvcc)
  file(REMOVE ${FOLDER}/13.0/${part})
  configure(-D LOCKSTEP_CUDA=EMULATED -D CUDAToolkit_ROOT=${FOLDER}/13.0)
  get_filename_component(name ${part} NAME)
  expect("CMake Error" "${name}" "install")
  make_toolkit(13.0 13.0.88 "*")
endforeach()

# The compiler of the host code. After these checks cmake fails, because no nvcc compiles.
write_program(${FOLDER}/bin/g++-13 "exit 1")
configure(-D LOCKSTEP_CUDA=ON -D CUDAToolkit_ROOT=${FOLDER}/strict -D CMAKE_FIND_USE_SYSTEM_ENVIRONMENT_PATH=ON)
expect("nvcc 12.4.131 does not accept GNU 14.2, so ${FOLDER}/bin/g++-13 compiles host code")
expect_none("install g++")
configure(-D LOCKSTEP_CUDA=ON -D CUDAToolkit_ROOT=${FOLDER}/strict -D CMAKE_CUDA_HOST_COMPILER=g++-14
  -D CMAKE_FIND_USE_SYSTEM_ENVIRONMENT_PATH=ON)
expect("CMake Error" "does not accept GNU 14.2" "later than 13" "-DCMAKE_CUDA_HOST_COMPILER=g++-13")
expect_none("compiles host code")
configure(-D LOCKSTEP_CUDA=ON -D CUDAToolkit_ROOT=${FOLDER}/stricter)
expect("CMake Error" "does not accept GNU 14.2" "install g++-13")

# Architectures.
write_program(${FOLDER}/bin/nvidia-smi "echo 10.0")
configure(-D LOCKSTEP_CUDA=ON -D CUDAToolkit_ROOT=${FOLDER}/12.1 -D CMAKE_CUDA_ARCHITECTURES=75-real)
expect("CMake Error" "has 75-real" "8.0")
foreach(value 100a-real native)
  configure(-D LOCKSTEP_CUDA=ON -D CUDAToolkit_ROOT=${FOLDER}/12.1 -D CMAKE_CUDA_ARCHITECTURES=${value})
  expect("CMake Error" "nvcc 12.1.105 does not know 100" "newer toolkit")
endforeach()
set(environment CUDAARCHS=120)
configure(-D LOCKSTEP_CUDA=ON -D CUDAToolkit_ROOT=${FOLDER}/12.1)
expect("CMake Error" "nvcc 12.1.105 does not know 120")
set(environment "")
configure(-D LOCKSTEP_CUDA=ON -D CUDAToolkit_ROOT=${FOLDER}/12.1 -D CMAKE_CUDA_ARCHITECTURES=80)
expect_none("does not know")
write_program(${FOLDER}/bin/nvidia-smi "echo 'the driver is gone'" "exit 9")
configure(-D LOCKSTEP_CUDA=ON -D CUDAToolkit_ROOT=${FOLDER}/12.1 -D CMAKE_CUDA_ARCHITECTURES=native)
expect("CMake Error" "native" "the driver is gone")

# check_architectures(<lines of nvidia-smi> <expected result> <expected text>): runs scripts/gpu_architectures.sh.
function(check_architectures lines expected text)
  write_program(${FOLDER}/bin/nvidia-smi
    "test \"$*\" = '--query-gpu=compute_cap --format=csv,noheader' && printf '${lines}\\n'")
  run(${SOURCE}/scripts/gpu_architectures.sh)
  if(NOT result EQUAL expected)
    message(FATAL_ERROR "gpu_architectures.sh with ${lines} ended with ${result}: ${output}")
  endif()
  expect("${text}")
endfunction()
check_architectures("9.0" 0 "90a-real ")
check_architectures("9.0\\n8.0\\n9.0\\n12.0" 0 "80-real;90a-real;120-real ")
check_architectures("7.5\\n8.6" 0 "7.5 is left out: 8.0 is the least 86-real ")
check_architectures("7.5" 1 "no GPU can run the kernels")
check_architectures("[N/A]" 1 "update the driver")

# NCCL: missing, too old, in a folder, in a Python package.
# make_nccl(<folder> <version> <library>): makes a folder of NCCL.
function(make_nccl folder version library)
  string(REPLACE "." ";" numbers ${version})
  list(GET numbers 0 major)
  list(GET numbers 1 minor)
  file(WRITE ${folder}/include/nccl.h "#define NCCL_MAJOR ${major}\n#define NCCL_MINOR ${minor}\n#define NCCL_PATCH 3\n")
  file(WRITE ${folder}/lib/${library} "")
endfunction()
set(emulated -D LOCKSTEP_CUDA=EMULATED -D CUDAToolkit_ROOT=${FOLDER}/12.1)
configure(${emulated})
expect("CMake Warning" "NCCL was not found: gradients travel through the host" "-DNCCL_ROOT" "nvidia-nccl-cu12" "without NCCL")
configure(${emulated} -D NCCL_ROOT=${FOLDER}/nowhere)
expect("NCCL_ROOT=${FOLDER}/nowhere has no include/nccl.h")
make_nccl(${FOLDER}/nccl 2.17 libnccl.so)
configure(${emulated} -D NCCL_ROOT=${FOLDER}/nccl)
expect("CMake Warning" "NCCL 2.17.3 in ${FOLDER}/nccl/include is older than 2.18: gradients travel through the host")
make_nccl(${FOLDER}/nccl 2.18 libnccl.so)
configure(${emulated} -D NCCL_ROOT=${FOLDER}/nccl)
expect("CUDA ON, driver 530, NCCL 2.18.3")
expect_none("gradients travel")

set(package ${FOLDER}/venv/lib/python3.11/site-packages/nvidia/nccl)
make_nccl(${package} 2.30 libnccl.so.2)
write_program(${FOLDER}/venv/bin/python3 "echo ${package}")
set(environment VIRTUAL_ENV=${FOLDER}/venv)
configure(${emulated})
expect("NCCL 2.30.3")
expect_none("gradients travel")
configure(${emulated} -D NCCL_ROOT=${FOLDER}/nccl)
expect("NCCL 2.18.3")
# The folder that the user names comes before the toolkit's, for the header and for the library.
make_nccl(${FOLDER}/12.1 2.19 libnccl.so)
file(RENAME ${FOLDER}/12.1/lib/libnccl.so ${FOLDER}/12.1/lib64/libnccl.so)
configure(${emulated})
expect("NCCL 2.19.3")
configure(${emulated} -D NCCL_ROOT=${package})
expect("Found NCCL: ${package}/lib/libnccl.so.2" "NCCL 2.30.3")
file(REMOVE ${FOLDER}/12.1/include/nccl.h ${FOLDER}/12.1/lib64/libnccl.so)
# Without an active environment it is the python3 on PATH.
file(COPY ${FOLDER}/venv/bin/python3 DESTINATION ${FOLDER}/bin)
set(environment "")
configure(-D SEARCH_ONLY=ON -D CMAKE_FIND_USE_SYSTEM_ENVIRONMENT_PATH=ON)
expect("library ${package}/lib/libnccl.so.2, version 2.30.3")
file(REMOVE ${FOLDER}/bin/python3)
# A system may have the library without its header.
set(environment VIRTUAL_ENV=${FOLDER}/venv)
file(REMOVE ${FOLDER}/nccl/include/nccl.h)
configure(-D SEARCH_ONLY=ON -D CMAKE_PREFIX_PATH=${FOLDER}/nccl)
expect("header ${package}/include, library ${package}/lib/libnccl.so.2, version 2.30.3")
file(REMOVE ${package}/include/nccl.h)
configure(${emulated})
expect("NCCL was not found")

# The same with a real Python, if there is one.
make_nccl(${package} 2.30 libnccl.so.2)
find_program(python python3)
if(python)
  set(environment PYTHONPATH=${FOLDER}/venv/lib/python3.11/site-packages)
  configure(-D SEARCH_ONLY=ON -D NCCL_PYTHON=${python})
  expect("library ${package}/lib/libnccl.so.2")
endif()
file(REMOVE_RECURSE ${FOLDER})
