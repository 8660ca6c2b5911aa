// SPDX-License-Identifier: Apache-2.0
// libjigsaw_torch against a slow, obvious reference: every rank's full gradients, of which only those of the blocks within
// its depth count; sum in rank order, divided once. Everything is compared bit for bit.
#include <jigsaw/torch.hpp>

#include "tests/fakes/fake_gpu.hpp"

#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/pooling.h>
#include <torch/optim/adam.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>
#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <mutex>
#include <thread>
#include <unistd.h>

#include "tests/lib/suite.hpp" // last: Check defines a macro `fail`

namespace {

namespace nn = torch::nn;
using at::Tensor;
using Blocks = std::vector<std::vector<Tensor>>;

constexpr int kBatch = 6;

/// A model in four blocks whose forward is a pure function of parameters, buffers, iteration and rank.
struct Net : nn::Module {
    virtual Tensor loss(std::uint64_t iteration, int rank) = 0;
    virtual std::vector<std::shared_ptr<nn::Module>> modules_of_blocks() { return {}; }
    virtual Blocks blocks()
    {
        Blocks out;
        for (const auto &module : modules_of_blocks())
            out.push_back(module->parameters());
        return out;
    }
};

at::Generator stream(std::uint64_t iteration, int rank, std::uint64_t what)
{
    return at::make_generator<at::CPUGeneratorImpl>(iteration * 1000 + static_cast<std::uint64_t>(rank) * 10 + what);
}

Tensor labels(std::uint64_t iteration, int rank, std::int64_t classes)
{
    return at::randint(0, classes, {kBatch}, stream(iteration, rank, 1), at::kLong);
}

void conv(nn::Sequential &block, int in, int out)
{
    block->push_back(nn::Conv2d(nn::Conv2dOptions(in, out, 3).padding(1)));
    block->push_back(nn::BatchNorm2d(out));
    block->push_back(nn::ReLU());
}

struct Cnn : Net {
    Cnn()
    {
        conv(a, 1, 4);
        conv(b, 4, 5);
        conv(c, 5, 6);
        d->push_back(nn::AdaptiveAvgPool2d(1));
        d->push_back(nn::Flatten());
        d->push_back(nn::Linear(6, 10));
        register_module("a", a);
        register_module("b", b);
        register_module("c", c);
        register_module("d", d);
    }
    Tensor loss(std::uint64_t iteration, int rank) override
    {
        const Tensor x = at::randn({kBatch, 1, 6, 6}, stream(iteration, rank, 0), at::TensorOptions());
        return nn::functional::cross_entropy(d->forward(c->forward(b->forward(a->forward(x)))), labels(iteration, rank, 10));
    }
    std::vector<std::shared_ptr<nn::Module>> modules_of_blocks() override { return {a.ptr(), b.ptr(), c.ptr(), d.ptr()}; }
    nn::Sequential a, b, c, d;
};

/// Dropout by a generator of the rank's own: LibTorch's default one is shared by the threads that play the ranks.
struct Dropout : Net {
    Dropout()
    {
        for (int i = 0; i < 4; ++i)
            layers.push_back(register_module("l" + std::to_string(i), nn::Linear(8, 8)));
    }
    Tensor loss(std::uint64_t iteration, int rank) override
    {
        Tensor x = at::randn({kBatch, 8}, stream(iteration, rank, 0), at::TensorOptions());
        for (std::size_t i = 0; i < layers.size(); ++i) {
            x = layers[i]->forward(x);
            if (i + 1 < layers.size())
                x = x.relu() * at::empty_like(x).bernoulli_(0.7, stream(iteration, rank, 2 + i)) / 0.7;
        }
        return nn::functional::cross_entropy(x, labels(iteration, rank, 8));
    }
    std::vector<std::shared_ptr<nn::Module>> modules_of_blocks() override
    {
        std::vector<std::shared_ptr<nn::Module>> out;
        for (auto &layer : layers)
            out.push_back(layer.ptr());
        return out;
    }
    std::vector<nn::Linear> layers;
};

/// One matrix maps letters in and out; the second use lies in the last block, the parameter in the first.
struct Tied : Net {
    Tied()
    {
        table = register_parameter("table", at::randn({12, 8}) * 0.3);
        for (int i = 0; i < 3; ++i)
            layers.push_back(register_module("l" + std::to_string(i), nn::Linear(8, 8)));
    }
    Tensor loss(std::uint64_t iteration, int rank) override
    {
        const Tensor letters = at::randint(0, 12, {kBatch}, stream(iteration, rank, 0), at::kLong);
        Tensor x = table.index_select(0, letters);
        for (auto &layer : layers)
            x = layer->forward(x).tanh();
        return nn::functional::cross_entropy(x.matmul(table.t()), labels(iteration, rank, 12));
    }
    Blocks blocks() override
    {
        Blocks out{{table}, layers[0]->parameters(), layers[1]->parameters(), layers[2]->parameters()};
        out[3].push_back(table);
        return out;
    }
    Tensor table;
    std::vector<nn::Linear> layers;
};

using MakeNet = std::function<std::shared_ptr<Net>()>;
template <typename T> std::shared_ptr<Net> make()
{
    torch::manual_seed(7);
    return std::make_shared<T>();
}

using MakeOptimizer = std::function<std::unique_ptr<torch::optim::Optimizer>(std::vector<Tensor>)>;
std::unique_ptr<torch::optim::Optimizer> momentum(std::vector<Tensor> parameters)
{
    return std::make_unique<torch::optim::SGD>(parameters, torch::optim::SGDOptions(0.05).momentum(0.9).weight_decay(0.01));
}
std::unique_ptr<torch::optim::Optimizer> adam(std::vector<Tensor> parameters)
{
    return std::make_unique<torch::optim::Adam>(parameters, torch::optim::AdamOptions(0.01).weight_decay(0.02));
}

/// A tied parameter counts for the first block that lists it.
std::uint32_t block_of(const Blocks &blocks, const Tensor &parameter)
{
    for (std::uint32_t b = 0; b < blocks.size(); ++b)
        for (const Tensor &other : blocks[b])
            if (other.is_same(parameter))
                return b;
    ck_abort_msg("a parameter of no block");
    return 0;
}

/// Ranks one after the other on one thread.
struct Reference {
    Reference(int size, const MakeNet &make_net, const MakeOptimizer &make_optimizer)
    {
        for (int r = 0; r < size; ++r) {
            nets.push_back(make_net());
            nets.back()->train();
            optimizers.push_back(make_optimizer(nets.back()->parameters()));
        }
    }
    void step(std::uint64_t iteration, const std::vector<std::uint32_t> &depths)
    {
        std::vector<std::vector<Tensor>> parameters;
        for (std::size_t r = 0; r < nets.size(); ++r) {
            parameters.push_back(nets[r]->parameters());
            for (Tensor &p : parameters[r])
                p.mutable_grad() = Tensor();
            nets[r]->loss(iteration, static_cast<int>(r)).backward();
        }
        const Blocks blocks = nets[0]->blocks();
        for (std::size_t p = 0; p < parameters[0].size(); ++p) {
            const Tensor mean = mean_over(parameters, p, block_of(blocks, parameters[0][p]), depths);
            for (auto &of_rank : parameters)
                of_rank[p].mutable_grad() = mean.defined() ? mean.clone() : Tensor();
        }
        if (clip > 0)
            for (auto &of_rank : parameters)
                clip_gradients(of_rank);
        for (auto &optimizer : optimizers)
            optimizer->step();
    }
    void clip_gradients(std::vector<Tensor> &parameters) const
    {
        double squares = 0;
        for (const Tensor &p : parameters)
            if (p.grad().defined())
                squares += p.grad().to(at::kDouble).square().sum().item<double>();
        for (Tensor &p : parameters)
            if (p.grad().defined() && std::sqrt(squares) > clip)
                p.mutable_grad().mul_(clip / std::sqrt(squares));
    }
    static Tensor mean_over(const std::vector<std::vector<Tensor>> &parameters, std::size_t p, std::uint32_t block,
                            const std::vector<std::uint32_t> &depths)
    {
        Tensor sum;
        float contributors = 0;
        for (std::size_t r = 0; r < depths.size(); ++r) {
            if (depths[r] <= 3 - block)
                continue;
            const Tensor gradient = parameters[r][p].grad().contiguous();
            ++contributors;
            if (!sum.defined()) {
                sum = gradient.clone();
                continue;
            }
            for (std::int64_t i = 0; i < sum.numel(); ++i)
                sum.data_ptr<float>()[i] += gradient.data_ptr<float>()[i];
        }
        for (std::int64_t i = 0; sum.defined() && i < sum.numel(); ++i)
            sum.data_ptr<float>()[i] /= contributors;
        return sum;
    }
    std::vector<std::shared_ptr<Net>> nets;
    std::vector<std::unique_ptr<torch::optim::Optimizer>> optimizers;
    double clip = 0; ///< 0: not
};

struct Ranks {
    std::vector<std::shared_ptr<Net>> nets;
    std::vector<std::unique_ptr<torch::optim::Optimizer>> optimizers;
    std::vector<std::string> errors;
    std::vector<std::vector<std::uint32_t>> depths; ///< [rank][iteration]
};

using Body = std::function<void(int rank, Net &, torch::optim::Optimizer &, const jigsaw::torch::Options &)>;

/// Ranks as threads; models are made before, since LibTorch's default generator is shared.
Ranks run(int size, const MakeNet &make_net, const MakeOptimizer &make_optimizer, jigsaw::torch::Options options, const Body &body)
{
    void *world = jigsaw_thread_world_create(static_cast<std::uint32_t>(size));
    Ranks ranks;
    ranks.errors.resize(static_cast<std::size_t>(size));
    for (int r = 0; r < size; ++r) {
        ranks.nets.push_back(make_net());
        ranks.nets.back()->train();
        ranks.optimizers.push_back(make_optimizer(ranks.nets.back()->parameters()));
    }
    std::mutex one_at_a_time; // set_num_threads() of LibTorch 1.13 aborts when two threads call it at once
    std::vector<std::thread> threads;
    for (int r = 0; r < size; ++r)
        threads.emplace_back([&, r, options]() mutable {
            {
                const std::lock_guard<std::mutex> lock(one_at_a_time);
                at::set_num_threads(1);
            }
            options.rank = r;
            options.world_size = size;
            options.thread_world = world;
            options.timeout_ms = 30000;
            const auto i = static_cast<std::size_t>(r);
            try {
                body(r, *ranks.nets[i], *ranks.optimizers[i], options);
            } catch (const std::exception &error) {
                ranks.errors[i] = error.what();
            }
        });
    for (std::thread &thread : threads)
        thread.join();
    jigsaw_thread_world_destroy(world);
    return ranks;
}

void assert_all_well(const Ranks &ranks)
{
    for (std::size_t r = 0; r < ranks.errors.size(); ++r)
        ck_assert_msg(ranks.errors[r].empty(), "rank %zu: %s", r, ranks.errors[r].c_str());
}

bool same_bits(const Tensor &a, const Tensor &b)
{
    const Tensor x = a.detach().contiguous(), y = b.detach().contiguous();
    return x.nbytes() == y.nbytes() && std::memcmp(x.data_ptr(), y.data_ptr(), x.nbytes()) == 0;
}

void assert_same(const std::vector<Tensor> &a, const std::vector<Tensor> &b, const std::string &what)
{
    ck_assert(a.size() == b.size() && !a.empty());
    for (std::size_t i = 0; i < a.size(); ++i)
        ck_assert_msg(same_bits(a[i], b[i]), "%s: tensor %zu differs by %g", what.c_str(), i,
                      (a[i].detach().to(at::kDouble) - b[i].detach().to(at::kDouble)).abs().max().item<double>());
}

Ranks train(int size, const MakeNet &make_net, const MakeOptimizer &make_optimizer, const jigsaw::torch::Options &options, int iterations)
{
    std::vector<std::vector<std::uint32_t>> depths(static_cast<std::size_t>(size));
    Ranks ranks = run(size, make_net, make_optimizer, options,
                      [&](int rank, Net &net, torch::optim::Optimizer &optimizer, const jigsaw::torch::Options &with) {
                          auto modules = net.modules_of_blocks();
                          auto trainer = modules.empty() ? jigsaw::torch::attach(net.blocks(), with)
                                                         : jigsaw::torch::attach(modules, with);
                          for (int t = 0; t < iterations; ++t) {
                              const auto now = trainer.begin();
                              depths[static_cast<std::size_t>(rank)].push_back(now.depth);
                              trainer.backward(net.loss(now.iteration, rank));
                              trainer.sync();
                              optimizer.step();
                          }
                          trainer.detach();
                      });
    ranks.depths = depths;
    return ranks;
}

struct Row {
    const char *name;
    int size;
    MakeNet net;
    MakeOptimizer optimizer;
    const char *policy; ///< "": full depth
    const char *backend = "";
};

void assert_equals_reference(const Row &row)
{
    constexpr int kIterations = 10;
    jigsaw::torch::Options options;
    options.policy = row.policy;
    options.backend = row.backend;
    Ranks ranks = train(row.size, row.net, row.optimizer, options, kIterations);
    assert_all_well(ranks);
    Reference reference(row.size, row.net, row.optimizer);
    bool shallow = false;
    for (std::size_t t = 0; t < kIterations; ++t) {
        std::vector<std::uint32_t> depths;
        for (const auto &of_rank : ranks.depths) {
            depths.push_back(of_rank[t]);
            shallow = shallow || of_rank[t] < 4;
        }
        reference.step(t, depths);
    }
    // The table of "rotate" is made from measured times, which may ask for full depth at every level.
    const std::string policy = row.policy;
    ck_assert_msg(policy == "rotate" || shallow == (policy == "two-level" || policy == "uniform"), "%s: depths are not as asked for", row.name);
    for (std::size_t r = 0; r < ranks.nets.size(); ++r) {
        const std::string name = std::string(row.name) + ", rank " + std::to_string(r);
        assert_same(ranks.nets[r]->parameters(), reference.nets[r]->parameters(), name);
        assert_same(ranks.nets[r]->parameters(), ranks.nets[0]->parameters(), name + " against rank 0");
        if (!ranks.nets[r]->buffers().empty())
            assert_same(ranks.nets[r]->buffers(), reference.nets[r]->buffers(), name + ", buffers");
    }
}

START_TEST(full_depth_is_plain_data_parallel_training)
{
    const Row rows[] = {
        {"CNN with BatchNorm, momentum", 4, make<Cnn>, momentum, ""},
        {"CNN with BatchNorm, Adam, three ranks", 3, make<Cnn>, adam, ""},
        {"tied weights", 2, make<Tied>, momentum, ""},
    };
    for (const Row &row : rows)
        assert_equals_reference(row);
}
END_TEST

START_TEST(partial_depth_is_the_serial_reference)
{
    const Row rows[] = {
        {"CNN, momentum, two levels", 4, make<Cnn>, momentum, "two-level"},
        {"CNN, Adam, rotate", 4, make<Cnn>, adam, "rotate"},
        {"CNN, momentum, two levels, two ranks", 2, make<Cnn>, momentum, "two-level"},
        {"dropout, momentum, rotate", 4, make<Dropout>, momentum, "rotate"},
        {"dropout, Adam, two levels", 3, make<Dropout>, adam, "two-level"},
        {"tied weights, momentum, rotate", 4, make<Tied>, momentum, "rotate"},
        {"tied weights, Adam, two levels", 4, make<Tied>, adam, "two-level"},
        {"CNN, momentum, uniform", 4, make<Cnn>, momentum, "uniform"},
        {"CNN, Adam, uniform, one rank", 1, make<Cnn>, adam, "uniform"},
        {"tied weights, Adam, uniform", 2, make<Tied>, adam, "uniform"},
    };
    for (const Row &row : rows)
        assert_equals_reference(row);
}
END_TEST

/// NCCL on the fake of it: contributors by twos, so that its times 1/m rounds as a division does.
START_TEST(nccl_is_the_serial_reference)
{
    const jigsaw::tests::FakeGpu &fake = jigsaw::tests::use_fake_gpu();
    const Row rows[] = {
        {"CNN, momentum, over NCCL", 4, make<Cnn>, momentum, "", "nccl"},
        {"CNN, momentum, two levels, over NCCL", 4, make<Cnn>, momentum, "two-level", "nccl"},
        {"tied weights, Adam, two levels, over NCCL", 2, make<Tied>, adam, "two-level", "nccl"},
        {"CNN, momentum, uniform, over NCCL", 2, make<Cnn>, momentum, "uniform", "nccl"},
    };
    for (const Row &row : rows)
        assert_equals_reference(row);
    ck_assert_str_eq(fake.fake_violations(), "");
}
END_TEST

START_TEST(all_ranks_skip_a_step_that_is_not_finite)
{
    jigsaw::torch::Options options;
    const auto body = [](int rank, Net &net, torch::optim::Optimizer &optimizer, const jigsaw::torch::Options &with) {
        auto trainer = jigsaw::torch::attach(net.modules_of_blocks(), with);
        for (int t = 0; t < 6; ++t) {
            const auto now = trainer.begin();
            Tensor loss = net.loss(now.iteration, rank);
            trainer.backward(t == 2 && rank == 1 ? loss * NAN : loss);
            trainer.sync();
            const Tensor before = net.parameters()[0].detach().clone();
            const bool finite = trainer.finite();
            ck_assert_msg(finite == (t != 2), "rank %d, iteration %d", rank, t);
            if (finite)
                optimizer.step();
            ck_assert(same_bits(before, net.parameters()[0]) == !finite);
        }
        trainer.detach();
    };
    Ranks ranks = run(3, make<Dropout>, momentum, options, body);
    assert_all_well(ranks);
    assert_same(ranks.nets[0]->parameters(), ranks.nets[2]->parameters(), "after a skipped step");
}
END_TEST

START_TEST(a_rank_that_skips_alone_is_found)
{
    jigsaw::torch::Options options;
    Ranks ranks = run(2, make<Dropout>, momentum, options,
                      [](int rank, Net &net, torch::optim::Optimizer &, const jigsaw::torch::Options &with) {
                          auto trainer = jigsaw::torch::attach(net.modules_of_blocks(), with);
                          for (int t = 0; t < 4; ++t) {
                              const auto now = trainer.begin();
                              trainer.backward(net.loss(now.iteration, rank));
                              trainer.sync();
                              if (t == 1 && rank == 1)
                                  jigsaw_skip_step(trainer.context());
                          }
                      });
    for (const std::string &error : ranks.errors)
        ck_assert_msg(error.find("rank 1 skipped the optimizer step before it and rank 0 did not") != std::string::npos,
                      "%s", error.c_str());
}
END_TEST

/// Blocks have different contributors; the norm is that of the means.
START_TEST(clipping_is_by_the_norm_of_the_means)
{
    constexpr double kMost = 0.05;
    jigsaw::torch::Options options;
    options.policy = "two-level";
    std::vector<std::vector<std::uint32_t>> depths(4);
    Ranks ranks = run(4, make<Dropout>, momentum, options,
                      [&](int rank, Net &net, torch::optim::Optimizer &optimizer, const jigsaw::torch::Options &with) {
                          auto trainer = jigsaw::torch::attach(net.modules_of_blocks(), with);
                          for (int t = 0; t < 5; ++t) {
                              const auto now = trainer.begin();
                              depths[static_cast<std::size_t>(rank)].push_back(now.depth);
                              trainer.backward(net.loss(now.iteration, rank));
                              trainer.sync();
                              ck_assert(trainer.clip_grad_norm(kMost) > kMost);
                              ck_assert(std::abs(trainer.clip_grad_norm(2 * kMost) - kMost) < 1e-6);
                              optimizer.step();
                          }
                          trainer.detach();
                      });
    assert_all_well(ranks);
    Reference reference(4, make<Dropout>, momentum);
    reference.clip = kMost;
    for (std::size_t t = 0; t < 5; ++t)
        reference.step(t, {depths[0][t], depths[1][t], depths[2][t], depths[3][t]});
    for (std::size_t r = 0; r < 4; ++r) {
        assert_same(ranks.nets[r]->parameters(), ranks.nets[0]->parameters(), "clipped, against rank 0");
        for (std::size_t p = 0; p < ranks.nets[r]->parameters().size(); ++p)
            ck_assert(at::allclose(ranks.nets[r]->parameters()[p], reference.nets[r]->parameters()[p], 1e-5, 1e-7));
    }
}
END_TEST

/// One rank whose directive never reaches full depth: nobody computes the first blocks. By a replayed log, so that depths are
/// not those of measured times.
START_TEST(a_block_without_gradient_does_not_move)
{
    const std::string path = "/tmp/jigsaw-test-" + std::to_string(getpid()) + ".jsonl";
    std::ofstream(path) << R"({"generation":1,"first_iteration":3,"policy":"rotate","phase":0,"direction":1,"levels":2,)"
                        << R"("full_workers":1,"seed":0,"depth_of_level":[2,4],"world_size":1})" << std::endl;
    for (const MakeOptimizer &optimizer : {MakeOptimizer(momentum), MakeOptimizer(adam)}) {
        jigsaw::torch::Options options;
        options.replay_log = path;
        assert_all_well(run(1, make<Dropout>, optimizer, options,
                            [](int rank, Net &net, torch::optim::Optimizer &opt, const jigsaw::torch::Options &with) {
                                auto trainer = jigsaw::torch::attach(net.modules_of_blocks(), with);
                                bool seen = false;
                                for (int t = 0; t < 12; ++t) {
                                    const auto now = trainer.begin();
                                    const Tensor before = net.parameters()[0].detach().clone();
                                    const Tensor last_before = net.parameters().back().detach().clone();
                                    trainer.backward(net.loss(now.iteration, rank));
                                    const auto synced = trainer.sync();
                                    opt.step();
                                    ck_assert(!same_bits(last_before, net.parameters().back()));
                                    ck_assert_uint_eq(now.depth, t < 3 ? 4 : 2);
                                    if (now.full())
                                        continue;
                                    seen = true;
                                    ck_assert(!(synced.defined_blocks & 1));
                                    ck_assert(!net.parameters()[0].grad().defined());
                                    ck_assert(same_bits(before, net.parameters()[0]));
                                }
                                ck_assert(seen);
                            }));
    }
    std::remove(path.c_str());
}
END_TEST

START_TEST(replicas_start_from_rank_0)
{
    int made = 0;
    const MakeNet different = [&] {
        torch::manual_seed(static_cast<std::uint64_t>(++made));
        return std::make_shared<Cnn>();
    };
    jigsaw::torch::Options options;
    options.policy = "two-level";
    Ranks ranks = train(3, different, momentum, options, 5);
    assert_all_well(ranks);
    for (const auto &net : ranks.nets)
        assert_same(net->parameters(), ranks.nets[0]->parameters(), "parameters");
}
END_TEST

/// What users do by habit must not change a bit.
START_TEST(habits_do_no_harm)
{
    jigsaw::torch::Options options;
    options.policy = "two-level";
    const Ranks plain = train(2, make<Cnn>, momentum, options, 6);
    const Ranks habits = run(2, make<Cnn>, momentum, options,
                             [](int rank, Net &net, torch::optim::Optimizer &opt, const jigsaw::torch::Options &with) {
                                 auto trainer = jigsaw::torch::attach(net.modules_of_blocks(), with);
                                 for (int t = 0; t < 6; ++t) {
                                     opt.zero_grad();
                                     const auto now = trainer.begin();
                                     opt.zero_grad();
                                     net.loss(now.iteration, rank).backward(); // not the trainer's
                                     trainer.sync();
                                     opt.step();
                                     {
                                         const auto turn = trainer.turn();
                                         const at::NoGradGuard no_grad;
                                         net.eval();
                                         net.loss(99, rank);
                                         net.train();
                                     }
                                     trainer.report(0.5, t / 6.0, NAN);
                                 }
                             });
    assert_all_well(plain);
    assert_all_well(habits);
    assert_same(plain.nets[0]->parameters(), habits.nets[0]->parameters(), "habits");
}
END_TEST

START_TEST(micro_batches_add_up)
{
    jigsaw::torch::Options options;
    assert_all_well(run(1, make<Dropout>, momentum, options,
                        [](int, Net &net, torch::optim::Optimizer &, const jigsaw::torch::Options &with) {
                            auto trainer = jigsaw::torch::attach(net.modules_of_blocks(), with);
                            trainer.begin();
                            trainer.backward(net.loss(1, 0), false);
                            trainer.backward(net.loss(2, 0), false);
                            trainer.backward(net.loss(3, 0));
                            trainer.sync();
                            const Tensor sum = net.parameters()[2].grad().clone();
                            auto plain = make<Dropout>();
                            for (const std::uint64_t t : {1, 2, 3})
                                plain->loss(t, 0).backward();
                            ck_assert(same_bits(sum, plain->parameters()[2].grad()));
                        }));
}
END_TEST

/// Its second parameter is used at even iterations only.
struct Sometimes : Net {
    Sometimes()
    {
        for (int i = 0; i < 4; ++i)
            layers.push_back(register_module("l" + std::to_string(i), nn::Linear(8, 8)));
    }
    Tensor loss(std::uint64_t iteration, int rank) override
    {
        Tensor x = at::randn({kBatch, 8}, stream(iteration, rank, 0), at::TensorOptions());
        for (auto &layer : layers)
            x = (iteration % 2 == 0 ? layer->forward(x) : x.matmul(layer->weight)).tanh();
        return x.square().mean();
    }
    std::vector<std::shared_ptr<nn::Module>> modules_of_blocks() override
    {
        return {layers[0].ptr(), layers[1].ptr(), layers[2].ptr(), layers[3].ptr()};
    }
    std::vector<nn::Linear> layers;
};

START_TEST(an_unused_parameter_has_gradient_zero)
{
    assert_all_well(run(2, make<Sometimes>, momentum, {},
                        [](int rank, Net &net, torch::optim::Optimizer &opt, const jigsaw::torch::Options &with) {
                            auto trainer = jigsaw::torch::attach(net.modules_of_blocks(), with);
                            for (int t = 0; t < 4; ++t) {
                                const auto now = trainer.begin();
                                trainer.backward(net.loss(now.iteration, rank));
                                trainer.sync();
                                const Tensor bias = net.parameters()[1].grad();
                                ck_assert(bias.defined() && (bias.abs().sum().item<double>() == 0) == (t % 2 == 1));
                                opt.step();
                            }
                        }));
}
END_TEST

START_TEST(wrong_use_says_what_to_do)
{
    struct Misuse {
        const char *says;
        std::function<void(Net &, const jigsaw::torch::Options &)> use;
    };
    const std::vector<Misuse> rows = {
        {"was backward() called",
         [](Net &net, const jigsaw::torch::Options &with) {
             auto trainer = jigsaw::torch::attach(net.modules_of_blocks(), with);
             trainer.begin();
             trainer.sync();
         }},
        {"second gradient",
         [](Net &net, const jigsaw::torch::Options &with) {
             auto trainer = jigsaw::torch::attach(net.modules_of_blocks(), with);
             trainer.begin();
             net.loss(0, 0).backward();
             net.loss(1, 0).backward();
         }},
        {"without begin()",
         [](Net &net, const jigsaw::torch::Options &with) {
             auto trainer = jigsaw::torch::attach(net.modules_of_blocks(), with);
             trainer.backward(net.loss(0, 0));
         }},
        {"no parameter of its own",
         [](Net &net, const jigsaw::torch::Options &with) {
             Blocks blocks = net.blocks();
             blocks.push_back(blocks[0]);
             jigsaw::torch::attach(blocks, with);
         }},
        {"is no leaf",
         [](Net &net, const jigsaw::torch::Options &with) {
             jigsaw::torch::attach(Blocks{{net.parameters()[0] * 2}}, with);
         }},
        {"float and double can be",
         [](Net &, const jigsaw::torch::Options &with) {
             jigsaw::torch::attach(Blocks{{at::zeros({2}, at::kHalf).requires_grad_()}}, with);
         }},
        {"policy is \"deep\"",
         [](Net &net, jigsaw::torch::Options with) {
             with.policy = "deep";
             jigsaw::torch::attach(net.modules_of_blocks(), with);
         }},
    };
    for (const Misuse &row : rows) {
        const Ranks ranks = run(1, make<Dropout>, momentum, {},
                                [&](int, Net &net, torch::optim::Optimizer &, const jigsaw::torch::Options &with) { row.use(net, with); });
        ck_assert_msg(ranks.errors[0].find(row.says) != std::string::npos, "%s: %s", row.says, ranks.errors[0].c_str());
    }
}
END_TEST

START_TEST(parameters_that_need_no_gradient_are_left_out)
{
    assert_all_well(run(1, make<Dropout>, momentum, {},
                        [](int rank, Net &net, torch::optim::Optimizer &opt, const jigsaw::torch::Options &with) {
                            net.parameters()[0].requires_grad_(false);
                            const Tensor before = net.parameters()[0].clone();
                            auto trainer = jigsaw::torch::attach(net.modules_of_blocks(), with);
                            trainer.begin();
                            trainer.backward(net.loss(0, rank));
                            trainer.sync();
                            opt.step();
                            ck_assert(!net.parameters()[0].requires_grad());
                            ck_assert(same_bits(before, net.parameters()[0]));
                        }));
}
END_TEST

START_TEST(a_resumed_run_is_the_same_run)
{
    const std::string path = "/tmp/jigsaw-test-" + std::to_string(getpid()) + ".pt";
    for (const MakeOptimizer &optimizer : {MakeOptimizer(momentum), MakeOptimizer(adam)}) {
        const Ranks whole = train(2, make<Dropout>, optimizer, {}, 8);
        assert_all_well(whole);
        Ranks first = train(2, make<Dropout>, optimizer, {}, 5);
        assert_all_well(first);
        jigsaw::torch::save_checkpoint(path, *first.nets[0], *first.optimizers[0], 5);
        const Ranks second = run(2, make<Dropout>, optimizer, {},
                                 [&](int rank, Net &net, torch::optim::Optimizer &opt, jigsaw::torch::Options with) {
                                     with.first_iteration = jigsaw::torch::load_checkpoint(path, &net, &opt);
                                     auto trainer = jigsaw::torch::attach(net.modules_of_blocks(), with);
                                     for (int t = 5; t < 8; ++t) {
                                         const auto now = trainer.begin();
                                         ck_assert_uint_eq(now.iteration, static_cast<unsigned>(t));
                                         trainer.backward(net.loss(now.iteration, rank));
                                         trainer.sync();
                                         opt.step();
                                     }
                                 });
        assert_all_well(second);
        assert_same(whole.nets[0]->parameters(), second.nets[0]->parameters(), "resumed");
    }
    std::remove(path.c_str());
}
END_TEST

START_TEST(a_failing_rank_ends_the_others_with_its_name)
{
    const Ranks ranks = run(3, make<Dropout>, momentum, {},
                            [](int rank, Net &net, torch::optim::Optimizer &opt, const jigsaw::torch::Options &with) {
                                auto trainer = jigsaw::torch::attach(net.modules_of_blocks(), with);
                                for (int t = 0; t < 6; ++t) {
                                    const auto now = trainer.begin();
                                    trainer.backward(net.loss(now.iteration, rank));
                                    if (rank == 1 && t == 3)
                                        throw std::runtime_error("out of memory");
                                    trainer.sync();
                                    opt.step();
                                }
                            });
    for (const std::size_t r : {0, 2})
        ck_assert_msg(ranks.errors[r].find("rank 1") != std::string::npos, "rank %zu: %s", r, ranks.errors[r].c_str());
}
END_TEST

} // namespace

int main()
{
    at::set_num_threads(1);
    Suite *suite = suite_create("torch");
    jigsaw::tests::add_case(suite, "reference",
                            {full_depth_is_plain_data_parallel_training, partial_depth_is_the_serial_reference,
                             nccl_is_the_serial_reference,
                             a_block_without_gradient_does_not_move, replicas_start_from_rank_0});
    jigsaw::tests::add_case(suite, "use",
                            {all_ranks_skip_a_step_that_is_not_finite, a_rank_that_skips_alone_is_found,
                             clipping_is_by_the_norm_of_the_means, habits_do_no_harm, micro_batches_add_up, an_unused_parameter_has_gradient_zero,
                             wrong_use_says_what_to_do, parameters_that_need_no_gradient_are_left_out,
                             a_resumed_run_is_the_same_run, a_failing_rank_ends_the_others_with_its_name});
    return jigsaw::tests::run_tap(suite);
}
