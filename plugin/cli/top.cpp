// SPDX-License-Identifier: Apache-2.0
// jigsaw top: status, again and again, with rates. On a terminal the screen is redrawn and q ends it; elsewhere the looks
// follow each other as plain text.
#include "plugin/cli/command.hpp"
#include "plugin/cli/view.hpp"
#include "plugin/config/text.hpp"

#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <map>

namespace jigsaw::cli {

const char *const kTopUsage =
    "usage: jigsaw top [-n N] [-d SECONDS] " JIGSAW_CLI_WHERE "\n"
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

    bool live() const { return live_; }
    /// False when nobody can read it any more.
    bool show(const std::string &text)
    {
        std::fputs((live_ ? "\033[H" + clipped(text) + "\033[J" : text).c_str(), stdout);
        return std::fflush(stdout) == 0;
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

struct Look {
    std::string shown;
    std::vector<std::string> missing; ///< who could not be asked, and why
};

/// One look at every node.
Look look(const std::vector<Endpoint> &endpoints, std::map<std::string, JsonValue> *last)
{
    Look made;
    for (const Endpoint &endpoint : endpoints) {
        std::string text, why;
        JsonValue document;
        if (!fetch(&text, &why, endpoint, "STATUS") || !parse_json(&document, &why, text)) {
            made.missing.push_back(endpoint.line(why));
            continue;
        }
        JsonValue &before = (*last)[endpoint.socket];
        made.shown += (made.shown.empty() ? "" : "\n") + render_status(document, before);
        before = std::move(document);
    }
    return made;
}

int complain_of(const Look &look)
{
    for (const std::string &line : look.missing)
        complain(line);
    return look.missing.empty() ? kOk : kFailed;
}

/// The exit status is that of the last look. On a screen what is missing stands in the picture, and is said at the end;
/// elsewhere it goes to standard error at once.
int watch(const std::vector<Endpoint> &endpoints, std::uint64_t looks, double seconds)
{
    std::map<std::string, JsonValue> last;
    Look now = look(endpoints, &last);
    if (now.shown.empty()) // not one answers: no screen for that
        return complain_of(now);
    int status = kOk;
    bool live = false;
    {
        Terminal terminal;
        live = terminal.live();
        for (std::uint64_t done = 1;; ++done) {
            std::string text = now.shown + (live || now.shown.empty() ? "" : "\n");
            for (const std::string &line : now.missing)
                text += live ? line + "\n" : "";
            const bool goes_on = terminal.show(text);
            status = live ? status : complain_of(now);
            if (!goes_on || done == looks || !terminal.wait(seconds))
                break;
            now = look(endpoints, &last);
        }
    }
    return live ? complain_of(now) : status;
}

} // namespace

int run_top(const Arguments &arguments)
{
    Where where;
    std::string count, delay, why;
    double seconds = 2;
    std::uint64_t looks = 0; // without end
    int status = kOk;
    OptionReader reader("top", arguments, kTopUsage);
    if (!reader.where(&where).value("-n", &count).value("-d", &delay).read(&status))
        return status;
    if (!count.empty() && !config::parse_whole(&looks, count, 1, 1000000000))
        return wrong_usage("-n " + count + ": a whole number of looks from 1 to 1000000000 is needed");
    if (!delay.empty() && !parse_in_range(&seconds, delay, 0.01, 86400))
        return wrong_usage("-d " + delay + ": a number of seconds from 0.01 to 86400 is needed");
    const std::vector<Endpoint> endpoints = find_endpoints(&why, where);
    if (endpoints.empty()) {
        complain(why);
        return kFailed;
    }
    for (const int signal_number : {SIGINT, SIGTERM})
        signal(signal_number, on_signal);
    return watch(endpoints, looks, seconds);
}

} // namespace jigsaw::cli
