#pragma once

#include <cmath>
#include <string>

#include <CLI/CLI.hpp>

namespace palpate::client {

/// Makes "nan" a wrong number for every option of the program and of its commands. CLI11's ranges hold for what is neither below nor above
/// them. To be called when all options are added.
inline void RefuseNan(CLI::App& app) {
  for (CLI::Option* option : app.get_options()) {
    if (option->get_type_name().rfind("FLOAT", 0) != 0) continue;
    option->check([](const std::string& text) {
      double value = 0;
      return CLI::detail::lexical_cast(text, value) && std::isnan(value) ? text + " is not a number" : std::string();
    });
  }
  for (CLI::App* command : app.get_subcommands([](CLI::App*) { return true; })) RefuseNan(*command);
}

}  // namespace palpate::client
