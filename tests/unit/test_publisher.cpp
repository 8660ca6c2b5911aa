// SPDX-License-Identifier: Apache-2.0
// The thread that runs scontrol: the text it writes, a controller that fails or hangs, and an end at any time. scontrol
// is a shell script that writes down what it was asked. Clean under the thread sanitizer.
#include "plugin/agent/publisher.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <mutex>
#include <sstream>

#include "tests/lib/folder.hpp"
#include "tests/lib/suite.hpp" // last: check.h has a macro named fail

namespace {

using namespace jigsaw::agent;

/// A folder with a scontrol of the test's own.
class Scontrol {
  public:
    explicit Scontrol(const std::string &script)
    {
        std::ofstream(scontrol()) << "#!/bin/sh\nhere='" << folder_.path() << "'\n" << script;
        chmod(scontrol().c_str(), 0755);
    }
    std::string scontrol() const { return folder_.file("scontrol"); }
    std::string asked() const
    {
        std::ifstream file(folder_.file("asked"));
        std::ostringstream text;
        text << file.rdbuf();
        return text.str();
    }

  private:
    jigsaw::tests::Folder folder_;
};

constexpr const char *kGoodScript = R"(echo "$@" >>"$here/asked"
case "$1 $2" in
"show config") echo "PrivateData             = none" ;;
"show job") [ "$3" = 99 ] && { echo "slurm_load_jobs error: Invalid job id specified"; exit 1; }
    printf 'JobId=%s JobName=x\n   JobState=RUNNING Reason=None\n   AdminComment=by hand jigsaw:{"old":"}"} more\n   Comment=y\n\n' "$3" ;;
esac
)";

Publisher::Settings settings_for(const Scontrol &folder)
{
    Publisher::Settings settings;
    settings.scontrol = folder.scontrol();
    settings.first_backoff_ms = 1;
    settings.last_backoff_ms = 20;
    return settings;
}

bool eventually(const std::function<bool()> &holds)
{
    for (int i = 0; i < 6000 && !holds(); ++i)
        usleep(10000);
    return holds();
}

START_TEST(segments_are_merged)
{
    const struct {
        const char *comment, *expected;
    } rows[] = {{"", "jigsaw:{\"n\":1}"},
                {"ask Ann", "ask Ann jigsaw:{\"n\":1}"},
                {"jigsaw:{\"o\":2}", "jigsaw:{\"n\":1}"},
                {"ask Ann jigsaw:{\"o\":{\"p\":\"}{\"}} first", "ask Ann jigsaw:{\"n\":1} first"},
                {"cut off jigsaw:{\"o\":", "cut off jigsaw:{\"n\":1}"},
                {"jigsaw: is nice", "jigsaw: is nice jigsaw:{\"n\":1}"}};
    for (const auto &row : rows)
        ck_assert_str_eq(merge_segment(row.comment, "jigsaw:{\"n\":1}").c_str(), row.expected);
}
END_TEST

START_TEST(comments_are_found)
{
    ck_assert_str_eq(find_admin_comment("JobId=1\n   AdminComment=a b=c\n   Comment=z\n").c_str(), "a b=c");
    ck_assert_str_eq(find_admin_comment("JobId=1\n   AdminComment=a\nsecond line\n   Account=z\n").c_str(), "a\nsecond line");
    ck_assert_str_eq(find_admin_comment("JobId=1\n   Comment=AdminComment=z\n").c_str(), "");
    ck_assert_str_eq(find_admin_comment("JobId=1\n   AdminComment=last").c_str(), "last");
}
END_TEST

START_TEST(an_update_keeps_the_administrators_text)
{
    const Scontrol folder(kGoodScript);
    Publisher publisher(settings_for(folder), nullptr);
    publisher.publish(12, "jigsaw:{\"new\":1}");
    ck_assert(eventually([&] { return publisher.updates() == 1; }));
    const std::string wanted = "update jobid=12 admincomment=by hand jigsaw:{\"new\":1} more\n";
    ck_assert_msg(folder.asked().find(wanted) != std::string::npos, "%s", folder.asked().c_str());
    ck_assert(eventually([&] { return publisher.jobs_are_public(); }));
}
END_TEST

START_TEST(unknown_jobs_are_told)
{
    const Scontrol folder(kGoodScript);
    Publisher publisher(settings_for(folder), [](const std::string &) {});
    publisher.ask(12);
    publisher.ask(99);
    std::set<jigsaw::core::JobId> unknown;
    ck_assert(eventually([&] { return unknown.merge(publisher.take_unknown()), unknown.count(99) > 0; }));
    ck_assert_uint_eq(unknown.count(12), 0);
}
END_TEST

START_TEST(private_data_masks)
{
    const Scontrol folder("echo 'PrivateData             = accounts,jobs'\n");
    Publisher publisher(settings_for(folder), nullptr);
    publisher.publish(1, "jigsaw:{}");
    ck_assert(eventually([&] { return publisher.updates() == 1; })); // so the question before it was answered
    ck_assert(!publisher.jobs_are_public());
}
END_TEST

START_TEST(a_failing_controller_is_tried_again)
{
    const Scontrol folder("echo x >>\"$here/asked\"\n[ \"$(wc -l <\"$here/asked\")\" -gt 4 ] || { echo 'Unable to contact slurm "
                        "controller'; exit 1; }\necho 'PrivateData = none'\n");
    std::mutex mutex;
    std::vector<std::string> warnings;
    Publisher publisher(settings_for(folder), [&](const std::string &line) {
        const std::lock_guard<std::mutex> guard(mutex);
        warnings.push_back(line);
    });
    for (int i = 0; i < 50; ++i)
        publisher.publish(static_cast<jigsaw::core::JobId>(i % 3 + 1), "jigsaw:{}"); // newer ones replace
    ck_assert(eventually([&] { return publisher.jobs_are_public(); }));
    ck_assert_uint_ge(publisher.failures(), 4);
    const std::lock_guard<std::mutex> guard(mutex);
    ck_assert(warnings[0].find("Unable to contact") != std::string::npos);
}
END_TEST

START_TEST(a_hanging_controller_is_cut_off)
{
    const Scontrol folder("exec sleep 1000\n");
    Publisher::Settings settings = settings_for(folder);
    settings.timeout_ms = 50;
    Publisher publisher(settings, [](const std::string &) {});
    ck_assert(eventually([&] { return publisher.failures() >= 2; }));
}
END_TEST

START_TEST(it_ends_while_scontrol_runs)
{
    const Scontrol folder("exec sleep 1000\n");
    Publisher publisher(settings_for(folder), [](const std::string &) {});
    usleep(20000); // whether it runs yet or not
}
END_TEST

START_TEST(commands_run_without_a_shell)
{
    const std::atomic<bool> never{false};
    CommandResult result = run_command({"/bin/echo", "$HOME;", "`id`"}, {}, 10000, never);
    ck_assert_int_eq(result.status, 0);
    ck_assert_str_eq(result.output.c_str(), "$HOME; `id`\n");
    result = run_command({"/usr/bin/env"}, {"SLURM_CONF=/x"}, 10000, never);
    ck_assert(result.output.find("SLURM_CONF=/x") != std::string::npos);
    ck_assert_int_eq(run_command({"/nowhere/scontrol"}, {}, 10000, never).status, -1);
    ck_assert_int_eq(run_command({"/bin/false"}, {}, 10000, never).status, 1);
}
END_TEST

} // namespace

int main()
{
    Suite *suite = suite_create("publisher");
    jigsaw::tests::add_case(suite, "text", {segments_are_merged, comments_are_found, commands_run_without_a_shell});
    jigsaw::tests::add_case(suite, "thread", {an_update_keeps_the_administrators_text, unknown_jobs_are_told, private_data_masks,
                                              a_failing_controller_is_tried_again, a_hanging_controller_is_cut_off,
                                              it_ends_while_scontrol_runs});
    return jigsaw::tests::run_tap(suite);
}
