// SPDX-License-Identifier: Apache-2.0
// Messages over the socket: descriptors arrive, and every way in which a peer can misbehave has its answer.
#include "runtime/page/socket.hpp"
#include "tests/lib/folder.hpp"
#include "tests/lib/suite.hpp"

#include <cstdlib>
#include <fcntl.h>
#include <string>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

namespace {

using namespace jigsaw::wire;
using jigsaw::UniqueFd;

/// A listener of this test's own and one connection to it.
struct Pair {
    Pair()
    {
        listener = listen_at(&why, path, 4);
        ck_assert_msg(static_cast<bool>(listener), "%s", why.c_str());
        client = connect_to(&why, path, 100);
        ck_assert_msg(static_cast<bool>(client), "%s", why.c_str());
        server = UniqueFd(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
        ck_assert_int_ge(server.get(), 0);
    }
    Received receive(int timeout_ms = 0) { return receive_message(&message, &fds, &why, server.get(), timeout_ms); }

    const jigsaw::tests::Folder folder;
    std::string path = folder.socket(), why;
    UniqueFd listener, client, server;
    Message message;
    std::vector<UniqueFd> fds;
};

bool same_file(int a, int b)
{
    struct stat first = {}, second = {};
    return fstat(a, &first) == 0 && fstat(b, &second) == 0 && first.st_ino == second.st_ino;
}

START_TEST(messages_and_descriptors_arrive)
{
    Pair pair;
    ck_assert(pair.receive() == Received::nothing);
    ck_assert(send_message(&pair.why, pair.client.get(), {"PING", {{"a", "x y"}}}, {}, 0));
    ck_assert(pair.receive() == Received::message);
    ck_assert_str_eq(pair.message.find("a")->c_str(), "x y");
    ck_assert(pair.fds.empty());
    const int descriptors[2] = {memfd_create("one", MFD_CLOEXEC), memfd_create("two", MFD_CLOEXEC)};
    ck_assert(send_message(&pair.why, pair.client.get(), {"OK", {}}, {descriptors[0], descriptors[1]}, 0));
    ck_assert(pair.receive(1000) == Received::message);
    ck_assert_uint_eq(pair.fds.size(), 2);
    for (int i = 0; i < 2; ++i) {
        ck_assert(same_file(pair.fds[static_cast<std::size_t>(i)].get(), descriptors[i]));
        ck_assert_int_eq(fcntl(pair.fds[static_cast<std::size_t>(i)].get(), F_GETFD), FD_CLOEXEC);
        close(descriptors[i]);
    }
}
END_TEST

void send_raw(int socket, const std::string &bytes)
{
    ck_assert_int_eq(send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
}

START_TEST(bad_messages_are_consumed)
{
    Pair pair;
    send_raw(pair.client.get(), "nonsense");
    ck_assert(pair.receive() == Received::bad);
    ck_assert(!pair.why.empty());
    send_raw(pair.client.get(), "PING a=" + std::string(kMaxMessage, 'a'));
    ck_assert(pair.receive() == Received::bad);
    ck_assert_msg(pair.why.find("longer than 4096") != std::string::npos, "%s", pair.why.c_str());
    send_raw(pair.client.get(), "PING");
    ck_assert(pair.receive() == Received::message);
}
END_TEST

START_TEST(too_many_descriptors_are_refused_and_closed)
{
    Pair pair;
    const std::vector<int> many(kMaxFds, pair.client.get());
    ck_assert(send_message(&pair.why, pair.client.get(), {"OK", {}}, many, 0));
    ck_assert(pair.receive() == Received::message);
    ck_assert_uint_eq(pair.fds.size(), kMaxFds);
    pair.fds.clear();

    // One more, by hand: send_message() would not.
    alignas(cmsghdr) char control[CMSG_SPACE((kMaxFds + 1) * sizeof(int))] = {};
    char text[] = "OK";
    iovec data = {text, 2};
    msghdr header = {};
    header.msg_iov = &data;
    header.msg_iovlen = 1;
    header.msg_control = control;
    header.msg_controllen = sizeof control;
    cmsghdr *first = CMSG_FIRSTHDR(&header);
    first->cmsg_level = SOL_SOCKET;
    first->cmsg_type = SCM_RIGHTS;
    first->cmsg_len = CMSG_LEN((kMaxFds + 1) * sizeof(int));
    for (std::size_t i = 0; i <= kMaxFds; ++i) {
        const int fd = pair.client.get();
        __builtin_memcpy(CMSG_DATA(first) + i * sizeof fd, &fd, sizeof fd);
    }
    ck_assert_int_eq(sendmsg(pair.client.get(), &header, MSG_NOSIGNAL), 2);
    const int lowest_free = dup(0);
    close(lowest_free);
    ck_assert(pair.receive() == Received::bad);
    ck_assert(pair.fds.empty());
    const int still_free = dup(0); // nothing leaked
    close(still_free);
    ck_assert_int_eq(still_free, lowest_free);
}
END_TEST

START_TEST(hang_ups_are_seen)
{
    Pair pair;
    ck_assert(!has_hung_up(pair.server.get()));
    send_raw(pair.client.get(), "PING");
    pair.client.reset();
    ck_assert(has_hung_up(pair.server.get()));
    ck_assert(pair.receive() == Received::message); // what was said before still counts
    ck_assert(pair.receive() == Received::closed);
    ck_assert(!send_message(&pair.why, pair.server.get(), {"OK", {}}, {}, 0)); // and no SIGPIPE
}
END_TEST

START_TEST(full_queues_have_a_limit)
{
    Pair pair;
    int sent = 0;
    while (send_message(&pair.why, pair.client.get(), {"PING", {{"a", std::string(2000, 'a')}}}, {}, 0))
        ++sent;
    ck_assert_int_gt(sent, 0);
    ck_assert(!send_message(&pair.why, pair.client.get(), {"PING", {{"a", std::string(2000, 'a')}}}, {}, 20));
    std::vector<UniqueFd> waiting;
    for (UniqueFd fd = connect_to(&pair.why, pair.path, 0); fd; fd = connect_to(&pair.why, pair.path, 0))
        waiting.push_back(std::move(fd));
    ck_assert_msg(pair.why.find("connect to ") == 0, "%s", pair.why.c_str());
}
END_TEST

START_TEST(nobody_listens)
{
    std::string why;
    ck_assert(!connect_to(&why, "/nonexistent/jigsaw/socket", 100));
    ck_assert_msg(why.find("/nonexistent/jigsaw/socket: No such file") != std::string::npos, "%s", why.c_str());
    ck_assert(!connect_to(&why, std::string(300, 'x'), 100));
    ck_assert_msg(why.find("300 bytes, allowed is 1 to 107") != std::string::npos, "%s", why.c_str());
    ck_assert(!connect_to(&why, "", 100));
    ck_assert(!listen_at(&why, "/nonexistent/jigsaw/socket", 4));
}
END_TEST

/// Answers one question with `bytes`, or hangs up when there are none.
std::string ask_a_peer(const std::string &bytes)
{
    Pair pair;
    std::thread peer([&] {
        UniqueFd socket;
        while (!socket)
            socket = UniqueFd(accept4(pair.listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
        char question[64];
        if (recv(socket.get(), question, sizeof question, 0) > 0 && !bytes.empty())
            send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    });
    Message answer;
    std::string why;
    const bool good = ask(&answer, &pair.fds, &why, pair.path, {"STATUS", {}}, 60000);
    peer.join();
    return good ? "good " + format(answer) : why;
}

START_TEST(questions)
{
    const struct {
        const char *answer, *says;
    } rows[] = {
        {"OK bytes=3", "good OK bytes=3"},
        {"ERROR code=uid text=root%20only", "STATUS refused: root only"},
        {"ERROR", "STATUS refused: ERROR"},
        {"nonsense", "verb 'nonsense'"},
        {"", "hung up without an answer to STATUS"},
    };
    for (const auto &row : rows) {
        const std::string got = ask_a_peer(row.answer);
        ck_assert_msg(got.find(row.says) == 0, "got '%s', want '%s'", got.c_str(), row.says);
    }
    Pair silent;
    ck_assert(!ask(&silent.message, &silent.fds, &silent.why, silent.path, {"STATUS", {}}, 10));
    ck_assert_str_eq(silent.why.c_str(), "no answer to STATUS within 10 ms");
}
END_TEST

} // namespace

int main()
{
    Suite *suite = suite_create("socket");
    jigsaw::tests::add_case(suite, "messages",
                            {messages_and_descriptors_arrive, bad_messages_are_consumed,
                             too_many_descriptors_are_refused_and_closed});
    jigsaw::tests::add_case(suite, "peers", {hang_ups_are_seen, full_queues_have_a_limit, nobody_listens, questions});
    return jigsaw::tests::run_tap(suite);
}
