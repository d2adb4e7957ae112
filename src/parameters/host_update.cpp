// SPDX-License-Identifier: Apache-2.0
#include "lockstep/parameters/host_update.h"

#include <algorithm>

#include "lockstep/core/gpu.h"
#include "lockstep/core/memory.h"

namespace lockstep {
namespace {

/// Returns the ranges in order, cut so that each piece has at most `piece_elements`.
std::vector<Placement> pieces_of(std::span<const Range> ranges, int64_t piece_elements) {
  std::vector<std::vector<Range>> pieces;
  int64_t room = 0;
  for (Range rest : ranges)
    while (rest.size() > 0) {
      if (room == 0) {
        pieces.emplace_back();
        room = piece_elements;
      }
      const Range some{rest.begin, std::min(rest.end, rest.begin + room)};
      pieces.back().push_back(some);
      room -= some.size();
      rest.begin = some.end;
    }
  return {pieces.begin(), pieces.end()};
}

Tensor pinned(int64_t elements, DType dtype) {
  return FlatBuffer::make(Placement::whole(elements), dtype, cpu_stream(), true).memory();
}

}  // namespace

HostUpdate::HostUpdate(ParameterSpace& space, int64_t piece_elements)
    : space_(space), piece_elements_(piece_elements), travel_(space.layout.stream()) {
  if (!mode_of(travel_).is_dry) travel_ = make_gpu_stream(gpu_of(travel_));
  const MemoryScope scope("optimizer");
  const bool sends = space.copies.exist() && device_of(space.copies().memory().stream()) == Device::cuda;
  for (Stage& stage : stages_) {
    stage.gradients = pinned(piece_elements, space.layout.dtype());
    if (sends) stage.copies = pinned(piece_elements, space.precision());
  }
}

void HostUpdate::run(std::span<const Range> ranges, const Apply& apply) {
  const std::vector<Placement> pieces = pieces_of(ranges, piece_elements_);
  if (pieces.empty()) return;
  written_.record(space_.layout.stream());
  written_.hold(travel_);
  fetch(pieces[0], stages_[0]);
  for (size_t i = 0; i < pieces.size(); ++i) {
    Stage& stage = stages_[i % 2];
    if (i + 1 < pieces.size()) fetch(pieces[i + 1], stages_[(i + 1) % 2]);
    stage.arrived.synchronize();
    stage.sent.synchronize();  // the copies of the piece that used this stage before
    const FlatBuffer gradients(stage.gradients.slice(0, pieces[i].elements()), pieces[i]);
    if (!stage.copies) {
      apply(pieces[i].ranges(), gradients, space_.copies());
      continue;
    }
    apply(pieces[i].ranges(), gradients, {stage.copies.slice(0, pieces[i].elements()), pieces[i]});
    send(pieces[i], stage);
  }
  for (Stage& stage : stages_) stage.sent.hold(space_.layout.stream());
}

void HostUpdate::fetch(const Placement& piece, Stage& stage) {
  const FlatBuffer& gradients = space_.gradients();
  for (const Range& range : piece.ranges()) {
    const View from = gradients.view(range);
    copy_bytes_in_background(stage.gradients.data<float>() + piece.offset_of(range), from.data, from.bytes(),
                             travel_);
  }
  stage.arrived.record(travel_);
}

void HostUpdate::send(const Placement& piece, Stage& stage) {
  const FlatBuffer here(stage.copies.slice(0, piece.elements()), piece);
  for (const Range& range : piece.ranges()) {
    const View to = space_.copies().view(range);
    copy_bytes_in_background(to.data, here.view(range).data, to.bytes(), travel_);
  }
  stage.sent.record(travel_);
}

}  // namespace lockstep
