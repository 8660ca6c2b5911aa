// SPDX-License-Identifier: Apache-2.0
#include "runtime/sparse/mpi_comm.hpp"

#include "runtime/sparse/matrix.hpp"

#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <climits>
#include <functional>

namespace jigsaw::sparse {

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

void must(int code, const char *doing)
{
    if (code == MPI_SUCCESS)
        return;
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    MPI_Error_string(code, text, &length);
    throw Error(std::string(doing) + ": " + text);
}

/// Waits without holding the core against other ranks on it, and not for ever.
void wait_for(const std::function<bool()> &done, double patience_s, const std::function<std::string()> &what)
{
    const Clock::time_point start = Clock::now();
    for (unsigned tries = 0; !done(); ++tries) {
        if (tries < 64)
            continue;
        sched_yield();
        if (tries % 64 == 0 && seconds_since(start) > patience_s)
            throw Error(what() + " for " + std::to_string(static_cast<int>(patience_s)) + " s; is it dead? (--patience)");
    }
}

class MpiExchange : public Exchange {
public:
    MpiExchange(MPI_Comm comm, const std::vector<Channel> &sends, const std::vector<Channel> &receives, int tag, double patience_s,
                SentTraffic *traffic)
        : sends_(sends), patience_s_(patience_s), traffic_(traffic)
    {
        // Receives first: start() and the list of who is late count on it.
        for (const Channel &channel : receives)
            add(comm, channel, tag, false);
        for (const Channel &channel : sends)
            add(comm, channel, tag, true);
        receives_ = receives.size();
    }

    ~MpiExchange() override
    {
        int finalized = 0;
        if (MPI_Finalized(&finalized) != MPI_SUCCESS || finalized != 0)
            return;
        for (MPI_Request &request : requests_)
            MPI_Request_free(&request);
        for (MPI_Datatype &type : types_)
            MPI_Type_free(&type);
    }

    void receive() override { start(0, receives_); }

    void send() override
    {
        start(receives_, requests_.size() - receives_);
        for (const Channel &channel : sends_) {
            ++traffic_->messages;
            traffic_->bytes += channel.floats() * sizeof(float);
        }
    }

    void poll() override { (void)all_done(); }

    void finish() override
    {
        wait_for([this] { return all_done(); }, patience_s_, [this] {
            std::string late;
            for (std::size_t i = 0; i < requests_.size(); ++i) {
                int done = 1;
                MPI_Request_get_status(requests_[i], &done, MPI_STATUS_IGNORE);
                if (done == 0)
                    late += (late.empty() ? "rank " : ", rank ") + std::to_string(peers_[i]);
            }
            return "nothing from " + late;
        });
    }

private:
    void add(MPI_Comm comm, const Channel &channel, int tag, bool is_send)
    {
        // MPI counts in int; long runs of samples are sent as lines of 16 floats (every run is a multiple of that).
        if (channel.block % 16 != 0 || channel.stride % 16 != 0 || channel.stride / 16 > INT_MAX || channel.blocks > INT_MAX)
            throw Error("a message of " + std::to_string(channel.floats()) + " floats cannot be described to MPI");
        MPI_Datatype line, type;
        must(MPI_Type_contiguous(16, MPI_FLOAT, &line), "MPI_Type_contiguous");
        if (channel.blocks == 1 || channel.block == channel.stride)
            must(MPI_Type_contiguous(static_cast<int>(channel.floats() / 16), line, &type), "MPI_Type_contiguous");
        else
            must(MPI_Type_vector(static_cast<int>(channel.blocks), static_cast<int>(channel.block / 16),
                                 static_cast<int>(channel.stride / 16), line, &type),
                 "MPI_Type_vector");
        must(MPI_Type_commit(&type), "MPI_Type_commit");
        must(MPI_Type_free(&line), "MPI_Type_free");
        types_.push_back(type);
        MPI_Request request;
        if (is_send)
            must(MPI_Send_init(channel.data, 1, type, channel.peer, tag, comm, &request), "MPI_Send_init");
        else
            must(MPI_Recv_init(channel.data, 1, type, channel.peer, tag, comm, &request), "MPI_Recv_init");
        requests_.push_back(request);
        peers_.push_back(channel.peer);
    }

    void start(std::size_t first, std::size_t count)
    {
        if (count > 0)
            must(MPI_Startall(static_cast<int>(count), requests_.data() + first), "MPI_Startall");
    }

    /// An inactive persistent request counts as done, so this is right before, between and after the starts.
    bool all_done()
    {
        int done = 1;
        must(MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &done, MPI_STATUSES_IGNORE), "MPI_Testall");
        return done != 0;
    }

    std::vector<Channel> sends_;
    double patience_s_;
    SentTraffic *traffic_;
    std::size_t receives_ = 0;
    std::vector<MPI_Request> requests_;
    std::vector<MPI_Datatype> types_;
    std::vector<int> peers_;
};

class MpiComm : public Comm {
public:
    explicit MpiComm(double patience_s) : patience_s_(patience_s)
    {
        must(MPI_Comm_dup(MPI_COMM_WORLD, &comm_), "MPI_Comm_dup");
        MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
        MPI_Comm_rank(comm_, &rank_);
        MPI_Comm_size(comm_, &size_);
    }
    ~MpiComm() override
    {
        int finalized = 0;
        if (MPI_Finalized(&finalized) == MPI_SUCCESS && finalized == 0)
            MPI_Comm_free(&comm_);
    }
    int rank() const override { return rank_; }
    int size() const override { return size_; }
    SentTraffic traffic() const override { return traffic_; }

    std::unique_ptr<Exchange> exchange(std::vector<Channel> sends, std::vector<Channel> receives, int tag) override
    {
        return std::make_unique<MpiExchange>(comm_, sends, receives, tag, patience_s_, &traffic_);
    }

    void sum(float *values, std::size_t count) override { sum_all(values, count, MPI_FLOAT); }
    void sum(double *values, std::size_t count) override { sum_all(values, count, MPI_DOUBLE); }

    void begin_any(std::uint64_t *bits, std::size_t count) override
    {
        must(MPI_Iallreduce(MPI_IN_PLACE, bits, static_cast<int>(count), MPI_UINT64_T, MPI_BOR, comm_, &any_), "MPI_Iallreduce");
    }
    void finish_any() override { wait(&any_); }

    std::vector<std::vector<float>> gather(const std::vector<float> &mine) override
    {
        const std::uint64_t count = mine.size();
        std::vector<std::uint64_t> counts(static_cast<std::size_t>(size_));
        must(MPI_Gather(&count, 1, MPI_UINT64_T, counts.data(), 1, MPI_UINT64_T, 0, comm_), "MPI_Gather");
        std::vector<std::vector<float>> all;
        if (rank_ != 0) {
            pieces(count, [&](std::uint64_t at, int length) {
                must(MPI_Send(mine.data() + at, length, MPI_FLOAT, 0, kGatherTag, comm_), "MPI_Send");
            });
            return all;
        }
        for (int peer = 0; peer < size_; ++peer) {
            all.push_back(peer == 0 ? mine : std::vector<float>(counts[static_cast<std::size_t>(peer)]));
            if (peer != 0)
                pieces(all.back().size(), [&](std::uint64_t at, int length) {
                    MPI_Request request;
                    must(MPI_Irecv(all.back().data() + at, length, MPI_FLOAT, peer, kGatherTag, comm_, &request), "MPI_Irecv");
                    wait(&request);
                });
        }
        return all;
    }

private:
    static constexpr int kGatherTag = 1 << 14; // tags of layers grow from 0; a network of 8192 layers would meet this one

    template <typename Body> static void pieces(std::uint64_t count, const Body &body)
    {
        constexpr std::uint64_t most = 1U << 28;
        for (std::uint64_t at = 0; at < count; at += most)
            body(at, static_cast<int>(std::min(most, count - at)));
    }

    void wait(MPI_Request *request)
    {
        wait_for(
            [&] {
                int done = 1;
                must(MPI_Test(request, &done, MPI_STATUS_IGNORE), "MPI_Test");
                return done != 0;
            },
            patience_s_, [] { return std::string("a rank does not join the others"); });
    }

    template <typename T> void sum_all(T *values, std::size_t count, MPI_Datatype type)
    {
        pieces(count, [&](std::uint64_t at, int length) {
            MPI_Request request;
            must(MPI_Iallreduce(MPI_IN_PLACE, values + at, length, type, MPI_SUM, comm_, &request), "MPI_Iallreduce");
            wait(&request);
        });
    }

    MPI_Comm comm_ = MPI_COMM_NULL;
    int rank_ = 0, size_ = 1;
    double patience_s_;
    SentTraffic traffic_;
    MPI_Request any_ = MPI_REQUEST_NULL;
};

} // namespace

Mpi::Mpi(int *argc, char ***argv)
{
    int given = 0;
    must(MPI_Init_thread(argc, argv, MPI_THREAD_FUNNELED, &given), "MPI_Init_thread");
    if (given < MPI_THREAD_FUNNELED)
        throw Error("this MPI gives no MPI_THREAD_FUNNELED");
}

Mpi::~Mpi() { MPI_Finalize(); }

int Mpi::rank() const
{
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    return rank;
}

int Mpi::size() const
{
    int size = 1;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    return size;
}

void Mpi::abort(int status)
{
    MPI_Abort(MPI_COMM_WORLD, status);
    std::abort();
}

std::string Mpi::first_complaint(const std::string &mine, int *ret_rank)
{
    const int rank_here = rank(), mark = mine.empty() ? size() : rank_here;
    int first = mark;
    MPI_Allreduce(&mark, &first, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    *ret_rank = first;
    if (first == size())
        return "";
    int length = static_cast<int>(mine.size());
    MPI_Bcast(&length, 1, MPI_INT, first, MPI_COMM_WORLD);
    std::string text = mine;
    text.resize(static_cast<std::size_t>(length));
    MPI_Bcast(text.data(), length, MPI_CHAR, first, MPI_COMM_WORLD);
    return text;
}

std::unique_ptr<Comm> make_mpi_comm(double patience_s) { return std::make_unique<MpiComm>(patience_s); }

} // namespace jigsaw::sparse
