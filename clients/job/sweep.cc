#include "clients/job/sweep.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <string_view>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "clients/job/field_path.h"
#include "clients/job/job_file.h"
#include "clients/job/low_discrepancy.h"
#include "gpu/base/status.h"
#include "sim/scene/checker.h"

namespace palpate::job {
namespace {

using google::protobuf::Value;
using scene::At;
using scene::Checker;

constexpr int kMaxDimensions = 64;
constexpr uint32_t kMaxSamples = 1'000'000;

/// Fields that change together, and their values row by row: one factor of the product.
struct Factor {
  std::vector<std::string> fields;
  std::vector<std::vector<Value>> rows;
};

Value NumberValue(double number) {
  Value value;
  value.set_number_value(number);
  return value;
}

double Between(double low, double high, v1::SweepScale scale, double u) {
  if (scale == v1::SWEEP_SCALE_LOGARITHMIC) return std::clamp(std::exp(std::log(low) + u * (std::log(high) - std::log(low))), low, high);
  return low + u * (high - low);
}

void CheckEnds(Checker& check, const std::string& path, double low, double high, v1::SweepScale scale) {
  check.Finite(At(path, "low"), low);
  check.Finite(At(path, "high"), high);
  if (!v1::SweepScale_IsValid(scale)) check.Invalid(At(path, "scale"), "is none of the list");
  if (check.ok() && !(low < high)) check.Invalid(At(path, "high"), absl::StrCat(high, " is not above low, ", low));
  if (scale == v1::SWEEP_SCALE_LOGARITHMIC && !(low > 0)) {
    check.Invalid(At(path, "low"), absl::StrCat(low, " is not above 0, as a logarithmic scale needs"));
  }
}

/// Tries values of fields on the job that they are for.
class FieldTrial {
 public:
  static absl::StatusOr<FieldTrial> Make(const v1::Job& job, const std::filesystem::path& file) {
    FieldTrial trial;
    trial.job_ = job;
    trial.job_.clear_sweep();
    std::filesystem::path scene_folder;
    PALPATE_ASSIGN_OR_RETURN(trial.scene_, ResolveScene(file, &trial.job_, &scene_folder));
    return trial;
  }

  /// Once for each field of the sweep.
  void Take(Checker& check, const std::string& path, const std::string& field) {
    if (!seen_.insert(field).second) check.Invalid(path, absl::StrCat("\"", field, "\" is set twice by the sweep"));
    Try(check, path, field, nullptr);
  }
  void Try(Checker& check, const std::string& path, const std::string& field, const Value* value) {
    if (!check.ok()) return;
    absl::string_view own = field;
    google::protobuf::Message* message = &scene_;
    if (absl::ConsumePrefix(&own, "job.")) {
      message = &job_;
      for (const char* fixed : {"scene", "overrides", "sweep", "folder"}) {
        if (own == fixed || absl::StartsWith(own, absl::StrCat(fixed, ".")) || absl::StartsWith(own, absl::StrCat(fixed, "["))) {
          return check.Invalid(path, absl::StrCat("\"", field, "\" cannot be set by a sweep"));
        }
      }
    }
    const std::string_view name(own.data(), own.size());
    check.Fail(Annotate(value == nullptr ? CheckField(*message, name) : SetField(message, name, *value), path));
  }

 private:
  v1::Job job_;
  v1::SceneSpec scene_;
  std::set<std::string> seen_;
};

Factor ReadAxis(Checker& check, FieldTrial& trial, const std::string& path, const v1::SweepAxis& axis) {
  Factor factor{{axis.field()}, {}};
  trial.Take(check, At(path, "field"), axis.field());
  if (axis.has_range() == (axis.values_size() > 0)) check.Invalid(path, "exactly one of values, range is needed");
  for (int v = 0; v < axis.values_size(); ++v) {
    trial.Try(check, At(At(path, "values"), v), axis.field(), &axis.values(v));
    factor.rows.push_back({axis.values(v)});
  }
  if (!axis.has_range()) return factor;
  const v1::SweepRange& range = axis.range();
  const std::string at = At(path, "range");
  CheckEnds(check, at, range.low(), range.high(), range.scale());
  check.Range(At(at, "count"), range.count(), 2, kMaxSamples);
  for (uint32_t i = 0; check.ok() && i < range.count(); ++i) {
    const bool is_last = i + 1 == range.count();
    factor.rows.push_back({NumberValue(
        is_last ? range.high() : Between(range.low(), range.high(), range.scale(), i / static_cast<double>(range.count() - 1)))});
  }
  if (check.ok()) trial.Try(check, at, axis.field(), &factor.rows.front()[0]);
  return factor;
}

Factor ReadList(Checker& check, FieldTrial& trial, const std::string& path, const v1::SweepList& list) {
  Factor factor{{list.fields().begin(), list.fields().end()}, {}};
  check.Count(At(path, "fields"), list.fields_size(), 1, kMaxDimensions);
  check.Count(At(path, "rows"), list.rows_size(), 1, kMaxTasks);
  for (int f = 0; f < list.fields_size(); ++f) trial.Take(check, At(At(path, "fields"), f), list.fields(f));
  for (int r = 0; r < list.rows_size() && check.ok(); ++r) {
    const auto& row = list.rows(r).values();
    const std::string at = At(At(path, "rows"), r);
    if (row.size() != list.fields_size()) {
      check.Invalid(at, absl::StrCat(row.size(), " values are not as many as the fields, ", list.fields_size()));
      return factor;
    }
    for (int f = 0; f < row.size(); ++f) trial.Try(check, At(at, f), list.fields(f), &row[f]);
    factor.rows.emplace_back(row.begin(), row.end());
  }
  return factor;
}

std::vector<std::vector<double>> UnitPoints(const v1::SweepSamples& samples, uint64_t seed) {
  const auto dimensions = static_cast<size_t>(samples.dimensions_size());
  if (samples.method() == v1::SWEEP_METHOD_SOBOL) return SobolPoints(samples.count(), dimensions, seed);
  if (samples.method() == v1::SWEEP_METHOD_UNIFORM) return UniformPoints(samples.count(), dimensions, seed);
  return LatinHypercube(samples.count(), dimensions, seed);
}

Factor ReadSamples(Checker& check, FieldTrial& trial, const v1::SweepSamples& samples, uint64_t seed) {
  Factor factor;
  const std::string path = "sweep.samples";
  if (!v1::SweepMethod_IsValid(samples.method())) check.Invalid(At(path, "method"), "is none of the list");
  check.Range(At(path, "count"), samples.count(), 1, kMaxSamples);
  const int largest = samples.method() == v1::SWEEP_METHOD_SOBOL ? static_cast<int>(kMaxSobolDimensions) : kMaxDimensions;
  check.Count(At(path, "dimensions"), samples.dimensions_size(), 1, largest);
  for (int d = 0; d < samples.dimensions_size() && check.ok(); ++d) {
    const v1::SweepDimension& dimension = samples.dimensions(d);
    const std::string at = At(At(path, "dimensions"), d);
    trial.Take(check, At(at, "field"), dimension.field());
    CheckEnds(check, at, dimension.low(), dimension.high(), dimension.scale());
    const bool are_whole = dimension.low() == std::floor(dimension.low()) && dimension.high() == std::floor(dimension.high());
    if (dimension.whole() && !are_whole) check.Invalid(at, "low and high have to be whole numbers too");
    if (dimension.whole() && dimension.scale() == v1::SWEEP_SCALE_LOGARITHMIC) check.Invalid(at, "whole numbers have a linear scale");
    const Value low = NumberValue(dimension.low());
    trial.Try(check, at, dimension.field(), &low);
    factor.fields.push_back(dimension.field());
  }
  if (!check.ok()) return factor;
  for (const std::vector<double>& point : UnitPoints(samples, seed)) {
    std::vector<Value> row;
    for (int d = 0; d < samples.dimensions_size(); ++d) {
      const v1::SweepDimension& dimension = samples.dimensions(d);
      const double u = point[static_cast<size_t>(d)];
      const double span = dimension.high() - dimension.low();
      row.push_back(NumberValue(dimension.whole() ? dimension.low() + std::floor(u * (span + 1))
                                                  : Between(dimension.low(), dimension.high(), dimension.scale(), u)));
    }
    factor.rows.push_back(std::move(row));
  }
  return factor;
}

}  // namespace

absl::StatusOr<SweepPlan> PlanSweep(const v1::Job& job, const std::filesystem::path& file) {
  const v1::JobSweep& sweep = job.sweep();
  auto trial = FieldTrial::Make(job, file);
  if (!trial.ok()) return Annotate(trial.status(), file.string());
  Checker check;
  check.Range("sweep.seed", static_cast<double>(sweep.seed()), 0, kMaxSeed);
  std::vector<Factor> factors;
  for (int g = 0; g < sweep.grid_size(); ++g) factors.push_back(ReadAxis(check, *trial, At("sweep.grid", g), sweep.grid(g)));
  for (int l = 0; l < sweep.lists_size(); ++l) factors.push_back(ReadList(check, *trial, At("sweep.lists", l), sweep.lists(l)));
  if (sweep.has_samples()) factors.push_back(ReadSamples(check, *trial, sweep.samples(), sweep.seed()));
  if (!check.ok()) return Annotate(check.status(), file.string());
  uint64_t count = std::max(1U, sweep.repeats());
  SweepPlan plan;
  for (const Factor& factor : factors) {
    plan.fields.insert(plan.fields.end(), factor.fields.begin(), factor.fields.end());
    count = count > kMaxTasks ? count : count * factor.rows.size();
  }
  if (count > kMaxTasks) return absl::ResourceExhaustedError(absl::StrCat(file.string(), ": sweep: has more than ", kMaxTasks, " tasks"));
  plan.tasks.resize(count);
  for (uint64_t t = 0; t < count; ++t) {
    uint64_t rest = t / std::max(1U, sweep.repeats());
    std::vector<const std::vector<Value>*> rows(factors.size());
    for (size_t f = factors.size(); f-- > 0;) {
      rows[f] = &factors[f].rows[rest % factors[f].rows.size()];
      rest /= factors[f].rows.size();
    }
    for (const auto* row : rows) plan.tasks[t].values.insert(plan.tasks[t].values.end(), row->begin(), row->end());
    plan.tasks[t].seed = MixSeeds(MixSeeds(sweep.seed(), job.seed()), t) >> 11;
  }
  return plan;
}

v1::Job JobOfTask(const v1::Job& job, const SweepPlan& plan, size_t task) {
  v1::Job own = job;
  own.clear_sweep();
  for (size_t f = 0; f < plan.fields.size(); ++f) (*own.mutable_overrides())[plan.fields[f]] = plan.tasks[task].values[f];
  own.set_seed(plan.tasks[task].seed);
  return own;
}

std::string TaskId(uint64_t index) { return absl::StrFormat("task-%06d", index); }

absl::StatusOr<std::vector<uint32_t>> ParseTaskList(const std::string& text, size_t count) {
  std::set<uint32_t> tasks;
  if (text == "all") {
    for (uint32_t t = 0; t < count; ++t) tasks.insert(t);
    return std::vector<uint32_t>(tasks.begin(), tasks.end());
  }
  for (const absl::string_view piece : absl::StrSplit(text, ',')) {
    const std::vector<absl::string_view> ends = absl::StrSplit(piece, '-');
    uint32_t first = 0, last = 0;
    if (ends.size() > 2 || !absl::SimpleAtoi(ends.front(), &first) || !absl::SimpleAtoi(ends.back(), &last) || last < first) {
      return absl::InvalidArgumentError(absl::StrCat("tasks: \"", piece, "\" is neither a number nor a range like 0-63"));
    }
    if (last >= count) {
      return absl::InvalidArgumentError(absl::StrCat("tasks: ", last, " is outside [0, ", static_cast<int64_t>(count) - 1, "]"));
    }
    for (uint32_t t = first; t <= last; ++t) tasks.insert(t);
  }
  return std::vector<uint32_t>(tasks.begin(), tasks.end());
}

}  // namespace palpate::job
