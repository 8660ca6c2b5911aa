// SPDX-License-Identifier: Apache-2.0
// The prolog's record: what is written is read back, and nothing else is.
#include "plugin/config/options.hpp"
#include "plugin/config/registration.hpp"

#include <set>
#include <stdexcept>
#include <string>
#include <vector>

// Check last: it defines fail().
#include "tests/lib/same_text.hpp"
#include "tests/lib/suite.hpp"

using namespace jigsaw;

namespace {

const char *const kDigest = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

config::Registration sample()
{
    config::Registration record;
    record.job_id = 4711;
    record.restart_count = 2;
    record.uid = 1000;
    record.gpus = {0, 1, 7};
    record.spb.mode = core::SpbMode::levels;
    record.spb.levels = 4;
    record.spb.weight = 2.5;
    record.token_sha256 = kDigest;
    record.start_s = 1764547200;
    return record;
}

const std::string kText = "job_id=4711\nrestart_count=2\nuid=1000\ngpus=0,1,7\nrequest=spb=4 spb-weight=2.5\ntoken_sha256=" +
                          std::string(kDigest) + "\nstart_s=1764547200\n";

std::string replaced(const std::string &from, const std::string &to)
{
    std::string text = kText;
    const std::size_t at = text.find(from);
    return at == std::string::npos ? "no " + from : text.replace(at, from.size(), to);
}

} // namespace

START_TEST(record_survives_text)
{
    assert_same_text(config::format_registration(sample()), kText);
    config::Registration back;
    std::string why;
    ck_assert_msg(config::parse_registration(&back, &why, kText), "%s", why.c_str());
    assert_same_text(config::format_registration(back), kText);
    ck_assert_uint_eq(back.gpus.size(), 3);
    ck_assert_uint_eq(back.spb.levels, 4);
}
END_TEST

START_TEST(bad_records)
{
    const std::vector<std::pair<std::string, std::string>> rows = {
        {"", "not a whole record"},
        {kText.substr(0, kText.size() - 1), "not a whole record"},
        {kText + std::string(70000, '\n'), "not a whole record"},
        {kText + "\n", "8: '': not of the form"},
        {replaced("job_id=4711\n", ""), "job_id: missing"},
        {replaced("start_s=1764547200\n", ""), "6: start_s: missing"},
        {replaced("job_id=4711", "job_id=0"), "1: job_id: 0 is no job"},
        {replaced("job_id=4711", "job_id=-1"), "1: job_id: '-1' is not"},
        {replaced("job_id=4711", "job_id=4294967296"), "1: job_id"},
        {replaced("uid=1000", "uid=root"), "3: uid: 'root' is not"},
        {replaced("uid=1000", "uid="), "3: uid"},
        {replaced("uid=1000", "uid=1000\nuid=0"), "4: uid: given twice"},
        {replaced("uid=1000", "gid=1000"), "3: gid: unknown key"},
        {replaced("uid=1000", "uid"), "3: 'uid': not of the form"},
        {replaced("gpus=0,1,7", "gpus=0,0"), "4: gpus: '0,0' is not"},
        {replaced("gpus=0,1,7", "gpus=0,1,9999"), "4: gpus"},
        {replaced("spb=4", "spb=99"), "5: request: --spb=99"},
        {replaced("spb=4 ", ""), "5: request: --spb-weight=2.5: means nothing without"},
        {replaced("e3b0", "E3B0"), "6: token_sha256"},
        {replaced("e3b0", "e3b"), "6: token_sha256"},
        {replaced("1764547200", "99999999999999"), "7: start_s"},
        {replaced("1764547200", "now"), "7: start_s"},
        {std::string("job_id=1\0\n", 10), "1: job_id: '1?' is not"},
    };
    for (const auto &[text, expected] : rows) {
        config::Registration record;
        std::string why;
        ck_assert_msg(!config::parse_registration(&record, &why, text), "taken, though: %s", expected.c_str());
        ck_assert_msg(why.find(expected) != std::string::npos, "'%s' lacks '%s'", why.c_str(), expected.c_str());
        ck_assert_uint_eq(record.job_id, 0);
    }
}
END_TEST

START_TEST(gpu_lists)
{
    const std::vector<std::pair<const char *, const char *>> good = {
        {"", ""}, {"0", "0"}, {"0,1,3", "0,1,3"}, {"0-3,7", "0,1,2,3,7"}, {"5-5", "5"}, {"1023", "1023"}};
    for (const auto &[text, expected] : good) {
        std::vector<int> gpus = {42};
        ck_assert_msg(config::parse_gpu_list(&gpus, text), "%s", text);
        assert_same_text(config::format_gpu_list(gpus), expected);
    }
    for (const char *text : {",", "0,", ",0", "0,,1", "1,0", "0,0", "0-", "-1", "3-1", "0-2-4", "0-2,2", "1024", "a",
                             "0 1", "0-99999999999999999999", "gpu:0"}) {
        std::vector<int> gpus = {42};
        ck_assert_msg(!config::parse_gpu_list(&gpus, text), "%s", text);
        ck_assert(gpus == std::vector<int>{42});
    }
}
END_TEST

START_TEST(file_names)
{
    assert_same_text(config::registration_file_name(12, 3), "12.3");
    core::JobId job = 0;
    std::uint32_t restart = 9;
    ck_assert(config::parse_registration_file_name(&job, &restart, "12.0"));
    ck_assert_uint_eq(job, 12);
    ck_assert_uint_eq(restart, 0);
    for (const char *name : {"", ".", "12", "12.", ".3", "0.0", "012.0", "12.00", "12.3.tmp", ".12.3", "12.-1", "4294967296.0",
                             "12.3 ", "a.b"})
        ck_assert_msg(!config::parse_registration_file_name(&job, &restart, name), "%s", name);
}
END_TEST

START_TEST(paths)
{
    const config::NodePaths paths = config::node_paths("/run/jigsaw", "n1");
    assert_same_text(paths.base, "/run/jigsaw/n1");
    assert_same_text(paths.jobs, "/run/jigsaw/n1/jobs");
    assert_same_text(paths.tokens, "/run/jigsaw/n1/tokens");
    assert_same_text(paths.socket, "/run/jigsaw/n1/socket");
    for (const auto &[run_dir, node] : std::vector<std::pair<const char *, const char *>>{
             {"", "n1"}, {"run", "n1"}, {"/run", ""}, {"/run", ".."}, {"/run", "a/b"}, {"/run", "a b"}}) {
        bool thrown = false;
        try {
            config::node_paths(run_dir, node);
        } catch (const std::invalid_argument &) {
            thrown = true;
        }
        ck_assert_msg(thrown, "%s %s", run_dir, node);
    }
}
END_TEST

START_TEST(digests)
{
    // FIPS 180-4 examples and both sides of the padding's edge, from sha256sum.
    const std::vector<std::pair<std::string, const char *>> rows = {
        {"", kDigest},
        {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
        {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
         "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
        {std::string(55, 'a'), "9f4390f8d30c2dd92ec9f095b65e2b9ae9b0a925a5258e241c9f1e910f734318"},
        {std::string(56, 'a'), "b35439a4ac6f0948b6d6f9e3c6af0f5f590ce20f1bde7090ef7970686ec6738a"},
        {std::string(64, 'a'), "ffe054fe7ae0cb6dc65c3af9b61d5209f439851db43d0ba5997337df154668eb"},
        {std::string(1000, 'a'), "41edece42d63e8d9bf515a9ba6932e1c20cbc9f5a5d134645adb5db1b9737ea3"},
    };
    for (const auto &[text, digest] : rows)
        assert_same_text(config::sha256_hex(text), digest);
}
END_TEST

START_TEST(tokens)
{
    std::set<std::string> seen;
    for (int i = 0; i < 100; ++i) {
        const std::string token = config::make_token();
        ck_assert_uint_eq(token.size(), 64);
        ck_assert(token.find_first_not_of("0123456789abcdef") == std::string::npos);
        ck_assert(seen.insert(token).second);
    }
}
END_TEST

int main()
{
    Suite *suite = suite_create("registration");
    tests::add_case(suite, "record", {record_survives_text, bad_records, gpu_lists, file_names, paths});
    tests::add_case(suite, "token", {digests, tokens});
    return tests::run_tap(suite);
}
