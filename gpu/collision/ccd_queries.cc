#include "gpu/collision/ccd_queries.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "absl/strings/str_format.h"
#include "gpu/runtime/kernel_source.h"

namespace palpate::gpu {
namespace kernels {
extern const KernelSource ccd_queries;
}
namespace {

// Small: a CPU driver keeps the variables of a whole group on one stack, and left to itself may choose thousands of work-items.
constexpr size_t kLocalSize = 32;
// Queries of one launch: bounds the memory, 200 bytes a query.
constexpr size_t kBatch = size_t{1} << 18;

}  // namespace

absl::Status CcdOptions::Validate() const {
  if (!(separation_m >= 0 && separation_m <= 1e30)) {
    return absl::InvalidArgumentError(absl::StrFormat("CcdOptions.separation_m: %g is not in [0, 1e30]", separation_m));
  }
  if (!(tolerance >= 1e-7 && tolerance <= 0.1)) {
    return absl::InvalidArgumentError(absl::StrFormat("CcdOptions.tolerance: %g is not in [1e-7, 0.1]", tolerance));
  }
  if (max_steps == 0) return absl::InvalidArgumentError("CcdOptions.max_steps: 0 is not at least 1");
  return absl::OkStatus();
}

absl::StatusOr<CcdQueries> CcdQueries::Create(const std::shared_ptr<Context>& context, const CcdOptions& options) {
  PALPATE_RETURN_IF_ERROR(options.Validate());
  CcdQueries queries;
  queries.context_ = context;
  queries.options_ = options;
  queries.is_double_ = options.use_double && context->device().has_fp64;
  PALPATE_ASSIGN_OR_RETURN(
      queries.kernel_, context->CreateKernel(kernels::ccd_queries, "ccd_answer_queries", {{"CCD_DOUBLE", queries.is_double_ ? "1" : "0"}}));
  return queries;
}

template <typename Real>
absl::StatusOr<std::vector<CcdAnswer>> CcdQueries::RunAs(Queue& queue, uint32_t kind, std::span<const double> coordinates,
                                                         std::span<const double> errors_m) {
  const size_t count = coordinates.size() / kCoordinates;
  std::vector<CcdAnswer> answers(count);
  const size_t batch = std::min(count, kBatch);
  PALPATE_ASSIGN_OR_RETURN(const auto points, DeviceBuffer<Real>::Create(context_, batch * kCoordinates, "ccd query points"));
  PALPATE_ASSIGN_OR_RETURN(const auto errors, DeviceBuffer<Real>::Create(context_, batch, "ccd query errors"));
  PALPATE_ASSIGN_OR_RETURN(const auto results, DeviceBuffer<CcdAnswer>::Create(context_, batch, "ccd answers"));
  std::vector<Real> rounded(batch * kCoordinates);
  std::vector<Real> bounds(batch);
  for (size_t begin = 0; begin < count; begin += batch) {
    const size_t size = std::min(batch, count - begin);
    for (size_t q = 0; q < size; ++q) {
      double loss = 0;
      for (size_t k = 0; k < kCoordinates; ++k) {
        const double value = coordinates[(begin + q) * kCoordinates + k];
        rounded[q * kCoordinates + k] = static_cast<Real>(value);
        loss = std::max(loss, std::abs(value - static_cast<double>(static_cast<Real>(value))));
      }
      // Rounded up: once in the sum, once in the conversion.
      const double error = ((errors_m.empty() ? 0 : errors_m[begin + q]) + loss) * (1 + 1e-6);
      bounds[q] = static_cast<Real>(error);
      if (static_cast<double>(bounds[q]) < error) bounds[q] = std::nextafter(bounds[q], std::numeric_limits<Real>::infinity());
      // A device may take denormal floats for zero.
      if constexpr (std::is_same_v<Real, float>) bounds[q] += 4 * std::numeric_limits<float>::min();
    }
    const std::span<const Real> source(rounded);
    PALPATE_RETURN_IF_ERROR(queue.Write(points, source.first(size * kCoordinates)));
    PALPATE_RETURN_IF_ERROR(queue.Write(errors, std::span<const Real>(bounds).first(size)));
    PALPATE_RETURN_IF_ERROR(queue.Launch(kernel_, {size, kLocalSize}, Arg("count", static_cast<uint32_t>(size)), Arg("kind", kind),
                                         Arg("separation", static_cast<Real>(options_.separation_m)),
                                         Arg("tolerance", static_cast<Real>(options_.tolerance)), Arg("max_steps", options_.max_steps),
                                         Arg("coordinates", points), Arg("errors", errors), Arg("answers", results)));
    PALPATE_RETURN_IF_ERROR(queue.ReadBlocking(results, std::span<CcdAnswer>(answers).subspan(begin, size)));
  }
  return answers;
}

absl::StatusOr<std::vector<CcdAnswer>> CcdQueries::Run(Queue& queue, uint32_t kind, std::span<const double> coordinates,
                                                       std::span<const double> errors_m) {
  if (kind != PALPATE_VERTEX_TRIANGLE && kind != PALPATE_EDGE_EDGE) {
    return absl::InvalidArgumentError(absl::StrFormat("CcdQueries: kind %d is neither vertex-triangle nor edge-edge", kind));
  }
  if (coordinates.size() % kCoordinates != 0 || (!errors_m.empty() && errors_m.size() * kCoordinates != coordinates.size())) {
    return absl::InvalidArgumentError(
        absl::StrFormat("CcdQueries: %d coordinates and %d errors do not make whole queries", coordinates.size(), errors_m.size()));
  }
  if (std::any_of(errors_m.begin(), errors_m.end(), [](double e) { return !(e >= 0); })) {
    return absl::InvalidArgumentError("CcdQueries: an error bound is negative or NaN");
  }
  if (coordinates.empty()) return std::vector<CcdAnswer>();
  return is_double_ ? RunAs<double>(queue, kind, coordinates, errors_m) : RunAs<float>(queue, kind, coordinates, errors_m);
}

}  // namespace palpate::gpu
