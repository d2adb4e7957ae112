// SPDX-License-Identifier: Apache-2.0
#pragma once

// Everything for a model of your own. Headers that are not named here are internal. The comments are the
// topics of the API reference: cmake --build build/cpu --target reference.

// The component `nn` of find_package(lockstep) has the first topics.

// Tensors
#include "core/dtype.h"
#include "core/shape.h"
#include "tensor/create.h"
#include "tensor/print.h"
#include "tensor/safetensors.h"
#include "tensor/tensor.h"

// Operations
#include "tensor/operators.h"
#include "tensor/ops.h"

// Gradients
#include "tensor/autograd.h"
#include "tensor/checkpoint.h"

// Modules and layers
#include "nn/initial_values.h"
#include "nn/layers.h"
#include "nn/module.h"

// Parameters and optimizers
#include "parameters/grad_scaler.h"
#include "parameters/gradient_norm.h"
#include "parameters/learning_rate.h"
#include "parameters/optimizer.h"
#include "parameters/parameter_layout.h"
#include "parameters/parameter_space.h"

// Data parallelism
#include "dist/data_parallel.h"
#include "dist/data_parallel_options.h"
#include "dist/distributed_values.h"
#include "dist/parameters_hash.h"
#include "dist/step_summary.h"
#include "movement/reduction_plan.h"
#include "movement/sharding.h"

// Ranks
#include "comm/communicator.h"
#include "comm/transport.h"
#include "comm/world.h"

// Data and tokenizers
#include "data/bytes.h"
#include "data/corpus.h"
#include "data/dataset.h"
#include "data/example_rows.h"
#include "data/examples.h"
#include "data/loader.h"
#include "data/sampler.h"
#include "tokenizer/char_tokenizer.h"
#include "tokenizer/load_tokenizer.h"
#include "tokenizer/tokenizer.h"

// Generation
#include "nn/generate.h"
#include "nn/language_model.h"

// Devices and memory
#include "core/dry_run.h"
#include "core/graph.h"
#include "core/memory.h"
#include "core/stream.h"

// Errors, files and hashes
#include "core/error.h"
#include "core/file.h"
#include "core/hash.h"

// The component `train` has the training loop of the programs, and language models.

// Language models
#include "huggingface/source_model.h"
#include "models/gpt2/gpt.h"
#include "models/llama/llama.h"
#include "models/llama/rotary_frequencies.h"
#include "nn/decoder.h"
#include "writing/score_text.h"
#include "writing/write_texts.h"

// Training loop
#include "config/arguments.h"
#include "config/settings.h"
#include "dist/dist_options.h"
#include "job/job.h"
#include "job/keys.h"
#include "job/resolve.h"
#include "language/text_options.h"
#include "models/model_options.h"
#include "parameters/model_layout.h"
#include "parameters/placed_tensors.h"
#include "parameters/update_options.h"
#include "snapshot/snapshot_options.h"
#include "train/evaluation.h"
#include "train/task.h"
#include "train/trainer.h"
#include "train/training_program.h"

// The component `plan` has memory plans.

// Memory plans
#include "plan/memory_plan.h"
