#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace palpate::sim {

struct DicomDataSet;

/// One attribute: a value, or the items of a sequence.
struct DicomElement {
  uint32_t tag = 0;        ///< group << 16 | element
  size_t offset = 0;       ///< of its value in the file
  std::string_view value;  ///< into the bytes that were parsed; of a sequence empty
  bool is_sequence = false;
  std::vector<DicomDataSet> items;
};

/// Attributes by ascending tag, as DICOM wants them.
struct DicomDataSet {
  std::vector<DicomElement> elements;
  const DicomElement* Find(uint32_t tag) const;  ///< null if there is none
};

/// Reads a DICOM file (PS3.10) from memory: uncompressed, little-endian, explicit or implicit VR. Of implicit VR, and of values of unknown
/// VR, only what has no length, and the sequences of segmentations, are taken for sequences. `bytes` must outlive the result. Never reads
/// outside `bytes`; allocates no more than a small multiple of them, nests 16 deep at most.
///
/// Errors: InvalidArgument naming `name`, the byte offset and what is wrong there.
absl::StatusOr<DicomDataSet> ParseDicom(std::string_view bytes, std::string_view name);

}  // namespace palpate::sim
