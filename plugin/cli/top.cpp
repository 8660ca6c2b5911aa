// SPDX-License-Identifier: Apache-2.0
// jigsaw top: status, again and again, with rates. On a terminal the screen is redrawn and q ends it; elsewhere the looks
// follow each other as plain text.
#include "plugin/cli/command.hpp"
#include "plugin/cli/view.hpp"

#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <map>

namespace jigsaw::cli {

const char *const kTopUsage =
    "usage: jigsaw top [-n N] [-d SECONDS] [--node NAME] [--run-dir DIR] [--socket PATH] [--config FILE]\n"
    "Shows what `jigsaw status` shows, live. q ends it.\n"
    "  -n N        end after N looks\n"
    "  -d SECONDS  time between looks (2)\n";

namespace {

volatile sig_atomic_t g_ended = 0;

void on_signal(int)
{
    g_ended = 1;
}

/// The terminal in a mode in which keys come at once; as it was at the end.
class Terminal {
  public:
    Terminal() : live_(isatty(STDOUT_FILENO) == 1), keys_(live_ && isatty(STDIN_FILENO) == 1)
    {
        if (keys_ && tcgetattr(STDIN_FILENO, &before_) == 0) {
            termios raw = before_;
            raw.c_lflag &= static_cast<tcflag_t>(~(ICANON | ECHO));
            tcsetattr(STDIN_FILENO, TCSANOW, &raw);
        }
        if (live_)
            std::fputs("\033[?1049h\033[?25l", stdout); // the other screen, no cursor
    }
    ~Terminal()
    {
        if (live_)
            std::fputs("\033[?25h\033[?1049l", stdout);
        std::fflush(stdout);
        if (keys_)
            tcsetattr(STDIN_FILENO, TCSANOW, &before_);
    }
    Terminal(const Terminal &) = delete;

    void show(const std::string &text)
    {
        std::fputs((live_ ? "\033[H" + clipped(text) + "\033[J" : text + "\n").c_str(), stdout);
        std::fflush(stdout);
    }
    /// Until the next look; false: the user wants no more.
    bool wait(double seconds)
    {
        pollfd key{STDIN_FILENO, POLLIN, 0};
        const int ready = poll(&key, keys_ ? 1 : 0, static_cast<int>(1000 * seconds));
        char c = 0;
        return g_ended == 0 && !(ready > 0 && read(STDIN_FILENO, &c, 1) == 1 && (c == 'q' || c == 'Q'));
    }

  private:
    /// Lines cut to the width and number that fit; the rest of each is cleared.
    static std::string clipped(const std::string &text)
    {
        winsize size{};
        if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0)
            return text;
        std::string shown;
        std::size_t begin = 0;
        for (int line = 0; line + 1 < size.ws_row && begin < text.size(); ++line) {
            const std::size_t end = std::min(text.find('\n', begin), text.size());
            shown += text.substr(begin, std::min<std::size_t>(end - begin, size.ws_col)) + "\033[K\n";
            begin = end + 1;
        }
        return shown;
    }

    bool live_, keys_;
    termios before_{};
};

/// One look at every node; what could not be asked says why.
std::string look(const std::vector<Endpoint> &endpoints, std::map<std::string, JsonValue> *last)
{
    std::string shown;
    for (const Endpoint &endpoint : endpoints) {
        std::string text, why;
        JsonValue document;
        if (!fetch(&text, &why, endpoint, "STATUS") || !parse_json(&document, &why, text)) {
            shown += "node " + endpoint.node + ": " + why + "\n";
            continue;
        }
        JsonValue &before = (*last)[endpoint.socket];
        shown += (shown.empty() ? "" : "\n") + render_status(document, before);
        before = std::move(document);
    }
    return shown;
}

} // namespace

int run_top(const Arguments &arguments)
{
    Where where;
    std::string count, delay = "2", why;
    double seconds = 2, looks = 0;
    int status = kOk;
    OptionReader reader(arguments, kTopUsage);
    if (!reader.where(&where).value("-n", &count).value("-d", &delay).read(&status))
        return status;
    if (!parse_positive(&seconds, delay) || (!count.empty() && !parse_positive(&looks, count))) {
        complain("-n and -d need numbers above 0");
        return kUsageError;
    }
    const std::vector<Endpoint> endpoints = find_endpoints(&why, where);
    if (endpoints.empty()) {
        complain(why);
        return kFailed;
    }
    for (const int signal_number : {SIGINT, SIGTERM})
        signal(signal_number, on_signal);
    Terminal terminal;
    std::map<std::string, JsonValue> last;
    for (double done = 1;; ++done) {
        terminal.show(look(endpoints, &last));
        if ((looks > 0 && done >= looks) || !terminal.wait(seconds))
            return kOk;
    }
}

} // namespace jigsaw::cli
