#include "sim/volume/dicom_data_set.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "gpu/base/status.h"

namespace palpate::sim {
namespace {

constexpr size_t kPreamble = 128;
constexpr int kMaxDepth = 16;
constexpr uint64_t kMaxElements = 4'000'000;
constexpr uint32_t kNoLength = 0xffffffff;
constexpr uint32_t kItem = 0xfffee000;
constexpr uint32_t kEndOfItem = 0xfffee00d;
constexpr uint32_t kEndOfSequence = 0xfffee0dd;
constexpr uint32_t kTransferSyntax = 0x00020010;
constexpr uint32_t kPixels = 0x7fe00010;
// Sequences of a segmentation that have to be told without a VR.
constexpr std::array<uint32_t, 7> kSequences = {0x00209113, 0x00209116, 0x00289110, 0x00620002, 0x0062000a, 0x52009229, 0x52009230};

class Parser {
 public:
  Parser(std::string_view bytes, std::string_view name) : bytes_(bytes), name_(name) {}

  absl::StatusOr<DicomDataSet> Parse() {
    if (bytes_.size() < kPreamble + 4 || bytes_.substr(kPreamble, 4) != "DICM")
      return Error(0, "not a DICOM file: no DICM after 128 bytes");
    at_ = kPreamble + 4;
    DicomDataSet out;
    while (at_ + 4 <= bytes_.size() && Word16(at_) == 2) PALPATE_RETURN_IF_ERROR(ReadElement(true, 0, &out));
    const DicomElement* syntax = out.Find(kTransferSyntax);
    if (syntax == nullptr) return Error(at_, "no transfer syntax (0002,0010)");
    const std::string_view uid = syntax->value.substr(0, syntax->value.find('\0'));
    const bool is_explicit = uid == "1.2.840.10008.1.2.1";
    if (!is_explicit && uid != "1.2.840.10008.1.2") {
      return Error(syntax->offset,
                   absl::StrFormat("transfer syntax %s is not read; store the file uncompressed and little-endian", std::string(uid)));
    }
    PALPATE_RETURN_IF_ERROR(ReadElements(bytes_.size(), kNoLength, is_explicit, 0, &out));
    return out;
  }

 private:
  absl::Status Error(size_t offset, std::string_view message) const {
    return absl::InvalidArgumentError(absl::StrFormat("%s, byte %d: %s", std::string(name_), offset, std::string(message)));
  }
  uint32_t Word16(size_t at) const {
    return static_cast<uint8_t>(bytes_[at]) | static_cast<uint32_t>(static_cast<uint8_t>(bytes_[at + 1])) << 8;
  }
  uint32_t Word32(size_t at) const { return Word16(at) | Word16(at + 2) << 16; }
  uint32_t Tag(size_t at) const { return Word16(at) << 16 | Word16(at + 2); }

  // Up to `end`, or to the element `last` if that is one.
  absl::Status ReadElements(size_t end, uint32_t last, bool is_explicit, int depth, DicomDataSet* out) {
    while (at_ < end) {
      if (end - at_ < 8) return Error(at_, "cut off within an element");
      if (last != kNoLength && Tag(at_) == last) {
        at_ += 8;
        return absl::OkStatus();
      }
      PALPATE_RETURN_IF_ERROR(ReadElement(is_explicit, depth, out));
      if (at_ > end) return Error(at_, "an element is longer than what it is in");
    }
    return last == kNoLength ? absl::OkStatus() : Error(at_, "cut off within an item without a length");
  }

  absl::Status ReadElement(bool is_explicit, int depth, DicomDataSet* out) {
    if (++element_count_ > kMaxElements) return Error(at_, absl::StrFormat("more than %d elements", kMaxElements));
    const size_t begin = at_;
    if (bytes_.size() - at_ < 8) return Error(begin, "cut off within an element");
    DicomElement element;
    element.tag = Tag(at_);
    std::string_view vr;
    uint32_t length = 0;
    if (is_explicit) {
      vr = bytes_.substr(at_ + 4, 2);
      constexpr std::array<std::string_view, 13> kLong = {"OB", "OD", "OF", "OL", "OV", "OW", "SQ", "SV", "UC", "UN", "UR", "UT", "UV"};
      if (std::find(kLong.begin(), kLong.end(), vr) != kLong.end()) {
        if (bytes_.size() - at_ < 12) return Error(begin, "cut off within an element");
        length = Word32(at_ + 8);
        at_ += 12;
      } else {
        length = Word16(at_ + 6);
        at_ += 8;
      }
    } else {
      length = Word32(at_ + 4);
      at_ += 8;
    }
    element.offset = at_;
    const bool may_be_sequence = vr.empty() || vr == "UN";
    element.is_sequence = vr == "SQ" || (length == kNoLength && element.tag != kPixels) ||
                          (may_be_sequence && std::find(kSequences.begin(), kSequences.end(), element.tag) != kSequences.end());
    if (element.is_sequence) {
      PALPATE_RETURN_IF_ERROR(ReadItems(length, vr == "SQ" && is_explicit, depth, &element));
    } else {
      if (length == kNoLength) return Error(begin, "compressed pixels are not read; store the file uncompressed");
      if (length > bytes_.size() - at_) {
        return Error(begin, absl::StrFormat("element (%04x,%04x) claims %d bytes, %d are left", element.tag >> 16, element.tag & 0xffff,
                                            length, bytes_.size() - at_));
      }
      element.value = bytes_.substr(at_, length);
      at_ += length;
    }
    out->elements.push_back(std::move(element));
    return absl::OkStatus();
  }

  absl::Status ReadItems(uint32_t length, bool is_explicit, int depth, DicomElement* sequence) {
    if (depth >= kMaxDepth) return Error(at_, absl::StrFormat("sequences are nested more than %d deep", kMaxDepth));
    if (length != kNoLength && length > bytes_.size() - at_) return Error(at_, "a sequence is longer than the file");
    const size_t end = length == kNoLength ? bytes_.size() : at_ + length;
    while (at_ < end) {
      if (end - at_ < 8) return Error(at_, "cut off within a sequence");
      if (++element_count_ > kMaxElements) return Error(at_, absl::StrFormat("more than %d elements", kMaxElements));
      const uint32_t tag = Tag(at_);
      const uint32_t item_length = Word32(at_ + 4);
      if (tag == kEndOfSequence && length == kNoLength) {
        at_ += 8;
        return absl::OkStatus();
      }
      if (tag != kItem) return Error(at_, "an item (fffe,e000) of a sequence expected");
      at_ += 8;
      if (item_length != kNoLength && item_length > end - at_) return Error(at_, "an item is longer than its sequence");
      DicomDataSet& item = sequence->items.emplace_back();
      const size_t item_end = item_length == kNoLength ? end : at_ + item_length;
      PALPATE_RETURN_IF_ERROR(ReadElements(item_end, item_length == kNoLength ? kEndOfItem : kNoLength, is_explicit, depth + 1, &item));
    }
    return length == kNoLength ? Error(at_, "cut off within a sequence without a length") : absl::OkStatus();
  }

  std::string_view bytes_;
  std::string_view name_;
  size_t at_ = 0;
  uint64_t element_count_ = 0;
};

}  // namespace

const DicomElement* DicomDataSet::Find(uint32_t tag) const {
  // files need not keep the order that they should
  const auto found = std::find_if(elements.begin(), elements.end(), [tag](const DicomElement& e) { return e.tag == tag; });
  return found == elements.end() ? nullptr : &*found;
}

absl::StatusOr<DicomDataSet> ParseDicom(std::string_view bytes, std::string_view name) { return Parser(bytes, name).Parse(); }

}  // namespace palpate::sim
