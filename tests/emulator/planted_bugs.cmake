# Bugs planted in the project's own kernels, one at a time. The tests of a kernel must fail with its bug, and their output
# must name the bug. This proves that the tests and the emulator detect such bugs.

# lockstep_planted_bug(<name> IN <file> [BUILDS <file>] TEXT <text> BECOMES <text> TESTS <program> FILTER <filter>
# DIAGNOSIS <regex>): replaces TEXT by BECOMES in the file IN, which must contain TEXT exactly once. Builds the .cu file
# BUILDS, by default IN. Links it with the objects of the test program. Adds a test that expects the program to fail with
# the diagnosis. Files are relative to src/kernels/cuda.
function(lockstep_planted_bug name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "IN;BUILDS;TEXT;BECOMES;TESTS;FILTER;DIAGNOSIS" "")
  set(folder ${CMAKE_CURRENT_BINARY_DIR}/planted/${name})
  set(original ${PROJECT_SOURCE_DIR}/src/kernels/cuda/${arg_IN})
  set(changed ${folder}/lockstep/kernels/cuda/${arg_IN})
  # The texts are passed in files, so that CMake does not parse them as lists or commands.
  file(CONFIGURE OUTPUT ${folder}/text CONTENT "${arg_TEXT}" @ONLY)
  file(CONFIGURE OUTPUT ${folder}/becomes CONTENT "${arg_BECOMES}" @ONLY)
  file(CONFIGURE OUTPUT ${folder}/diagnosis CONTENT "${arg_DIAGNOSIS}" @ONLY)
  set(script ${CMAKE_CURRENT_SOURCE_DIR}/emulator/plant.cmake)
  add_custom_command(OUTPUT ${changed} DEPENDS ${original} ${script} ${folder}/text ${folder}/becomes
    COMMAND ${CMAKE_COMMAND} -D FROM=${original} -D TO=${changed} -D CHANGE=${folder} -P ${script})
  if(arg_BUILDS)
    # For a changed header: the source that includes it is compiled with the changed header's folder first.
    set(source ${folder}/${arg_BUILDS})
    file(CONFIGURE OUTPUT ${source} CONTENT "#include \"${PROJECT_SOURCE_DIR}/src/kernels/cuda/${arg_BUILDS}\"\n")
    set_source_files_properties(${source} PROPERTIES OBJECT_DEPENDS ${changed})
  else()
    set(source ${changed})
  endif()
  # The linker takes the functions that the changed object defines from it, not from the library.
  lockstep_program(planted_${name} SOURCES ${source} $<TARGET_OBJECTS:${arg_TESTS}>
    LIBRARIES lockstep::kernels GTest::gtest_main)
  target_include_directories(planted_${name} BEFORE PRIVATE ${folder})
  lockstep_cuda(planted_${name})
  add_dependencies(gpu_tests planted_${name})
  add_test(NAME planted.${name} COMMAND ${CMAKE_COMMAND} -D PROGRAM=$<TARGET_FILE:planted_${name}>
    -D FILTER=${arg_FILTER} -D CHANGE=${folder} -P ${CMAKE_CURRENT_SOURCE_DIR}/emulator/expect_diagnosis.cmake)
  set_tests_properties(planted.${name} PROPERTIES TIMEOUT 120 PROCESSORS ${one_core} LABELS gpu)
endfunction()

lockstep_planted_bug(removed_barrier IN device/reduce.cuh BUILDS layer_norm.cu
  TEXT "  scratch[threadIdx.x] = sum;\n  __syncthreads();\n"
  BECOMES "  scratch[threadIdx.x] = sum;\n"
  TESTS layer_norm_cuda_tests FILTER LayerNormOnGpu.BiasAndCarriedAreOptional
  DIAGNOSIS "emulator: race: .* at shared memory.*add_partials_kernel")

lockstep_planted_bug(removed_warp_barrier IN embedding.cu
  TEXT "    const uint32_t counted = counts[digit];\n    __syncwarp();\n"
  BECOMES "    const uint32_t counted = counts[digit];\n"
  TESTS embedding_cuda_tests FILTER EmbeddingOnGpu.BackwardOfIntegersIsExact
  DIAGNOSIS "emulator: race: .* at shared memory.*(count|scatter)_kernel")

lockstep_planted_bug(removed_wait IN attention_forward.cu
  TEXT "    cp_async_wait<0>();\n    __syncthreads();\n"
  BECOMES "    __syncthreads();\n"
  TESTS attention_cuda_tests FILTER CausalAttentionOnGpu.MatchesTheCpuInDouble
  DIAGNOSIS "emulator: race: .* cp.async of thread [0-9]+, which has not waited for it.*forward_kernel")

lockstep_planted_bug(wait_for_older_group IN attention_backward.cu
  TEXT "    cp_async_wait<0>();\n    __syncthreads();\n    if (tile > 0)"
  BECOMES "    cp_async_wait<1>();\n    __syncthreads();\n    if (tile > 0)"
  TESTS attention_cuda_tests FILTER CausalAttentionOnGpu.MatchesTheCpuInDouble
  DIAGNOSIS "emulator: race: .* cp.async of thread")

lockstep_planted_bug(removed_barrier_between_heads IN attention_backward.cu
  TEXT "    __syncthreads();  // other warps may still read the stages\n"
  BECOMES ""
  TESTS grouped_attention_cuda_tests FILTER GroupedAttentionOnGpu.MatchesTheCpuInDouble
  DIAGNOSIS "emulator: race: .*grouped_key_gradient_kernel")

lockstep_planted_bug(mask_off_by_one IN attention_tile.cuh BUILDS attention_forward.cu
  TEXT "rows_are_keys ? row > column : column > row"
  BECOMES "rows_are_keys ? row > column : column > row + 1"
  TESTS attention_cuda_tests FILTER CausalAttentionOnGpu.MatchesTheCpuInDouble
  DIAGNOSIS "relative_error.o.y, reference.y.* actual: [0-9.e-]+ vs")

lockstep_planted_bug(reference_never_raised IN attention_forward.cu
  TEXT "if (softmax.exponentiate(weights, scale) || raises) break;"
  BECOMES "softmax.exponentiate(weights, scale);\n      break;"
  TESTS attention_cuda_tests FILTER CausalAttentionOnGpu.LargeScoresStayExact
  DIAGNOSIS "relative_error.o.y, reference.y.* actual: [a-z0-9.e-]+ vs")

lockstep_planted_bug(reference_raised_by_other_rows IN attention_forward.cu
  TEXT "fits ? before : fmaxf(before, largest)"
  BECOMES "fits && before > largest ? before : fmaxf(before, largest)"
  TESTS attention_cuda_tests FILTER CausalAttentionOnGpu.ALargeScoreOfOneQueryDoesNotShowInOthers
  DIAGNOSIS "o.y.i.*other.y.i")

lockstep_planted_bug(wrong_lane IN device/reduce.cuh BUILDS attention_forward.cu
  TEXT "value += __shfl_xor_sync(all_lanes, value, distance)"
  BECOMES "value += __shfl_down_sync(all_lanes, value, distance)"
  TESTS attention_cuda_tests FILTER CausalAttentionOnGpu.MatchesTheCpuInDouble
  DIAGNOSIS "relative_error.o.y, reference.y.* actual: [0-9.e-]+ vs")

lockstep_planted_bug(unwritten_output IN attention_tile.cuh BUILDS attention_forward.cu
  TEXT "if (first + at < to.count && 8 * chunk < to.size)"
  BECOMES "if (first + at + 1 < to.count && 8 * chunk < to.size)"
  TESTS attention_cuda_tests FILTER CausalAttentionOnGpu.MatchesTheCpuInDouble
  DIAGNOSIS "relative_error.o.y, reference.y.* actual: inf vs")

lockstep_planted_bug(barrier_in_a_branch IN embedding.cu
  TEXT "    if (lane_index() >= distance) sum += lower;\n"
  BECOMES "    if (lane_index() >= distance) {\n      sum += lower;\n      __syncthreads();\n    }\n"
  TESTS embedding_cuda_tests FILTER EmbeddingOnGpu.BackwardOfIntegersIsExact
  DIAGNOSIS "emulator: deadlock: .*scan_kernel.*wait at __shfl_up_sync .*wait at __syncthreads .embedding.cu:[0-9]+")

lockstep_planted_bug(beyond_the_end IN attention_tile.cuh BUILDS attention_forward.cu
  TEXT "const bool valid = first + row + i < from.count"
  BECOMES "const bool valid = first + row + i <= from.count"
  TESTS attention_cuda_tests FILTER CausalAttentionOnGpu.MatchesTheCpuInDouble
  DIAGNOSIS "emulator: out of bounds: read of 16 bytes at allocation .*forward_kernel")

lockstep_planted_bug(removed_slice_barrier IN batched_matmul.cu
  TEXT "    __syncthreads();\n    if ((begin + slice)"
  BECOMES "    if ((begin + slice)"
  TESTS batched_matmul_cuda_tests FILTER BatchedMatMulOnGpu.HasTheBitsOfTheCpuInEveryDtype
  DIAGNOSIS "emulator: race: .* at shared memory.*product_kernel")

lockstep_planted_bug(changed_swizzle IN attention_tile.cuh BUILDS attention_forward.cu
  TEXT "T* const target = to.at(row, chunk);"
  BECOMES "T* const target = to.at(row, chunk ^ 1);"
  TESTS attention_cuda_tests FILTER CausalAttentionOnGpu.MatchesTheCpuInDouble
  DIAGNOSIS "relative_error.o.y, reference.y.* actual: [0-9.e-]+ vs")

lockstep_planted_bug(swapped_fragment_rows IN attention_tile.cuh BUILDS attention_forward.cu
  TEXT "offset(row_ + lane % 16, lane / 16)"
  BECOMES "offset(row_ + (lane + 8) % 16, lane / 16)"
  TESTS attention_cuda_tests FILTER CausalAttentionOnGpu.MatchesTheCpuInDouble
  DIAGNOSIS "relative_error.o.y, reference.y.* actual: [0-9.e-]+ vs")

lockstep_planted_bug(inverted_predicate IN attention_tile.cuh BUILDS attention_forward.cu
  TEXT "if (first + at < to.count && 8 * chunk < to.size)"
  BECOMES "if (first + at >= to.count && 8 * chunk < to.size)"
  TESTS attention_cuda_tests FILTER CausalAttentionOnGpu.MatchesTheCpuInDouble
  DIAGNOSIS "emulator: out of bounds: write of 16 bytes at allocation .*forward_kernel")
