#pragma once

#include <filesystem>

#include "absl/status/statusor.h"
#include "sim/volume/label_volume.h"

namespace palpate::sim {

/// Reads a volume of labels. The extension decides: .nii, .nii.gz, .nrrd, .nhdr, .mha, .mhd through ITK; .dcm, or a file that says it is
/// DICOM, is a segmentation object (ReadDicomSegmentation). Sizes are checked before voxels are read. Spacing, orientation and origin are
/// those of the file, in the frame of LabelVolume whatever the file's own. Values must be whole numbers in [0, 65535], of any type.
/// Names: those of segments (seg.nrrd of 3D Slicer, DICOM).
///
/// Errors, naming the file: NotFound or PermissionDenied (file), InvalidArgument (extension, contents), ResourceExhausted (more than
/// kMaxVoxels), FailedPrecondition (built without ITK; names the package).
absl::StatusOr<LabelVolume> ReadLabelVolume(const std::filesystem::path& path);

/// Whether this build reads volumes.
bool ReadsLabelVolumes();

}  // namespace palpate::sim
