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

constexpr uint32_t kOnHost = 0xffffffffU;  // as in nurbs_shell_correction.cl

using SparseMatrix = Eigen::SparseMatrix<double>;

/// What control points resist with at rest, inertia included; those that do not move alone, with 1. `place`: of each in the matrix.
SparseMatrix StepMatrix(const NurbsShellModel& model, const std::vector<uint32_t>& controls, const std::vector<uint32_t>& shell_of,
                        const std::vector<uint32_t>& place, std::span<const uint32_t> held, double dt_s) {
  const std::vector<Vector3d> rest_m = NurbsRestPositions(model);
  const auto is_held = [&](uint32_t control, uint32_t axis) { return (held[control] >> axis & 1U) != 0; };
  std::vector<Eigen::Triplet<double>> entries;
  for (const NurbsShellGauss& gauss : model.gauss) {
    if (shell_of[model.entries[gauss.begin].control] != shell_of[controls.front()]) continue;
    const MatrixXd k = NurbsGaussStiffness(model, gauss, rest_m, dt_s);
    for (Eigen::Index i = 0; i < k.rows(); ++i) {
      for (Eigen::Index j = 0; j < k.cols(); ++j) {
        const uint32_t a = model.entries[gauss.begin + i / 3].control, b = model.entries[gauss.begin + j / 3].control;
        const auto row = static_cast<uint32_t>(i % 3), column = static_cast<uint32_t>(j % 3);
        if (is_held(a, row) || is_held(b, column)) continue;
        entries.emplace_back(static_cast<int>(3 * place[a] + row), static_cast<int>(3 * place[b] + column), k(i, j));
      }
    }
  }
  for (const uint32_t c : controls) {
    for (uint32_t axis = 0; axis < 3; ++axis) {
      const auto at = static_cast<int>(3 * place[c] + axis);
      entries.emplace_back(at, at, is_held(c, axis) ? 1.0 : NurbsControlInertia(model, c, dt_s));
    }
  }
  const auto size = 3 * static_cast<Eigen::Index>(controls.size());
  SparseMatrix out(size, size);
  out.setFromTriplets(entries.begin(), entries.end());
  return out;
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
                                                                  double dt_s, uint32_t max_dense) {
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
    const SparseMatrix matrix = StepMatrix(model, controls, shell_of, place, held, dt_s);
    const bool is_on_host = count > max_dense;
    MatrixXd full;
    bool is_factored = false;
    if (is_on_host) {
      SparsePart& part = *out.sparse_.emplace_back(std::make_unique<SparsePart>());
      part.first = first;
      part.count = count;
      for (const uint32_t c : controls) {
        for (uint32_t axis = 0; axis < 3; ++axis) part.is_held.push_back(held[c] >> axis & 1U);
      }
      part.factor.compute(matrix);
      is_factored = part.factor.info() == Eigen::Success;
    } else {
      const Eigen::LLT<MatrixXd> factors{MatrixXd(matrix)};
      is_factored = factors.info() == Eigen::Success;
      if (is_factored) full = factors.solve(MatrixXd::Identity(3 * count, 3 * count));
    }
    if (!is_factored) return absl::InternalError("the stiffness of a NURBS shell at rest is not positive definite");
    for (uint32_t i = 0; i < count; ++i) {
      const uint32_t c = controls[i];
      for (uint32_t axis = 0; axis < 3; ++axis) {
        if (!is_on_host && (held[c] >> axis & 1U) != 0) full.row(3 * static_cast<Eigen::Index>(i) + axis).setZero();
      }
      const uint32_t slot = layout.control_slot[c];
      slot_part[slot] = static_cast<uint32_t>(part_range.size());
      solved_slot.push_back(slot);
      solved_part.push_back(
          {first, count, is_on_host ? kOnHost : static_cast<uint32_t>(inverse.size()), static_cast<uint32_t>(part_range.size())});
      // The Gauss point where it counts most.
      uint32_t best = model.control_entries[model.control_begin[c]];
      for (uint32_t k = model.control_begin[c]; k < model.control_begin[c + 1]; ++k) {
        if (model.entries[model.control_entries[k]].value > model.entries[best].value) best = model.control_entries[k];
      }
      gauss_of.push_back(layout.gauss_place[model.entries[best].gauss]);
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
  PALPATE_RETURN_IF_ERROR(
      Upload(queue, &out.solved_, std::vector<Float4>(out.sparse_.empty() ? 0 : out.solved_count_), "nurbs solved moves"));
  out.turned_host_.resize(out.sparse_.empty() ? 0 : out.solved_count_);
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
  if (!sparse_.empty()) PALPATE_RETURN_IF_ERROR(SolveOnHost(queue));
  return queue.Launch(solve_, {solved_count_, 0}, Arg("count", solved_count_), Arg("lanes", lanes_), Arg("solved_slot", solved_slot_),
                      Arg("solved_part", solved_part_), Arg("gauss", gauss_), Arg("axes", axes_), Arg("nurbs_vectors", terms.vectors()),
                      Arg("inverse", inverse_), Arg("turned", turned_), Arg("solved", solved_), Arg("moves", moves_));
}

absl::Status NurbsShellCorrection::SolveOnHost(Queue& queue) {
  PALPATE_RETURN_IF_ERROR(queue.ReadBlocking(turned_, std::span<Float4>(turned_host_)));
  for (const std::unique_ptr<SparsePart>& part : sparse_) {
    Eigen::VectorXd forces(3 * static_cast<Eigen::Index>(part->count));
    for (uint32_t i = 0; i < part->count; ++i) {
      const Float4& f = turned_host_[part->first + i];
      forces.segment<3>(3 * static_cast<Eigen::Index>(i)) = Vector3d(f.x, f.y, f.z);
    }
    for (size_t k = 0; k < part->is_held.size(); ++k) {
      if (part->is_held[k] != 0) forces[static_cast<Eigen::Index>(k)] = 0;
    }
    const Eigen::VectorXd moves = part->factor.solve(forces);
    for (uint32_t i = 0; i < part->count; ++i) turned_host_[part->first + i] = ToFloat4(moves.segment<3>(3 * static_cast<Eigen::Index>(i)));
  }
  return queue.Write(solved_, std::span<const Float4>(turned_host_));
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
  add(solved_slot_, solved_part_, part_range_, slot_part_, gauss_, axes_, inverse_, turned_, solved_, moves_, share_);
  return sum;
}

}  // namespace palpate::gpu
