#include "sim/volume/dicom_segmentation.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <Eigen/Geometry>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "gpu/base/status.h"
#include "sim/volume/dicom_data_set.h"

namespace palpate::sim {
namespace {

using Eigen::Vector3d;

constexpr uint64_t kMaxFileBytes = uint64_t{1} << 30;
constexpr char kSegmentationClass[] = "1.2.840.10008.5.1.4.1.1.66.4";
constexpr double kMetres = 0.001;
constexpr double kOffGrid = 0.02;  // of a voxel
// A small file may not ask for much memory by frames that lie far apart.
constexpr uint64_t kFreeVoxels = 1 << 24;
constexpr uint64_t kMostGaps = 256;

/// One frame of the object.
struct Frame {
  uint16_t segment = 0;
  Vector3d position_mm = Vector3d::Zero();
  std::array<double, 6> orientation{};  // directions of i and j
  double along_mm = 0;                  // position along the normal
};

/// Values of a data set, with errors that name the file and the attribute.
class Attributes {
 public:
  Attributes(const DicomDataSet& data, const std::string& name) : data_(&data), name_(&name) {}

  absl::StatusOr<std::string> Text(uint32_t tag, const char* what) const {
    const DicomElement* element = data_->Find(tag);
    if (element == nullptr || element->is_sequence) return Missing(tag, what);
    return std::string(
        absl::StripAsciiWhitespace(absl::string_view(element->value.data(), std::min(element->value.size(), element->value.find('\0')))));
  }
  absl::StatusOr<uint16_t> Short(uint32_t tag, const char* what) const {
    const DicomElement* element = data_->Find(tag);
    if (element == nullptr || element->value.size() < 2) return Missing(tag, what);
    return static_cast<uint16_t>(static_cast<uint8_t>(element->value[0]) | static_cast<uint8_t>(element->value[1]) << 8);
  }
  template <size_t kCount>
  absl::StatusOr<std::array<double, kCount>> Reals(uint32_t tag, const char* what) const {
    PALPATE_ASSIGN_OR_RETURN(const std::string text, Text(tag, what));
    const std::vector<std::string> words = absl::StrSplit(text, '\\');
    std::array<double, kCount> values{};
    bool ok = words.size() == kCount;
    for (size_t i = 0; ok && i < kCount; ++i) ok = absl::SimpleAtod(words[i], &values[i]) && std::isfinite(values[i]);
    if (ok) return values;
    return absl::InvalidArgumentError(
        absl::StrFormat("%s: %s (%04x,%04x) is \"%s\", must be %d numbers", *name_, what, tag >> 16, tag & 0xffff, text, kCount));
  }
  bool Has(uint32_t tag) const { return data_->Find(tag) != nullptr; }
  /// The items of a sequence; none if it is missing.
  const std::vector<DicomDataSet>& Items(uint32_t tag) const {
    static const auto& none = *new std::vector<DicomDataSet>;
    const DicomElement* element = data_->Find(tag);
    return element == nullptr ? none : element->items;
  }
  /// The first item of a sequence.
  std::optional<Attributes> First(uint32_t tag) const {
    const std::vector<DicomDataSet>& items = Items(tag);
    if (items.empty()) return std::nullopt;
    return Attributes(items[0], *name_);
  }

 private:
  absl::Status Missing(uint32_t tag, const char* what) const {
    return absl::InvalidArgumentError(absl::StrFormat("%s: no %s (%04x,%04x)", *name_, what, tag >> 16, tag & 0xffff));
  }

  const DicomDataSet* data_;
  const std::string* name_;
};

class Segmentation {
 public:
  Segmentation(const DicomDataSet& data, const std::string& name) : name_(name), data_(data), top_(data, name_) {}

  absl::StatusOr<LabelVolume> Read() {
    PALPATE_RETURN_IF_ERROR(ReadHeader());
    PALPATE_RETURN_IF_ERROR(ReadSegments());
    PALPATE_RETURN_IF_ERROR(ReadFrames());
    PALPATE_RETURN_IF_ERROR(PlaceFrames());
    PALPATE_RETURN_IF_ERROR(ReadPixels());
    return std::move(volume_);
  }

 private:
  absl::Status ReadHeader();
  absl::Status ReadSegments();
  absl::Status ReadFrames();
  absl::Status PlaceFrames();
  absl::Status ReadPixels();
  absl::Status ReadMeasures(const Attributes& groups);

  const std::string& name_;
  const DicomDataSet& data_;
  Attributes top_;
  LabelVolume volume_;
  uint64_t frame_count_ = 0;
  bool is_fractional_ = false;
  uint16_t half_ = 128;  // of the largest fraction, rounded up
  double slice_mm_ = 0;  // 0: not given
  bool has_measures_ = false;
  std::vector<Frame> frames_;
  std::vector<uint32_t> slices_;  // [frame_count]
};

absl::Status Segmentation::ReadHeader() {
  PALPATE_ASSIGN_OR_RETURN(const std::string sop_class, top_.Text(0x00080016, "SOP class"));
  if (sop_class != kSegmentationClass) {
    return absl::InvalidArgumentError(absl::StrFormat("%s: SOP class %s is no segmentation (%s)", name_, sop_class, kSegmentationClass));
  }
  PALPATE_ASSIGN_OR_RETURN(const uint16_t rows, top_.Short(0x00280010, "rows"));
  PALPATE_ASSIGN_OR_RETURN(const uint16_t columns, top_.Short(0x00280011, "columns"));
  PALPATE_ASSIGN_OR_RETURN(const std::string frames, top_.Text(0x00280008, "number of frames"));
  PALPATE_ASSIGN_OR_RETURN(const std::string type, top_.Text(0x00620001, "segmentation type"));
  PALPATE_ASSIGN_OR_RETURN(const uint16_t bits, top_.Short(0x00280100, "bits allocated"));
  if (!absl::SimpleAtoi(frames, &frame_count_) || frame_count_ == 0) {
    return absl::InvalidArgumentError(absl::StrFormat("%s: number of frames \"%s\", must be at least 1", name_, frames));
  }
  is_fractional_ = type == "FRACTIONAL";
  if (!is_fractional_ && type != "BINARY") {
    return absl::InvalidArgumentError(absl::StrFormat("%s: segmentation type \"%s\", must be BINARY or FRACTIONAL", name_, type));
  }
  if (bits != (is_fractional_ ? 8 : 1)) {
    return absl::InvalidArgumentError(absl::StrFormat("%s: %d bits a voxel of a %s segmentation, must be %d", name_, bits,
                                                      is_fractional_ ? "fractional" : "binary", is_fractional_ ? 8 : 1));
  }
  if (is_fractional_) {
    PALPATE_ASSIGN_OR_RETURN(const uint16_t most, top_.Short(0x0062000e, "maximum fractional value"));
    if (most < 1 || most > 255) {
      return absl::InvalidArgumentError(absl::StrFormat("%s: maximum fractional value %d, must be in [1, 255]", name_, most));
    }
    half_ = static_cast<uint16_t>((most + 1) / 2);
  }
  volume_.size = {columns, rows, 1};
  if (columns == 0 || rows == 0) return absl::InvalidArgumentError(absl::StrFormat("%s: %d rows, %d columns", name_, rows, columns));
  return absl::OkStatus();
}

absl::Status Segmentation::ReadSegments() {
  const std::vector<DicomDataSet>& segments = top_.Items(0x00620002);
  if (segments.empty()) return absl::InvalidArgumentError(absl::StrCat(name_, ": no segment sequence (0062,0002)"));
  for (const DicomDataSet& item : segments) {
    const Attributes segment(item, name_);
    PALPATE_ASSIGN_OR_RETURN(const uint16_t number, segment.Short(0x00620004, "segment number"));
    PALPATE_ASSIGN_OR_RETURN(const std::string label, segment.Text(0x00620005, "segment label"));
    if (number == 0) return absl::InvalidArgumentError(absl::StrCat(name_, ": a segment has the number 0"));
    volume_.names[number] = label;
  }
  return absl::OkStatus();
}

// Spacing, where `groups` has it.
absl::Status Segmentation::ReadMeasures(const Attributes& groups) {
  const auto measures = groups.First(0x00289110);
  if (has_measures_ || !measures) return absl::OkStatus();
  using Pair = std::array<double, 2>;
  using One = std::array<double, 1>;
  PALPATE_ASSIGN_OR_RETURN(const Pair spacing, measures->Reals<2>(0x00280030, "pixel spacing"));
  volume_.spacing_m[0] = kMetres * spacing[1];
  volume_.spacing_m[1] = kMetres * spacing[0];
  for (const auto& [tag, what] : {std::pair(0x00180088, "spacing between slices"), std::pair(0x00180050, "slice thickness")}) {
    if (!measures->Has(tag) || slice_mm_ > 0) continue;
    PALPATE_ASSIGN_OR_RETURN(const One value, measures->Reals<1>(tag, what));
    slice_mm_ = std::abs(value[0]);
  }
  has_measures_ = true;
  return absl::OkStatus();
}

absl::Status Segmentation::ReadFrames() {
  using Three = std::array<double, 3>;
  const auto shared = top_.First(0x52009229);
  const std::vector<DicomDataSet>& each = top_.Items(0x52009230);
  if (each.size() != frame_count_) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s: %d frames, but %d items in their functional groups (5200,9230)", name_, frame_count_, each.size()));
  }
  if (shared) PALPATE_RETURN_IF_ERROR(ReadMeasures(*shared));
  for (size_t f = 1; f <= frame_count_; ++f) {
    const Attributes groups(each[f - 1], name_);
    PALPATE_RETURN_IF_ERROR(ReadMeasures(groups));
    auto identification = groups.First(0x0062000a);
    if (!identification && shared) identification = shared->First(0x0062000a);
    const auto position = groups.First(0x00209113);
    auto orientation = groups.First(0x00209116);
    if (!orientation && shared) orientation = shared->First(0x00209116);
    if (!identification || !position || !orientation) {
      return absl::InvalidArgumentError(absl::StrFormat("%s: frame %d has no %s", name_, f,
                                                        !identification ? "segment"
                                                        : !position     ? "plane position"
                                                                        : "plane orientation"));
    }
    Frame frame;
    PALPATE_ASSIGN_OR_RETURN(frame.segment, identification->Short(0x0062000b, "referenced segment number"));
    PALPATE_ASSIGN_OR_RETURN(const Three at, position->Reals<3>(0x00200032, "image position"));
    PALPATE_ASSIGN_OR_RETURN(frame.orientation, orientation->Reals<6>(0x00200037, "image orientation"));
    frame.position_mm = Vector3d(at[0], at[1], at[2]);
    if (!volume_.names.contains(frame.segment)) {
      return absl::InvalidArgumentError(
          absl::StrFormat("%s: frame %d is of segment %d, which is not in the segment sequence", name_, f, frame.segment));
    }
    frames_.push_back(frame);
  }
  if (!has_measures_) return absl::InvalidArgumentError(absl::StrCat(name_, ": no pixel spacing (0028,0030)"));
  return absl::OkStatus();
}

// One grid for all frames.
absl::Status Segmentation::PlaceFrames() {
  const auto& o = frames_[0].orientation;
  const Vector3d i_axis = Vector3d(o[0], o[1], o[2]);
  const Vector3d j_axis = Vector3d(o[3], o[4], o[5]);
  const Vector3d normal = i_axis.cross(j_axis);
  volume_.direction << i_axis, j_axis, normal;
  size_t lowest = 0;
  std::vector<double> places;
  for (size_t f = 0; f < frames_.size(); ++f) {
    for (size_t c = 0; c < 6; ++c) {
      if (std::abs(frames_[f].orientation[c] - o[c]) > 1e-4) {
        return absl::InvalidArgumentError(absl::StrFormat("%s: frame %d has another orientation than the first", name_, f + 1));
      }
    }
    frames_[f].along_mm = normal.dot(frames_[f].position_mm);
    if (frames_[f].along_mm < frames_[lowest].along_mm) lowest = f;
    places.push_back(frames_[f].along_mm);
  }
  std::sort(places.begin(), places.end());
  if (!(slice_mm_ > 0)) {
    for (size_t p = 1; p < places.size(); ++p) {
      const double step_mm = places[p] - places[p - 1];
      if (step_mm > 1e-3 && (slice_mm_ == 0 || step_mm < slice_mm_)) slice_mm_ = step_mm;
    }
  }
  volume_.spacing_m[2] = kMetres * slice_mm_;
  volume_.origin_m = kMetres * frames_[lowest].position_mm;
  const double slice_count = std::round((places.back() - places.front()) / slice_mm_) + 1;
  volume_.size[2] = slice_count >= 1 && slice_count < 1e9 ? static_cast<uint32_t>(slice_count) : 0;
  PALPATE_RETURN_IF_ERROR(CheckLabelGrid(volume_, name_));
  for (size_t f = 0; f < frames_.size(); ++f) {
    const Vector3d from_first = frames_[f].position_mm - frames_[lowest].position_mm;
    const double slice = normal.dot(from_first) / slice_mm_;
    const Vector3d beside = (from_first - normal.dot(from_first) * normal) * kMetres;
    if (std::abs(slice - std::round(slice)) > kOffGrid || beside.norm() > kOffGrid * volume_.spacing_m.head<2>().minCoeff()) {
      return absl::InvalidArgumentError(
          absl::StrFormat("%s: frame %d lies %.3f slices of %g mm and %.3f mm beside the first: not on one grid", name_, f + 1, slice,
                          slice_mm_, 1000 * beside.norm()));
    }
    slices_.push_back(static_cast<uint32_t>(std::round(slice)));
  }
  return absl::OkStatus();
}

absl::Status Segmentation::ReadPixels() {
  const DicomElement* element = data_.Find(0x7fe00010);
  if (element == nullptr) return absl::InvalidArgumentError(absl::StrCat(name_, ": no pixels (7fe0,0010)"));
  const std::string_view bytes = element->value;
  const uint64_t frame_voxels = uint64_t{volume_.size[0]} * volume_.size[1];
  const uint64_t needed = is_fractional_ ? frame_voxels * frame_count_ : (frame_voxels * frame_count_ + 7) / 8;
  if (bytes.size() < needed) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s: %d bytes of pixels, but %d frames need %d", name_, bytes.size(), frame_count_, needed));
  }
  const auto* pixels = reinterpret_cast<const unsigned char*>(bytes.data());
  if (volume_.voxel_count() > kFreeVoxels && volume_.voxel_count() / kMostGaps > frame_voxels * frame_count_) {
    return absl::InvalidArgumentError(absl::StrFormat("%s: %d frames are spread over %d slices, more than %d times as many", name_,
                                                      frame_count_, volume_.size[2], kMostGaps));
  }
  volume_.voxels.assign(volume_.voxel_count(), 0);
  for (size_t f = 0; f < frames_.size(); ++f) {
    uint16_t* slice = volume_.voxels.data() + slices_[f] * frame_voxels;
    for (uint64_t v = 0; v < frame_voxels; ++v) {
      const uint64_t at = f * frame_voxels + v;
      const bool is_set = is_fractional_ ? pixels[at] >= half_ : (pixels[at >> 3] >> (at & 7) & 1) != 0;
      if (!is_set) continue;
      if (slice[v] != 0 && slice[v] != frames_[f].segment) ++volume_.overlap_count;
      slice[v] = std::max(slice[v], frames_[f].segment);
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<LabelVolume> ParseDicomSegmentation(std::string_view bytes, const std::string& name) {
  PALPATE_ASSIGN_OR_RETURN(const DicomDataSet data, ParseDicom(bytes, name));
  return Segmentation(data, name).Read();
}

absl::StatusOr<LabelVolume> ReadDicomSegmentation(const std::filesystem::path& path) {
  const std::string name = path.string();
  std::error_code error;
  const uint64_t size = std::filesystem::file_size(path, error);
  if (error) return absl::ErrnoToStatus(error.value(), absl::StrCat("cannot read ", name));
  if (size > kMaxFileBytes) {
    return absl::ResourceExhaustedError(absl::StrFormat("%s: %d bytes are more than the limit of %d", name, size, kMaxFileBytes));
  }
  std::ifstream file(path, std::ios::binary);
  std::string bytes(size, '\0');
  file.read(bytes.data(), static_cast<std::streamsize>(size));
  if (file.gcount() != static_cast<std::streamsize>(size)) return absl::InvalidArgumentError(absl::StrCat("cannot read all of ", name));
  return ParseDicomSegmentation(bytes, name);
}

}  // namespace palpate::sim
