#include "gpu/dynamics/nurbs_frame_compliance.h"

#include <algorithm>
#include <map>

#include <Eigen/Dense>

#include "absl/strings/str_cat.h"
#include "gpu/dynamics/nurbs_shell_correction.h"
#include "gpu/dynamics/nurbs_shell_stiffness.h"

namespace palpate::gpu {
namespace {

using Eigen::Matrix3d;
using Eigen::MatrixXd;
using Eigen::Vector3d;

constexpr double kLeastYield = 1e-9;  // of a coordinate's own: keeps frames apart that lie in each other
constexpr uint32_t kNowhere = 0xffffffffU;

Matrix3d CrossMatrix(const Vector3d& v) {
  Matrix3d m;
  m << 0, -v.z(), v.y(), v.z(), 0, -v.x(), -v.y(), v.x(), 0;
  return m;
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

}  // namespace

std::vector<Eigen::Matrix<double, 6, 3>> NurbsFrameMotion(const NurbsFrame& frame, std::span<const Vector3d> position_m) {
  Vector3d mean = Vector3d::Zero();
  for (const NurbsFrame::Part& part : frame.parts) mean += part.turning * position_m[part.control];
  Matrix3d from_rest = Matrix3d::Zero();
  for (const NurbsFrame::Part& part : frame.parts) {
    from_rest += part.turning * (position_m[part.control] - mean) * part.arm_m.transpose();
  }
  // The best fit: Kabsch 1976.
  const Eigen::JacobiSVD<Matrix3d> parts(from_rest, Eigen::ComputeFullU | Eigen::ComputeFullV);
  const double sign = (parts.matrixU() * parts.matrixV().transpose()).determinant() < 0 ? -1 : 1;
  const Matrix3d rotation = parts.matrixU() * Vector3d(1, 1, sign).asDiagonal() * parts.matrixV().transpose();
  // A small turn t lowers the fit by t . (trace P - sym P) t / 2, with P = from_rest R^T.
  const Matrix3d p = from_rest * rotation.transpose();
  const Matrix3d to_turn = (p.trace() * Matrix3d::Identity() - 0.5 * (p + p.transpose())).inverse();
  std::vector<Eigen::Matrix<double, 6, 3>> out;
  for (const NurbsFrame::Part& part : frame.parts) {
    out.emplace_back() << part.place * Matrix3d::Identity(), part.turning * to_turn * CrossMatrix(rotation * part.arm_m);
  }
  return out;
}

absl::StatusOr<std::unique_ptr<NurbsFrameCompliance>> NurbsFrameCompliance::Create(NurbsShellModel model, std::vector<uint32_t> held,
                                                                                   double dt_s, std::vector<NurbsFrame> frames) {
  std::unique_ptr<NurbsFrameCompliance> out(new NurbsFrameCompliance);
  out->model_ = std::move(model);
  out->held_ = std::move(held);
  out->dt_s_ = dt_s;
  out->frames_ = std::move(frames);
  const std::vector<uint32_t> shell_of = NurbsShellsOf(out->model_);
  std::map<uint32_t, std::vector<uint32_t>> frames_of;
  for (uint32_t f = 0; f < out->frames_.size(); ++f) {
    const auto& parts = out->frames_[f].parts;
    const uint32_t shell = shell_of[parts.front().control];
    if (std::ranges::any_of(parts, [&](const NurbsFrame::Part& part) { return shell_of[part.control] != shell; })) {
      return absl::InvalidArgumentError(absl::StrCat("frame ", f, " is of two NURBS shells"));
    }
    frames_of[shell].push_back(f);
  }
  out->place_.assign(out->model_.control_count(), 0);
  for (const auto& [of, which] : frames_of) {
    Shell& shell = *out->shells_.emplace_back(std::make_unique<Shell>());
    shell.frame_begin = static_cast<uint32_t>(out->frame_order_.size());
    out->frame_order_.insert(out->frame_order_.end(), which.begin(), which.end());
    shell.frame_end = static_cast<uint32_t>(out->frame_order_.size());
    shell.solved_begin = static_cast<uint32_t>(out->solved_.size());
    for (uint32_t c = 0; c < shell_of.size(); ++c) {
      if (shell_of[c] != of) continue;
      out->place_[c] = static_cast<uint32_t>(out->solved_.size()) - shell.solved_begin;
      out->solved_.push_back({.control = c,
                              .frame_begin = shell.frame_begin,
                              .frame_end = shell.frame_end,
                              .response_begin = static_cast<uint32_t>(out->responses_.size())});
      out->responses_.resize(out->responses_.size() + 18 * which.size());
    }
    shell.solved_end = static_cast<uint32_t>(out->solved_.size());
    if (const uint32_t count = shell.solved_end - shell.solved_begin; count > kMaxNurbsCorrected) {
      return absl::InvalidArgumentError(absl::StrCat("frame ", which.front(), " is of a NURBS shell of ", count,
                                                     " control points; frames are of shells of at most ", kMaxNurbsCorrected));
    }
    for (uint32_t g = 0; g < out->model_.gauss.size(); ++g) {
      if (shell_of[out->model_.entries[out->model_.gauss[g].begin].control] == of) shell.gauss.push_back(g);
    }
    shell.pair_begin = static_cast<uint32_t>(out->pairs_.size());
    for (size_t i = 0; i < which.size(); ++i) {
      for (size_t j = i; j < which.size(); ++j) out->pairs_.push_back({.a = which[i], .b = which[j]});
    }
    out->MakePattern(&shell);
  }
  return out;
}

/// Which entries of the matrix each Gauss point adds to. Rows and columns of axes that are held have their diagonals alone.
void NurbsFrameCompliance::MakePattern(Shell* shell) {
  const Eigen::Index size = 3 * static_cast<Eigen::Index>(shell->solved_end - shell->solved_begin);
  std::vector<Eigen::Triplet<double>> entries;
  const auto is_held = [&](uint32_t control, uint32_t axis) { return (held_[control] >> axis & 1U) != 0; };
  const auto for_each = [&](const NurbsShellGauss& gauss, const auto& use) {
    for (uint32_t i = gauss.begin; i < gauss.end; ++i) {
      for (uint32_t j = gauss.begin; j < gauss.end; ++j) {
        const uint32_t a = model_.entries[i].control, b = model_.entries[j].control;
        for (uint32_t r = 0; r < 3; ++r) {
          for (uint32_t c = 0; c < 3; ++c) {
            const auto row = static_cast<int>(3 * place_[a] + r), column = static_cast<int>(3 * place_[b] + c);
            use(row, column, row >= column && !is_held(a, r) && !is_held(b, c));
          }
        }
      }
    }
  };
  for (int d = 0; d < size; ++d) entries.emplace_back(d, d, 0);
  for (const uint32_t g : shell->gauss) {
    for_each(model_.gauss[g], [&](int row, int column, bool is_there) {
      if (is_there) entries.emplace_back(row, column, 0);
    });
  }
  shell->matrix.resize(size, size);
  shell->matrix.setFromTriplets(entries.begin(), entries.end());
  shell->matrix.makeCompressed();
  shell->factor.analyzePattern(shell->matrix);
  for (const uint32_t g : shell->gauss) {
    std::vector<uint32_t>& places = shell->places.emplace_back();
    for_each(model_.gauss[g], [&](int row, int column, bool is_there) {
      places.push_back(is_there ? static_cast<uint32_t>(&shell->matrix.coeffRef(row, column) - shell->matrix.valuePtr()) : kNowhere);
    });
  }
}

absl::Status NurbsFrameCompliance::Update(std::span<const Vector3d> position_m) {
  for (const std::unique_ptr<Shell>& shell : shells_) PALPATE_RETURN_IF_ERROR(Update(*shell, position_m));
  return absl::OkStatus();
}

absl::Status NurbsFrameCompliance::Update(Shell& shell, std::span<const Vector3d> position_m) {
  std::fill_n(shell.matrix.valuePtr(), shell.matrix.nonZeros(), 0.0);
  for (size_t k = 0; k < shell.gauss.size(); ++k) {
    const MatrixXd stiffness = NurbsGaussStiffness(model_, model_.gauss[shell.gauss[k]], position_m, dt_s_);
    const std::vector<uint32_t>& places = shell.places[k];
    size_t at = 0;
    for (Eigen::Index i = 0; i < stiffness.rows(); i += 3) {
      for (Eigen::Index j = 0; j < stiffness.cols(); j += 3) {
        for (Eigen::Index r = 0; r < 3; ++r) {
          for (Eigen::Index c = 0; c < 3; ++c, ++at) {
            if (places[at] != kNowhere) shell.matrix.valuePtr()[places[at]] += stiffness(i + r, j + c);
          }
        }
      }
    }
  }
  const uint32_t count = shell.solved_end - shell.solved_begin;
  for (uint32_t i = 0; i < count; ++i) {
    const uint32_t c = solved_[shell.solved_begin + i].control;
    for (uint32_t axis = 0; axis < 3; ++axis) {
      shell.matrix.coeffRef(3 * i + axis, 3 * i + axis) += (held_[c] >> axis & 1U) != 0 ? 1 : NurbsControlInertia(model_, c, dt_s_);
    }
  }
  shell.factor.factorize(shell.matrix);
  if (shell.factor.info() != Eigen::Success) return absl::InternalError("joints of a NURBS shell: its tangent cannot be factored");
  const auto frames = static_cast<Eigen::Index>(shell.frame_end - shell.frame_begin);
  MatrixXd motion = MatrixXd::Zero(3 * static_cast<Eigen::Index>(count), 6 * frames);  // transposed
  for (Eigen::Index f = 0; f < frames; ++f) {
    const NurbsFrame& frame = frames_[frame_order_[shell.frame_begin + static_cast<size_t>(f)]];
    const auto rows = NurbsFrameMotion(frame, position_m);
    for (size_t k = 0; k < rows.size(); ++k) {
      const uint32_t c = frame.parts[k].control;
      for (uint32_t axis = 0; axis < 3; ++axis) {
        if ((held_[c] >> axis & 1U) == 0)
          motion.block<1, 6>(3 * static_cast<Eigen::Index>(place_[c]) + axis, 6 * f) = rows[k].col(axis).transpose();
      }
    }
  }
  const MatrixXd response = shell.factor.solve(motion);
  const MatrixXd h = StiffnessOf(motion.transpose() * response);
  for (uint32_t i = 0; i < count; ++i) {
    float* at = responses_.data() + solved_[shell.solved_begin + i].response_begin;
    for (Eigen::Index f = 0; f < frames; ++f) {
      for (Eigen::Index r = 0; r < 3; ++r) {
        for (Eigen::Index c = 0; c < 6; ++c) *at++ = static_cast<float>(response(3 * static_cast<Eigen::Index>(i) + r, 6 * f + c));
      }
    }
  }
  size_t pair = shell.pair_begin;
  for (Eigen::Index a = 0; a < frames; ++a) {
    for (Eigen::Index b = a; b < frames; ++b) pairs_[pair++].h = h.block<6, 6>(6 * a, 6 * b);
  }
  return absl::OkStatus();
}

}  // namespace palpate::gpu
