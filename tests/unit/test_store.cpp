// SPDX-License-Identifier: Apache-2.0
// The rendezvous over loopback: ranks come in, strangers do no harm, what is missing is named, who goes is told.
#include "runtime/collective/store.hpp"

#include "tests/lib/ports.hpp"
#include "tests/lib/ranks.hpp"
#include "tests/lib/suite.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <string_view>

namespace {

using namespace jigsaw;
using namespace jigsaw::collective;
using namespace std::chrono_literals;
using jigsaw::tests::first_failure;
using jigsaw::tests::free_port;
using jigsaw::tests::meet_at;
using jigsaw::tests::Outcome;

constexpr auto kLong = 60s;

#define ASSERT_CONTAINS(text, part)                                                                                    \
    ck_assert_msg((text).find(part) != std::string::npos, "\"%s\" is not in \"%s\"", std::string(part).c_str(),       \
                  (text).c_str())

/// `ranks` of a world of `size` at `port`, each on its thread.
std::vector<Outcome> meet(std::uint16_t port, int size, const std::vector<int> &ranks, std::chrono::milliseconds timeout,
                          const std::function<void(Rendezvous &)> &body)
{
    std::vector<Outcome> outcomes(ranks.size());
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < ranks.size(); ++i)
        threads.emplace_back([&, i] {
            try {
                Rendezvous where = meet_at(port, ranks[i], size);
                where.timeout = timeout;
                body(where);
            } catch (const Error &error) {
                outcomes[i] = {error.code(), error.what()};
            }
        });
    for (std::thread &thread : threads)
        thread.join();
    return outcomes;
}

/// A rank that shares a value and reads all others'. Rank 0's store stays until the others have left.
void share(const Rendezvous &where)
{
    std::atomic<int> left{0};
    Store store(where, [&](const Departure &departure) { left += departure.how == Departure::How::left; });
    store.set("of " + std::to_string(where.rank), std::string(3000, static_cast<char>('a' + where.rank)));
    for (int rank = 0; rank < where.size; ++rank)
        ck_assert(store.get("of " + std::to_string(rank), kLong) == std::string(3000, static_cast<char>('a' + rank)));
    ck_assert_str_eq(store.local_address().c_str(), "127.0.0.1");
    while (where.rank == 0 && left < where.size - 1)
        std::this_thread::yield();
}

START_TEST(ranks_meet_and_share)
{
    for (const int size : {1, 2, 5}) {
        std::vector<int> ranks(static_cast<std::size_t>(size));
        for (int rank = 0; rank < size; ++rank)
            ranks[static_cast<std::size_t>(rank)] = rank;
        ck_assert_str_eq(first_failure(meet(free_port(), size, ranks, kLong, share)).c_str(), "");
    }
}
END_TEST

START_TEST(who_is_missing_is_named_to_all)
{
    std::mutex mutex;
    std::vector<std::string> lines;
    const std::uint16_t port = free_port();
    // Long enough that the store has told who is missing (1 s) and the first line of progress is due (3 s). Rank 0, and the
    // store with it, gives up first.
    const auto outcomes = meet(port, 4, {0, 1}, 6s, [&](Rendezvous &where) {
        where.timeout += where.rank * 500ms;
        where.log = [&](const std::string &line) {
            const std::lock_guard lock(mutex);
            lines.push_back(line);
        };
        Store store(where, nullptr);
    });
    const std::string place = "waits for ranks 2,3 of 4 at 127.0.0.1:" + std::to_string(port) + " since ";
    for (const Outcome &outcome : outcomes) {
        ck_assert_int_eq(outcome.code, JIGSAW_TIMEOUT);
        ASSERT_CONTAINS(outcome.text, place);
    }
    ASSERT_CONTAINS(outcomes[1].text, ", and rank 0 went away");
    ck_assert_uint_eq(lines.size(), 2);
    for (const std::string &line : lines)
        ASSERT_CONTAINS(line, place);
}
END_TEST

START_TEST(no_rank_0_is_named_with_its_place)
{
    const std::uint16_t port = free_port();
    const auto outcomes = meet(port, 2, {1}, 300ms, [](Rendezvous &where) { Store store(where, nullptr); });
    ck_assert_int_eq(outcomes[0].code, JIGSAW_TIMEOUT);
    ASSERT_CONTAINS(outcomes[0].text, "rank 1 waits for rank 0 at 127.0.0.1:" + std::to_string(port));
    ASSERT_CONTAINS(outcomes[0].text, "Connection refused");
}
END_TEST

/// What a stranger gets that sends `bytes`: everything until the connection ends.
std::string answer_to(std::uint16_t port, const std::string &bytes)
{
    std::string why, answer;
    int error = 0;
    const Socket socket = connect_to(&error, resolve(&why, "127.0.0.1", port).front(), 5000);
    if (!socket)
        return "not connected";
    send(socket.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    for (;;) {
        pollfd readable{socket.fd(), POLLIN, 0};
        char buffer[256];
        if (poll(&readable, 1, 20000) != 1)
            return "still open";
        const ssize_t got = recv(socket.fd(), buffer, sizeof buffer, 0);
        if (got <= 0)
            return answer;
        answer.append(buffer, static_cast<std::size_t>(got));
    }
}

START_TEST(strangers_get_no_answer_and_do_no_harm)
{
    const std::uint16_t port = free_port();
    std::atomic<bool> tried{false};
    const auto outcomes = meet(port, 3, {0, 1, 2}, kLong, [&](Rendezvous &where) {
        if (where.rank == 2) { // the last rank comes when the strangers have been there
            while (!tried)
                std::this_thread::yield();
        }
        if (where.rank != 1)
            return share(where);
        std::thread strangers([&] {
            while (answer_to(port, "x") == "not connected")
                std::this_thread::yield();
            Hello hello{digest_of("another job"), 1, 3};
            ck_assert_str_eq(answer_to(port, encode_hello(hello)).c_str(), "");
            ck_assert_str_eq(answer_to(port, "GET / HTTP/1.1\r\n\r\n").c_str(), "");
            ck_assert_str_eq(answer_to(port, std::string(100000, '\0')).c_str(), "");
            std::string nearly = encode_hello(hello);
            nearly[4] = 9; // another version
            ck_assert_str_eq(answer_to(port, nearly).c_str(), "");
            // In with the right words, then nonsense: out again, and the rank may come.
            hello.digest = digest_of("test");
            const std::string head("\xff\xff\xff\xff\x07", 5);
            ck_assert_str_eq(answer_to(port, encode_hello(hello) + head).c_str(),
                             encode_frame(FrameType::welcome).c_str());
            tried = true;
        });
        strangers.join();
        share(where);
    });
    ck_assert_str_eq(first_failure(outcomes).c_str(), "");
}
END_TEST

START_TEST(worlds_that_differ_are_named)
{
    const std::uint16_t port = free_port();
    const auto outcomes = meet(port, 2, {0, 1}, 10s, [&](Rendezvous &where) {
        if (where.rank == 1)
            where.size = 3;
        else
            where.timeout = 1s;
        Store store(where, nullptr);
    });
    ck_assert_int_eq(outcomes[1].code, JIGSAW_INVALID_ARGUMENT);
    ASSERT_CONTAINS(outcomes[1].text, "rank 1 of a world of 3 ranks meets a world of 2 ranks");
    ck_assert_int_eq(outcomes[0].code, JIGSAW_TIMEOUT);
}
END_TEST

START_TEST(a_rank_comes_in_once)
{
    const std::uint16_t port = free_port();
    const auto outcomes = meet(port, 3, {0, 1, 1}, 2s, [&](Rendezvous &where) { Store store(where, nullptr); });
    int refused = 0;
    for (const Outcome &outcome : outcomes) {
        ck_assert_int_eq(outcome.code, JIGSAW_TIMEOUT);
        refused += outcome.text.find("rank 1 is here already") != std::string::npos;
    }
    ck_assert_int_eq(refused, 1);
}
END_TEST

START_TEST(a_taken_port_is_passed_over)
{
    // Something that accepts and never answers sits on the first port.
    std::uint16_t taken = 0;
    const Socket mute = jigsaw::tests::listen_anywhere(&taken);
    const std::uint16_t free = free_port();
    const auto outcomes = meet(taken, 2, {0, 1}, kLong, [&](Rendezvous &where) {
        where.ports = {taken, free};
        share(where);
    });
    ck_assert_str_eq(first_failure(outcomes).c_str(), "");
}
END_TEST

START_TEST(a_name_without_address_is_where_srun_runs)
{
    const auto outcomes = meet(free_port(), 2, {0, 1}, kLong, [&](Rendezvous &where) {
        where.address = "node1.invalid"; // RFC 6761: never resolves
        where.address_without_name = "127.0.0.1";
        share(where);
    });
    ck_assert_str_eq(first_failure(outcomes).c_str(), "");
}
END_TEST

START_TEST(a_place_that_cannot_be_is_an_error_with_a_remedy)
{
    std::uint16_t taken = 0;
    const Socket mute = jigsaw::tests::listen_anywhere(&taken);
    const struct {
        const char *address;
        std::uint16_t port;
        const char *expected;
    } rows[] = {
        {"127.0.0.1", taken, "Address already in use"},
        {"192.0.2.1", 1234, "Cannot assign requested address"}, // TEST-NET-1: nobody's
        {"no such host", 1234, "no such host"},
    };
    for (const auto &row : rows) {
        const auto outcomes = meet(row.port, 2, {0}, 5s, [&](Rendezvous &where) {
            where.address = row.address;
            Store store(where, nullptr);
        });
        ck_assert_int_eq(outcomes[0].code, JIGSAW_SYSTEM_ERROR);
        ASSERT_CONTAINS(outcomes[0].text, row.expected);
        ASSERT_CONTAINS(outcomes[0].text, "MASTER_ADDR must be an address of rank 0's machine");
    }
}
END_TEST

START_TEST(departures_are_told_once_and_in_words)
{
    // Rank 1 leaves, rank 2 gives up, rank 3's connection is cut by nonsense: ranks 0 and 4 hear all three.
    std::mutex mutex;
    std::vector<std::string> heard;
    std::atomic<int> ears{0};
    const auto outcomes = meet(free_port(), 5, {0, 1, 2, 3, 4}, kLong, [&](Rendezvous &where) {
        const bool listens = where.rank == 0 || where.rank == 4;
        std::vector<std::string> mine;
        Store store(where, [&](const Departure &departure) {
            const std::lock_guard lock(mutex);
            mine.push_back(to_string(departure));
        });
        if (where.rank == 2) {
            store.abort("out of paper");
            store.abort("again");
        }
        if (where.rank == 3)
            store.set("", "no key");
        if (where.rank != 1)
            while (ears < 2) {
                const std::lock_guard lock(mutex);
                if (listens && mine.size() >= 3) {
                    ++ears;
                    heard.insert(heard.end(), mine.begin(), mine.end());
                    break;
                }
            }
        while (listens && ears < 2)
            std::this_thread::yield();
    });
    ck_assert_str_eq(first_failure(outcomes).c_str(), "");
    std::sort(heard.begin(), heard.end());
    const std::vector<std::string> expected = {
        "rank 1 left", "rank 1 left", "rank 2 gave up: out of paper", "rank 2 gave up: out of paper",
        "rank 3 ended without a word (it broke the protocol of the store)",
        "rank 3 ended without a word (it broke the protocol of the store)"};
    ck_assert(heard == expected);
}
END_TEST

START_TEST(who_leaves_in_a_crowd_is_not_taken_for_dead)
{
    // All leave at once, while the store is telling each of them about the others.
    for (int round = 0; round < 20; ++round) {
        std::mutex mutex;
        std::vector<std::string> bad;
        const auto outcomes = meet(free_port(), 8, {0, 1, 2, 3, 4, 5, 6, 7}, kLong, [&](Rendezvous &where) {
            const Store store(where, [&](const Departure &departure) {
                const std::lock_guard lock(mutex);
                if (departure.how != Departure::How::left)
                    bad.push_back(to_string(departure));
            });
        });
        ck_assert_str_eq(first_failure(outcomes).c_str(), "");
        ck_assert_msg(bad.empty(), "%s", bad.empty() ? "" : bad.front().c_str());
    }
}
END_TEST

START_TEST(waiting_for_a_value_ends_when_a_rank_ended)
{
    const auto outcomes = meet(free_port(), 2, {0, 1}, kLong, [](Rendezvous &where) {
        Store store(where, nullptr);
        if (where.rank == 0)
            store.abort("no luck");
        else
            store.get("never set", kLong);
    });
    ck_assert_int_eq(outcomes[1].code, JIGSAW_PEER_LEFT);
    ASSERT_CONTAINS(outcomes[1].text, "rank 1: rank 0 gave up: no luck");
}
END_TEST

START_TEST(frames_are_bounded)
{
    Frame frame;
    std::string buffer = encode_frame(FrameType::set, "abc") + encode_frame(FrameType::leave);
    const std::string whole = buffer;
    ck_assert(take_frame(&frame, buffer) == Parse::complete && frame.payload == "abc");
    ck_assert(take_frame(&frame, buffer) == Parse::complete && frame.type == FrameType::leave && buffer.empty());
    for (std::size_t length = 0; length < 8; ++length) {
        buffer = whole.substr(0, length);
        ck_assert(take_frame(&frame, buffer) == Parse::more);
    }
    const std::string_view broken[] = {{"\x01\x00\x10\x00\x07", 5}, {"\xff\xff\xff\xff\x07", 5},
                                       {"\x01\x00\x00\x00\x0b", 5}, {"\x01\x00\x00\x00\x00", 5}};
    for (const std::string_view bytes : broken) {
        buffer = bytes;
        ck_assert(take_frame(&frame, buffer) == Parse::broken);
    }
    ck_assert(!decode_key_value("no zero") && !decode_key_value(std::string("\0x", 2)));
    ck_assert(!decode_key_value(std::string(65, 'k') + '\0'));
    ck_assert(!decode_departure("abc") && !decode_departure(std::string("\0\0\0\0\x09", 5)));
}
END_TEST

} // namespace

int main()
{
    Suite *suite = suite_create("store");
    jigsaw::tests::add_case(suite, "meeting",
                            {ranks_meet_and_share, who_is_missing_is_named_to_all, no_rank_0_is_named_with_its_place,
                             strangers_get_no_answer_and_do_no_harm, worlds_that_differ_are_named, a_rank_comes_in_once,
                             a_taken_port_is_passed_over, a_name_without_address_is_where_srun_runs,
                             a_place_that_cannot_be_is_an_error_with_a_remedy});
    jigsaw::tests::add_case(suite, "going", {departures_are_told_once_and_in_words, who_leaves_in_a_crowd_is_not_taken_for_dead,
                                             waiting_for_a_value_ends_when_a_rank_ended, frames_are_bounded});
    return jigsaw::tests::run_tap(suite);
}
