#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "gpu/runtime/device.h"
#include "palpate/v1/journal.pb.h"
#include "sim/record/asset_store.h"
#include "sim/record/state_file.h"
#include "sim/scene/description.h"

namespace palpate::record {

/// The head of what is recorded here and now, but for its time, assets and place. `request`: with inline meshes. `version`, `commit`: of
/// the program.
v1::JournalHead MakeHead(const v1::CreateSceneRequest& request, const sim::SceneDescription& description, const gpu::DeviceInfo& device,
                         std::string_view version, std::string_view commit);

/// What a recording begins with, as it lies in its file: header, head, assets, and the state that it begins with. `sequence`, `position`:
/// of the moment.
std::string EncodeHead(const v1::JournalHead& head, uint64_t sequence, uint64_t position);
/// The files that the head names, out of a store. Errors: those of AssetStore::PathOf and of reading; ResourceExhausted (a file is too
/// large for an entry).
absl::StatusOr<std::string> EncodeAssets(const v1::JournalHead& head, const AssetStore& store, uint64_t sequence);
/// Errors: ResourceExhausted (the state is too large for an entry).
absl::StatusOr<std::string> EncodeStateEntry(const SceneCheckpoint& checkpoint);

/// A recording of one moment: all of these. Errors: those of EncodeAssets and EncodeStateEntry.
absl::StatusOr<std::string> EncodeMoment(const v1::JournalHead& head, const AssetStore& store, const SceneCheckpoint& checkpoint);

}  // namespace palpate::record
