#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "sim/volume/label_volume.h"

namespace palpate::sim {

/// Reads a DICOM Segmentation object (PS3.3 A.51): binary frames, or fractional ones, of which half and more counts. Labels are the numbers
/// of segments, names their labels. Frames may come in any order and leave out slices. Where segments overlap the one of the higher number
/// wins; LabelVolume::overlap_count tells. Errors: as ReadLabelVolume; also of frames that do not lie on one grid, and of compressed
/// pixels.
absl::StatusOr<LabelVolume> ReadDicomSegmentation(const std::filesystem::path& path);

/// The same from memory; `name` appears in errors.
absl::StatusOr<LabelVolume> ParseDicomSegmentation(std::string_view bytes, const std::string& name);

}  // namespace palpate::sim
