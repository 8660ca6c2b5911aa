// SPDX-License-Identifier: Apache-2.0
// Prolog, tasks and epilog on a run folder of our own, with jigsawd present, absent, deaf and unwilling.
#include "plugin/config/registration.hpp"
#include "plugin/spank/job_files.hpp"
#include "plugin/spank/private_files.hpp"
#include "runtime/page/socket.hpp"

#include <cstdlib>
#include <poll.h>
#include <string>
#include <sys/socket.h>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>
#include <vector>

// Check last: it defines fail().
#include "tests/lib/folder.hpp"
#include "tests/lib/same_text.hpp"
#include "tests/lib/suite.hpp"

using namespace jigsaw;

namespace {

std::unique_ptr<jigsaw::tests::Folder> folder; ///< of one test
std::string root;                 ///< its path; run_dir is below it and does not exist yet
std::vector<std::string> logged;

void setup()
{
    folder = std::make_unique<jigsaw::tests::Folder>();
    root = folder->path();
    logged.clear();
}

void teardown() { folder.reset(); }

std::string run_dir() { return root + "/run/jigsaw"; }
config::NodePaths paths() { return config::node_paths(run_dir(), "n1"); }
void keep(const std::string &line) { logged.push_back(line); }

spank::Environment job(const std::vector<std::string> &more = {"SPANK__SLURM_SPANK_OPTION_jigsaw_spb=(null)"})
{
    spank::Environment environment = {"SLURMD_NODENAME=n1", "SLURM_JOB_ID=12", "SLURM_JOB_UID=1000", "SLURM_JOB_GPUS=0,1",
                                      "SLURM_JOB_RESTART_COUNT=3", "PATH=/bin"};
    environment.insert(environment.end(), more.begin(), more.end());
    return environment;
}

bool exists(const std::string &path) { return access(path.c_str(), F_OK) == 0; }

unsigned mode_of(const std::string &path)
{
    struct stat status = {};
    ck_assert_msg(stat(path.c_str(), &status) == 0, "%s is missing", path.c_str());
    return status.st_mode & 07777;
}

std::size_t file_count()
{
    std::size_t count = 0;
    for (const std::string &folder : {paths().jobs, paths().tokens})
        for (const std::string &name : spank::list_folder(folder))
            count += name != "." && name != "..";
    return count;
}

/// Answers one connection with `answer` ("": none) and keeps what it heard.
class Agent {
  public:
    explicit Agent(const std::string &answer)
    {
        spank::ensure_folders(paths().base, 0755);
        std::string why;
        listener_ = wire::listen_at(&why, paths().socket, 8);
        ck_assert_msg(static_cast<bool>(listener_), "%s", why.c_str());
        thread_ = std::thread([this, answer] { serve(answer); });
    }
    /// "VERB job restart" of the one message, "" when none came before `stop()`.
    std::string heard()
    {
        thread_.join();
        return heard_;
    }

  private:
    void serve(const std::string &answer)
    {
        pollfd polled = {listener_.get(), POLLIN, 0};
        if (poll(&polled, 1, 20000) <= 0)
            return;
        const UniqueFd peer(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
        wire::Message message;
        std::vector<UniqueFd> fds;
        std::string why;
        if (wire::receive_message(&message, &fds, &why, peer.get(), 20000) != wire::Received::message)
            return;
        heard_ = message.verb + " " + *message.find("job") + " " + *message.find("restart");
        if (!answer.empty())
            wire::send_message(&why, peer.get(), {answer, {{"text", "no"}}}, {}, 20000);
    }
    UniqueFd listener_;
    std::thread thread_;
    std::string heard_;
};

} // namespace

START_TEST(record_token_and_modes)
{
    Agent agent("OK");
    spank::run_prolog(job(), run_dir(), keep);
    assert_same_text(agent.heard(), "REGISTER 12 3");
    ck_assert_msg(logged.empty(), "%s", logged.front().c_str());
    ck_assert_uint_eq(mode_of(run_dir()), 0755);
    ck_assert_uint_eq(mode_of(paths().base), 0755);
    ck_assert_uint_eq(mode_of(paths().jobs), 0700);
    ck_assert_uint_eq(mode_of(paths().tokens), 0700);
    ck_assert_uint_eq(mode_of(paths().jobs + "/12.3"), 0600);
    ck_assert_uint_eq(mode_of(paths().tokens + "/12.3"), 0600);
    ck_assert_uint_eq(file_count(), 2);

    const std::string token = spank::read_whole(paths().tokens + "/12.3")->substr(0, 64);
    config::Registration record;
    std::string why;
    ck_assert_msg(config::parse_registration(&record, &why, *spank::read_whole(paths().jobs + "/12.3")), "%s", why.c_str());
    ck_assert_uint_eq(record.job_id, 12);
    ck_assert_uint_eq(record.restart_count, 3);
    ck_assert_uint_eq(record.uid, 1000);
    ck_assert(record.gpus == (std::vector<int>{0, 1}));
    ck_assert(record.spb.mode == core::SpbMode::automatic);
    ck_assert(record.start_s > 1700000000);
    assert_same_text(record.token_sha256, config::sha256_hex(token));
}
END_TEST

START_TEST(tasks_get_variables)
{
    spank::run_prolog(job(), run_dir(), keep);
    const auto variables = spank::task_variables(paths(), 12, 4294967291u);
    ck_assert_uint_eq(variables.size(), 5);
    assert_same_text(variables[0].second, paths().socket);
    assert_same_text(variables[1].first + "=" + variables[1].second, "JIGSAW_JOB=12");
    assert_same_text(variables[2].first + "=" + variables[2].second, "JIGSAW_RESTART=3");
    assert_same_text(variables[3].first + "=" + variables[3].second, "JIGSAW_STEP=4294967291");
    assert_same_text(variables[4].second + "\n", *spank::read_whole(paths().tokens + "/12.3"));
    ck_assert(spank::task_variables(paths(), 13, 0).empty());
    ck_assert(spank::task_variables(config::node_paths(run_dir(), "n2"), 12, 0).empty());
    spank::write_whole(paths().tokens, "12.3", "damaged\n");
    ck_assert(spank::task_variables(paths(), 12, 0).empty());
    spank::run_epilog(job(), run_dir(), keep);
    ck_assert(spank::task_variables(paths(), 12, 0).empty());
}
END_TEST

START_TEST(twice_changes_nothing)
{
    spank::run_prolog(job(), run_dir(), keep);
    const std::string token = *spank::read_whole(paths().tokens + "/12.3");
    const std::string record = *spank::read_whole(paths().jobs + "/12.3");
    spank::run_prolog(job(), run_dir(), keep);
    assert_same_text(*spank::read_whole(paths().tokens + "/12.3"), token);
    assert_same_text(*spank::read_whole(paths().jobs + "/12.3"), record);
    spank::write_whole(paths().tokens, "12.3", "damaged\n");
    spank::run_prolog(job(), run_dir(), keep);
    ck_assert(*spank::read_whole(paths().tokens + "/12.3") != token);
    ck_assert_uint_eq(spank::task_variables(paths(), 12, 0).size(), 5);
}
END_TEST

START_TEST(an_earlier_run_goes)
{
    spank::run_prolog(job(), run_dir(), keep);
    spank::write_whole(paths().tokens, "12.2", "x\n");
    spank::write_whole(paths().jobs, ".12.1", "a draft\n");
    spank::write_whole(paths().jobs, "121.2", "another job's\n");
    spank::run_prolog(job(), run_dir(), keep);
    ck_assert(!exists(paths().tokens + "/12.2"));
    ck_assert(!exists(paths().jobs + "/.12.1"));
    ck_assert(exists(paths().jobs + "/121.2"));
    ck_assert_uint_eq(file_count(), 3);
}
END_TEST

START_TEST(epilog_removes_and_tells)
{
    spank::run_prolog(job(), run_dir(), keep);
    spank::write_whole(paths().jobs, "121.2", "another job's\n");
    logged.clear();
    Agent agent("");
    spank::run_epilog(job(), run_dir(), keep); // needs no answer
    assert_same_text(agent.heard(), "DRAIN 12 3");
    ck_assert_uint_eq(file_count(), 1);
    spank::run_epilog(job(), run_dir(), keep);
    spank::run_epilog(job({}), run_dir(), keep);
    ck_assert_msg(logged.empty(), "%s", logged.front().c_str());
}
END_TEST

START_TEST(epilog_without_anything)
{
    spank::run_epilog(job(), run_dir(), keep);
    ck_assert(logged.empty());
    ck_assert(!exists(root + "/run"));
    spank::run_epilog({"SLURM_JOB_ID=x", "SLURMD_NODENAME=n1"}, run_dir(), keep);
    ck_assert_uint_eq(logged.size(), 1);
}
END_TEST

START_TEST(no_agent_is_one_line)
{
    spank::run_prolog(job(), run_dir(), keep);
    ck_assert_uint_eq(logged.size(), 1);
    assert_has_text(logged[0], "job 12: jigsawd does not hear of it (connect to " + paths().socket);
    ck_assert_uint_eq(file_count(), 2); // it reads the record when it comes
}
END_TEST

START_TEST(deaf_agent_is_one_line)
{
    spank::ensure_folders(paths().base, 0755);
    std::string why;
    const UniqueFd listener = wire::listen_at(&why, paths().socket, 1); // accepts nobody
    for (int i = 0; i < 5; ++i) // fills the queue on the way
        spank::run_prolog(job(), run_dir(), keep);
    ck_assert_uint_eq(logged.size(), 5);
    spank::run_epilog(job(), run_dir(), keep);
    ck_assert_uint_eq(logged.size(), 5);
    ck_assert_uint_eq(file_count(), 0);
}
END_TEST

START_TEST(unwilling_agent_is_one_line)
{
    Agent agent("ERROR");
    spank::run_prolog(job(), run_dir(), keep);
    assert_same_text(agent.heard(), "REGISTER 12 3");
    ck_assert_uint_eq(logged.size(), 1);
    assert_has_text(logged[0], "job 12: jigsawd refuses it (no); it runs without turns until");
}
END_TEST

namespace {
struct Nothing {
    std::vector<std::string> more;
    const char *line; ///< logged; nullptr: silence
};
} // namespace

START_TEST(nothing_is_registered)
{
    const std::string option = "SPANK__SLURM_SPANK_OPTION_jigsaw_";
    const std::vector<Nothing> rows = {
        {{}, nullptr},
        {{option + "spb=off"}, nullptr},
        {{option + "spb=auto", option + "spb_share=no"}, nullptr},
        {{"SPANK_JIGSAW_MAP=forged"}, nullptr},
        {{option + "spb=99"}, "job 12: its options are bad (--spb=99: allowed: auto"},
        {{option + "spb=auto", option + "spb_mem=-1"}, "its options are bad (--spb-mem=-1"},
        {{option + "spb=auto", option + "evil=1"}, "its options are bad"},
        {{option + "spb_weight=2"}, "add --spb"},
        {{option + "spb=auto\n"}, "its options are bad (--spb=auto?"},
    };
    for (const Nothing &row : rows) {
        logged.clear();
        spank::run_prolog(job(row.more), run_dir(), keep);
        ck_assert_uint_eq(logged.size(), row.line ? 1 : 0);
        if (row.line)
            assert_has_text(logged[0], row.line);
        ck_assert(!exists(root + "/run"));
    }
}
END_TEST

START_TEST(odd_environments)
{
    const std::string spb = "_SLURM_SPANK_OPTION_jigsaw_spb=4";
    const std::vector<std::pair<spank::Environment, const char *>> rows = {
        {{spb}, "node name '' is not"},
        {{spb, "SLURMD_NODENAME=../x", "SLURM_JOB_ID=1"}, "node name '../x' is not"},
        {{spb, "SLURMD_NODENAME=n1"}, "SLURM_JOB_ID='' in the environment is no number"},
        {{spb, "SLURMD_NODENAME=n1", "SLURM_JOB_ID=0"}, "SLURM_JOB_ID='0'"},
        {{spb, "SLURMD_NODENAME=n1", "SLURM_JOB_ID=1", "SLURM_JOB_UID=root"}, "SLURM_JOB_UID='root'"},
        {{spb, "SLURMD_NODENAME=n1", "SLURM_JOB_ID=1", "SLURM_JOB_UID=0", "SLURM_JOB_GPUS=all"}, "SLURM_JOB_GPUS='all'"},
        {{spb, "SLURMD_NODENAME=n1", "SLURM_JOB_ID=1", "SLURM_JOB_UID=0"}, nullptr}, // no GPU here
    };
    for (const auto &[environment, line] : rows) {
        logged.clear();
        spank::run_prolog(environment, run_dir(), keep);
        ck_assert_uint_eq(logged.size(), line ? 1 : 0);
        if (line)
            assert_has_text(logged[0], line);
        ck_assert(!exists(root + "/run"));
    }
}
END_TEST

START_TEST(folders_of_others_are_not_used)
{
    spank::ensure_folders(run_dir(), 0755);
    ck_assert_int_eq(symlink("/tmp", paths().base.c_str()), 0);
    spank::run_prolog(job(), run_dir(), keep);
    ck_assert_uint_eq(logged.size(), 1);
    assert_has_text(logged[0], paths().base + ": is not a folder");
    ck_assert_int_eq(unlink(paths().base.c_str()), 0);
    if (geteuid() == 0) {
        spank::ensure_folder(paths().base, 0755);
        ck_assert_int_eq(chown(paths().base.c_str(), 65534, 65534), 0);
        spank::run_prolog(job(), run_dir(), keep);
        assert_has_text(logged.back(), "belongs to uid 65534, not to uid 0; remove it");
    }
    ck_assert_uint_eq(file_count(), 0);
}
END_TEST

START_TEST(loose_modes_are_tightened)
{
    const mode_t old = umask(0);
    spank::ensure_folders(paths().base, 0777);
    spank::ensure_folder(paths().jobs, 0777);
    spank::run_prolog(job(), run_dir(), keep);
    umask(old);
    ck_assert_uint_eq(mode_of(paths().base), 0755);
    ck_assert_uint_eq(mode_of(paths().jobs), 0700);
    ck_assert_uint_eq(mode_of(paths().tokens + "/12.3"), 0600);
}
END_TEST

int main()
{
    Suite *suite = suite_create("job_files");
    TCase *cases[] = {
        tests::add_case(suite, "prolog", {record_token_and_modes, twice_changes_nothing, an_earlier_run_goes,
                                          nothing_is_registered, odd_environments}),
        tests::add_case(suite, "epilog", {epilog_removes_and_tells, epilog_without_anything}),
        tests::add_case(suite, "tasks", {tasks_get_variables}),
        tests::add_case(suite, "agent", {no_agent_is_one_line, deaf_agent_is_one_line, unwilling_agent_is_one_line}),
        tests::add_case(suite, "folders", {folders_of_others_are_not_used, loose_modes_are_tightened}),
    };
    for (TCase *tcase : cases)
        tcase_add_checked_fixture(tcase, setup, teardown);
    return tests::run_tap(suite);
}
