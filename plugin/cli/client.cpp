// SPDX-License-Identifier: Apache-2.0
// Questions to jigsawd over its socket.
#include "plugin/cli/client.hpp"

#include "plugin/config/registration.hpp"
#include "runtime/page/socket.hpp"

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>

namespace jigsaw::cli {

namespace {

constexpr std::size_t kDocumentLimit = 64u << 20;

bool is_socket(const std::string &path)
{
    struct stat status{};
    return stat(path.c_str(), &status) == 0 && S_ISSOCK(status.st_mode);
}

/// False with a line in *ret_why for a --config that does not tell. A broken file at the default path is the doctor's
/// business: then it is the default folder, and *ret_why says so for the case that nothing is found there.
bool find_run_dir(std::string *ret_run_dir, std::string *ret_why, const Where &where)
{
    if (!where.run_dir.empty() && where.config.empty()) {
        *ret_run_dir = where.run_dir;
        return true;
    }
    const auto config = load_config(ret_why, where);
    if (!config && !where.config.empty())
        return false;
    *ret_run_dir = !where.run_dir.empty() ? where.run_dir : config ? config->run_dir : config::Config().run_dir;
    return true;
}

std::vector<Endpoint> sockets_below(const std::string &run_dir)
{
    std::vector<Endpoint> endpoints;
    const std::unique_ptr<DIR, int (*)(DIR *)> dir(opendir(run_dir.c_str()), closedir);
    while (const dirent *entry = dir ? readdir(dir.get()) : nullptr) {
        const std::string node = entry->d_name;
        if (node[0] == '.' || !is_socket(run_dir + "/" + node + "/socket"))
            continue;
        endpoints.push_back({node, config::node_paths(run_dir, node).socket});
    }
    std::sort(endpoints.begin(), endpoints.end(),
              [](const Endpoint &a, const Endpoint &b) { return a.node < b.node; });
    return endpoints;
}

bool read_document(std::string *ret_text, std::string *ret_why, int fd)
{
    std::string text;
    char buffer[65536];
    ssize_t got = 0;
    while ((got = pread(fd, buffer, sizeof buffer, static_cast<off_t>(text.size()))) > 0) {
        text.append(buffer, static_cast<std::size_t>(got));
        if (text.size() > kDocumentLimit)
            break;
    }
    if (got != 0) {
        *ret_why = "the answer cannot be read or is longer than " + std::to_string(kDocumentLimit) + " bytes";
        return false;
    }
    *ret_text = std::move(text);
    return true;
}

bool ask_document(std::string *ret_text, wire::Message *ret_answer, std::string *ret_why, const Endpoint &endpoint,
                  const wire::Message &question)
{
    std::vector<UniqueFd> fds;
    if (!wire::ask(ret_answer, &fds, ret_why, endpoint.socket, question, kTimeoutMs))
        return false;
    if (fds.size() != 1) {
        *ret_why = "the answer to " + question.verb + " holds no document";
        return false;
    }
    return read_document(ret_text, ret_why, fds[0].get());
}

/// t_ns of the last line.
std::uint64_t last_time(const std::string &lines)
{
    const std::size_t at = lines.rfind("\"t_ns\":");
    return at == std::string::npos ? 0 : std::strtoull(lines.c_str() + at + 7, nullptr, 10);
}

} // namespace

const std::string &Where::config_path() const
{
    static const std::string kDefault = config::kDefaultConfigPath;
    return config.empty() ? kDefault : config;
}

std::shared_ptr<const config::Config> load_config(std::string *ret_why, const Where &where)
{
    if (!where.config.empty() && access(where.config.c_str(), F_OK) != 0) { // also one named like the default
        *ret_why = where.config + ": " + std::strerror(errno);
        return nullptr;
    }
    return config::load_config(ret_why, where.config_path());
}

std::vector<Endpoint> find_endpoints(std::string *ret_why, const Where &where)
{
    std::string run_dir, broken;
    if (!find_run_dir(&run_dir, &broken, where)) {
        *ret_why = broken;
        return {};
    }
    if (!where.socket.empty())
        return {{where.node, where.socket}};
    std::vector<Endpoint> endpoints;
    if (!where.node.empty())
        endpoints = {{where.node, config::node_paths(run_dir, where.node).socket}};
    else
        endpoints = sockets_below(run_dir);
    const char *own = std::getenv("JIGSAW_SOCKET");
    if (endpoints.empty() && own != nullptr)
        endpoints = {{"", own}};
    if (endpoints.empty())
        *ret_why = "no jigsawd on this machine: no socket below " + run_dir + (broken.empty() ? "" : " (" + broken + ")") +
                   "; start it (`jigsaw doctor` says how), or ask on a GPU node";
    return endpoints;
}

bool fetch(std::string *ret_text, std::string *ret_why, const Endpoint &endpoint, const std::string &verb)
{
    wire::Message question, answer;
    question.verb = verb;
    return ask_document(ret_text, &answer, ret_why, endpoint, question);
}

bool fetch_trace(std::string *ret_lines, std::string *ret_why, const Endpoint &endpoint, std::uint64_t since_ns)
{
    std::string all;
    for (bool more = true; more;) {
        wire::Message question, answer;
        std::string lines;
        question.verb = "TRACE";
        question.values["since_ns"] = std::to_string(since_ns);
        if (!ask_document(&lines, &answer, ret_why, endpoint, question))
            return false;
        more = answer.find("more") != nullptr && !lines.empty();
        since_ns = last_time(lines);
        all += lines;
    }
    *ret_lines = std::move(all);
    return true;
}

bool fetch_version(std::string *ret_version, std::string *ret_why, const Endpoint &endpoint)
{
    wire::Message question, answer;
    std::vector<UniqueFd> fds;
    question.verb = "PING";
    if (!wire::ask(&answer, &fds, ret_why, endpoint.socket, question, kTimeoutMs))
        return false;
    const std::string *version = answer.find("version");
    *ret_version = version ? *version : "";
    return true;
}

} // namespace jigsaw::cli
