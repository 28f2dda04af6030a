#include "sim/record/recording_begin.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gpu/base/status.h"
#include "sim/record/journal_file.h"

namespace palpate::record {

v1::JournalHead MakeHead(const v1::CreateSceneRequest& request, const sim::SceneDescription& description, const gpu::DeviceInfo& device,
                         std::string_view version, std::string_view commit) {
  v1::JournalHead head;
  head.set_format_major(kJournalMajor);
  head.set_format_minor(kJournalMinor);
  head.set_scene_id(request.scene_id());
  *head.mutable_request() = request;
  head.set_program_version(std::string(version));
  head.set_program_commit(std::string(commit));
  head.set_device(gpu::DescribeDevice(device));
  head.set_driver_version(device.driver_version);
  head.set_dt_s(description.dt_s);
  for (const sim::ToolDescription& tool : description.tools) head.add_tools(tool.name);
  return head;
}

std::string EncodeHead(const v1::JournalHead& head, uint64_t sequence, uint64_t position) {
  v1::JournalEntry entry;
  entry.set_sequence(sequence);
  *entry.mutable_head() = head;
  entry.mutable_head()->set_begin_position(position);
  return EncodeFileHeader() + EncodeEntry(entry);
}

absl::StatusOr<std::string> EncodeAssets(const v1::JournalHead& head, const AssetStore& store, uint64_t sequence) {
  std::string out;
  for (const v1::AssetReference& reference : head.assets()) {
    // The two halves of a TetGen mesh lie behind each other, since assets are in order of their names: .ele, .node.
    const std::vector<v1::AssetReference> group = GroupOf(reference, head);
    if (group.empty()) continue;
    PALPATE_ASSIGN_OR_RETURN(const std::filesystem::path path, store.PathOf(group));
    PALPATE_ASSIGN_OR_RETURN(std::vector<AssetFile> files, ReadAsset(group[0].name(), path));
    for (size_t f = 0; f < files.size(); ++f) {
      v1::JournalEntry entry;
      entry.set_sequence(sequence);
      *entry.mutable_asset()->mutable_reference() = group[f];
      entry.mutable_asset()->set_content(std::move(files[f].content));
      entry.mutable_asset()->set_goes_with_previous(f > 0);
      PALPATE_RETURN_IF_ERROR(Annotate(CheckEntrySize(entry.ByteSizeLong()), group[f].name()));
      out += EncodeEntry(entry);
    }
  }
  return out;
}

absl::StatusOr<std::string> EncodeStateEntry(const SceneCheckpoint& checkpoint) {
  // Before it is copied into the entry. The rest of the entry is small.
  constexpr size_t kRest = size_t{1} << 10;
  PALPATE_RETURN_IF_ERROR(Annotate(CheckEntrySize(checkpoint.world.size() + checkpoint.scene.ByteSizeLong() + kRest), "the scene's state"));
  v1::JournalEntry entry;
  entry.set_sequence(checkpoint.scene.journal_sequence());
  entry.mutable_state()->set_position(checkpoint.scene.position());
  entry.mutable_state()->set_checkpoint(EncodeState(checkpoint));
  return EncodeEntry(entry);
}

absl::StatusOr<std::string> EncodeMoment(const v1::JournalHead& head, const AssetStore& store, const SceneCheckpoint& checkpoint) {
  const uint64_t sequence = checkpoint.scene.journal_sequence();
  PALPATE_ASSIGN_OR_RETURN(const std::string assets, EncodeAssets(head, store, sequence));
  PALPATE_ASSIGN_OR_RETURN(const std::string state, EncodeStateEntry(checkpoint));
  return EncodeHead(head, sequence, checkpoint.scene.position()) + assets + state;
}

}  // namespace palpate::record
