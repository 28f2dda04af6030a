#include "gpu/dynamics/nurbs_shell_correction.h"

#include <algorithm>
#include <map>
#include <numeric>

#include <Eigen/Dense>

#include "absl/strings/str_cat.h"
#include "gpu/dynamics/nurbs_shell_stiffness.h"

namespace palpate::gpu {

namespace kernels {
extern const KernelSource nurbs_shell_correction;
}  // namespace kernels

namespace {

using Eigen::MatrixXd;
using Eigen::Vector3d;

/// Adds a Gauss point's stiffness at rest. `place`: of its control points in the matrix.
void AddStiffness(const NurbsShellModel& model, const NurbsShellGauss& gauss, std::span<const Vector3d> rest_m, double dt_s,
                  const std::vector<uint32_t>& place, MatrixXd* matrix) {
  const MatrixXd k = NurbsGaussStiffness(model, gauss, rest_m, dt_s);
  for (uint32_t i = 0; i < gauss.end - gauss.begin; ++i) {
    for (uint32_t j = 0; j < gauss.end - gauss.begin; ++j) {
      matrix->block<3, 3>(3 * place[model.entries[gauss.begin + i].control], 3 * place[model.entries[gauss.begin + j].control]) +=
          k.block<3, 3>(3 * i, 3 * j);
    }
  }
}

template <typename T>
absl::Status Upload(Queue& queue, DeviceBuffer<T>* buffer, std::vector<T> data, const char* name) {
  if (data.empty()) data.emplace_back();  // kernels take a buffer all the same
  PALPATE_ASSIGN_OR_RETURN(*buffer, CreateBufferFrom<T>(queue, data, name));
  return absl::OkStatus();
}

Float4 ToFloat4(const Vector3d& v) { return {static_cast<float>(v.x()), static_cast<float>(v.y()), static_cast<float>(v.z()), 0}; }

}  // namespace

absl::StatusOr<NurbsShellCorrection> NurbsShellCorrection::Create(Queue& queue, const NurbsShellModel& model,
                                                                  const NurbsShellLayout& layout, std::span<const uint32_t> held,
                                                                  double dt_s) {
  NurbsShellCorrection out;
  out.slot_count_ = static_cast<uint32_t>(model.control_count());
  out.lanes_ = layout.lanes;
  std::map<uint32_t, std::vector<uint32_t>> shells;  // control points in the order of their slots
  const std::vector<uint32_t> shell_of = NurbsShellsOf(model);
  const std::vector<Vector3d> rest_m = NurbsRestPositions(model);
  for (const uint32_t c : layout.slot_control) shells[shell_of[c]].push_back(c);
  std::vector<uint32_t> solved_slot, gauss_of, place(model.control_count(), 0), slot_part(model.control_count(), 0xffffffffU);
  std::vector<UInt4> solved_part;
  std::vector<UInt2> part_range;
  std::vector<Float4> axes;
  std::vector<float> inverse;
  for (const auto& [shell, controls] : shells) {
    if (controls.size() > kMaxNurbsCorrected) continue;
    const auto first = static_cast<uint32_t>(solved_slot.size());
    const auto count = static_cast<uint32_t>(controls.size());
    for (uint32_t i = 0; i < count; ++i) place[controls[i]] = i;
    MatrixXd matrix = MatrixXd::Zero(3 * count, 3 * count);
    for (const NurbsShellGauss& gauss : model.gauss) {
      if (shell_of[model.entries[gauss.begin].control] == shell) AddStiffness(model, gauss, rest_m, dt_s, place, &matrix);
    }
    for (uint32_t i = 0; i < count; ++i) {
      const uint32_t c = controls[i];
      const double inertia = NurbsControlInertia(model, c, dt_s);
      for (uint32_t axis = 0; axis < 3; ++axis) {
        const Eigen::Index at = 3 * static_cast<Eigen::Index>(i) + axis;
        matrix(at, at) += inertia;
        if ((held[c] >> axis & 1U) == 0) continue;
        matrix.row(at).setZero();
        matrix.col(at).setZero();
        matrix(at, at) = 1;
      }
    }
    const Eigen::LLT<MatrixXd> factors(matrix);
    if (factors.info() != Eigen::Success) return absl::InternalError("the stiffness of a NURBS shell at rest is not positive definite");
    MatrixXd full = factors.solve(MatrixXd::Identity(3 * count, 3 * count));
    for (uint32_t i = 0; i < count; ++i) {
      const uint32_t c = controls[i];
      for (uint32_t axis = 0; axis < 3; ++axis) {
        if ((held[c] >> axis & 1U) != 0) full.row(3 * static_cast<Eigen::Index>(i) + axis).setZero();
      }
      const uint32_t slot = layout.control_slot[c];
      slot_part[slot] = static_cast<uint32_t>(part_range.size());
      solved_slot.push_back(slot);
      solved_part.push_back({first, count, static_cast<uint32_t>(inverse.size()), static_cast<uint32_t>(part_range.size())});
      // The Gauss point where it counts most.
      uint32_t best = model.control_entries[model.control_begin[c]];
      for (uint32_t k = model.control_begin[c]; k < model.control_begin[c + 1]; ++k) {
        if (model.entries[model.control_entries[k]].value > model.entries[best].value) best = model.control_entries[k];
      }
      gauss_of.push_back(model.entries[best].gauss);
      const NurbsGaussFrame frame(model, model.gauss[model.entries[best].gauss], rest_m);
      axes.push_back(ToFloat4(frame.a1));
      axes.push_back(ToFloat4(frame.normal));
    }
    for (Eigen::Index row = 0; row < full.rows(); ++row) {
      for (Eigen::Index column = 0; column < full.cols(); ++column) inverse.push_back(static_cast<float>(full(row, column)));
    }
    part_range.push_back({first, first + count});
  }
  out.solved_count_ = static_cast<uint32_t>(solved_slot.size());
  out.part_count_ = static_cast<uint32_t>(part_range.size());
  PALPATE_RETURN_IF_ERROR(Upload(queue, &out.solved_slot_, std::move(solved_slot), "nurbs solved slots"));
  PALPATE_RETURN_IF_ERROR(Upload(queue, &out.solved_part_, std::move(solved_part), "nurbs solved parts"));
  PALPATE_RETURN_IF_ERROR(Upload(queue, &out.part_range_, std::move(part_range), "nurbs part ranges"));
  PALPATE_RETURN_IF_ERROR(Upload(queue, &out.slot_part_, std::move(slot_part), "nurbs slot parts"));
  PALPATE_RETURN_IF_ERROR(Upload(queue, &out.gauss_, std::move(gauss_of), "nurbs axes' Gauss points"));
  PALPATE_RETURN_IF_ERROR(Upload(queue, &out.axes_, std::move(axes), "nurbs axes"));
  PALPATE_RETURN_IF_ERROR(Upload(queue, &out.inverse_, std::move(inverse), "nurbs inverse"));
  PALPATE_RETURN_IF_ERROR(Upload(queue, &out.turned_, std::vector<Float4>(out.solved_count_), "nurbs turned forces"));
  PALPATE_RETURN_IF_ERROR(Upload(queue, &out.moves_, std::vector<Float4>(out.slot_count_), "nurbs moves"));
  PALPATE_RETURN_IF_ERROR(Upload(queue, &out.share_, std::vector<float>(out.part_count_), "nurbs shares"));
  Context& context = *queue.context();
  for (auto& [kernel, name] : {std::pair(&out.turn_, "turn_nurbs_forces"), std::pair(&out.solve_, "solve_nurbs_moves"),
                               std::pair(&out.find_share_, "find_nurbs_share"), std::pair(&out.shorten_, "shorten_nurbs_share"),
                               std::pair(&out.take_, "take_nurbs_moves")}) {
    PALPATE_ASSIGN_OR_RETURN(*kernel, context.CreateKernel(kernels::nurbs_shell_correction, name, {}));
  }
  return out;
}

absl::Status NurbsShellCorrection::Propose(Queue& queue, const NurbsShellTerms& terms, const DeviceBuffer<Float4>& forces) {
  if (empty()) return absl::OkStatus();
  PALPATE_RETURN_IF_ERROR(queue.Launch(turn_, {solved_count_, 0}, Arg("count", solved_count_), Arg("lanes", lanes_),
                                       Arg("solved_slot", solved_slot_), Arg("gauss", gauss_), Arg("axes", axes_),
                                       Arg("nurbs_vectors", terms.vectors()), Arg("forces", forces), Arg("turned", turned_)));
  return queue.Launch(solve_, {solved_count_, 0}, Arg("count", solved_count_), Arg("lanes", lanes_), Arg("solved_slot", solved_slot_),
                      Arg("solved_part", solved_part_), Arg("gauss", gauss_), Arg("axes", axes_), Arg("nurbs_vectors", terms.vectors()),
                      Arg("inverse", inverse_), Arg("turned", turned_), Arg("moves", moves_));
}

absl::Status NurbsShellCorrection::Share(Queue& queue, const DeviceBuffer<Float4>& forces, const DeviceBuffer<Float4>& forces_after) {
  if (empty()) return absl::OkStatus();
  return queue.Launch(find_share_, {part_count_, 0}, Arg("count", part_count_), Arg("part_range", part_range_),
                      Arg("solved_slot", solved_slot_), Arg("forces", forces), Arg("forces_after", forces_after), Arg("moves", moves_),
                      Arg("share", share_));
}

absl::Status NurbsShellCorrection::Shorten(Queue& queue, const DeviceBuffer<Float4>& forces, const DeviceBuffer<Float4>& forces_there) {
  if (empty()) return absl::OkStatus();
  return queue.Launch(shorten_, {part_count_, 0}, Arg("count", part_count_), Arg("part_range", part_range_),
                      Arg("solved_slot", solved_slot_), Arg("forces", forces), Arg("forces_there", forces_there), Arg("moves", moves_),
                      Arg("share", share_));
}

absl::Status NurbsShellCorrection::Take(Queue& queue, const DeviceBuffer<Float4>& x) {
  if (empty()) return absl::OkStatus();
  return queue.Launch(take_, {slot_count_, 0}, Arg("count", slot_count_), Arg("slot_part", slot_part_), Arg("share", share_),
                      Arg("moves", moves_), Arg("x", x));
}

size_t NurbsShellCorrection::device_bytes() const {
  size_t sum = 0;
  const auto add = [&](const auto&... buffers) { sum += (buffers.size_bytes() + ...); };
  add(solved_slot_, solved_part_, part_range_, slot_part_, gauss_, axes_, inverse_, turned_, moves_, share_);
  return sum;
}

}  // namespace palpate::gpu
