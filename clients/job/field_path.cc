#include "clients/job/field_path.h"

#include <charconv>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <google/protobuf/descriptor.h>
#include <google/protobuf/util/json_util.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "clients/job/json_text.h"
#include "gpu/base/status.h"
#include "sim/probe/probe_path.h"

namespace palpate::job {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using google::protobuf::Value;
using sim::PathPart;

constexpr int kListedElements = 40;  // in messages

absl::string_view View(std::string_view s) { return {s.data(), s.size()}; }

std::string FieldsOf(const Descriptor& type) {
  std::vector<std::string> names;
  for (int i = 0; i < type.field_count(); ++i) names.push_back(type.field(i)->name());
  return absl::StrJoin(names, ", ");
}

/// What an element of a list is called.
std::string NameOf(const Message& element) {
  for (const char* name : {"name", "tool", "field"}) {
    const FieldDescriptor* field = element.GetDescriptor()->FindFieldByName(name);
    if (field != nullptr && !field->is_repeated() && field->cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
      return element.GetReflection()->GetString(element, field);
    }
  }
  return "";
}

/// Walks a path and does something at its end.
class FieldWalk {
 public:
  /// `value` null: nothing is set.
  FieldWalk(std::string_view path, const Value* value) : path_(path), value_(value) {}

  absl::Status Run(Message* message) {
    auto parts = sim::ParsePath(path_);
    if (!parts.ok()) return Annotate(parts.status(), Shown());
    parts_ = *std::move(parts);
    for (const PathPart& part : parts_) {
      if (part.has_arguments) return Bad(part, "fields take no arguments");
    }
    return Visit(message, 0);
  }

 private:
  std::string Shown() const { return absl::StrCat("\"", View(path_), "\""); }
  absl::Status Bad(const PathPart& part, std::string_view what) const {
    return absl::InvalidArgumentError(absl::StrCat(Shown(), ", byte ", part.position, ": ", View(what)));
  }

  absl::Status Visit(Message* message, size_t at) {
    const PathPart& part = parts_[at];
    if (part.is_index) return Bad(part, absl::StrCat("[", part.name, "] does not follow a list"));
    const FieldDescriptor* field = message->GetDescriptor()->FindFieldByName(part.name);
    if (field == nullptr || field->is_map()) {
      return Bad(part, absl::StrCat("there is no field \"", part.name, "\"; there are: ", FieldsOf(*message->GetDescriptor())));
    }
    if (at + 1 == parts_.size()) return Set(message, field, part);
    const bool is_message = field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE;
    if (field->is_repeated()) return VisitElements(message, field, at + 1);
    if (!is_message) return Bad(parts_[at + 1], absl::StrCat("\"", part.name, "\" is one value and has no parts"));
    const Reflection& reflection = *message->GetReflection();
    if (const auto* choice = field->real_containing_oneof(); choice != nullptr && !reflection.HasField(*message, field)) {
      const FieldDescriptor* present = reflection.GetOneofFieldDescriptor(*message, choice);
      if (present != nullptr) {
        return Bad(part,
                   absl::StrCat("there is \"", present->name(), "\" in its place; set \"", part.name, "\" as a whole to exchange it"));
      }
    }
    return Visit(reflection.MutableMessage(message, field), at + 1);
  }

  absl::Status VisitElements(Message* message, const FieldDescriptor* field, size_t at) {
    const PathPart& part = parts_[at];
    if (!part.is_index) return Bad(part, absl::StrCat("\"", field->name(), "\" is a list; say which element: ", field->name(), "[0]"));
    if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) return Bad(part, "lists of numbers or names are set as a whole");
    const Reflection& reflection = *message->GetReflection();
    const int count = reflection.FieldSize(*message, field);
    int index = -1;
    const auto [end, error] = std::from_chars(part.name.data(), part.name.data() + part.name.size(), index);
    const bool is_number = error == std::errc() && end == part.name.data() + part.name.size();
    bool found = false;
    for (int i = 0; i < count; ++i) {
      Message* element = reflection.MutableRepeatedMessage(message, field, i);
      if (is_number ? i != index : !sim::MatchesPattern(part.name, NameOf(*element))) continue;
      found = true;
      if (at + 1 < parts_.size()) {
        PALPATE_RETURN_IF_ERROR(Visit(element, at + 1));
      } else {
        PALPATE_RETURN_IF_ERROR(SetElement(element, part));
      }
    }
    if (found) return absl::OkStatus();
    std::vector<std::string> names;
    for (int i = 0; i < count && i < kListedElements; ++i) {
      const std::string name = NameOf(reflection.GetRepeatedMessage(*message, field, i));
      names.push_back(name.empty() ? absl::StrCat(i) : absl::StrCat(i, " ", name));
    }
    return absl::NotFoundError(absl::StrCat(Shown(), ", byte ", part.position, ": there is no ", field->name(), "[", part.name,
                                            "]; there are: ", names.empty() ? "none" : absl::StrJoin(names, ", ")));
  }

  absl::StatusOr<std::string> ValueText() const {
    std::string text;
    if (!google::protobuf::util::MessageToJsonString(*value_, &text).ok()) {
      return absl::InvalidArgumentError(absl::StrCat(Shown(), ": the value is not one that JSON knows"));
    }
    return text;
  }

  /// By the JSON form of a message that has this field alone, whose parser checks types and says what is wrong.
  absl::Status Set(Message* message, const FieldDescriptor* field, const PathPart& part) {
    if (value_ == nullptr) return absl::OkStatus();
    PALPATE_ASSIGN_OR_RETURN(const std::string text, ValueText());
    const std::unique_ptr<Message> alone(message->New());
    const absl::Status parsed = ParseJsonMessage(absl::StrCat("{\"", part.name, "\":", text, "}"), Shown(), alone.get());
    PALPATE_RETURN_IF_ERROR(parsed);
    message->GetReflection()->ClearField(message, field);
    message->MergeFrom(*alone);
    return absl::OkStatus();
  }

  absl::Status SetElement(Message* element, const PathPart& part) {
    if (value_ == nullptr) return absl::OkStatus();
    if (!value_->has_struct_value()) return Bad(part, "an element of this list is set by an object");
    PALPATE_ASSIGN_OR_RETURN(const std::string text, ValueText());
    const std::unique_ptr<Message> alone(element->New());
    PALPATE_RETURN_IF_ERROR(ParseJsonMessage(text, Shown(), alone.get()));
    element->CopyFrom(*alone);
    return absl::OkStatus();
  }

  std::string_view path_;
  const Value* value_;
  std::vector<PathPart> parts_;
};

}  // namespace

absl::Status SetField(Message* message, std::string_view path, const Value& value) {
  const std::unique_ptr<Message> changed(message->New());
  changed->CopyFrom(*message);
  PALPATE_RETURN_IF_ERROR(FieldWalk(path, &value).Run(changed.get()));
  message->GetReflection()->Swap(message, changed.get());
  return absl::OkStatus();
}

absl::Status CheckField(const Message& message, std::string_view path) {
  const std::unique_ptr<Message> copy(message.New());
  copy->CopyFrom(message);
  return FieldWalk(path, nullptr).Run(copy.get());
}

}  // namespace palpate::job
