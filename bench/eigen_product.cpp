// SPDX-License-Identifier: Apache-2.0
#include "eigen_product.h"

#define EIGEN_DONT_PARALLELIZE
#include <Eigen/Core>

namespace lockstep {

void eigen_product(const MatMul& product) {
  using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  const auto stored = [](const View& view) {
    return Eigen::Map<Matrix>(view.as<float>(), view.shape[0], view.shape[1]);
  };
  const auto a = stored(product.a);
  const auto b = stored(product.b);
  auto c = stored(product.c);
  if (product.transpose_a)
    c.noalias() = a.transpose() * b;
  else if (product.transpose_b)
    c.noalias() = a * b.transpose();
  else
    c.noalias() = a * b;
}

}  // namespace lockstep
