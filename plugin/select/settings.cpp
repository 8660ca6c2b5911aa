// SPDX-License-Identifier: GPL-2.0-or-later
// See settings.hpp.
#include "plugin/select/settings.hpp"

#include "plugin/select/profiles.hpp"

#include <fstream>
#include <iterator>

namespace jigsaw::select {
namespace {

using ConfigPtr = std::shared_ptr<const config::Config>;

struct Current {
    ConfigPtr config;
    bool read_before = false; ///< the site's own, not the defaults with sharing off
};

Current &current()
{
    static Current current;
    return current;
}

ConfigPtr sharing_off()
{
    auto config = std::make_shared<config::Config>();
    config->sharing.enabled = false;
    return config;
}

/// Empty where there is no such file.
std::string text_of(const std::string &path)
{
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

/// The copy of the last jigsaw.yaml that was right; "" when slurmctld keeps no state.
std::string copy_path()
{
    return slurm_conf.state_save_location ? std::string(slurm_conf.state_save_location) + "/jigsaw_settings" : "";
}

void keep_copy(const std::string &path)
{
    const std::string copy = copy_path();
    if (copy.empty())
        return;
    const std::string text = text_of(path);
    const bool is_kept = access(copy.c_str(), F_OK) == 0 && text_of(copy) == text;
    if (!is_kept && !write_whole(copy, text))
        error("jigsaw: %s: %s; a bad jigsaw.yaml would switch sharing off at the next restart", copy.c_str(), strerror(errno));
}

/// Null without a copy.
ConfigPtr load_copy()
{
    std::string why;
    const std::string copy = copy_path();
    return copy.empty() ? nullptr : config::load_config(&why, copy);
}

} // namespace

void load_settings()
{
    const char *variable = getenv("JIGSAW_CONFIG");
    const std::string path = variable && *variable ? variable : config::kDefaultConfigPath;
    std::string why;
    if (ConfigPtr loaded = config::load_config(&why, path)) {
        current() = {std::move(loaded), true};
        keep_copy(path);
        return;
    }
    if (!current().read_before) {
        ConfigPtr copy = load_copy();
        const bool found = copy != nullptr;
        current() = {found ? std::move(copy) : sharing_off(), found};
    }
    error("jigsaw: %s; %s", why.c_str(),
          current().read_before ? "the settings read before stay"
                                : "no job shares until it is put right and `scontrol reconfigure` run");
}

const config::Config &settings()
{
    if (!current().config)
        load_settings();
    return *current().config;
}

} // namespace jigsaw::select
