// SPDX-License-Identifier: Apache-2.0
// jigsaw status: who shares what on this machine, once.
#include "plugin/cli/command.hpp"
#include "plugin/cli/view.hpp"

#include <cstdio>

namespace jigsaw::cli {

const char *const kStatusUsage =
    "usage: jigsaw status [--json | --metrics] " JIGSAW_CLI_WHERE "\n"
    "Shows the GPUs, jobs and processes that share, as jigsawd on this machine sees them.\n"
    "  --json       the documents as jigsawd gives them, one node per line\n"
    "  --metrics    Prometheus text\n"
    "  --node NAME  this node only; the default is every node with a jigsawd on this machine\n";

namespace {

bool show(const Endpoint &endpoint, bool json, bool metrics)
{
    std::string text, why;
    JsonValue document;
    if (!fetch(&text, &why, endpoint, metrics ? "METRICS" : "STATUS") ||
        (!json && !metrics && !parse_json(&document, &why, text))) {
        complain(endpoint.line(why));
        return false;
    }
    std::fputs((json || metrics ? text : render_status(document, JsonValue())).c_str(), stdout);
    return true;
}

} // namespace

int run_status(const Arguments &arguments)
{
    Where where;
    bool json = false, metrics = false;
    int status = kOk;
    OptionReader reader("status", arguments, kStatusUsage);
    if (!reader.where(&where).flag("--json", &json).flag("--metrics", &metrics).read(&status))
        return status;
    if (json && metrics)
        return wrong_usage("--json and --metrics are two forms of the answer: give one");
    std::string why;
    const std::vector<Endpoint> endpoints = find_endpoints(&why, where);
    if (endpoints.empty()) {
        complain(why);
        return kFailed;
    }
    for (std::size_t i = 0; i < endpoints.size(); ++i) {
        if (i > 0 && !json)
            std::puts("");
        if (!show(endpoints[i], json, metrics))
            status = kFailed;
    }
    return status;
}

} // namespace jigsaw::cli
