// SPDX-License-Identifier: Apache-2.0
// The parts of the example programs that are no training: options, shards, the learning rate, the digest.
#include "runtime/examples/digest.hpp"
#include "runtime/examples/options.hpp"
#include "runtime/examples/shard.hpp"
#include "runtime/examples/training.hpp"

#include <algorithm>
#include <cmath>
#include <set>

#include "tests/lib/suite.hpp" // last: Check defines a macro `fail`

using namespace jigsaw::examples;

namespace {

START_TEST(digest_is_sha256)
{
    const struct {
        std::string text, hex;
    } rows[] = {
        // FIPS 180-4 examples
        {"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
        {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
        {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
        {std::string(1000000, 'a'), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"},
    };
    for (const auto &row : rows) {
        Sha256 whole, pieces;
        whole.add(row.text.data(), row.text.size());
        for (std::size_t at = 0; at < row.text.size(); at += 97)
            pieces.add(row.text.data() + at, std::min<std::size_t>(97, row.text.size() - at));
        ck_assert_str_eq(whole.hex().c_str(), row.hex.c_str());
        ck_assert_str_eq(pieces.hex().c_str(), row.hex.c_str());
    }
}
END_TEST

START_TEST(shards_deal_every_sample_once_per_epoch)
{
    for (const int world : {1, 2, 4}) {
        std::vector<int> seen(128, 0);
        std::vector<std::int64_t> first, second;
        for (int rank = 0; rank < world; ++rank) {
            Shards shards(5, 128);
            for (std::uint64_t t = 0; t < 64u / static_cast<unsigned>(world); ++t) // two epochs of batches of 4
                for (const std::int64_t sample : shards.batch(t, rank, world, 4))
                    ++seen.at(static_cast<std::size_t>(sample));
        }
        ck_assert(std::all_of(seen.begin(), seen.end(), [](int n) { return n == 2; }));
    }
    Shards a(5, 100), b(5, 100), c(6, 100);
    ck_assert(a.batch(31, 1, 2, 7) == b.batch(31, 1, 2, 7)); // also without the iterations before
    ck_assert(a.batch(31, 1, 2, 7) != c.batch(31, 1, 2, 7));
    ck_assert(a.batch(0, 0, 1, 100) != a.batch(1, 0, 1, 100));
}
END_TEST

START_TEST(rate_follows_the_schedule)
{
    Options options;
    options.iterations = 100;
    options.lr = 2;
    options.lr_warmup = 0.1;
    ck_assert(rate_at(options, 0).lr < 0.2 && rate_at(options, 0).over_peak == 1);
    ck_assert(rate_at(options, 10).lr == 2);
    ck_assert(std::abs(rate_at(options, 55).over_peak - 0.5) < 1e-9);
    ck_assert(rate_at(options, 99).lr < 0.01);
    options.schedule = "constant";
    ck_assert(rate_at(options, 99).lr == 2 && rate_at(options, 99).over_peak == 1);
}
END_TEST

Parsed parse(Options *options, std::vector<std::string> words)
{
    std::vector<char *> argv{const_cast<char *>("train")};
    for (std::string &word : words)
        argv.push_back(word.data());
    return parse_options(options, static_cast<int>(argv.size()), argv.data(), "");
}

START_TEST(options_are_checked)
{
    Options options = digits_defaults();
    ck_assert(parse(&options, {"--iterations", "12", "--lr=0.5", "--policy", "rotate", "--follow-rate"}) == Parsed::run);
    ck_assert(options.iterations == 12 && options.lr == 0.5 && options.policy == "rotate" && options.follow_rate);
    const std::vector<std::vector<std::string>> wrong = {
        {"--iterations"}, {"--iterations", "0"}, {"--iterations", "-3"}, {"--iterations", "1e3"}, {"--lr", "fast"},
        {"--lr", "nan"}, {"--schedule", "linear"}, {"--optimizer", "lamb"}, {"--policy", "deep"}, {"--quiet=1"},
        {"--batch", "0"}, {"--warmup-fraction", "1.5"}, {"--frobnicate"}, {"stray"}, {"--epochs", "0"},
    };
    for (const auto &words : wrong) {
        Options fresh = digits_defaults();
        ck_assert_msg(parse(&fresh, words) == Parsed::error, "%s", words[0].c_str());
    }
    ck_assert(parse(&options, {"--epochs", "2"}) == Parsed::run);
    ck_assert(options.iterations == 0 && options.epochs == 2);
    ck_assert_str_eq(with_rank("m-{rank}.jsonl", 3).c_str(), "m-3.jsonl");
}
END_TEST

} // namespace

int main()
{
    Suite *suite = suite_create("examples");
    jigsaw::tests::add_case(suite, "parts",
                            {digest_is_sha256, shards_deal_every_sample_once_per_epoch, rate_follows_the_schedule, options_are_checked});
    return jigsaw::tests::run_tap(suite);
}
