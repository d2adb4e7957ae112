// SPDX-License-Identifier: Apache-2.0
#pragma once

// Everything for a model of your own. Other headers and the names in lockstep::detail are not for users. The
// comments are the topics of the API reference: cmake --build build/cpu --target reference.

// The component `nn` of find_package(lockstep) has the first topics.

#include <iostream>

// Tensors
#include "lockstep/core/dtype.h"
#include "lockstep/core/shape.h"
#include "lockstep/kernels/view.h"
#include "lockstep/tensor/create.h"
#include "lockstep/tensor/print.h"
#include "lockstep/tensor/safetensors.h"
#include "lockstep/tensor/tensor.h"

// Operations
#include "lockstep/kernels/attention_heads.h"
#include "lockstep/kernels/gelu_form.h"
#include "lockstep/kernels/random.h"
#include "lockstep/tensor/operators.h"
#include "lockstep/tensor/ops.h"

// Gradients
#include "lockstep/tensor/autograd.h"
#include "lockstep/tensor/checkpoint.h"
#include "lockstep/tensor/operation_scope.h"

// Modules and layers
#include "lockstep/nn/initial_values.h"
#include "lockstep/nn/layers.h"
#include "lockstep/nn/module.h"

// Parameters and optimizers
#include "lockstep/kernels/grad_scale_state.h"
#include "lockstep/parameters/grad_scaler.h"
#include "lockstep/parameters/gradient_norm.h"
#include "lockstep/parameters/learning_rate.h"
#include "lockstep/parameters/optimizer.h"
#include "lockstep/parameters/parameter_layout.h"
#include "lockstep/parameters/parameter_space.h"
#include "lockstep/tensor/range.h"

// Data parallelism
#include "lockstep/dist/data_parallel.h"
#include "lockstep/dist/data_parallel_options.h"
#include "lockstep/dist/distributed_values.h"
#include "lockstep/dist/parameters_hash.h"
#include "lockstep/dist/step_summary.h"
#include "lockstep/movement/micro_batch.h"
#include "lockstep/movement/sharding.h"

// Ranks
#include "lockstep/comm/communicator.h"
#include "lockstep/comm/transport.h"
#include "lockstep/comm/world.h"

// Data and tokenizers
#include "lockstep/data/bytes.h"
#include "lockstep/data/chat_template.h"
#include "lockstep/data/corpus.h"
#include "lockstep/data/dataset.h"
#include "lockstep/data/example_rows.h"
#include "lockstep/data/examples.h"
#include "lockstep/data/loader.h"
#include "lockstep/data/sampler.h"
#include "lockstep/tokenizer/char_tokenizer.h"
#include "lockstep/tokenizer/load_tokenizer.h"
#include "lockstep/tokenizer/tokenizer.h"

// Generation
#include "lockstep/nn/generate.h"
#include "lockstep/nn/language_model.h"

// Devices and memory
#include "lockstep/core/dry_run.h"
#include "lockstep/core/graph.h"
#include "lockstep/core/memory.h"
#include "lockstep/core/stream.h"

// Errors, files and hashes
#include "lockstep/core/error.h"
#include "lockstep/core/file.h"
#include "lockstep/core/hash.h"

// The component `train` has the training loop of the programs, and language models.

// Language models
#include "lockstep/huggingface/writer.h"
#include "lockstep/models/gpt2/gpt.h"
#include "lockstep/models/llama/llama.h"
#include "lockstep/models/llama/rotary_frequencies.h"
#include "lockstep/nn/decoder.h"
#include "lockstep/writing/score_text.h"
#include "lockstep/writing/write_texts.h"

// Training loop
#include "lockstep/dist/dist_options.h"
#include "lockstep/job/job.h"
#include "lockstep/job/resolve.h"
#include "lockstep/language/text_options.h"
#include "lockstep/models/model_options.h"
#include "lockstep/parameters/model_layout.h"
#include "lockstep/parameters/placed_tensors.h"
#include "lockstep/parameters/update_options.h"
#include "lockstep/snapshot/snapshot_options.h"
#include "lockstep/train/task.h"
#include "lockstep/train/trainer.h"
#include "lockstep/train/training_program.h"

// The component `plan` has memory plans.

// Memory plans
#include "lockstep/plan/memory_plan.h"
