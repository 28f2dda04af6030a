// Any bytes as a DICOM segmentation: an answer or an error, and no memory for what a header merely claims.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "sim/volume/dicom_segmentation.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  palpate::sim::ParseDicomSegmentation(std::string_view(reinterpret_cast<const char*>(data), size), "fuzz.dcm").IgnoreError();
  return 0;
}
