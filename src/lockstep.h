// SPDX-License-Identifier: Apache-2.0
#pragma once

// Everything for a model of your own. The component `nn` of find_package(lockstep) has these parts.

// Tensors, operations and gradients
#include "tensor/autograd.h"
#include "tensor/checkpoint.h"
#include "tensor/create.h"
#include "tensor/operators.h"
#include "tensor/ops.h"
#include "tensor/safetensors.h"
#include "tensor/tensor.h"

// Modules, layers and generation
#include "nn/generate.h"
#include "nn/layers.h"
#include "nn/module.h"

// Parameters and optimizers
#include "parameters/grad_scaler.h"
#include "parameters/gradient_norm.h"
#include "parameters/learning_rate.h"
#include "parameters/optimizer.h"
#include "parameters/parameter_space.h"

// Samples and tokens
#include "data/corpus.h"
#include "data/dataset.h"
#include "data/examples.h"
#include "data/loader.h"
#include "tokenizer/char_tokenizer.h"
#include "tokenizer/load_tokenizer.h"

// Ranks and data parallelism
#include "comm/world.h"
#include "dist/data_parallel.h"
#include "dist/parameters_hash.h"

// Devices, errors and files
#include "core/error.h"
#include "core/file.h"
#include "core/hash.h"
#include "core/memory.h"
#include "core/stream.h"

// The component `train` has the training loop of the programs, and language models.
#include "huggingface/source_model.h"
#include "job/keys.h"
#include "job/resolve.h"
#include "models/gpt2/gpt.h"
#include "models/llama/llama.h"
#include "train/evaluation.h"
#include "train/task.h"
#include "train/trainer.h"
#include "writing/score_text.h"
#include "writing/write_texts.h"

// The component `plan` has memory plans.
#include "plan/memory_plan.h"
