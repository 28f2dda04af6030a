#include "gpu/dynamics/nurbs_shell_correction.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <numeric>
#include <utility>

#include <Eigen/Dense>

#include "absl/strings/str_cat.h"

namespace palpate::gpu {

namespace kernels {
extern const KernelSource nurbs_shell_correction;
}  // namespace kernels

namespace {

using Eigen::Matrix3d;
using Eigen::MatrixXd;
using Eigen::Vector3d;

/// Axes of a Gauss point at rest, and second derivatives along them.
struct RestFrame {
  Vector3d a1 = Vector3d::Zero(), a2 = Vector3d::Zero(), normal;
  std::array<Vector3d, 3> second = {Vector3d::Zero(), Vector3d::Zero(), Vector3d::Zero()};  // 11, 22, 12

  RestFrame(const NurbsShellModel& model, const NurbsShellGauss& gauss) {
    for (uint32_t e = gauss.begin; e < gauss.end; ++e) {
      const NurbsShellEntry& entry = model.entries[e];
      const Vector3d x = Vector3d(model.rest_m[entry.control].data()) - Vector3d(model.rest_m[model.entries[gauss.begin].control].data());
      a1 += entry.by_1_per_m * x;
      a2 += entry.by_2_per_m * x;
      second[0] += entry.by_11_per_m2 * x;
      second[1] += entry.by_22_per_m2 * x;
      second[2] += entry.by_12_per_m2 * x;
    }
    normal = a1.cross(a2).normalized();
  }
};

/// Adds a Gauss point's stiffness at rest. `place`: of its control points in the matrix.
void AddStiffness(const NurbsShellModel& model, const NurbsShellGauss& gauss, double dt_s, const std::vector<uint32_t>& place,
                  MatrixXd* matrix) {
  const RestFrame frame(model, gauss);
  const uint32_t count = gauss.end - gauss.begin;
  Eigen::Matrix3Xd strain(3, 3 * count), bend(3, 3 * count);  // of (11, 22, 2 * 12)
  for (uint32_t i = 0; i < count; ++i) {
    const NurbsShellEntry& e = model.entries[gauss.begin + i];
    const auto along = [&](size_t k, double h) {
      return h - e.by_1_per_m * frame.second[k].dot(frame.a1) - e.by_2_per_m * frame.second[k].dot(frame.a2);
    };
    strain.block<1, 3>(0, 3 * i) = e.by_1_per_m * frame.a1.transpose();
    strain.block<1, 3>(1, 3 * i) = e.by_2_per_m * frame.a2.transpose();
    strain.block<1, 3>(2, 3 * i) = e.by_1_per_m * frame.a2.transpose() + e.by_2_per_m * frame.a1.transpose();
    bend.block<1, 3>(0, 3 * i) = along(0, e.by_11_per_m2) * frame.normal.transpose();
    bend.block<1, 3>(1, 3 * i) = along(1, e.by_22_per_m2) * frame.normal.transpose();
    bend.block<1, 3>(2, 3 * i) = 2 * along(2, e.by_12_per_m2) * frame.normal.transpose();
  }
  const auto& [c_11, c_12, c_22, shear] = gauss.bending_n_m;
  Matrix3d c;
  c << c_11, c_12, 0, c_12, c_22, 0, 0, 0, shear;
  c *= gauss.area_m2 * (1 + gauss.damping_s / dt_s);
  const MatrixXd k = bend.transpose() * c * bend + gauss.membrane_per_bending_per_m2 * (strain.transpose() * c * strain);
  for (uint32_t i = 0; i < count; ++i) {
    for (uint32_t j = 0; j < count; ++j) {
      matrix->block<3, 3>(3 * place[model.entries[gauss.begin + i].control], 3 * place[model.entries[gauss.begin + j].control]) +=
          k.block<3, 3>(3 * i, 3 * j);
    }
  }
}

using Matrix6d = Eigen::Matrix<double, 6, 6>;
constexpr double kLeastYield = 1e-9;  // of a coordinate's own: keeps frames apart that lie in each other

/// The motion of frames per move of all control points of their shell: [6 frame][3 control].
MatrixXd MotionOf(std::span<const NurbsFrameRows> frames, const std::vector<uint32_t>& which, const std::vector<uint32_t>& place,
                  Eigen::Index columns) {
  MatrixXd rows = MatrixXd::Zero(6 * static_cast<Eigen::Index>(which.size()), columns);
  for (size_t f = 0; f < which.size(); ++f) {
    const NurbsFrameRows& frame = frames[which[f]];
    for (size_t k = 0; k < frame.controls.size(); ++k) {
      rows.block<6, 3>(6 * static_cast<Eigen::Index>(f), 3 * static_cast<Eigen::Index>(place[frame.controls[k]])) = frame.motion[k];
    }
  }
  return rows;
}

/// The inverse of a compliance; each coordinate in its own unit.
MatrixXd StiffnessOf(const MatrixXd& compliance) {
  const Eigen::VectorXd unit = compliance.diagonal().cwiseMax(1e-300).cwiseSqrt().cwiseInverse();
  MatrixXd scaled = unit.asDiagonal() * compliance * unit.asDiagonal();
  scaled.diagonal().array() += kLeastYield;
  const MatrixXd inverse = Eigen::LDLT<MatrixXd>(scaled).solve(MatrixXd::Identity(scaled.rows(), scaled.cols()));
  const MatrixXd out = unit.asDiagonal() * inverse * unit.asDiagonal();
  return 0.5 * (out + out.transpose());
}

/// Responses of shells to what acts on their frames, part by part.
struct FrameResponses {
  std::vector<UInt2> part_frames;
  std::vector<uint32_t> frame_order, begins;
  std::vector<float> values;

  /// `inverse`: (M / dt^2 + K)^-1 of the next part.
  void Add(std::span<const NurbsFrameRows> frames, std::vector<uint32_t> which, const std::vector<uint32_t>& place, const MatrixXd& inverse,
           std::vector<NurbsFrameStiffness>* stiffness) {
    begins.push_back(static_cast<uint32_t>(values.size()));
    const auto first = static_cast<uint32_t>(frame_order.size());
    part_frames.push_back({first, first + static_cast<uint32_t>(which.size())});
    frame_order.insert(frame_order.end(), which.begin(), which.end());
    if (which.empty()) return;
    const MatrixXd rows = MotionOf(frames, which, place, inverse.cols());
    const MatrixXd response = inverse * rows.transpose();
    const MatrixXd h = StiffnessOf(rows * response);
    const auto count = static_cast<Eigen::Index>(which.size());
    for (Eigen::Index i = 0; i < inverse.rows() / 3; ++i) {
      for (Eigen::Index f = 0; f < count; ++f) {
        for (Eigen::Index r = 0; r < 3; ++r) {
          for (Eigen::Index c = 0; c < 6; ++c) values.push_back(static_cast<float>(response(3 * i + r, 6 * f + c)));
        }
      }
    }
    for (Eigen::Index a = 0; a < count; ++a) {
      for (Eigen::Index b = a; b < count; ++b) {
        stiffness->push_back({which[static_cast<size_t>(a)], which[static_cast<size_t>(b)], h.block<6, 6>(6 * a, 6 * b)});
      }
    }
  }
};

/// Shells: control points that Gauss points connect. [control point] the least of its shell.
std::vector<uint32_t> ShellsOf(const NurbsShellModel& model) {
  std::vector<uint32_t> root(model.control_count());
  std::iota(root.begin(), root.end(), 0U);
  const auto find = [&](uint32_t c) {
    while (root[c] != c) c = root[c] = root[root[c]];
    return c;
  };
  for (const NurbsShellGauss& gauss : model.gauss) {
    for (uint32_t e = gauss.begin + 1; e < gauss.end; ++e) {
      const uint32_t a = find(model.entries[e].control);
      const uint32_t b = find(model.entries[gauss.begin].control);
      root[std::max(a, b)] = std::min(a, b);
    }
  }
  for (uint32_t c = 0; c < root.size(); ++c) root[c] = find(c);
  return root;
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
                                                                  double dt_s, std::span<const NurbsFrameRows> frames) {
  NurbsShellCorrection out;
  out.slot_count_ = static_cast<uint32_t>(model.control_count());
  out.lanes_ = layout.lanes;
  std::map<uint32_t, std::vector<uint32_t>> shells;  // control points in the order of their slots
  const std::vector<uint32_t> shell_of = ShellsOf(model);
  for (const uint32_t c : layout.slot_control) shells[shell_of[c]].push_back(c);
  std::vector<uint32_t> solved_slot, gauss_of, place(model.control_count(), 0), slot_part(model.control_count(), 0xffffffffU);
  std::vector<UInt4> solved_part;
  std::vector<UInt2> part_range;
  std::vector<Float4> axes;
  std::vector<float> inverse;
  FrameResponses responses;
  for (const auto& [shell, controls] : shells) {
    std::vector<uint32_t> own_frames;
    for (uint32_t f = 0; f < frames.size(); ++f) {
      const auto own = std::ranges::count_if(frames[f].controls, [&](uint32_t c) { return shell_of[c] == shell; });
      if (own == 0) continue;
      if (own != std::ssize(frames[f].controls)) return absl::InvalidArgumentError(absl::StrCat("frame ", f, " is of two NURBS shells"));
      own_frames.push_back(f);
    }
    if (controls.size() > kMaxNurbsCorrected) {
      if (own_frames.empty()) continue;
      return absl::InvalidArgumentError(absl::StrCat("frame ", own_frames[0], " is of a NURBS shell of ", controls.size(),
                                                     " control points; frames are of shells of at most ", kMaxNurbsCorrected));
    }
    const auto first = static_cast<uint32_t>(solved_slot.size());
    const auto count = static_cast<uint32_t>(controls.size());
    for (uint32_t i = 0; i < count; ++i) place[controls[i]] = i;
    MatrixXd matrix = MatrixXd::Zero(3 * count, 3 * count);
    for (const NurbsShellGauss& gauss : model.gauss) {
      if (shell_of[model.entries[gauss.begin].control] == shell) AddStiffness(model, gauss, dt_s, place, &matrix);
    }
    for (uint32_t i = 0; i < count; ++i) {
      const uint32_t c = controls[i];
      const double inertia = model.mass_kg[c] * (1 + model.mass_damping_per_s[c] * dt_s) / (dt_s * dt_s);
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
      const RestFrame frame(model, model.gauss[model.entries[best].gauss]);
      axes.push_back(ToFloat4(frame.a1));
      axes.push_back(ToFloat4(frame.normal));
    }
    responses.Add(frames, std::move(own_frames), place, full, &out.frame_stiffness_);
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
  PALPATE_RETURN_IF_ERROR(Upload(queue, &out.part_frames_, std::move(responses.part_frames), "nurbs frames of parts"));
  PALPATE_RETURN_IF_ERROR(Upload(queue, &out.frame_order_, std::move(responses.frame_order), "nurbs frames"));
  PALPATE_RETURN_IF_ERROR(Upload(queue, &out.response_begins_, std::move(responses.begins), "nurbs responses begin"));
  PALPATE_RETURN_IF_ERROR(Upload(queue, &out.responses_, std::move(responses.values), "nurbs responses"));
  Context& context = *queue.context();
  for (auto& [kernel, name] : {std::pair(&out.turn_, "turn_nurbs_forces"), std::pair(&out.solve_, "solve_nurbs_moves"),
                               std::pair(&out.find_share_, "find_nurbs_share"), std::pair(&out.shorten_, "shorten_nurbs_share"),
                               std::pair(&out.take_, "take_nurbs_moves"), std::pair(&out.respond_, "respond_nurbs_moves")}) {
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

absl::Status NurbsShellCorrection::Respond(Queue& queue, const NurbsShellTerms& terms, const DeviceBuffer<Float4>& wrenches) {
  if (empty()) return absl::OkStatus();
  return queue.Launch(respond_, {solved_count_, 0}, Arg("count", solved_count_), Arg("lanes", lanes_), Arg("solved_slot", solved_slot_),
                      Arg("solved_part", solved_part_), Arg("gauss", gauss_), Arg("axes", axes_), Arg("nurbs_vectors", terms.vectors()),
                      Arg("part_frames", part_frames_), Arg("frame_order", frame_order_), Arg("response_begins", response_begins_),
                      Arg("responses", responses_), Arg("wrenches", wrenches), Arg("moves", moves_));
}

absl::Status NurbsShellCorrection::Take(Queue& queue, const DeviceBuffer<Float4>& x) {
  if (empty()) return absl::OkStatus();
  return queue.Launch(take_, {slot_count_, 0}, Arg("count", slot_count_), Arg("slot_part", slot_part_), Arg("share", share_),
                      Arg("moves", moves_), Arg("x", x));
}

size_t NurbsShellCorrection::device_bytes() const {
  size_t sum = 0;
  const auto add = [&](const auto&... buffers) { sum += (buffers.size_bytes() + ...); };
  add(solved_slot_, solved_part_, part_range_, slot_part_, gauss_, axes_, inverse_, turned_, moves_, share_, part_frames_, frame_order_, response_begins_,
      responses_);
  return sum;
}

}  // namespace palpate::gpu
