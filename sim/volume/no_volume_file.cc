// What stands for the readers in a build without ITK.
#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "sim/volume/dicom_segmentation.h"
#include "sim/volume/volume_file.h"

namespace palpate::sim {

absl::StatusOr<LabelVolume> ReadLabelVolume(const std::filesystem::path& path) {
  if (absl::EndsWithIgnoreCase(path.string(), ".dcm")) return ReadDicomSegmentation(path);
  return absl::FailedPreconditionError(absl::StrCat(path.string(),
                                                    ": this build reads no volumes but DICOM segmentations (.dcm). Install ITK (Debian: "
                                                    "apt-get install libinsighttoolkit5-dev) and build again"));
}

bool ReadsLabelVolumes() { return false; }

}  // namespace palpate::sim
