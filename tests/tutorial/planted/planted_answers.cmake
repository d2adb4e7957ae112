# Wrong answers to the exercises of the tutorial. CMake makes each one from a solution and changes the code of
# one blank. Answer N is the program planted/N. Line N of list.txt has the answered exercise and the words
# that check_exercise must print.
set(planted_folder ${CMAKE_CURRENT_BINARY_DIR}/planted)
set(planted_list "")
set(planted_answers "")

# planted_answer(<exercise> <words of check_exercise> <right> <wrong> [<right> <wrong>]...)
function(planted_answer exercise words)
  set(solution ${PROJECT_SOURCE_DIR}/apps/tutorial/solutions/${exercise}.cpp)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${solution})
  file(READ ${solution} text)
  math(EXPR last "${ARGC} - 1")
  foreach(right RANGE 2 ${last} 2)
    math(EXPR wrong "${right} + 1")
    string(FIND "${text}" "${ARGV${right}}" at)
    if(at EQUAL -1)
      message(FATAL_ERROR "${solution} has no '${ARGV${right}}' to be answered wrongly")
    endif()
    string(REPLACE "${ARGV${right}}" "${ARGV${wrong}}" text "${text}")
  endforeach()
  list(LENGTH planted_answers number)
  file(CONFIGURE OUTPUT ${planted_folder}/${number}.cpp CONTENT "${text}" @ONLY)
  set(planted_answers ${planted_answers} ${planted_folder}/${number}.cpp PARENT_SCOPE)
  set(planted_list "${planted_list}${exercise}|${words}\n" PARENT_SCOPE)
endfunction()

planted_answer(1a_loop "[no step]" "optimizer.step(learning_rate)" "optimizer.space()")
planted_answer(1b_momentum "[no momentum]" "momentum * velocities[j] + gradients[j]" "gradients[j]")
planted_answer(1b_momentum "[dampened momentum]"
  "velocities[j] + gradients[j]" "velocities[j] + (1.0f - momentum) * gradients[j]")
planted_answer(1b_momentum "[rounded twice]"
  "std::fma(-learning_rate, velocities[j], values[j])" "values[j] - learning_rate * velocities[j]")
planted_answer(1c_accumulation "[last gradient]" "total[j] / 4" "kept[3][j]")
planted_answer(1c_accumulation "[sum of gradients]" "total[j] / 4" "total[j]")
planted_answer(1c_accumulation "[chain of additions]"
  "add(add(kept[0], kept[1]), add(kept[2], kept[3]))" "add(add(add(kept[0], kept[1]), kept[2]), kept[3])")
planted_answer(2a_launch "[wrong replica]" "mine = world.rank()" "mine = 0")
planted_answer(2a_launch "[samples not shared]" "mine = world.rank()" "mine = 0" "sharers = world.size()" "sharers = 1")
planted_answer(2a_launch "' more than once: do several ranks report?" "reports = world.is_first()" "reports = true")
planted_answer(2b_sampler "[epoch not set]" "seed + static_cast<uint64_t>(epoch)" "seed")
planted_answer(2b_sampler "[wrong replica]" "(world.rank() + k * world.size())" "(k * world.size())")
planted_answer(2b_sampler "[samples in blocks]" "(world.rank() + k * world.size())" "(world.rank() * share + k)")
planted_answer(2b_sampler "[samples left out]" "(samples + world.size() - 1) / world.size()" "samples / world.size()")
planted_answer(2b_sampler "[not shuffled]" "random_permutation(samples, seed + static_cast<uint64_t>(epoch))"
  "[] { std::vector<uint32_t> o(samples); for (uint32_t i = 0; i < samples; ++i) o[i] = i; return o; }()")
planted_answer(2c_average "[gradient not averaged]" "total[j] / static_cast<float>(world.size())" "mine[j]")
planted_answer(2c_average "[sum of gradients]" "total[j] / static_cast<float>(world.size())" "total[j]")
planted_answer(2c_average "[chain of additions]"
  "tree_sum(of_ranks)" "add(add(add(of_ranks[0], of_ranks[1]), of_ranks[2]), of_ranks[3])")
planted_answer(2d_buckets "[gradient not averaged]" "bucket.ready == bucket.parameters.size()" "false")
planted_answer(2e_replicas "[a replica a rank]" "options[\"--replicas\"]" "world.size()")
planted_answer(2f_evaluation "[mean of means]"
  "loss * static_cast<double>(batch.samples)" "loss" "static_cast<double>(batch.samples)" "1.0")
planted_answer(2f_evaluation "[own part]" "whole.sum / whole.count" "part.sum / part.count")
planted_answer(3a_snapshot "[momentum lost]"
  "for (const NamedTensor& velocity : optimizer.state()) state.push_back(velocity)" "")
planted_answer(3a_snapshot "[epoch repeated]" "concat(epoch + 1)" "concat(epoch)")
planted_answer(3b_resume "[momentum lost]"
  "restore_tensors(snapshot.tensors, state, " "restore_tensors(snapshot.tensors, model.parameters(), ")
planted_answer(3b_resume "[values lost]" "restore_tensors(snapshot.tensors, state, snapshot_path)" "")
planted_answer(3b_resume "[data from the beginning]" "loader.seek(epochs_run * loader.steps_per_epoch())" "")
planted_answer(3b_resume "[epoch repeated]"
  "std::stoi(snapshot.metadata.at(\"epochs_run\"))" "std::stoi(snapshot.metadata.at(\"epochs_run\")) - 1")
planted_answer(3b_resume "[epoch left out]"
  "std::stoi(snapshot.metadata.at(\"epochs_run\"))" "std::stoi(snapshot.metadata.at(\"epochs_run\")) + 1")
planted_answer(3b_resume "[epochs as steps]" "epochs_run * loader.steps_per_epoch()" "epochs_run")
planted_answer(3b_resume "[not resumed]" "world.communicator().broadcast_text(read, 0)" "\"\"")
planted_answer(3b_resume "[rank 0 alone resumed]" "world.communicator().broadcast_text(read, 0)" "read")
planted_answer(3c_other_ranks "[a replica a rank]" "std::stoi(snapshot.metadata.at(\"replicas\"))" "world.size()")
planted_answer(3c_other_ranks "after the third start" "concat(ddp.total_replicas())" "concat(world.size())")
planted_answer(4a_local_rank "[local rank as rank]" ".local_replicas = {world.rank()}" ".local_replicas = {local_rank}")
planted_answer(4a_local_rank "[samples of the node]" ".local_replicas = {world.rank()}" ".local_replicas = {local_rank}"
  ".replicas = world.size()" ".replicas = local_size")
planted_answer(4a_local_rank "yours is 'step 0 rank 1 is node0:0 of 2'" "&& rank < world.rank()" "&& rank < 0")
planted_answer(4b_who_saves "yours is 'step 32 files: node0/snapshot.safetensors node1/snapshot.safetensors'"
  "writes = world.is_first()" "writes = local_rank == 0")
planted_answer(4b_who_saves "[node 0 alone resumed]"
  "world.is_first() && std::filesystem::exists(snapshot_path)" "std::filesystem::exists(snapshot_path)"
  "world.communicator().broadcast_text(read, 0)" "read")
planted_answer(4c_once_a_node "node1/weights.safetensors" "downloads = local_rank == 0" "downloads = world.is_first()")
planted_answer(5a_micro_batches "[first part]" "first = part * samples" "first = 0")
planted_answer(5a_micro_batches "[last gradient]" "adds = part > 0" "adds = false")
planted_answer(5a_micro_batches "[gradients of earlier steps]" "adds = part > 0" "adds = true")
planted_answer(5a_micro_batches "[sum of gradients]" "backward(loss, 1.0 / parts)" "backward(loss)")
planted_answer(5a_micro_batches "yours is 'step 16 at most" "backward(loss, 1.0 / parts)"
  "static std::vector<Tensor> all; all.push_back(loss);
   for (size_t k = 0; part + 1 == parts && k < all.size(); ++k)
     parameters.gradients.bind(gradients, k > 0), backward(all[k], 1.0 / parts);
   if (part + 1 == parts) all.clear()")
planted_answer(5b_grad_scaler "[scale not divided out]" "gradients[j] / scaler.scale" "gradients[j]")
planted_answer(5b_grad_scaler "[overflow not skipped]"
  "if (is_finite) optimizer.step(learning_rate)" "optimizer.step(learning_rate)")
planted_answer(5b_grad_scaler "[overflow counted]" "is_finite ? good_steps + 1 : 0" "good_steps + 1")
planted_answer(5b_grad_scaler "[scale not halved]" "scale = scale / 2" "scale = scale / 1")
planted_answer(5c_recompute "[another mask]" "static_cast<uint32_t>(step.index)"
  "[] { static uint32_t draws = 0; return draws++; }()")
planted_answer(5c_recompute "[one mask for all]" "static_cast<uint32_t>(step.index)" "0")
planted_answer(5c_recompute "has no gradient" "backward(first_half(), kept.grad())" "")
planted_answer(6a_moments "[gradient of another part]" "mean[first + j]" "mean[j]")
planted_answer(6a_moments "[first part everywhere]"
  "first = static_cast<size_t>(world.rank()) * share" "first = 0 * share")
planted_answer(6a_moments "[values not gathered]" "world.communicator().all_gather(moved.data(), bytes, values)"
  "std::copy(moved.begin(), moved.end(), values + first); static_cast<void>(bytes)")
planted_answer(6a_moments "[no step]" "world.communicator().all_gather(moved.data(), bytes, values)"
  "world.communicator().all_gather(values + first, bytes, Numbers(static_cast<size_t>(parameters.layout.elements())).data())")
planted_answer(6a_moments "yours is 'step 32 rank 0 keeps 12288 velocities for 12288 values'"
  "velocities(share)" "velocities(static_cast<size_t>(parameters.layout.elements()))")
planted_answer(6b_layers "[gradient of another part]" "mean[first + j]" "mean[j]")
planted_answer(6b_layers "[no step]" "mean[first + j]" "0.0f")
planted_answer(6b_layers "yours is 'step 44 rank 0 had at most 1761 values of gathered layers at a time'"
  "        layer.whole = {};\n      }\n      Tensor result" "      }\n      Tensor result")
planted_answer(6b_layers "a layer is used but not gathered" "        gather(world, layer);\n        Tensor x" "        Tensor x")

file(CONFIGURE OUTPUT ${planted_folder}/list.txt CONTENT "${planted_list}" @ONLY)
all_in_one(planted_answers ${planted_folder} ${planted_answers})
all_in_one(blank_exercises ${planted_folder}/blank ${exercises_with_blanks})
target_link_libraries(planted_answers PRIVATE unfinished)
target_link_libraries(blank_exercises PRIVATE unfinished)
add_dependencies(tutorial_tests check_exercise planted_answers blank_exercises)
target_compile_definitions(tutorial_tests PRIVATE LOCKSTEP_PLANTED_DIR="${planted_folder}")
